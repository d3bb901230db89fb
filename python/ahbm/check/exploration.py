"""`ahbm explore`: the same program at other times, until something goes wrong, and the least that makes it go wrong.

A perturbation holds an agent up before one of its operations: a rank that starts late, a DMA that takes longer, a core
that is busy elsewhere. Every seed gives a set of them, and an order of the agents for the check without time. The
collective must end under every such set, with the bytes it ends with undisturbed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Memory
from ahbm.base.codes import UNDECIDED
from ahbm.check.case import Case, narrowed
from ahbm.check.checks import CALLS, examine
from ahbm.check.reference import inputs
from ahbm.errors import DataError, DeadlockError, Finding, KernelError, LintError, described

if TYPE_CHECKING:
    from ahbm._core import Program
    from ahbm.core.compiled import Compiled

Pause = tuple[int, int, int]
"""Agent, operation, and the picoseconds it is held up before it."""

SKEW_PS = 5_000_000
"""Most that a rank starts late."""
DELAY_PS = 500_000
"""Most that an operation is held up."""
SHARE = 0.1
"""Share of the operations that are held up."""


@dataclass(frozen=True)
class Failure:
    """Something that went wrong, and the least that makes it go wrong."""

    seed: int
    ranks: int
    count: int
    """Elements of a chunk."""
    pauses: tuple[Pause, ...]
    """The operations that are held up; empty when the order alone is to blame."""
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return {
            "seed": self.seed,
            "ranks": self.ranks,
            "count": self.count,
            "pauses": [list(pause) for pause in self.pauses],
            "findings": [finding.to_json() for finding in self.findings],
        }

    def __str__(self) -> str:
        held = "".join(f"\n  agent {a} is held up {ps / 1000:g} ns before operation {op}" for a, op, ps in self.pauses)
        findings = f"\n{described(self.findings)}" if self.findings else ""
        return f"seed {self.seed}: fails with {self.ranks} ranks and {self.count} elements a chunk{held}{findings}"


def attempt(
    case: Case,
    seed: int,
    pauses: Sequence[Pause] | None = None,
    checks: frozenset[str] = frozenset(),
    tell: Callable[[Finding], object] = lambda finding: None,
) -> Failure | None:
    """Runs a case as `seed` says, with its own or with the given pauses. The same arguments give the same answer.

    tell: is told what the checks could not decide, which is no failure.

    Raises ConfigError, FormatError, UnsupportedError and BudgetError: what cannot be run does not fail.
    """

    def failed(findings: Sequence[Finding], held: Sequence[Pause]) -> Failure:
        return Failure(seed, case.request.world_size, case.request.count, tuple(held), tuple(findings))

    given = inputs(case.request, "random" if case.request.element.is_float else "integers", seed)
    held: list[Pause] = []
    try:
        compiled, calm = case.execute(given)
        compiled = compiled.moving
        program = compiled.program
        if program is None:
            return None
        found = examine(case, compiled, checks, calls=CALLS, seed=seed)
        for finding in found:
            if finding.code in UNDECIDED:
                tell(finding)
        wrong = [finding for finding in found if finding.code not in UNDECIDED]
        if wrong:
            return failed(wrong, ())
        if "result" in checks and (error := narrowed(case, seed)) is not None:
            return failed(error.findings, ())
        held = list(perturbation(program, seed) if pauses is None else pauses)
        disturbed = _perturbed(case, compiled, program.delayed(held), given)
    except (DataError, DeadlockError, KernelError, LintError) as error:
        return failed(error.findings, held)
    differing = [
        (party, where)
        for party in range(case.request.parties)
        if len(where := _differing(calm[party], disturbed[party], case.request.part(party)))
    ]
    if not differing:
        return None
    party, where = differing[0]
    message = f"the result depends on times: {case.name(party)} differs in {len(where)} elements, first {int(where[0])}"
    return failed(
        [Finding("AHBM-V413", message, (), "a receive from any direction, or accesses that nothing orders")], held
    )


def perturbation(program: Program, seed: int) -> list[Pause]:
    """The pauses of a seed: every rank starts late, and some operations are held up.

    Each depends on the seed, its agent and its operation alone: what a smaller program still has is held up as before.
    """
    pauses = []
    for agent, (rank, length) in enumerate(zip(program.ranks, program.lengths, strict=True)):
        if length:
            pauses.append((agent, 0, int(np.random.default_rng([seed, 0, rank]).integers(SKEW_PS))))
        chances, delays = np.random.default_rng([seed, 1, agent]).random((length, 2)).T
        held = np.flatnonzero(chances < SHARE).tolist()
        pauses += [(agent, op, 1 + int(delays[op] * DELAY_PS)) for op in held]
    return pauses


def shrink(
    failure: Failure,
    case: Case,
    shrunk: Callable[[int, int], Case | None],
    checks: frozenset[str] = frozenset(),
) -> Failure:
    """A failure of the same code with the fewest ranks, then elements, then pauses that could be found.

    shrunk: makes the case with fewer ranks or elements of a chunk, None where it does not exist.
    A smaller case that cannot be run is none; whatever it raises, `failure` is told.
    """
    code = failure.findings[0].code

    def fails(smaller: Case | None, pauses: Sequence[Pause] | None = None) -> Failure | None:
        try:
            found = None if smaller is None else attempt(smaller, failure.seed, pauses, checks)
        except Exception:
            return None
        return found if found is not None and found.findings[0].code == code else None

    best, where = failure, case
    for ranks in range(2, failure.ranks):
        smaller = shrunk(ranks, failure.count)
        if (found := fails(smaller)) is not None and smaller is not None:
            best, where = found, smaller
            break
    for count in _counts(best.count):
        smaller = shrunk(best.ranks, count)
        if (found := fails(smaller)) is not None and smaller is not None:
            best, where = found, smaller
            break
    # Delta debugging: leave out halves, then quarters, ... as long as it goes on failing.
    pauses, size = list(best.pauses), len(best.pauses)
    while size >= 1:
        at = 0
        while at < len(pauses):
            fewer = pauses[:at] + pauses[at + size :]
            if (found := fails(where, fewer)) is not None:
                pauses, best = fewer, found
            else:
                at += size
        size //= 2
    return replace(best, pauses=tuple(pauses))


def _counts(count: int) -> list[int]:
    """Smaller numbers of elements to try: powers of two, and parts of `count`, which split as it does into chunks."""
    powers = {1 << k for k in range(count.bit_length())}
    parts = {part for d in range(1, min(math.isqrt(count), 1 << 16) + 1) if count % d == 0 for part in (d, count // d)}
    return sorted(n for n in powers | parts if n < count)


def _perturbed(case: Case, compiled: Compiled, program: Program, given: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The parties' arrays after a run of `program`, which is that of `compiled` with pauses."""
    tiles = case.request.tiles
    hosts = [np.concatenate(given[rank * tiles : (rank + 1) * tiles]) for rank in range(case.request.world_size)]
    timeline = program.simulate(record=True, max_events=compiled.event_budget)
    Memory(program).run(timeline, hosts, compiled.operands, compiled.results)
    return [array for host in hosts for array in np.split(host, tiles)]


def _differing(one: NDArray[Any], other: NDArray[Any], part: slice) -> NDArray[np.intp]:
    bits = f"u{one.dtype.itemsize}"
    return np.flatnonzero(np.ascontiguousarray(one[part]).view(bits) != np.ascontiguousarray(other[part]).view(bits))
