"""Checks of what a run executed: races, uninitialised reads, leftovers, deadlocks, wrong and diverging results.

They run on the captured program, without time, in several orders and for calls that follow each other; `docs/check.md`
says what each of them decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base import codes
from ahbm.base.codes import CHECKS, UNDECIDED
from ahbm.base.yaml_source import did_you_mean
from ahbm.check.reference import inputs
from ahbm.errors import AhbmError, ConfigError, Finding, Site

if TYPE_CHECKING:
    from ahbm._core import Program
    from ahbm.check.case import Case
    from ahbm.core.compiled import Compiled

IDENTICAL = "identical"
"""Beside `divergence`: bits that differ are a failure, and no note."""

CALLS, ORDERS = 2, 4
"""Calls in a row that a program is checked for, and orders of its agents that are tried where they could matter."""

IDEMPOTENT = ("min", "max", "band", "bor")
"""Operators that do not mind a contribution that takes part twice."""


def parse(checks: str | Iterable[str]) -> frozenset[str]:
    """`"all"`, or names of CHECKS, in a list or separated by commas. Raises ConfigError AHBM-C170.

    Who names `divergence` wants the same bits on every rank, and gets `IDENTICAL` beside it; `"all"` only says where
    they differ.
    """
    names = [name.strip() for name in checks.split(",")] if isinstance(checks, str) else list(checks)
    for name in names:
        if name not in (*CHECKS, IDENTICAL, "all"):
            raise ConfigError("AHBM-C170", f"there is no check {name!r}", hint=did_you_mean(name, ("all", *CHECKS)))
    demanded = {"divergence", IDENTICAL} if {"divergence", IDENTICAL} & set(names) else set()
    return frozenset({*(CHECKS if "all" in names else names), *demanded})


def examine(
    case: Case, compiled: Compiled, checks: frozenset[str], *, calls: int = CALLS, orders: int = ORDERS, seed: int = 0
) -> tuple[Finding, ...]:
    """Findings of the `checks` in the program of `compiled`.

    calls: how often it is issued in a row without a pause. orders: orders of the agents that are tried where they could
    matter. seed: chooses the random ones, and the data of the check for divergence.
    """
    found: list[Finding] = []
    compiled = compiled.moving
    if compiled.program is not None and checks - {"divergence", IDENTICAL}:
        found += _program(case, compiled, compiled.program, calls, orders, seed)
    if "divergence" in checks:
        found += _diverging(case, seed)
    wanted = {code for check in checks - {IDENTICAL} for code in CHECKS[check]}
    return tuple(finding for finding in found if finding.code in wanted or finding.code == codes.CHECK_BUDGET)


def demand(findings: Sequence[Finding], checks: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """Raises what `findings` of `checks` say is wrong (the class follows from the first code); returns the others: what
    was not decided, and bits that nobody wants to be the same."""
    passing = UNDECIDED if IDENTICAL in checks else (*UNDECIDED, codes.DIVERGENT)
    failures = [finding for finding in findings if finding.code not in passing]
    if failures:
        raise AhbmError.of([*failures, *(finding for finding in findings if finding.code in passing)])
    return tuple(findings)


def _program(case: Case, compiled: Compiled, program: Program, calls: int, orders: int, seed: int) -> list[Finding]:
    request = case.request
    item, tiles = request.element.storage.itemsize, request.tiles
    results = []
    members = request.ranks if request.placement is None else None

    def number(party: int) -> int:
        """The name of a party in findings."""
        return party if members is None else members[party]

    # Every party of an all-reduce ends with the same, whose list is as long as there are parties.
    alike = request.expected(0) if request.collective == "all_reduce" else None
    # Contributions, and how many elements further on.
    sets: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
    names: dict[int, str] = {}
    owners: dict[int, int] = {}
    for rank in range(request.world_size):
        owners |= dict.fromkeys(compiled.operands[rank][:, 0].tolist(), rank)
        wanted = [
            (tile * request.size + low, tile * request.size + high, contributions)
            for tile in range(tiles)
            for low, high, contributions in (alike or request.expected(rank * tiles + tile))
        ]
        starts = [low for low, _, _ in wanted]
        rows = compiled.results[rank].tolist()
        for part, (buffer, first, at, size) in enumerate(rows):
            whose = case.name(rank * tiles + first // item // request.size) if request.size else f"rank {rank}"
            several = len({row[0] for row in rows}) > tiles
            owners[buffer] = rank
            names.setdefault(buffer, f"part {part} of {whose}'s array" if several else f"{whose}'s array")
            for low, high, contributions in wanted[max(bisect_right(starts, first // item) - 1, 0) :]:
                if low * item >= first + size:
                    break
                start, end = max(first, low * item), min(first + size, high * item)
                if start < end:
                    set_ = sets.setdefault((contributions, start // item - low), len(sets))
                    results.append((number(rank), buffer, at + start - first, end - start, set_))
    _, found = program.check(
        dtype=request.element.name,
        operands=[(number(piece[0]), *piece[1:]) for piece in case.operands(compiled)],
        results=results,
        sets=[[(number(party), index + shift) for party, index in whose] for whose, shift in sets],
        names=list(names.items()),
        owners=list(owners.items()),
        repeats=request.reduces and request.op in IDEMPOTENT,
        synchronises=request.collective == "barrier",
        op=request.op if request.reduces else None,
        parties=request.parties,
        calls=calls,
        orders=orders,
        seed=seed,
    )
    return [Finding.from_json(finding) for finding in found]


def _diverging(case: Case, seed: int) -> list[Finding]:
    """Parties whose results should be the same and differ in their bits, for numbers that need rounding."""
    request = case.request
    if request.collective != "all_reduce" or not request.element.is_float or not request.size:
        return []
    _, results = case.execute(inputs(request, "random", seed))
    raw = [_bits(result) for result in results]
    differing = [party for party in range(1, request.parties) if not np.array_equal(raw[0], raw[party])]
    if not differing:
        return []
    first = differing[0]
    where = np.flatnonzero(raw[0] != raw[first])
    at = int(where[0])
    sites = tuple(
        Site(f"{case.name(party)}, element {at}: {request.element.decode(results[party][at : at + 1])[0]}")
        for party in (0, first)
    )
    message = (
        f"ranks end with different bits of numbers that need rounding: {len(differing)} of {request.parties} differ "
        f"from {case.name(0)}, {case.name(first)} in {len(where)} of {request.size} elements"
    )
    hint = (
        "reduce every element in one order and pass the result on, instead of reducing it everywhere in another order"
    )
    return [Finding("AHBM-V412", message, sites, hint)]


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
