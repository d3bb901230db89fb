"""Scripts that lower programs, from the command line: which arguments are whose, and what becomes of the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.dsl.script import Script
from support.commands import run
from support.scripts import exchange, script


@pytest.fixture
def path(tmp_path: Path) -> str:
    return Path(exchange(tmp_path)).name


def ahbm(tmp_path: Path, *args: str, tame: bool = True) -> tuple[int, str]:
    code, out, err = run("ahbm", list(args), tmp_path, tame)
    return code, out + err


def test_a_program_is_checked_at_its_own_lines(tmp_path: Path, path: str) -> None:
    code, out = ahbm(tmp_path, "check", path, "--ranks", "3")
    assert (code, out.split(" (")[0]) == (0, "exchange.py: correct")
    code, out = ahbm(tmp_path, "check", path, "--forget", "--json")
    found = json.loads(out)
    assert (code, found["verdict"]) == (8, "wrong")
    origins = [origin for finding in found["findings"] for origin in finding["origins"]]
    assert origins and all(origin.startswith("exchange.py:") for origin in origins)


def test_options_of_the_command_may_stand_behind_the_script(tmp_path: Path, path: str) -> None:
    before = ahbm(tmp_path, "run", "--size", "64K", path, "--ranks", "4")
    behind = ahbm(tmp_path, "run", path, "--ranks", "4", "--size", "64K")
    assert before == behind
    assert before[0] == 0 and "4 x 65536 B" in before[1]


def test_instances_are_the_programs(tmp_path: Path, path: str) -> None:
    code, out = ahbm(tmp_path, "convert", path, "--instances", "3", "-o", "plan.json")
    assert code == 0, out
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert [len(gpu["threadblocks"]) for gpu in plan["gpus"]] == [3, 3]


def test_what_follows_two_dashes_is_the_programs(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nimport mscclpp.language\nprint(sys.argv[1:])\n", "echo.py")
    assert ahbm(tmp_path, "run", "echo.py", "a", "--size", "1K", "--", "--size", "2K")[1] == "['a', '--size', '2K']\n"


@pytest.mark.slow
def test_in_its_own_format_the_plan_is_what_the_compiler_writes(tmp_path: Path, path: str) -> None:
    assert ahbm(tmp_path, "convert", path, "plan.json")[0] == 3, "the script's argument is no output"
    assert ahbm(tmp_path, "convert", path, "-o", "plan.json")[0] == 0
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    assert text == Script(str(tmp_path / path)).chosen().text
    for other in ("plan.xml", "plan.et"):
        code, out = ahbm(tmp_path, "convert", path, "-o", other)
        assert code == 0, out
        assert ahbm(tmp_path, "check", other)[0] == 0
    assert ahbm(tmp_path, "convert", path)[0] == 3


@pytest.mark.slow
def test_a_program_is_explained_and_swept(tmp_path: Path, path: str) -> None:
    code, out = ahbm(tmp_path, "explain", path, "--size", "64K")
    assert code == 0 and "exchange.py:" in out
    code, out = ahbm(tmp_path, "bench", path, "-b", "100", "-e", "1K")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert code == 0 and [int(row[0]) for row in rows] == [96, 192, 384, 800]
    code, out = ahbm(tmp_path, "report", path, "-b", "1K", "-e", "4K", "-o", "page.html")
    assert code == 0, out


@pytest.mark.slow
def test_the_quickest_variation_is_found_and_written(tmp_path: Path, path: str) -> None:
    sweep = ["bench", path, "--vary", "instances=1,2", "-b", "4K", "-e", "64K"]
    code, out = ahbm(tmp_path, *sweep, "--ladder", "ladder.yaml")
    assert code == 0, out
    assert "exchange,instances=1" in out and "exchange,instances=2" in out
    chosen = ahbm(tmp_path, "run", "all_gather", "--ccl", "ladder.yaml", "--size", "64K")
    assert chosen[0] == 0 and "by exchange,instances=" in chosen[1]
    code, out = ahbm(tmp_path, "bench", path, "--vary", "ranks=2,3")
    assert code == 3 and "AHBM-C178" in out
    assert ahbm(tmp_path, "bench", "all_gather", "--vary", "ranks=2")[0] == 3


@pytest.mark.slow
def test_all_programs_are_checked_and_one_is_run(tmp_path: Path) -> None:
    body = "with CollectiveProgram(f'p{n}', AllGather(n, 1, True), n):\n        print(JSON())\n"
    script(tmp_path, f"from mscclpp.language import *\nfor n in (2, 3):\n    {body}", "two.py")
    code, out = ahbm(tmp_path, "check", "two.py")
    assert code == 8
    assert [line.split(" (")[0] for line in out.splitlines() if line.startswith("two.py")] == [
        "two.py: p2: wrong",
        "two.py: p3: wrong",
    ]
    code, out = ahbm(tmp_path, "check", "two.py", "--program", "p3")
    assert out.startswith("two.py: p3: wrong")
    assert "all_gather by two" in ahbm(tmp_path, "run", "two.py", "--program", "0", "--size", "64", "--no-data")[1]


@pytest.mark.slow
def test_what_a_program_raises_is_the_verdict(tmp_path: Path) -> None:
    script(tmp_path, "from mscclpp.language import *\nRank(0)\n", "outside.py")
    code, out = ahbm(tmp_path, "check", "outside.py")
    assert code == 13 and "outside.py: malformed" in out and "[outside.py:2]" in out
    code, out = ahbm(tmp_path, "run", "outside.py", "--size", "1K")
    assert code == 16 and "[outside.py:2]" in out


def test_entries_of_ccl_yaml_run_scripts(tmp_path: Path, path: str) -> None:
    (tmp_path / "ccl.yaml").write_text(
        f"algorithms:\n  mine: {{dsl: {path}, args: [--ranks, 3], world_size: 3}}\n"
        f"  text: {{dsl: {path}, args: --ranks 3 --instances 2, world_size: 3}}\n"
        "collectives: {all_gather: mine}\n",
        encoding="utf-8",
    )
    machine = ["--set", "system.sips.count=3"]
    code, out = ahbm(tmp_path, "run", "all_gather", "--size", "48K", *machine)
    assert code == 0 and "by mine" in out
    code, out = ahbm(tmp_path, "run", "all_gather", "-a", "text", "--size", "48K", *machine, "--check", "all")
    assert code == 0 and "by text" in out
    assert "mine" in ahbm(tmp_path, "list", "algorithms")[1]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{dsl: missing.py}", "C110"),
        ("{dsl: 3}", "C103"),
        ("{dsl: a.py, args: {a: 1}}", "C103"),
        ("{dsl: a.py, frontend: mine}", "C103"),
        ("{dsl: a.py, turns: 2}", "C108"),
        ("{plan: a.xml, args: [1]}", "C103"),
    ],
)
def test_entries_that_are_none(tmp_path: Path, entry: str, words: str) -> None:
    (tmp_path / "ccl.yaml").write_text(f"algorithms:\n  mine: {entry}\n", encoding="utf-8")
    code, out = ahbm(tmp_path, "run", "all_gather", "-a", "mine", "--size", "4K")
    assert code == 3 and words in out


HALF = """\
from msccl.language import *
from msccl.language.collectives import AllReduce
from msccl.topologies import fully_connected

with MSCCLProgram("half", fully_connected(2), AllReduce(2, 1, True), 1):
    chunk(0, Buffer.input, 0).reduce(chunk(1, Buffer.input, 0))
    XML()
    Check()
"""


@pytest.mark.slow
def test_the_module_of_an_algorithm_is_named_with_a(tmp_path: Path) -> None:
    kernel = "def kernel_args(w, n, *, cube_w=4, cube_h=4):\n    return ()\n\n\n"
    kernel += "def mine(t_ptr, r, k, w, h, *, tl):\n    pass\n"
    typed = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import numpy\n\n"
    (tmp_path / "mine.py").write_text(f'"""Mine."""\n\n{typed}{kernel}\n\nkernel = mine\n', encoding="utf-8")
    (tmp_path / "main.py").write_text(f"{kernel}\n\nkernel = mine\nprint('it runs')\n", encoding="utf-8")
    for command in ("run", "check", "explain", "inspect", "bench", "explore", "report", "ladder"):
        code, _, err = run("ahbm", [command, "mine.py"], tmp_path)
        assert code == 3 and "AHBM-C144" in err and "ahbm run all_reduce -a mine.py" in err, command
    assert run("ahbm", ["run", "main.py"], tmp_path)[:2] == (0, "it runs\n")


def test_what_a_program_finds_wrong_with_itself_is_told_at_its_line(tmp_path: Path) -> None:
    script(tmp_path, HALF, "half.py")
    code, out = ahbm(tmp_path, "check", "half.py")
    assert code == 8 and out.startswith("half.py: wrong (msccl_xml")
    assert "AHBM-A209" in out and "[half.py:8]" in out and "AHBM-V401" in out
    done = run("python", ["-m", "ahbm.dsl", "half.py"], tmp_path)
    assert (done[0], done[1].startswith("<algo")) == (8, True), done[2]
    assert "AHBM-A209" in done[2] and "half.py:8" in done[2] and "AHBM-V401" in done[2]
    assert run("python", ["-m", "ahbm.dsl", "--quirks", "half.py"], tmp_path)[::2] == (0, "")
