"""Gates: where rank threads wait for one another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ahbm._core import Gate, Gates

LATE_S = 0.02
"""Longer than anybody looks at a gate before sleeping."""
HUNG_S = 30.0


def kinds() -> list[Callable[[], Gate]]:
    """Gates of a thread that sleeps at once, of ranks that look first, and of too many ranks to look."""
    return [Gate, lambda: Gates(1).gate(0), lambda: Gates(1 << 20).gate(5)]


def within(body: Callable[[], object]) -> None:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(HUNG_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("make", kinds())
def test_an_open_gate_lets_through_at_once(make: Callable[[], Gate]) -> None:
    gate = make()
    gate.open()
    assert gate.wait(0.0)
    assert gate.wait()


@pytest.mark.parametrize("make", kinds())
def test_a_closed_gate_holds_for_the_time_given(make: Callable[[], Gate]) -> None:
    gate = make()
    began = time.monotonic()
    assert not gate.wait(LATE_S)
    assert time.monotonic() - began >= LATE_S
    assert not gate.wait(-1.0)
    gate.open()
    assert gate.wait(0.0)


@pytest.mark.parametrize("late_s", [0.0, LATE_S])
@pytest.mark.parametrize("make", kinds())
def test_whoever_waits_goes_on_when_the_gate_opens(make: Callable[[], Gate], late_s: float) -> None:
    gate, opened = make(), []
    thread = threading.Thread(target=lambda: opened.append(gate.wait(1e300)), daemon=True)
    thread.start()
    time.sleep(late_s)
    gate.open()
    thread.join(HUNG_S)
    assert opened == [True]


@pytest.mark.parametrize("make", kinds())
def test_an_announced_gate_is_as_closed_as_before(make: Callable[[], Gate]) -> None:
    gate, opened = make(), []
    gate.announce()
    assert not gate.wait(LATE_S)
    thread = threading.Thread(target=lambda: opened.append(gate.wait()), daemon=True)
    thread.start()
    for _ in range(5):
        time.sleep(LATE_S / 5)
        gate.announce()
        assert not opened
    gate.open()
    thread.join(HUNG_S)
    assert opened == [True]


@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_that_hand_over_a_turn_run_one_after_the_other(ranks: int, announced: bool) -> None:
    gates = Gates(ranks)
    doors = [gates.gate(rank) for rank in range(ranks)]
    order: list[int] = []

    def run(rank: int) -> None:
        for _ in range(200):
            doors[rank].wait()
            doors[rank] = gates.gate(rank)
            order.append(rank)
            doors[(rank + 1) % ranks].open()
            if announced:
                doors[(rank + 2) % ranks].announce()
        gates.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    doors[0].open()
    for thread in threads:
        thread.join(HUNG_S)
    assert order == list(range(ranks)) * 200


def test_a_rank_that_computes_holds_nobody_up() -> None:
    gates, computing = Gates(2), threading.Event()

    def compute() -> None:
        gate = gates.gate(0)
        gate.open()
        gate.wait()  # from here on rank 0 runs, and does not wait again
        computing.wait()

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    gate = gates.gate(1)
    gate.open()
    within(gate.wait)
    computing.set()
    thread.join()
