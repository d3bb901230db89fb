"""The engine: every item has its row however executors die, halt or refuse; in-process executors stand for pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm.errors import DistributedError
from ahbm.table.engine import DEATHS, MOST, Given, Here, Pool, Workers, ordered, run


class Dying(Executor):
    """Runs nothing until it is asked for results; breaks, with all that is under way, at a batch with a bad item."""

    def __init__(self, bad: frozenset[int]) -> None:
        self._bad = bad
        self._broken = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
        if self._broken:
            raise BrokenExecutor("gone")
        future: Future[Any] = Future()
        if self._bad & set(args[0]):
            self._broken = True
            future.set_exception(BrokenExecutor("a process died"))
        else:
            future.set_result(fn(*args, **given))
        return future


class KilledWorker(Exception):
    """As of dask: one call failed, the others go on."""


class Killing(Dying):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self._bad & set(args[0]):
            future.set_exception(KilledWorker("killed"))
        else:
            future.set_result(fn(*args, **given))
        return future


def squares(items: Sequence[int]) -> tuple[list[int], float]:
    return [item * item for item in items], 0.0


def all_rows(count: int, workers: Workers, call: Any = squares) -> dict[int, int]:
    found: dict[int, int] = {}
    for items, rows in run(range(count), call, workers, lambda item, why: [-1]):
        assert len(items) == len(rows)
        for item, row in zip(items, rows, strict=True):
            assert item not in found, "a row twice"
            found[item] = row
    return found


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 300),
    bad=st.frozensets(st.integers(0, 299), max_size=4),
    kind=st.sampled_from([Dying, Killing]),
)
def test_only_items_that_kill_are_lost(count: int, bad: frozenset[int], kind: type[Dying]) -> None:
    found = all_rows(count, Given(lambda: kind(bad), workers=3))
    assert found == {item: -1 if item in bad else item * item for item in range(count)}


def test_an_item_is_to_blame_when_it_was_alone_as_often_as_it_takes() -> None:
    opened = []

    def make() -> Executor:
        # The first ones die of the item, as of a computer without memory; then it runs.
        opened.append(Dying(frozenset({5}) if len(opened) < DEATHS else frozenset()))
        return opened[-1]

    assert all_rows(6, Given(make, workers=1))[5] == 25


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 200), most=st.integers(1, 7))
def test_batches_that_come_back_unfinished_are_finished(count: int, most: int) -> None:
    def some(items: Sequence[int]) -> tuple[list[int], float]:
        return squares(items[:most])[0], 0.0

    assert all_rows(count, Here(), some) == {item: item * item for item in range(count)}


def test_the_first_batch_is_a_single_item_and_no_batch_is_endless() -> None:
    sizes = [len(items) for items, _ in run(range(5000), squares, Here(), lambda item, why: [-1])]
    assert sizes[0] == 1 and max(sizes) == MOST


def test_near_the_end_batches_are_small_and_alike() -> None:
    def slow(items: Sequence[int]) -> tuple[list[int], float]:
        return squares(items)[0], 1e-3 * len(items)

    with ThreadPoolExecutor(2) as pool:
        sizes = [len(items) for items, _ in run(range(3000), slow, Given(pool, workers=2), lambda item, why: [-1])]
    assert sum(sizes) == 3000 and max(sizes) == 400
    assert max(sizes[-4:]) < 100


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def endless() -> Any:
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    batches = run(endless(), squares, Here(), lambda item, why: [-1])
    next(batches)
    next(batches)
    assert len(taken) < 50


def test_an_executor_that_breaks_is_replaced_only_by_who_can_make_one() -> None:
    with pytest.raises(DistributedError, match=r"AHBM-X141 the executor broke[\s\S]*function that makes"):
        all_rows(20, Given(Dying(frozenset({3})), workers=1))


@pytest.mark.parametrize("error", [BrokenExecutor("closed"), OSError("handle is closed")])
def test_an_executor_that_never_takes_anything_is_an_error(error: Exception) -> None:
    class Closed(Dying):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
            raise error

    with pytest.raises(DistributedError, match="AHBM-X141"):
        all_rows(3, Given(lambda: Closed(frozenset()), workers=1))


def test_what_a_call_raises_is_no_death() -> None:
    def failing(items: Sequence[int]) -> tuple[list[int], float]:
        raise ModuleNotFoundError("no ahbm here")

    with ThreadPoolExecutor(1) as pool, pytest.raises(DistributedError, match=r"AHBM-X141 .*no ahbm here"):
        all_rows(3, Given(pool, workers=1), failing)


def test_rows_come_in_order_as_soon_as_they_can() -> None:
    batches = [([(2, "c")], ["C"]), ([(0, "a")], ["A"]), ([(3, "d"), (1, "b")], ["D", "B"])]
    assert list(ordered(batches)) == ["A", "B", "C", "D"]


def test_a_pool_that_breaks_while_it_starts_a_process_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Future[Any]:
        raise OSError("handle is closed")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", broken)
    with pytest.raises(DistributedError, match="AHBM-X141 the processes of the sweep do not start"):
        all_rows(3, Pool(2))


@pytest.mark.slow
def test_a_pool_outlives_its_processes() -> None:
    """Two processes; items that end theirs are rows, and nothing else is lost."""
    from support import deadly

    found: dict[int, int] = {}
    for items, rows in run(range(12), deadly.squares, Pool(2), lambda item, why: [-1]):
        found |= zip(items, rows, strict=True)
    assert found == {item: -1 if item in deadly.BAD else item * item for item in range(12)}
