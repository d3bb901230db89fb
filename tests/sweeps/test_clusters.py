"""Recipes of docs/sweeps.md for what a page cannot start: run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ahbm
from support.commands import environment

PAGE = Path(__file__).resolve().parents[2] / "docs/sweeps.md"
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
