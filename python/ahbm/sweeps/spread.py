"""Runs of other commands on the processes of a sweep: the cells of `ahbm bench`, the seeds of `ahbm explore`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from ahbm.check.case import Case
from ahbm.check.exploration import attempt
from ahbm.core.spec import Spec
from ahbm.errors import AhbmError, DistributedError, Finding
from ahbm.runs.bench import Cell, Spread
from ahbm.sweeps import work
from ahbm.sweeps.engine import Pool, ordered, run

_Item = TypeVar("_Item")
_Row = TypeVar("_Row")


def spread(jobs: int | None) -> Spread | None:
    """What runs cells on `jobs` processes of this computer; None for one, and where none are asked for."""
    return None if jobs is None or jobs < 2 else partial(_spread, jobs)


def _spread(jobs: int, cells: Sequence[Cell]) -> Iterator[Mapping[str, Any] | AhbmError | None]:
    if min(jobs, len(cells)) < 2:
        return iter([None] * len(cells))
    return _rows(cells, partial(of_cells, uuid4().hex), min(jobs, len(cells)), lambda why: _dead(why))


def failing(case: Case, seeds: Sequence[int], checks: frozenset[str], jobs: int) -> Iterator[bool]:
    """Per seed, whether `ahbm.check.exploration.attempt` may fail or leave something undecided, on `jobs`
    processes; True of all on one, and of a case that does not compile.

    Raises DistributedError (AHBM-X140) for a seed whose process dies.
    """
    try:
        spec = case.spec()
    except AhbmError:
        return iter([True] * len(seeds))
    if min(jobs, len(seeds)) < 2:
        return iter([True] * len(seeds))

    def lost(why: str) -> bool:
        raise _dead(why)

    return _rows(seeds, partial(of_seeds, spec, checks), min(jobs, len(seeds)), lost)


def of_cells(token: str, cells: Sequence[tuple[int, Cell]]) -> tuple[list[Mapping[str, Any] | AhbmError | None], float]:
    """The reports of cells as JSON, None for those that do not run; and the seconds that they took."""
    places = work.places(token)

    def one(cell: Cell) -> Mapping[str, Any] | AhbmError | None:
        try:
            return cell.run(places.emulator(cell.sweep)).to_json()
        except Exception:
            # Run again where it is asked for, which raises it there.
            return None

    return _timed(one, cells)


def of_seeds(spec: Spec, checks: frozenset[str], seeds: Sequence[tuple[int, int]]) -> tuple[list[bool], float]:
    """Whether seeds may fail; and the seconds that they took."""
    case = Case.of(spec)

    def one(seed: int) -> bool:
        undecided: list[Finding] = []
        try:
            return attempt(case, seed, checks=checks, tell=undecided.append) is not None or bool(undecided)
        except Exception:
            return True

    return _timed(one, seeds)


def _timed(one: Callable[[_Item], _Row], items: Sequence[tuple[int, _Item]]) -> tuple[list[_Row], float]:
    rows: list[_Row] = []
    start = time.perf_counter()
    for _, item in items:
        rows.append(one(item))
        if time.perf_counter() - start > work.LATEST_S:
            break
    return rows, time.perf_counter() - start


def _rows(
    items: Sequence[_Item],
    call: Callable[[Sequence[tuple[int, _Item]]], tuple[list[_Row], float]],
    jobs: int,
    lost: Callable[[str], _Row],
) -> Iterator[_Row]:
    return ordered(run(enumerate(items), call, Pool(jobs), lambda _, why: lost(why)))


def _dead(why: str) -> DistributedError:
    return DistributedError(work.LOST, f"the process that ran it died, alone and twice ({why.partition(':')[0]})")
