"""The `ahbm` command, run as users run it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ahbm
from support.commands import environment, run

SMALL = ["--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--set", "cube.pe_layout.corners=1"]


def call(*args: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    found, out, err = run("ahbm", list(args), cwd)
    assert found == code, out + err
    return out, err


def test_a_process_of_its_own_prints_and_exits_alike(tmp_path: Path) -> None:
    for args in (["--version"], ["run", "all_reduce", "--json", "-t", "moebius"]):
        done = subprocess.run(
            [sys.executable, "-m", "ahbm", *args],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == run("ahbm", args, tmp_path)


def test_version_and_help(tmp_path: Path) -> None:
    assert call("--version", cwd=tmp_path)[0] == f"ahbm {ahbm.__version__}\n"
    for command in ([], ["run"], ["bench"], ["probe"], ["list"], ["topology"], ["init"], ["new"]):
        assert "Usage" in call(*command, "--help", cwd=tmp_path)[0]


def test_memory_that_runs_out_is_an_error_of_ahbm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ahbm.config.topology.load_machine", load)
    _, err = call("topology", cwd=tmp_path, code=9)
    assert "AHBM-B301 the data do not fit: no memory is left, this process may have" in err


def test_help_imports_little(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['ahbm', '--help']\n"
        "from ahbm.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'ahbm._core'} & set(sys.modules), 'loaded too much'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def test_a_broken_module_is_a_row_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "algorithms"
    folder.mkdir()
    (folder / "mine.py").write_text("COLLECTIVE = 'all_gather'\n", encoding="utf-8")
    broken = {
        "syntax": b"def kernel(:",
        "bytes": b"\xff\xfe\x00",
        "zero": b"x = '\x00'",
        "deep": b"x = " + b"(" * 500 + b")" * 500,
        "deeper": b"x = " + b"-" * 200_000 + b"1",
        "name": b"COLLECTIVE = 4",
        "coding": b"# coding: klingon\n",
    }
    for name, content in broken.items():
        (folder / f"{name}.py").write_bytes(content)
    (folder / "folder.py").mkdir()
    (folder / "gone.py").symlink_to("nowhere.py")
    text, _ = call("list", "algorithms", cwd=tmp_path)
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in text.splitlines() if len(line.split()) > 2}
    assert rows["mine"][1].strip() == "algorithms/mine.py" and rows["ring_allreduce"][1].strip() == "packaged"
    for name in broken:
        assert rows[name][1].startswith("AHBM-C") and f"algorithm {name}" in rows[name][1], name
    found = json.loads(call("list", "--json", cwd=tmp_path)[0])
    assert len(found["algorithms"]) == len(rows) - 1 and found["topologies"]


def test_list(tmp_path: Path) -> None:
    text, _ = call("list", cwd=tmp_path)
    assert "ring_allreduce" in text and "torus_2d" in text and "all_to_all" in text
    found = json.loads(call("list", "algorithms", "--json", cwd=tmp_path)[0])
    assert {"algorithm", "collective", "source"} == set(found["algorithms"][0])
    assert "AHBM-C145" in call("list", "planets", cwd=tmp_path, code=3)[1]


def test_run_of_a_collective(tmp_path: Path) -> None:
    args = ["run", "all_reduce", "-a", "ring_allreduce", "--bytes", "4K", *SMALL]
    text, _ = call(*args, cwd=tmp_path)
    assert "all_reduce by ring_allreduce" in text and "0 wrong" in text
    report = ahbm.Report.from_json(call(*args, "--json", cwd=tmp_path)[0])
    assert report.bytes == 4096 and report.wrong == 0 and report.latency_ns > 0
    assert report == ahbm.Report.from_json(call(*args, "--json", cwd=tmp_path)[0])


SCRIPT = """\
import sys
import numpy as np
import ahbm
import ahbm.distributed as dist

def worker(rank, scale):
    dist.init_process_group(backend="ahbm")
    x = np.full(100, scale, np.float32)
    dist.all_reduce(x)
    return x[0], dist.stats()[0].algorithm

print(sys.argv[1:], ahbm.spawn(worker, (float(sys.argv[1]),)))
"""


def test_run_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--set", "system.sips.count=3", "-a", "tree_allreduce"]
    text, _ = call("run", *options, "train.py", "2.5", "--flag", cwd=tmp_path)
    assert text.startswith("['2.5', '--flag']") and text.count("7.5") == 3 and text.count("tree_allreduce") == 3


@pytest.mark.slow
def test_errors_become_text_json_and_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(SCRIPT.replace("dist.all_reduce(x)", "dist.all_reduce(x[rank:])"))
    _, error = call("run", "broken.py", "1", cwd=tmp_path, code=11)
    assert "AHBM-X110" in error and "rank 0: shape (100,)  [broken.py:9]" in error and "hint:" in error
    _, error = call("run", "all_reduce", "--json", "-t", "moebius", cwd=tmp_path, code=4)
    found = json.loads(error)
    assert found["exit_code"] == 4 and found["findings"][0]["code"] == "AHBM-T101"
    assert "AHBM-C142" in call("probe", "--set", "nonsense", cwd=tmp_path, code=3)[1]
    assert "AHBM-C144" in call("run", "missing.py", cwd=tmp_path, code=3)[1]


def test_a_failing_rank_is_shown_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(SCRIPT.replace("    x =", "    1 / rank\n    x ="))
    _, error = call("run", "broken.py", "1", cwd=tmp_path, code=11)
    assert "RankError: AHBM-X120 rank 0 failed: ZeroDivisionError" in error and "[broken.py:8]" in error


def test_topology(tmp_path: Path) -> None:
    text, _ = call("topology", "--svg", "machine.svg", cwd=tmp_path)
    assert text.strip() and (tmp_path / "machine.svg").read_text().lstrip().startswith("<")
    call("topology", "switch", "--set", "system.sips.count=5", cwd=tmp_path)
    assert "AHBM-C141" in call("topology", "--svg", "no/such/folder.svg", cwd=tmp_path, code=3)[1]


def test_new_algorithm_runs(tmp_path: Path) -> None:
    text, _ = call("new", "mine", cwd=tmp_path)
    assert text.count("wrote") == 3
    text, _ = call("bench", "all_reduce", "-a", "mine", "-b", "1K", "-e", "1K", *SMALL, cwd=tmp_path)
    assert "# algorithm mine" in text and "# Out of bounds values : 0 OK" in text
    call("new", "mine", cwd=tmp_path, code=3)


@pytest.mark.parametrize("args", [["probe"], ["bench", "all_reduce", "-b", "1K", "-e", "2K"]])
def test_json_output(args: list[str], tmp_path: Path) -> None:
    assert json.loads(call(*args, "--json", *SMALL, cwd=tmp_path)[0])


def test_what_is_no_script_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(b"{}"))
    assert "AHBM-U291" in call("run", "trace.json.gz", cwd=tmp_path, code=10)[1]
    (tmp_path / "table.tsv").write_text("a;b c\n1;2 3\n", encoding="utf-8")
    assert "AHBM-C144" in call("run", "table.tsv", cwd=tmp_path, code=3)[1]
    (tmp_path / "script").write_text("print('ran')\n", encoding="utf-8")
    assert call("run", "script", cwd=tmp_path)[0] == "ran\n"


def test_probe_of_a_machine_where_nothing_inside_costs_anything(tmp_path: Path) -> None:
    samples = json.loads(call("probe", "-t", "npu_ring_8", "--json", cwd=tmp_path)[0])
    assert None in {sample["bandwidth_gbs"] for sample in samples}
    assert call("probe", "-t", "npu_ring_8", cwd=tmp_path)[0]


def test_a_list_executes_nothing_and_survives_what_is_broken(tmp_path: Path) -> None:
    folder = tmp_path / "algorithms"
    folder.mkdir()
    (folder / "mine.py").write_text("COLLECTIVE = ('broadcast', 'reduce')\nraise SystemExit('executed')\n")
    (folder / "broken.py").write_text("def kernel(:\n")
    (tmp_path / "plan.xml").write_text("<algo")
    (tmp_path / "ccl.yaml").write_text("algorithms:\n  planned: {plan: plan.xml}\n  gone: {module: ./gone.py}\n")
    rows = json.loads(call("list", "algorithms", "--json", cwd=tmp_path)[0])["algorithms"]
    told = {row["algorithm"]: (row["collective"], row["source"]) for row in rows}
    assert told["mine"] == ("broadcast, reduce", str(folder / "mine.py"))
    assert told["ring_all_gather"][0] == "all_gather" and told["ring_allreduce"][0] == "all_reduce"
    for name, code in (("broken", "AHBM-C111"), ("gone", "AHBM-C110"), ("planned", "AHBM-F")):
        assert told[name][0] == "-" and told[name][1].startswith(code)


def test_a_command_loads_no_other() -> None:
    code = "import sys; sys.argv[1:] = ['list', 'topologies']\nfrom ahbm.cli import main\nmain()\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("main()\n", "try: main()\nexcept SystemExit: pass\n")],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "ahbm.cli.listing" in loaded
    assert "ahbm.cli.bench" not in loaded
