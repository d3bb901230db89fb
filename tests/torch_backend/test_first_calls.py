"""The first call of a shape behind torch, among threads and among processes: nothing is wrong in silence."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun

import ahbm.torch
from ahbm.errors import DataError, ProgramWarning
from planted import values

SMALL = {"system.sips.count": 2, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
JOB = """
import sys, warnings, torch, torch.distributed as dist
dist.init_process_group("ahbm", pg_options={"algorithm": sys.argv[1], "overrides": {SMALL}})
x = torch.full((8,), -1.0)
try:
    dist.all_reduce(x)
    print("rank", dist.get_rank(), "ends with", x.tolist(), flush=True)
except Exception as error:
    print("rank", dist.get_rank(), "got", type(error).__name__, error, flush=True)
"""


def kernel(folder: Path, name: str) -> str:
    return next(path for one, path, _ in values.cases(folder) if one.name == name)


def reduced(rank: int, path: str, check: str | None) -> list[float]:
    dist.init_process_group("ahbm", pg_options={"algorithm": path, "check": check})
    x = torch.full((8,), -1.0)
    dist.all_reduce(x)
    return x.tolist()


def test_threads(tmp_path: Path) -> None:
    wrong, open_ = kernel(tmp_path, "negative sums are 0"), kernel(tmp_path, "bounds that no number exceeds")
    with pytest.raises(DataError, match="AHBM-V301"):
        ahbm.torch.spawn(reduced, (wrong, None), world_size=2, overrides=SMALL)
    with pytest.warns(ProgramWarning, match="AHBM-U290"):
        assert ahbm.torch.spawn(reduced, (open_, None), world_size=2, overrides=SMALL)[1] == [-2.0] * 8
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProgramWarning)
        assert ahbm.torch.spawn(reduced, (wrong, "none"), world_size=2, overrides=SMALL)[0] == [0.0] * 8


def test_processes(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB.replace("{SMALL}", repr(SMALL)), encoding="utf-8")
    found = torchrun(script, 2, kernel(tmp_path, "negative sums are 0"))
    for rank in range(2):
        assert f"rank {rank} got DataError AHBM-V301" in found.stdout, found.stdout + found.stderr
    found = torchrun(script, 2, kernel(tmp_path, "bounds that no number exceeds"))
    assert found.stdout.count(f"ends with {[-2.0] * 8}") == 2, found.stdout + found.stderr
    assert found.stderr.count("AHBM-U290") == 1


def test_one_rank_of_many_compares_numbers_of_all(tmp_path: Path) -> None:
    wrong = kernel(tmp_path, "negative sums are 0")
    ahbm.torch.init_alone(rank=0, world_size=2, algorithm=wrong, overrides=SMALL)
    try:
        with pytest.raises(DataError, match="AHBM-V301"):
            dist.all_reduce(torch.ones(8))
        with pytest.warns(ProgramWarning, match=r"numbers were not compared: .* where no data move"):
            dist.all_reduce(torch.ones(1 << 25, device="meta"))
    finally:
        dist.destroy_process_group()
