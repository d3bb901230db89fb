"""The cost of the calls of a job, call by call and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.words import aligned
from ahbm.core.choice import DEFAULT

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.core.limits import Limits


@dataclass(frozen=True)
class CallRecord:
    """One performed collective or send/receive."""

    collective: str
    group: str
    ranks: int
    bytes: int
    """Size in the sense of nccl-tests: one rank's tensor, or all ranks' chunks where the collective has chunks."""
    dtype: str
    op: str
    algorithm: str
    timeline_hash: int
    """Of the program, run alone."""
    root: int = 0
    """Group rank; 0 where there is none."""
    rule: str = DEFAULT
    """The rule that chose the algorithm: "selector", "plan", "argument", "ccl.yaml" or "default"."""
    protocol: str = ""
    """The protocol of the machine's library that was chosen for it; "" where one is for all calls, or none."""
    knobs: str = ""
    """The knobs of a choice that are in its time, in words; "" for none."""
    start_ns: float = 0.0
    latency_ns: float = 0.0
    """Of the call among all others, which may have shared its links."""
    algbw_gbs: float = 0.0
    busbw_gbs: float = 0.0
    bound_ps: int | None = None
    """The least time of a call whose ranks have unequal shares, which its bytes do not tell; None for all others."""
    copies: int = 1
    """How many calls of a job it is: itself, and its copies among ranks that are copies of its own."""

    def at(self, start_ps: int, end_ps: int) -> CallRecord:
        """The call at its time."""
        from ahbm.runs.report import bandwidths

        algbw, busbw = bandwidths(self.collective, self.ranks, self.bytes, end_ps - start_ps)
        return replace(
            self, start_ns=start_ps / 1000, latency_ns=(end_ps - start_ps) / 1000, algbw_gbs=algbw, busbw_gbs=busbw
        )


@dataclass
class Row:
    """All calls of one collective on groups of one size."""

    collective: str
    ranks: int
    calls: int = 0
    bytes: int = 0
    time_ps: int = 0
    bound_ps: int | None = 0
    """The least time that the calls could take together."""
    within_ps: int = 0
    """The time in which they ran: `time_ps`, but for data that early ranks had moved before the last one arrived."""
    algorithms: set[str] = field(default_factory=set)

    @property
    def percent_of_bound(self) -> float | None:
        """The bound as a share of the time; 100 cannot be beaten. None where no bound is known."""
        return None if self.bound_ps is None or not self.within_ps else 100 * self.bound_ps / self.within_ps

    @property
    def busbw_gbs(self) -> float:
        """Of all calls together, as nccl-tests counts it."""
        factor = COLLECTIVES[self.collective].bus_factor(self.ranks)
        return 1000 * self.bytes * factor / self.time_ps if self.time_ps else 0.0


class Alike(NamedTuple):
    """Calls that are alike: one of them, how many, and their times together, as of `Row`."""

    call: CallRecord
    calls: int
    time_ps: int
    bound_ps: int | None
    within_ps: int


def rows(calls: Iterable[CallRecord], limits: Limits) -> list[Row]:
    """The table's rows, by collective and number of ranks, of calls that run one after the other."""
    bounds: dict[tuple[str, int, int, int], int | None] = {}

    def alike(call: CallRecord) -> Alike:
        kind = COLLECTIVES[call.collective]
        key = (call.collective, call.ranks, call.bytes // kind.chunks(call.ranks), call.root)
        bound_ps = call.bound_ps
        if bound_ps is None:
            if key not in bounds:
                bounds[key] = limits.bound(*key[:3], root=call.root, dst=int(kind.paired)).ps
            bound_ps = bounds[key]
        time_ps = round(call.latency_ns * 1000)
        return Alike(call, 1, time_ps, bound_ps, max(time_ps, bound_ps or 0))

    return summed(map(alike, calls))


def summed(kinds: Iterable[Alike]) -> list[Row]:
    """The table's rows, by collective and number of ranks."""
    found: dict[tuple[str, int], Row] = {}
    for call, count, time_ps, bound_ps, within_ps in kinds:
        row = found.setdefault((call.collective, call.ranks), Row(call.collective, call.ranks))
        row.calls += count
        row.bytes += count * call.bytes
        row.time_ps += time_ps
        row.within_ps += within_ps
        row.algorithms.add(call.algorithm if call.rule == DEFAULT else f"{call.algorithm} ({call.rule})")
        row.bound_ps = None if bound_ps is None or row.bound_ps is None else row.bound_ps + bound_ps
    return [found[key] for key in sorted(found)]


class Ran(NamedTuple):
    """A call of a group at its time, in ps: the arrivals of the first and the last rank, its end, and its bound."""

    first: int
    last: int
    end: int
    root: int
    bound: int
    fixed: int
    """What its bound would be with one byte of data."""


def together(calls: Sequence[Ran]) -> tuple[int, int]:
    """The least time of calls of one group and one collective, and the time in which they ran, in ps: never less.

    A call takes its time from the arrival of its last rank. The other ranks may have moved data before, while a call
    before it had not ended: gathers to one root overlap so. Where calls that touch in time take less than the sum of
    their bounds, the data of one root cross its cut one after the other, and the latencies count once.
    """
    bound = within = 0
    for cluster in _clusters(sorted(calls)):
        least, own = sum(call.bound for call in cluster), sum(call.end - call.last for call in cluster)
        if least > own:
            of_root: dict[int, int] = {}
            for call in cluster:
                known = of_root.get(call.root)
                of_root[call.root] = call.bound if known is None else known + max(call.bound - call.fixed, 0)
            least = max(of_root.values())
            own = max(least, _covered((call.last, call.end) for call in cluster))
        bound += least
        within += own
    return bound, within


def _clusters(calls: Sequence[Ran]) -> Iterator[list[Ran]]:
    """Calls in order, in lists of those that touch in time."""
    cluster: list[Ran] = []
    reached = 0
    for call in calls:
        if cluster and call.first >= reached:
            yield cluster
            cluster = []
        cluster.append(call)
        reached = max(reached, call.end)
    if cluster:
        yield cluster


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How much of the time at least one of the spans covers."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Kind(NamedTuple):
    """What calls have in common of which the error of a machine is one."""

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    knobs: str
    """As `CallRecord.knobs`."""


def kinds(calls: Iterable[CallRecord]) -> Counter[Kind]:
    """How many calls have each kind, in the order of the first of each."""
    found: Counter[Kind] = Counter()
    for call in calls:
        found[Kind(call.collective, call.algorithm, call.ranks, call.bytes, call.knobs)] += call.copies
    return found


def calibrated(counts: Mapping[Kind, int], machine: Machine) -> list[str]:
    """What is known of the error of the times that so many calls of each kind take alone; nothing on machines that
    nothing was measured for."""
    from ahbm.runs import bands

    if machine.bands is None:
        return []
    noted = ((number, bands.note_of(machine, *kind), count) for number, (kind, count) in enumerate(counts.items()))
    return bands.over((bands.Noted("", number, note, count) for number, note, count in noted), "calls")


def protocol_notes(protocols: Iterable[str]) -> list[str]:
    """The note on the protocols of calls, of each call one or a counter of them, "" for none; nothing where no call has
    any."""
    counts = sorted((name, count) for name, count in Counter(protocols).items() if name)
    message = ", ".join(f"{name} of {count} {'call' if count == 1 else 'calls'}" for name, count in counts)
    return [f"protocols: {message}"] if message else []


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as lines of text, the head first."""
    head = ("collective", "ranks", "calls", "bytes", "time (us)", "busbw (GB/s)", "% of bound", "algorithm")
    lines = [
        (
            row.collective,
            str(row.ranks),
            str(row.calls),
            str(row.bytes),
            f"{row.time_ps / 1e6:.2f}",
            f"{row.busbw_gbs:.2f}",
            "-" if row.percent_of_bound is None else f"{row.percent_of_bound:.1f}",
            ", ".join(sorted(row.algorithms)),
        )
        for row in rows
    ]
    return aligned([head, *lines])
