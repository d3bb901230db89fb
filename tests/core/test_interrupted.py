"""Ctrl-C ends a native call within half a second, wherever the call is, with KeyboardInterrupt."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ahbm._core import Limit, Schedule
from ahbm.check.case import Case
from ahbm.check.checks import examine
from ahbm.check.reference import inputs
from ahbm.config.topology import load_machine
from ahbm.runs.measure import prepare

GIVEN_S = 3.0
"""Half a second is promised; a busy machine may take longer. Each call here takes at least twice as long."""

LONG = """
COLLECTIVE = "barrier"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return ()


def kernel(t_ptr, *rest, tl):
    x = tl.zeros((1 << 18,), "f32")
    for _ in range(12_000):
        x = tl.exp(x)
"""


def replay(folder: Path) -> Callable[[], object]:
    (folder / "long.py").write_text(LONG)
    case = prepare("barrier", str(folder / "long.py"), "npu_ring_8", overrides={"system.sips.count": 2})
    given = inputs(case.request, "integers", 0)
    return lambda: case.execute(given)


def ring() -> Case:
    machine = {"system.sips.count": 256}
    return prepare("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1 << 14, overrides=machine)


def check(folder: Path) -> Callable[[], object]:
    case = ring()
    compiled = case.compiled()
    return lambda: examine(case, compiled, frozenset({"race", "result"}), calls=30, orders=1)


def synthesis(folder: Path) -> Callable[[], object]:
    machine = load_machine("npu_mesh_4x4", {"system.sips": "{count: 1024, w: 32, h: 32}"})
    return lambda: Schedule(machine, "all_reduce", share_bytes=1 << 26, chunks=64, method="greedy")


def bound(folder: Path) -> Callable[[], object]:
    machine = load_machine("npu_mesh_4x4", {"system.sips": "{count: 1600, w: 40, h: 40}"})
    return lambda: Limit(machine, "all_reduce")


@pytest.mark.parametrize("prepared", [replay, check, synthesis, bound])
def test_a_long_native_call_ends_soon(prepared: Callable[[Path], Callable[[], object]], tmp_path: Path) -> None:
    call = prepared(tmp_path)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.monotonic())
        _thread.interrupt_main()

    timer = threading.Timer(0.3, interrupt)
    begun = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                call()
    finally:
        timer.cancel()
    # A call that keeps the interpreter's lock would let the timer fire late.
    assert time.monotonic() - sent[0] < GIVEN_S and sent[0] - begun < GIVEN_S
