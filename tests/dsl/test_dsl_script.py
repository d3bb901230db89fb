"""Scripts: what they lower, what is wrong with them and where, and what they leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ahbm.dsl.script import UPSTREAM, Script, imports_language
from ahbm.dsl.variation import parse_ranges, varied
from ahbm.errors import ConfigError, ProgramError
from support.commands import apart
from support.scripts import EXCHANGE, exchange, script


def test_a_script_is_run_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exchange(tmp_path)
    (program,) = Script(path, ("--ranks", "3")).lower()
    assert (program.name, program.language, program.plan.ranks) == ("exchange", "mscclpp", 3)
    assert program.text.startswith("{") and capsys.readouterr().out == ""
    assert sys.argv[0] != path and str(tmp_path) not in sys.path


def test_one_of_several_programs_is_chosen(tmp_path: Path) -> None:
    text = "from mscclpp.language import *\nfor n in (2, 3):\n"
    body = "with CollectiveProgram(f'p{n}', AllGather(n, 1, True), n):\n    print(JSON())\n"
    path = script(tmp_path, text + "".join(f"    {line}\n" for line in body.splitlines()))
    assert [program.name for program in Script(path).lower()] == ["p2", "p3"]
    chosen = [Script(path, program=wanted).chosen().name for wanted in (None, "p2", "0", "1")]
    assert chosen == ["p3", "p2", "p2", "p3"]
    for wanted in ("p4", "2"):
        with pytest.raises(ConfigError, match=r"AHBM-C176.*\n.*p2, p3"):
            Script(path, program=wanted).chosen()


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("1 / 0", "AHBM-A301", "ZeroDivisionError"),
        ("raise SystemExit(3)", "AHBM-A302", "exit status 3"),
        ("raise SystemExit('no')", "AHBM-A302", "exit status 1: no"),
        ("import mscclpp.nothing", "AHBM-A301", "ModuleNotFoundError"),
        ("Rank(0)", "AHBM-A101", ""),
        ("def f(:", "AHBM-A301", "SyntaxError"),
    ],
)
def test_what_is_wrong_is_told_with_the_line(tmp_path: Path, line: str, code: str, words: str) -> None:
    path = script(tmp_path, f"from mscclpp.language import *\n\n{line}\n")
    with pytest.raises(ProgramError, match=words) as caught:
        Script(path).lower()
    assert (caught.value.code, caught.value.exit_code) == (code, 16)
    assert any(site.origin == "script.py:3" for site in caught.value.sites)


@pytest.mark.parametrize("line", ["", "raise SystemExit", "raise SystemExit(0)"])
def test_a_script_that_lowers_nothing(tmp_path: Path, line: str) -> None:
    path = script(tmp_path, f"import mscclpp.language\nprint('hello')\n{line}\n")
    with pytest.raises(ProgramError, match="AHBM-A303"):
        Script(path).lower()
    assert Script(path).outcome().printed == "hello\n"


def test_a_change_of_the_script_or_of_its_modules_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "names.py"
    path = script(
        tmp_path,
        EXCHANGE.replace('"exchange"', "NAME").replace("import argparse", "from names import NAME\nimport argparse"),
    )
    for name in ("first", "second"):
        module.write_text(f"NAME = {name!r}  # {'x' * len(name)}\n", encoding="utf-8")
        assert Script(path).chosen().name == name
        assert Script(path).lower() is Script(path).lower()
    assert "names" not in sys.modules


def test_scripts_of_one_name_for_their_modules_do_not_meet(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper.py").write_text(f"NAME = {folder!r}", encoding="utf-8")
        text = EXCHANGE.replace('"exchange"', "NAME").replace(
            "import argparse", "from helper import NAME\nimport argparse"
        )
        assert Script(script(tmp_path / folder, text)).chosen().name == folder


def test_modules_of_an_environment_in_the_folder_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "venv/lib"
    library.mkdir(parents=True)
    (library / "installed_there.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(library))
    Script(script(tmp_path, f"import installed_there\n{EXCHANGE}")).lower()
    assert sys.modules.pop("installed_there").__name__ == "installed_there"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import mscclpp", True),
        ("from mscclpp.language.rank import *", True),
        ("def f():\n    from msccl.language import *", True),
        ("from ahbm.dsl.mscclpp import Rank", True),
        ("from ahbm.dsl import msccl", True),
        ("import torch", False),
        ("from . import mscclpp", False),
        ("import mscclppish", False),
        ("syntax error", False),
        ("x = '\0'", False),
    ],
)
def test_a_language_is_recognised_without_running_the_file(tmp_path: Path, text: str, found: bool) -> None:
    assert imports_language(script(tmp_path, text)) is found
    assert not imports_language(script(tmp_path, text, "script.txt"))
    assert not imports_language(tmp_path / "missing.py")


def test_the_installed_front_end_gives_its_text(tmp_path: Path) -> None:
    plan = Script(exchange(tmp_path)).chosen().text
    xml = (
        '<algo name="pair" nchunksperloop="1" ngpus="1" coll="broadcast" inplace="1" outofplace="0">'
        '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"></gpu></algo>'
    )
    path = script(tmp_path, f"print('about')\nprint({plan!r})\nprint({xml!r})\n", "printing.py")
    found = Script(path, frontend=UPSTREAM).lower()
    assert sorted((one.language, one.plan.ranks) for one in found) == [("msccl", 1), ("mscclpp", 2)]


def test_the_module_prints_what_the_script_prints_and_nothing_else(tmp_path: Path) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return apart(["-m", "ahbm.dsl", *args], tmp_path)

    path = exchange(tmp_path)
    printed = run(path, "--ranks", "3")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == Script(path, ("--ranks", "3")).chosen().text + "\n"
    broken = run(script(tmp_path, "from mscclpp.language import *\nRank(0)\n", "broken.py"))
    assert (broken.returncode, broken.stdout) == (16, "")
    assert "broken.py:2" in broken.stderr


def test_values_are_put_in_the_place_of_arguments() -> None:
    ranges = parse_ranges(["instances=1,2", "ranks=4", "instances=2,8"])
    assert ranges == {"instances": ["1", "2", "8"], "ranks": ["4"]}
    found = dict(varied(Script("p.py", ("{ranks}", "--instances", "3", "x", "--instances=5")), ranges))
    assert {name: one.args for name, one in found.items()} == {
        f"instances={n},ranks=4": ("4", "x", "--instances", n) for n in ("1", "2", "8")
    }
    assert list(varied(Script("p.py"), {})) == [("", Script("p.py"))]


@pytest.mark.parametrize("text", ["", "=1", "a", "a=", "a=1,", "a b=1"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="AHBM-C177"):
        parse_ranges([text])


def test_too_many_variations() -> None:
    many = {name: [str(n) for n in range(20)] for name in "abc"}
    with pytest.raises(ConfigError, match="AHBM-C177"):
        list(varied(Script("p.py"), many))
