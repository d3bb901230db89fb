"""Training jobs give gloo's losses, in processes and in threads."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch.distributed as dist
from jobs import torchrun
from training import KINDS

import ahbm.torch

TRAINING = Path(__file__).parent / "training.py"


@functools.cache
def losses(backend: str, ranks: int) -> dict[str, list[float]]:
    done = torchrun(TRAINING, ranks, backend)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes(ranks: int) -> None:
    ours, theirs = losses("ahbm", ranks), losses("gloo", ranks)
    for kind, expected in theirs.items():
        # The sum of two numbers does not depend on their order.
        assert ours[kind] == (expected if ranks == 2 else pytest.approx(expected, rel=1e-4)), kind
        assert len(expected) == 5 and len(set(expected)) == 5


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_threads(kind: str, ranks: int) -> None:
    def worker() -> list[float]:
        dist.init_process_group("ahbm")
        return KINDS[kind]()

    ours = ahbm.torch.spawn(worker, world_size=ranks)
    assert ours[0] == pytest.approx(losses("gloo", ranks)[kind], rel=1e-4)
