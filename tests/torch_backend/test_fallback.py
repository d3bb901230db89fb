"""Calls that the emulator does not do, on gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun

import ahbm.torch
from ahbm.errors import ConfigError, RankError, UnsupportedError

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
SCRIPT = """
import torch, torch.distributed as dist
from ahbm.torch import tensors
del tensors.NAMES[torch.int32]  # as if it were a type that no kernel computes with
dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(2):
    x = torch.full((3,), 1 + rank, dtype=torch.int32)
    dist.all_reduce(x)
    assert x.tolist() == [3, 3, 3]
s = torch.ones(3).to_sparse()
dist.all_reduce(s)
assert s.to_dense().tolist() == [2.0, 2.0, 2.0]
try:
    dist.all_reduce(s, dist.ReduceOp.MAX)
except RuntimeError as error:
    assert "only works with ReduceOp.SUM" in str(error) and "Gloo" in str(error)
y = torch.ones(4)
dist.all_reduce(y)
assert y.sum() == 8
try:
    dist.all_reduce(x if rank == 0 else y)
except Exception as error:
    print(f"{rank}: {error}")
"""


def test_calls_that_no_kernel_makes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = torchrun(script, 2, module="ahbm.torch", AHBM_FALLBACK="gloo", AHBM_REPORT="-")
    assert done.returncode == 0, done.stderr
    told = "ahbm: allreduce is left to gloo, and its time not simulated: AHBM-U151 SUM is not defined on torch.int32"
    assert done.stderr.count(told) == 1
    rows = {
        line.split()[0]: line.split()[1:4] for line in done.stderr.splitlines() if line.startswith(("all_", "barr"))
    }
    assert rows == {"all_gather": ["2", "3", "120"], "all_reduce": ["2", "1", "16"], "barrier": ["2", "3", "6"]}
    # One rank alone cannot choose gloo.
    for rank in (0, 1):
        assert f"{rank}: AHBM-X110 " in done.stdout and "the ranks disagree on collective" in done.stdout


def sparse() -> None:
    dist.init_process_group("ahbm")
    dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX)


@pytest.mark.parametrize("asked", ["", "gloo"])
def test_what_is_not_left_to_gloo(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Neither without being asked, nor among ranks that take turns, which cannot wait for each other in gloo."""
    monkeypatch.setenv("AHBM_FALLBACK", asked)
    with pytest.raises((UnsupportedError, RankError), match="AHBM-U151"):
        ahbm.torch.spawn(sparse, overrides=SMALL)


def test_an_unknown_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHBM_FALLBACK", "mpi")
    with pytest.raises((ConfigError, RankError), match="AHBM-C127"):
        ahbm.torch.spawn(sparse, overrides=SMALL)
