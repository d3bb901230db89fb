"""Checks of what a run executed: races, uninitialised reads, leftovers, deadlocks, wrong and diverging results.

They run on the captured program, without time, in several orders and for calls that follow each other; `docs/check.md`
says what each of them decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import AhbmError, ConfigError, Finding, Site
from ahbm.reference import Task, inputs, part_of
from ahbm.yaml_source import did_you_mean

if TYPE_CHECKING:
    from ahbm.emulator import Compiled, Outcome
    from ahbm.verify import Case

CHECKS = {
    "race": ("AHBM-V403", "AHBM-V404", "AHBM-V406", "AHBM-V411"),
    "uninit": ("AHBM-V402",),
    "leftover": ("AHBM-V405", "AHBM-V410"),
    "deadlock": ("AHBM-D201",),
    "result": ("AHBM-V401", "AHBM-V407", "AHBM-U290"),
    "divergence": ("AHBM-V412",),
}
"""Every check, and the codes of what it finds."""

UNDECIDED = ("AHBM-V406", "AHBM-U290")
"""Codes of what a check could not decide: it is reported, and is no failure."""

CALLS = 2
"""Calls in a row that a program is checked for."""

IDEMPOTENT = ("min", "max", "band", "bor")
"""Operators that do not mind a contribution that takes part twice."""

Segment = tuple[int, int, tuple[tuple[int, int], ...]]
"""First element of a party's array, the end, and the contributions (party, element) that go into the first one."""


def parse(checks: str | Iterable[str]) -> frozenset[str]:
    """`"all"`, or names of CHECKS, in a list or separated by commas. Raises ConfigError AHBM-C170."""
    names = [name.strip() for name in checks.split(",")] if isinstance(checks, str) else list(checks)
    for name in names:
        if name not in (*CHECKS, "all"):
            raise ConfigError("AHBM-C170", f"there is no check {name!r}", hint=did_you_mean(name, ("all", *CHECKS)))
    return frozenset(CHECKS if "all" in names else names)


def examine(
    case: Case, outcome: Outcome, checks: frozenset[str], *, calls: int = CALLS, orders: int = 4, seed: int = 0
) -> tuple[Finding, ...]:
    """What the `checks` find in the program that `outcome` comes from.

    calls: how often it is issued in a row without a pause. orders: orders of the agents that are tried where they could
    matter. seed: chooses the random ones, and the data of the check for divergence.
    """
    found: list[Finding] = []
    if outcome.compiled is not None and checks - {"divergence"}:
        found += _program(case, outcome.compiled, calls, orders, seed)
    if "divergence" in checks:
        found += _diverging(case, seed)
    wanted = {code for check in checks for code in CHECKS[check]}
    return tuple(finding for finding in found if finding.code in wanted or finding.code == "AHBM-B210")


def demand(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Raises what `findings` say is wrong (the class follows from the first code); returns what was not decided."""
    failures = [finding for finding in findings if finding.code not in UNDECIDED]
    if failures:
        raise AhbmError.of([*failures, *(finding for finding in findings if finding.code in UNDECIDED)])
    return tuple(findings)


def _program(case: Case, compiled: Compiled, calls: int, orders: int, seed: int) -> list[Finding]:
    task = case.task
    item, tiles = task.element.storage.itemsize, task.parties // case.ranks
    operands, results = [], []
    sets: dict[tuple[tuple[int, int], ...], int] = {}
    names: dict[int, str] = {}
    for rank in range(case.ranks):
        # A rank's array holds those of its parties, one after the other.
        held = [
            (t * task.size + low, t * task.size + high, rank * tiles + t) for t, low, high in _held(task, rank, tiles)
        ]
        for buffer, first, to, size in compiled.operands[rank].tolist():
            for low, high, party in held:
                start, end = max(first, low * item), min(first + size, high * item)
                if start < end:
                    index = start - (party % tiles) * task.size * item
                    operands.append((party, buffer, to + start - first, end - start, index))
        wanted = [
            (tile * task.size + low, tile * task.size + high, contributions)
            for tile in range(tiles)
            for low, high, contributions in segments(task, rank * tiles + tile)
        ]
        starts = [low for low, _, _ in wanted]
        rows = compiled.results[rank].tolist()
        for part, (buffer, first, at, size) in enumerate(rows):
            whose = case.name(rank * tiles + first // item // task.size) if task.size else f"rank {rank}"
            several = len({row[0] for row in rows}) > tiles
            names.setdefault(buffer, f"part {part} of {whose}'s array" if several else f"{whose}'s array")
            for low, high, contributions in wanted[max(bisect_right(starts, first // item) - 1, 0) :]:
                if low * item >= first + size:
                    break
                start, end = max(first, low * item), min(first + size, high * item)
                if start < end:
                    shift = start // item - low
                    key = tuple((party, index + shift) for party, index in contributions)
                    number = sets.setdefault(key, len(sets))
                    results.append((rank, buffer, at + start - first, end - start, number))
    _, found = compiled.program.check(
        itemsize=item,
        operands=operands,
        results=results,
        sets=[list(key) for key in sets],
        names=list(names.items()),
        repeats=task.reduces and task.op in IDEMPOTENT,
        calls=calls,
        orders=orders,
        seed=seed,
    )
    return [Finding.from_json(finding) for finding in found]


def _held(task: Task, rank: int, tiles: int) -> list[tuple[int, int, int]]:
    """Tile, first element and end of what a rank's arrays hold before the call; the rest of them is anything."""
    if task.collective == "barrier":
        return [(tile, 0, task.size) for tile in range(tiles)]
    if task.collective in ("all_gather", "gather"):
        return [(0, rank * task.count, (rank + 1) * task.count)]
    source = {"broadcast": task.root, "scatter": task.root, "send_recv": task.src}.get(task.collective, rank)
    return [(tile, 0, task.size) for tile in range(tiles)] if rank == source else []


def segments(task: Task, party: int) -> list[Segment]:
    """What a party's array must be made of after the call."""
    count, parties = task.count, range(task.parties)
    part = part_of(task, party)
    low, high = part.start, part.stop
    if low == high:
        return []
    if task.reduces:
        return [(low, high, tuple((other, low) for other in parties))]
    if task.collective in ("broadcast", "scatter", "send_recv"):
        return [(low, high, ((task.src if task.collective == "send_recv" else task.root, low),))]
    mine = party if task.collective == "all_to_all" else None
    chunks = pairwise(range(0, task.size + 1, count))
    return [
        (start, end, ((other, start if mine is None else mine * count),))
        for other, (start, end) in zip(parties, chunks, strict=True)
    ]


def _diverging(case: Case, seed: int) -> list[Finding]:
    """Parties whose results should be the same and differ in their bits, for numbers that need rounding."""
    task = case.task
    if task.collective != "all_reduce" or not task.element.is_float or not task.size:
        return []
    _, results = case.execute(inputs(task, "random", seed))
    raw = [_bits(result) for result in results]
    differing = [party for party in range(1, task.parties) if not np.array_equal(raw[0], raw[party])]
    if not differing:
        return []
    first = differing[0]
    where = np.flatnonzero(raw[0] != raw[first])
    at = int(where[0])
    sites = tuple(
        Site(f"{case.name(party)}, element {at}: {task.element.decode(results[party][at : at + 1])[0]}")
        for party in (0, first)
    )
    message = (
        f"ranks end with different bits: {len(differing)} of {task.parties} differ from {case.name(0)}, "
        f"{case.name(first)} in {len(where)} of {task.size} elements"
    )
    hint = (
        "reduce every element in one order and pass the result on, instead of reducing it everywhere in another order"
    )
    return [Finding("AHBM-V412", message, sites, hint)]


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
