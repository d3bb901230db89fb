"""The programs that the calls of a job run, and what is told of each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ahbm._core import JobCall
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.base.request import Request, Shares
from ahbm.choice.policy import Given, Policy, asked
from ahbm.config.rules import Place
from ahbm.core.choice import ARGUMENT, CONFIGURED, DEFAULT, Choice
from ahbm.core.limits import Places
from ahbm.errors import AhbmError, ConfigError, Finding, Site, UnsupportedError
from ahbm.ranks.calls import Alike, CallRecord, Kind, Ran, Row, summed, together
from ahbm.source.algorithm import PADDED

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.job.reading import How
    from ahbm.ranks.setup import Setup
    from ahbm.selectors.protocol import AnySelector


def request_of(call: JobCall, how: How) -> Request:
    """What a call of a job asks for; `how` says what it does not state. Raises UnsupportedError (AHBM-U130)."""
    dtype = call.dtype or how.dtype
    kind = COLLECTIVES.get(call.collective)
    ranks = tuple(sorted(call.ranks))
    shares = None if call.shares is None else _by_rank(call.ranks, call.shares)
    count = -(-call.bytes // element(dtype).storage.itemsize)
    if kind is not None and kind.chunked:
        # Where it is not known who has how much for whom, all are as long as the longest.
        chunk = count if call.collective in ("all_gather", "gather") else -(-count // len(ranks))
        count = chunk if call.longest is None else call.longest
    if call.collective == "barrier":
        dtype, count = "f16", 1
    paired = kind is not None and kind.paired
    return Request(
        call.collective,
        ranks,
        count,
        dtype,
        call.op or how.op,
        root=0 if call.root is None else ranks.index(call.root) if call.root in ranks else -1,
        src=ranks.index(call.ranks[0]) if paired else 0,
        dst=ranks.index(call.ranks[1]) if paired else 1,
        shares=shares,
    )


def _by_rank(ranks: Sequence[int], rows: Sequence[Sequence[int]]) -> Shares:
    """Shares by position in a group's order, by ascending rank."""
    order = sorted(range(len(ranks)), key=lambda at: ranks[at])
    chosen = [rows[at] for at in order] if len(rows) == len(ranks) else rows
    return tuple(tuple(row[at] for at in order) for row in chosen)


def uneven(calls: Sequence[JobCall]) -> Iterator[Finding]:
    """A warning where it is not stated how much each pair of an all_to_all exchanges."""
    exchanges = [call for call in calls if call.collective == "all_to_all"]
    for found, what in (
        ([call for call in exchanges if call.shares is None and _is_uneven(call)], UNKNOWN),
        ([call for call in exchanges if call.spread], SPREAD),
    ):
        if found:
            count = "1 all_to_all is" if len(found) == 1 else f"{len(found)} all_to_alls are"
            yield Finding("AHBM-U237", f"{count} uneven: {what}", (Site("in the job", found[0].origin),))


UNKNOWN = "the longest split is simulated for every pair, so the time is an upper bound"
SPREAD = "only sums are stated, so what a rank sends is spread over the others in proportion to what they receive"


def _is_uneven(call: JobCall) -> bool:
    if call.uneven or call.longest is None:
        return call.uneven
    padded = call.longest * len(call.ranks)
    if call.dtype is not None:
        return padded * element(call.dtype).storage.itemsize != call.bytes
    # Splits count elements, of a size that is not stated: equal ones are a whole number of bytes each.
    return bool(call.bytes % padded if padded else call.bytes)


class Preparation:
    """The programs that calls run; each kind of call is prepared once."""

    def __init__(self, emulator: Emulator, setup: Setup, how: How, chooser: AnySelector = None) -> None:
        """chooser: asked before all others."""
        self._emulator = emulator
        self._algorithm = setup.algorithm
        self._given = [] if setup.algorithm is None else [Given(emulator, setup.algorithm)]
        self._selectors = asked(emulator, chooser, setup.selector)
        self._policy = Policy(emulator, [*self._selectors, *self._given])
        self._how = how
        self.rules: list[str] = []
        """The rule that chose the algorithm of each call that was prepared, as in `CallRecord.rule`."""
        self._overruled = set[str]()
        """The collectives of which something else than ccl.yaml chose the algorithm."""
        self._made: dict[object, list[Compiled]] = {}
        """Programs that other ranks may run, by what is asked for besides ranks."""

    def all(self, calls: Sequence[JobCall]) -> list[Compiled]:
        """The programs of all calls of a job, one for those that are alike. Raises as `of`, and as `_refuse_idle`."""
        self._refuse_idle(calls)
        # A selector may answer differently every time, and a rule may be for one node.
        ccl = self._emulator.ccl
        each = bool(self._selectors) or ccl.has_selectors or any(True for _ in ccl.rules_of_jobs())
        found: list[Compiled] = []
        for at, call in enumerate(calls):
            if call.alike < at and not each:
                found.append(found[call.alike])
                self.rules.append(self.rules[call.alike])
            else:
                found.append(self.of(call))
        return found

    @staticmethod
    def regions(
        chunks: Sequence[tuple[int, int, int, bool]], calls: Sequence[JobCall], programs: Sequence[Compiled]
    ) -> list[list[tuple[int, int, int]]]:
        """The memory of each of `Workload.chunks`. Raises UnsupportedError (AHBM-U231)."""
        return [_region(calls[call], programs[call], part, chunk, completes) for call, part, chunk, completes in chunks]

    def of(self, call: JobCall) -> Compiled:
        """The program that performs the call: its own, or that of an earlier call whose ranks the machine cannot tell
        from those of this one. Raises what the emulator raises, with the node of the call."""
        try:
            return self._compiled(call)
        except AhbmError as error:
            raise AhbmError.of([_at(error.findings[0], call), *error.findings[1:]]) from None

    def _compiled(self, call: JobCall) -> Compiled:
        request = request_of(call, self._how)
        choice = self._policy.choose(request, Place(call.group, call.node))
        self.rules.append(choice.rule)
        if not choice.written and choice.rule not in (CONFIGURED, DEFAULT):
            self._overruled.add(request.collective)
        return self._shared(request, choice)

    def notes(self, calls: Sequence[JobCall], programs: Sequence[Compiled]) -> Iterator[str]:
        """Notes where the algorithm that was asked for performs some of the calls that were prepared, and not all,
        where rules of ccl.yaml are for other numbers of ranks, and where an algorithm pads unequal shares."""
        for name in dict.fromkeys(compiled.algorithm for compiled in programs if PADDED in compiled.notes):
            yield f"{name}: {PADDED}"
        for name in sorted({call.collective for call in calls} - self._overruled):
            counts = {len(call.ranks) for call in calls if call.collective == name}
            yield from self._emulator.ccl.unmet_ranks(name, counts)
        if self._algorithm is None:
            return
        taken = [call for call, rule in zip(calls, self.rules, strict=True) if rule == ARGUMENT]
        left = [call for call, rule in zip(calls, self.rules, strict=True) if rule != ARGUMENT]
        if left:
            name = self._emulator.algorithm(self._algorithm).name
            which = f": {_counted(taken)}" if taken else ""
            others = f"; others perform {_counted(left)}"
            yield f"{name} performs {len(taken):,} of {len(calls):,} calls{which}{others}"

    def _refuse_idle(self, calls: Sequence[JobCall]) -> None:
        """Raises ConfigError (AHBM-C115), with the job's collectives, where the algorithm that was asked for performs
        none of a job's calls; UnsupportedError (AHBM-U113) where it does not say what it performs."""
        if self._algorithm is None or any(self._performs(name) for name in {call.collective for call in calls}):
            return
        found = self._emulator.algorithm(self._algorithm)
        job = f"the job calls {_counted(calls)}" if calls else "the job calls no collective"
        for call in calls:
            try:
                found.check(request_of(call, self._how))
            except AhbmError as error:
                first, *others = error.findings
                raise AhbmError.of([_at(replace(first, message=f"{first.message}; {job}"), call), *others]) from None
        what = f"{found.name} implements {', '.join(found.collectives)}; {job}"
        raise ConfigError("AHBM-C115", what, sites=(Site(found.name, found.source),), hint="choose another algorithm")

    def idle_rules(self) -> Iterator[Finding]:
        """A warning for each rule for calls of jobs that held for none of those which were prepared."""
        for collective, site in self._emulator.ccl.rules_of_jobs():
            if site.origin not in self._policy.met and collective not in self._overruled:
                hint = "patterns are compared with the names of groups and nodes: ahbm features FILE lists both"
                yield Finding("AHBM-C158", "no call of the job meets a rule of ccl.yaml", (site,), hint)

    def _shared(self, request: Request, choice: Choice) -> Compiled:
        algorithm = self._policy.algorithm(request, choice)
        key = (replace(request, ranks=range(request.world_size)), algorithm, choice.notes)
        made = self._made.setdefault(key, [])
        machine, ranks = self._emulator.machine, list(request.ranks)
        for compiled in made:
            if machine.carries(list(compiled.request.ranks), ranks):
                return compiled
        compiled = self._emulator.compile_timed(request, algorithm)
        if choice.notes:
            compiled = replace(compiled, notes=(*choice.notes, *compiled.notes))
        if self._emulator.runs_anywhere(algorithm):
            made.append(compiled)
        return compiled

    def _performs(self, collective: str) -> bool:
        """Whether the algorithm that was asked for performs this collective."""
        return any(given.performs(collective) for given in self._given)


def _counted(calls: Sequence[JobCall]) -> str:
    """The collectives of calls, and how many calls each has."""
    counts = Counter(call.collective for call in calls)
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))


def _at(finding: Finding, call: JobCall) -> Finding:
    return Finding(finding.code, finding.message, (*finding.sites, Site("in the job", call.origin)), finding.hint)


def _region(call: JobCall, compiled: Compiled, part: int, chunk: int, completes: bool) -> list[tuple[int, int, int]]:
    """The memory that a chunk of a call is at a rank: buffer, first byte and end; chunks are equal parts of the array.

    Raises UnsupportedError (AHBM-U231) for an algorithm that does not say where the data of its ranks are.
    """
    rank = sorted(call.ranks).index(call.ranks[part])
    rows = (compiled.results if completes else compiled.operands)[rank : rank + 1]
    if not rows:
        what = f"{compiled.algorithm} does not say where its data are: nothing can wait for a chunk of it"
        raise UnsupportedError("AHBM-U231", what, sites=(Site("in the job", call.origin),))
    size, count = compiled.request.nbytes, len(call.ranks)
    first, end = size * chunk // count, size * (chunk + 1) // count
    found = []
    for buffer, at, offset, length in rows[0].tolist():
        low, high = max(first, at), min(end, at + length)
        if low < high:
            found.append((buffer, offset + low - at, offset + high - at))
    return found


@dataclass(frozen=True, eq=False)
class Performed:
    """The calls of a job with their programs and times: what is told of each, made when it is asked for."""

    calls: Sequence[JobCall]
    programs: Sequence[Compiled]
    rules: Sequence[str]
    times: Sequence[tuple[int, int, int]]
    """Of each call: the arrival of its first rank, that of its last one, and its end, in ps."""
    notes: tuple[str, ...] = ()
    """What became of the algorithm that was asked for."""

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The numbers of the calls in the order of their starts: when their last rank had arrived."""
        starts = [start for _, start, _ in self.times]
        return tuple(sorted(range(len(starts)), key=starts.__getitem__))

    @cached_property
    def places(self) -> dict[int | None, int | None]:
        """For each call its position in `order`; None for what is no call."""
        return {None: None, **{call: at for at, call in enumerate(self.order)}}

    @property
    def count(self) -> int:
        """How many calls the job has, with the copies of those that are kept."""
        return sum(call.copies for call in self.calls)

    def protocols(self) -> Counter[str]:
        """How many calls have each protocol, "" for none."""
        found: Counter[str] = Counter()
        for call, made in zip(self.calls, self.programs, strict=True):
            found[made.protocol] += call.copies
        return found

    def kinds(self) -> Counter[Kind]:
        """How many calls have each kind, in the order of the first of each to start."""
        alike: Counter[tuple[str, int]] = Counter()
        made = {id(compiled): compiled for compiled in self.programs}
        for call in self.order:
            alike[self.calls[call].collective, id(self.programs[call])] += self.calls[call].copies
        found: Counter[Kind] = Counter()
        for (collective, compiled), count in alike.items():
            request = made[compiled].request
            kind = Kind(collective, made[compiled].algorithm, request.world_size, request.nbytes, made[compiled].knobs)
            found[kind] += count
        return found

    @property
    def together(self) -> int:
        """How many calls overlap another one in time."""
        found = set[int]()
        reached, last = -1, -1
        for call in self.order:
            _, start, end = self.times[call]
            if self.calls[call].copies > 1 and start < end:
                found.add(call)
            if start < reached:
                found |= {call, last}
            if end > reached:
                reached, last = end, call
        return sum(self.calls[call].copies for call in found)

    def kind(self, call: int) -> tuple[str, int]:
        """Collective and number of ranks of a call."""
        return self.calls[call].collective, self.programs[call].request.world_size

    def record(self, call: int) -> CallRecord:
        """What is told of a call."""
        made, compiled = self.calls[call], self.programs[call]
        request = compiled.request
        record_of_call = CallRecord(
            made.collective,
            made.group,
            request.world_size,
            request.nbytes,
            made.dtype or "",
            made.op or "",
            compiled.algorithm,
            compiled.timeline_hash,
            sorted(made.ranks).index(made.root) if made.root is not None else 0,
            self.rules[call],
            compiled.protocol,
            compiled.knobs,
            copies=made.copies,
        )
        return record_of_call.at(*self.times[call][1:])

    def rows(self, emulator: Emulator) -> list[Row]:
        """All calls by collective and number of ranks."""
        alike: dict[tuple[int, str, int | None], list[int]] = {}
        groups: dict[tuple[str, tuple[int, ...], int], list[Ran]] = {}
        unknown = set[tuple[str, int]]()
        least: dict[tuple[int, tuple[int, ...]], tuple[int | None, int]] = {}
        places = Places(emulator.machine)
        for call, (made, compiled) in enumerate(zip(self.calls, self.programs, strict=True)):
            alike.setdefault((id(compiled), self.rules[call], made.root), []).append(call)
            sips = tuple(sorted(made.ranks))
            key = (id(compiled), places.like(sips))
            if key not in least:
                least[key] = _bounds(emulator, compiled, key[1])
            bound, fixed = least[key]
            if bound is None:
                unknown.add(self.kind(call))
            request = compiled.request
            root = request.src if request.kind.paired else request.root
            ran = Ran(*self.times[call], root, bound or 0, fixed)
            groups.setdefault((made.collective, sips, made.copies), []).append(ran)
        found = summed(
            Alike(
                self.record(calls[0]),
                sum(self.calls[call].copies for call in calls),
                sum(self.calls[call].copies * self._took(call) for call in calls),
                0,
                0,
            )
            for calls in alike.values()
        )
        of_kind: dict[tuple[str, int], tuple[int, int]] = {}
        for (collective, sips, times), calls in groups.items():
            before, now = of_kind.get((collective, len(sips)), (0, 0)), together(calls)
            of_kind[collective, len(sips)] = before[0] + times * now[0], before[1] + times * now[1]
        for row in found:
            kind = (row.collective, row.ranks)
            bound, row.within_ps = of_kind[kind]
            row.bound_ps = None if kind in unknown else bound
        return found

    def _took(self, call: int) -> int:
        _, last, end = self.times[call]
        return end - last


def _bounds(emulator: Emulator, compiled: Compiled, sips: Sequence[int]) -> tuple[int | None, int]:
    """The bound of a call among these SIPs, None where none is known, and the same with one element per share."""
    request = compiled.request
    bound, fixed = (
        emulator.least(replace(request, count=count), sips, compiled).ps
        for count in (request.count, min(request.count, 1))
    )
    return bound, fixed or 0
