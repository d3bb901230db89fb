"""The `ahbm` command, run as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ahbm

SMALL = ["--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--set", "cube.pe_layout.corners=1"]


def call(*args: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    environment |= {"NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "ahbm", *args]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_version_and_help(tmp_path: Path) -> None:
    assert call("--version", cwd=tmp_path)[0] == f"ahbm {ahbm.__version__}\n"
    for command in ([], ["run"], ["bench"], ["probe"], ["list"], ["topology"], ["new"]):
        assert "Usage" in call(*command, "--help", cwd=tmp_path)[0]


def test_help_imports_little(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['ahbm', '--help']\n"
        "from ahbm.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'ahbm._core'} & set(sys.modules), 'loaded too much'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


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
