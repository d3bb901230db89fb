"""The lines that a wrong result goes back to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base import codes
from ahbm.base.elements import COMBINE
from ahbm.check.case import Case, Traced
from ahbm.check.slices import depends, written
from ahbm.errors import AhbmError, Finding, Site
from ahbm.source.module import ModuleAlgorithm

if TYPE_CHECKING:
    from ahbm.base.request import Request
    from ahbm.runs.history import Origin, Step

Wrong = Sequence[NDArray[np.intp]]
"""By party, the indices in its part of the result that are wrong."""
LOOKED_AT = 2
"""Wrong elements that are traced, on as many parties."""
SITES = 4
"""Lines that are named of them."""
UNSTEADY = "AHBM-K216"
"""The code of a kernel that does something else the second time."""
LINES = 3
"""Lines of a finding of which it is said what they depend on."""
STEPS = 20_000
"""Most steps of an element's history that are compared with what they should be."""


def tracing(case: Case, mode: str, seed: int) -> Traced:
    """The function that finds the lines behind the wrong elements of a run with the inputs of `mode` and `seed`."""

    def trace(wrong: Wrong) -> tuple[list[Site], str | None]:
        from ahbm.runs.inspection import Inspection

        try:
            inspection = Inspection.of(by_calls(case), mode, seed)
            sites: dict[str, Site] = {}
            reason = None
            for rank, cube, index in _looked_at(case, wrong):
                origin = inspection.origin_of(rank, index, cube=cube)
                step = None if origin.missing or origin.extra else _deviating(origin, case)
                for site in _sites(origin, step, case):
                    sites.setdefault(str(site.origin), site)
                if reason is None and step is not None and step.name == "cast":
                    reason = f"that line casts to a type narrower than {case.request.dtype}, which loses bits"
            return list(sites.values())[:SITES], reason
        except AhbmError:
            return [], None  # A run that is too large to be looked into is wrong all the same.

    return trace


def by_calls(case: Case) -> Case:
    """The case, with operations that name the kernel's own line before that of a helper."""
    module = _module(case)
    return case if module is None else replace(case, algorithm=module.naming_calls(), selected=None)


def blamed(case: Case, error: AhbmError, again: Callable[[Case], object]) -> AhbmError:
    """`error` of a case, whose findings begin with the kernel's own lines and end with those that they depend on.

    again: what raised it, for a case.
    """
    module = _module(case)
    if module is None or module.call_lines:
        return error
    own = {line for _, _, line in unwrap(module.kernel).__code__.co_lines() if line}
    lines = [line for finding in error.findings for site in finding.sites for line in _lines(site, module.path)]
    if any(line not in own for line in lines):
        try:
            again(by_calls(case))
        except AhbmError as found:
            error = found if found.code == error.code else error
    known: dict[tuple[int, ...], list[Site]] = {}
    return error.with_findings([_with_lines(case, module, finding, known) for finding in error.findings])


def _with_lines(
    case: Case, module: ModuleAlgorithm, finding: Finding, known: dict[tuple[int, ...], list[Site]]
) -> Finding:
    """The finding, with the lines that those it names depend on, by those lines."""
    if finding.code in (UNSTEADY, *codes.RACES):
        return finding  # Both sides of a difference or a race are named, and no operand is wrong.
    if finding.code == codes.UNHELD:
        finding = replace(finding, sites=(*_barrier(case, finding), *finding.sites))
    named = tuple(dict.fromkeys(line for site in finding.sites for line in _lines(site, module.path)))
    if named not in known:
        there = {f"{module.path.name}:{line}" for line in named}
        known[named] = [site for site in depends(module.path, named[:LINES]) if site.origin not in there]
    return replace(finding, sites=(*finding.sites, *known[named]))


def _module(case: Case) -> ModuleAlgorithm | None:
    found = case.emulator.algorithm(case.by)
    return found if isinstance(found, ModuleAlgorithm) else None


def _lines(site: Site, path: Path) -> list[int]:
    """The lines of a file in an origin, the kernel's first."""
    return [int(line) for name, line in re.findall(r"([^\s:]+):(\d+)", site.origin or "") if name == path.name]


def _looked_at(case: Case, wrong: Wrong) -> Iterator[tuple[int, int, int]]:
    """Rank, cube and index of the first wrong elements of the first and the last party."""
    parties = [party for party in range(len(wrong)) if len(wrong[party])]
    for party in dict.fromkeys([*parties[: LOOKED_AT - 1], *parties[-1:]]):
        index = case.request.part(party).start + int(wrong[party][0])
        yield party // case.request.tiles, party % case.request.tiles, index


def _sites(origin: Origin, deviating: Step | None, case: Case) -> Iterator[Site]:
    """The lines of one wrong element, the most likely first. deviating: as `_deviating` finds it."""
    name = f"element {origin.index} of rank {origin.rank}"
    steps = [step for step in origin.steps if step.agent >= 0]
    written_by = [origin.steps[root] for root in origin.roots if origin.steps[root].agent >= 0]
    taken = [
        (step, extra)
        for extra in origin.extra[:1]
        for step in steps
        if any(origin.steps[link].contribution == extra for link in step.links)
    ]
    if not written_by:
        yield from _unwritten(origin, case)
    missing_ranks = {one.rank for one in origin.missing}
    writes = [Site(f"{name} is written here: {step.what}", step.origin) for step in written_by]
    takes = [Site(f"{extra} is taken for it here: {step.what}", step.origin) for step, extra in taken]
    losses = [Site(f"{lost.contribution} gets no further: {lost.last.what}, {lost.why}", lost.last.origin)
              for lost in origin.lost[:1] if lost.last.agent >= 0]  # fmt: skip
    if twice := _joined_twice(origin):
        yield Site(f"{origin.extra[0]} is added a second time here: {twice.what}", twice.origin)
    if origin.extra and any(extra.rank in missing_ranks for extra in origin.extra):
        # The right rank's, and another element of it.
        yield from (*takes, *writes, *losses)
    elif origin.extra:
        yield from (*writes, *losses, *takes)
    elif origin.missing:
        yield from (*losses, *writes)
    else:
        if deviating is not None:
            yield Site(f"{name} is as it should be until here: {deviating.what}", deviating.origin)
        yield from writes


def _unwritten(origin: Origin, case: Case) -> Iterator[Site]:
    """The lines at which a kernel ends early, or writes, where an element is as it was before the call."""
    module, program = _module(case), case.compiled().program
    if module is None or program is None:
        return
    writes, returns = written(module.path, unwrap(module.kernel).__name__)
    # What asks for its place and ends has one operation, which takes time alone.
    own = [length for length, rank in zip(program.lengths, program.ranks, strict=True) if rank == origin.rank]
    idle = all(length <= 1 for length in own)
    name = f"element {origin.index} of rank {origin.rank}"
    for line in returns if idle else writes[:2] or returns:
        what = f"rank {origin.rank} does nothing: does the kernel end here?" if idle else f"{name} is not written here"
        yield Site(what, f"{module.path.name}:{line}")


def _barrier(case: Case, finding: Finding) -> Iterator[Site]:
    """The last operation of the rank that leaves a barrier too early."""
    program, found = by_calls(case).compiled().program, re.match(r"rank (\d+) leaves", finding.message)
    if program is None or found is None:
        return
    rank = int(found[1])
    for agent, length in enumerate(program.lengths):
        if program.ranks[agent] == rank and length:
            what, origin = program.describe(agent, length - 1)
            yield Site(f"the last operation of rank {rank}: {what}", origin)
            return
    module = _module(case)
    if module is None:
        return
    for line in written(module.path, unwrap(module.kernel).__name__)[1]:
        yield Site(f"rank {rank} does nothing: does the kernel end here?", f"{module.path.name}:{line}")


def _joined_twice(origin: Origin) -> Step | None:
    """The operation that combines two values which both have a contribution that is there twice."""
    if not origin.extra or origin.contributions[origin.extra[0]] < 2:
        return None
    extra = origin.extra[0]
    holds: list[int] = []
    for step in origin.steps:
        held = int(step.contribution == extra) + sum(holds[link] for link in step.links)
        if held > 1 and all(holds[link] <= 1 for link in step.links):
            return step if step.agent >= 0 else None
        holds.append(held)
    return None


def _deviating(origin: Origin, case: Case) -> Step | None:
    """The first operation whose value is not the reduction of the contributions that it is made of."""
    request = case.request
    if len(origin.steps) > STEPS:
        return None
    combine = COMBINE[request.op] if request.reduces else None
    made: list[Counter[Any]] = []
    right: list[bool] = []
    values = {step.contribution: step.value for step in origin.steps if step.contribution is not None}
    for step in origin.steps:
        if step.agent < 0:
            made.append(Counter([step.contribution] if step.contribution is not None else []))
            right.append(True)
            continue
        held: Counter[Any] = Counter()
        for link in step.links:
            held.update(made[link])
        made.append(held)
        right.append(_is_right(step.value, [values[one] for one in held.elements()], combine, request))
        if not right[-1] and all(right[link] for link in step.links):
            return step
    return None


def _is_right(value: Any, parts: list[Any], combine: Any, request: Request) -> bool:
    """Whether an operation's value is the reduction of these contributions, whose sums are exact."""
    if value is None or not parts or any(part is None for part in parts):
        return True
    if combine is None:
        return bool(value == parts[0])
    element = request.element
    total = element.decode(element.encode(np.array([parts[0]])))
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total = combine(total, element.decode(element.encode(np.array([part]))))
        whole = element.decode(element.encode(total))[0]
    if request.op != "avg":
        return bool(value == whole.item())
    # Divided at any step, by as many as have come or by all, and rounded.
    bound = 4 * element.epsilon * abs(float(total[0])) if element.is_float else 1
    return any(abs(float(value) - float(total[0]) / count) <= bound for count in (1, len(parts), request.parties))
