"""Recipes of docs/sweeps.md for what a page cannot start: run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ahbm
import ahbm.errors
from ahbm.table.store import Store
from support.commands import environment

PAGE = Path(__file__).resolve().parents[2] / "docs/sweeps.md"
SCRIPT = """import ahbm
from ahbm.sweeps.clusters import RayExecutor

if __name__ == "__main__":
    ahbm.sweep("space.yaml", executor=RayExecutor, jobs=2, store="rows")
"""
SPACE = "{algorithms: [ring_allreduce, tree_allreduce], topologies: npu_ring_8, sizes: [1K, 64K], data: false}"


@pytest.mark.slow
def test_mpi(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    start = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if start is None:
        pytest.skip("there is no mpiexec")
    (script,) = re.findall(r"```text\n(import ahbm\nfrom mpi4py.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "space.yaml").write_text(SPACE)
    command = [start, "-n", "3", sys.executable, "-m", "mpi4py.futures", "script.py"]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True, timeout=120)
    stored = ahbm.sweep(tmp_path / "space.yaml", store=tmp_path / "rows")
    assert stored.csv() == ahbm.sweep(tmp_path / "space.yaml").csv()
    assert len(list((tmp_path / "rows/parts").iterdir())) > 0


@pytest.mark.slow
def test_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment(), check=True, timeout=300)
    stored = ahbm.sweep(tmp_path / "space.yaml", store=tmp_path / "rows")
    assert stored.csv() == ahbm.sweep(tmp_path / "space.yaml").csv()
    assert len(list((tmp_path / "rows/parts").iterdir())) > 0


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from ahbm.sweeps.clusters import RayExecutor

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ahbm.errors.UnsupportedError, match="AHBM-U145 ray is not installed"):
        RayExecutor()


@pytest.mark.slow
def test_an_array_of_tasks_needs_no_coordinator(tmp_path: Path) -> None:
    """As Slurm and MPI start tasks: each has the space, its range and the store, and no other."""
    (tmp_path / "space.yaml").write_text(SPACE)
    for number in ("2", "3", "1"):
        command = [
            sys.executable,
            "-m",
            "ahbm",
            "sweep",
            "space.yaml",
            "--range",
            f"{number}/3",
            "-o",
            "rows",
            "-j",
            "1",
        ]
        subprocess.run(command, cwd=tmp_path, env=environment(), check=True, timeout=100, capture_output=True)
    stored = ahbm.sweep(tmp_path / "space.yaml", store=tmp_path / "rows")
    assert stored.csv() == ahbm.sweep(tmp_path / "space.yaml").csv()
    keys = [row["key"] for row in Store(tmp_path / "rows").rows()]
    assert len(keys) == len(set(keys)) == 4 and Store(tmp_path / "rows").unfinished() is None
