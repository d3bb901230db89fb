"""One coordinator and thousands of workers: what it costs to hand out a space, and that nothing is handed out twice."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm.sweeps.work import Done
from ahbm.table.engine import Given, Spans, run
from ahbm.table.parts import missing, united


class Simulated(Executor):
    """So many workers, of which each takes a while for a call and no processor time."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._seconds, self._free = seconds, [0.0] * workers
        self._ends: list[tuple[float, int, Future[Any], Any]] = []
        self._there, self._count = threading.Condition(), 0
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, fn: Any, /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._there:
            end = max(heapq.heappop(self._free), time.monotonic()) + self._seconds
            heapq.heappush(self._free, end)
            self._count += 1
            heapq.heappush(self._ends, (end, self._count, future, (fn, args)))
            self._there.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._there:
                while not self._ends or self._ends[0][0] > time.monotonic():
                    self._there.wait(max(self._ends[0][0] - time.monotonic(), 0.001) if self._ends else None)
                _, _, future, (fn, args) = heapq.heappop(self._ends)
            future.set_result(fn(*args))


def pretended(positions: Sequence[int]) -> tuple[Done, float]:
    """As cases of 2 ms."""
    return Done(len(positions), ran=len(positions)), len(positions) * 0.002


@pytest.mark.slow
def test_a_coordinator_hands_out_a_hundred_thousand_cases_a_second_to_two_thousand_workers() -> None:
    count, done = 4_000_000, 0
    workers = Given(Simulated(2000, 0.4), 2000)
    began, used = time.monotonic(), time.thread_time()
    for _, one in run(Spans([(0, count)]), pretended, workers, lambda position, why: Done(1)):
        done += len(one)
    assert done == count
    # Of its own processor time: what else this computer does is not its cost.
    assert count / (time.thread_time() - used) > 100_000, (time.monotonic() - began, time.thread_time() - used)


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=8)


@settings(max_examples=200, deadline=None)
@given(SPANS, st.integers(0, 30), st.integers(0, 60))
def test_what_is_there_and_what_is_missing_is_all(spans: list[tuple[int, int]], first: int, end: int) -> None:
    there = {at for low, high in spans for at in range(low, high)}
    assert {at for low, high in united(spans) for at in range(low, high)} == there
    left = missing(united(spans), first, end)
    assert [at for low, high in left for at in range(low, high)] == sorted(set(range(first, end)) - there)
