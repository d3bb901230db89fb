"""What a tuning file loses against the quickest algorithm of every point, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ahbm._core import Machine
from ahbm.base.arguments import checked
from ahbm.base.rules import Query, Rules
from ahbm.choose import formats
from ahbm.choose.catalogue import Catalogue, configured
from ahbm.choose.fitted import Fitted, Verdict, fitted_in
from ahbm.choose.formats import ccl, msccl
from ahbm.choose.formats.format import Read
from ahbm.choose.measured import Measurements
from ahbm.choose.names import NCCL
from ahbm.choose.oracle import Oracle, OracleTable
from ahbm.choose.regret import Loss, Point, Regret
from ahbm.choose.sizes import whole_sizes
from ahbm.choose.turning import Turning
from ahbm.errors import ConfigError
from ahbm.source.function import AnyAlgorithm
from ahbm.source.synth import SYNTH
from ahbm.source.synthesis import METHODS, SYNTHESIZED
from ahbm.sweeps.running import Progress
from ahbm.table.ladder import with_schedules


@dataclass(frozen=True)
class Evaluation:
    """A tuning file on machines."""

    file: str
    read: Read
    regret: Regret
    """Of the points that a rule of the file decides."""
    left: tuple[Point, ...]
    """The points that the file leaves to its library: they are not judged."""
    stands: Mapping[str, str]
    """The library's name of an algorithm -> the algorithm of the emulator that stands for it."""
    without: tuple[str, ...]
    """Algorithms of the file that nothing of the catalogue stands for; the next rule holds, as in the library."""
    knobs: tuple[str, ...]
    """What the knobs of rules did to the times."""
    runs: int
    resized: tuple[str, ...] = ()
    """What is to be said of sizes that were asked for and cannot be divided."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """By algorithm of the catalogue, why its result is wrong somewhere; there it is nobody's quickest."""
    misled: tuple[Point, ...] = ()
    """The points that the file gives to an algorithm whose result is wrong there: they are not judged."""
    verdicts: tuple[tuple[Point, str, Verdict], ...] = ()
    """Points of machines that were fitted to measurements of NCCL, the line of each, and what it is beside NCCL by
    itself."""
    unknown: tuple[Point, ...] = ()
    """Points of such machines for which nobody knows what the line of the file takes: they are not judged."""
    unsettled: Mapping[str, str] = field(default_factory=dict)
    """By algorithm of the file, why it does not run somewhere, or is not known to be right; the next rule holds."""

    def to_json(self) -> dict[str, Any]:
        """The evaluation as JSON-serialisable data."""
        return {
            "file": self.file,
            "format": self.read.format,
            "rules": len(self.read.rules),
            "regret": self.regret.to_json() if self.regret.points else None,
            "left_to_library": [{"machine": point.machine, "bytes": point.nbytes} for point in self.left],
            "wrong_points": [{"machine": point.machine, "bytes": point.nbytes} for point in self.misled],
            "unknown_points": [{"machine": point.machine, "bytes": point.nbytes} for point in self.unknown],
            "beside_the_library": [
                {"machine": point.machine, "bytes": point.nbytes, "line": line, **vars(verdict), "harms": verdict.harms}
                | {"measured": verdict.measured is not None, "helps": verdict.helps}
                for point, line, verdict in self.verdicts
            ],
            "unsettled": dict(self.unsettled),
            "stands_for": dict(self.stands),
            "without": list(self.without),
            "knobs": list(self.knobs),
            "notes": list(self.read.notes),
            "resized": list(self.resized),
            "wrong": dict(self.wrong),
            "runs": self.runs,
            "findings": [finding.to_json() for finding in self.read.findings],
        }

    def beside(self) -> Iterator[str]:
        """What the file is beside its library by itself, on machines that were fitted to measurements of it."""
        if not self.verdicts:
            return
        harms = [verdict for _, _, verdict in self.verdicts if verdict.harms]
        helps = sum(verdict.helps for _, _, verdict in self.verdicts)
        measured = sum(verdict.measured is not None for _, _, verdict in self.verdicts)
        worst = max((verdict.loss_at_worst for verdict in harms), default=0.0)
        library = self.read.library.name
        yield (
            f"beside {library} by itself: worse at {len(harms)} of {len(self.verdicts)} points, better "
            f"beyond the band at {helps}; {measured} were measured, the others are by {library}'s own model"
        )
        if harms:
            yield f"within the spread of the cluster it would lose {worst:.0%} at worst"

    def lines(self) -> Iterator[str]:
        """The evaluation for people."""
        library = self.read.library.name
        yield f"{self.file}: {len(self.read.rules)} rules, {self.read.format}"
        if self.regret.points:
            yield f"it loses {self.regret}"
        elif not self.misled and not self.unknown:
            yield "it decides no point"
        yield from self.beside()
        groups = {f"left to {library}": self.left, "given to an algorithm that is wrong there": self.misled}
        groups["given lines of which neither measurements nor a model of the library say the time"] = self.unknown
        for what, points in groups.items():
            if points:
                least, most = min(p.nbytes for p in points), max(p.nbytes for p in points)
                yield f"{len(points)} points are {what}, from {least} to {most} B: not judged"
        for theirs, ours in self.stands.items():
            if theirs != ours:
                yield f"{theirs} of {library} is {ours} here"
        for theirs in self.without:
            yield f"{theirs} is no algorithm of the catalogue: {library} runs it, this does not"
        for name, why in self.unsettled.items():
            yield f"{name} is passed over where it does not run or is not known to be right: {why}"
        yield from self.knobs
        yield from self.read.notes
        yield from self.resized
        for name, why in self.wrong.items():
            yield f"{name} gives wrong results: {why}"
        lossy = [loss for loss in self.regret.worst if loss.regret > 0]
        if lossy:
            yield f"{'bytes':>12}  {'loses':>8}  {'takes us':>12}  {'best us':>12}  choice, best, machine"
        for loss in lossy:
            yield (
                f"{loss.point.nbytes:>12}  {loss.regret:>8.1%}  {loss.ps / 1e6:>12.3f}  {loss.best_ps / 1e6:>12.3f}  "
                f"{loss.chosen}, {loss.best}, {loss.point.machine}"
            )


def judge(
    file: str,
    read: Read,
    table: OracleTable,
    nodes: int | None = None,
    turning: Turning | None = None,
    fitted: Mapping[str, Fitted] | None = None,
) -> Evaluation:
    """What the rules of a file lose at the points of a table.

    A rule whose algorithm nothing stands for or the library cannot run is passed over, as by libraries; one whose
    algorithm gives a wrong result is not, for a library does not know. An algorithm takes what it takes under the knobs
    of its rule; where it does not run under them, what it takes without. On machines that were fitted to measurements
    of NCCL, a line of NCCL is judged against what NCCL takes by itself.
    nodes: computers among which the ranks of every machine are; None: its nodes. turning: of the table, with what it
    has timed. fitted: NCCL on the machines that were fitted to measurements, by name; None: without measurements of
    lines.
    """
    turning = turning or Turning(table)
    if read.library is not NCCL:
        fitted = {}
    elif fitted is None:
        fitted = fitted_in(table, Measurements())
    verdicts: list[tuple[Point, str, Verdict]] = []
    unknown = []
    notes: dict[str, None] = {}
    names = dict.fromkeys(rule.algorithm for rule in read.rules)
    losses, left, misled = [], [], []
    catalogue = [entry.name for entry in table.catalogue.of_collective(table.collective)]
    known = {name: read.library.ours(table.collective, name, catalogue) for name in names}
    stands: dict[str, str] = {}
    without: dict[str, None] = {}
    for point in table.points(wrong=True):
        times, wrong = table.times(point.machine, point.nbytes), table.wrong_at(point)
        ours = {
            name: next(filter(None, (read.library.ours(point.collective, name, ones) for ones in (times, wrong))), None)
            for name in names
        }
        among = nodes or table.nodes(point)
        query = Query(point.collective, point.nbytes, point.ranks, among)
        lacks = partial(read.library.lacks, point.collective, nodes=among, each=point.ranks / among)
        fitting = (read.rules.rules[at] for at in read.rules.fitting(query))
        had = [each for each in fitting if lacks(each.algorithm, each.protocol) is None]
        if (own := fitted.get(point.machine)) is not None:
            rule = next(iter(had), None)
            if rule is None:
                left.append(point)
                continue
            found = own.verdict(point, among, rule.algorithm, rule.protocol, rule.channels)
            if found is None:
                unknown.append(point)
                continue
            line = "/".join(filter(None, (rule.algorithm, rule.protocol)))
            verdicts.append((point, line, found))
            ps, itself = round(found.us * 1e6), round(found.own_us * 1e6)
            best = (line, ps) if ps <= itself else (f"{read.library.name} by itself", itself)
            losses.append(Loss(point, line, ps, *best))
            continue
        without |= {each.algorithm: None for each in had if known[each.algorithm] is None}
        rule = next((each for each in had if ours[each.algorithm] is not None), None)
        chosen = None if rule is None else ours[rule.algorithm]
        if rule is None or chosen is None:
            left.append(point)
            continue
        if chosen in wrong:
            misled.append(point)
            continue
        ran = turning.at(point, chosen, rule.alone)
        notes |= dict.fromkeys(ran.notes)
        if ran.wrong:
            misled.append(point)
            continue
        stands[rule.algorithm] = chosen
        quickest, least = table.best(point.machine, point.nbytes)
        ps = turning.ps(point, chosen, rule.alone)
        losses.append(Loss(point, chosen, ps, *((chosen, ps) if ps < least else (quickest, least))))
    named = {ours for ours in known.values() if ours is not None}
    return Evaluation(
        file,
        read,
        Regret.of(losses),
        tuple(left),
        stands,
        tuple(without),
        tuple(notes),
        table.runs,
        wrong=table.wrong,
        misled=tuple(misled),
        verdicts=tuple(verdicts),
        unknown=tuple(unknown),
        unsettled={name: why for name, why in {**table.refused, **table.undecided}.items() if name in named},
    )


@checked
def evaluate(
    file: str | Path,
    machines: Sequence[Machine],
    sizes: Sequence[int],
    *,
    collective: str | None = None,
    format: str | None = None,
    algorithms: Sequence[AnyAlgorithm] | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    dtype: str = "f16",
    nodes: int | None = None,
    measured: Measurements | None = None,
    jobs: int | None = None,
    tell: Callable[[Progress], object] | None = None,
) -> Evaluation:
    """Reads a tuning file and measures what it loses on machines, against all algorithms of a catalogue; of NCCL, on
    machines that were fitted to measurements of it, against NCCL by itself.

    sizes: bytes of one rank's array. collective: of a file for several. format: as of `ahbm.choose.formats.read`;
    algorithms, ccl, overrides: as of `Catalogue.of`. nodes: as of `judge`. measured: of NCCL, by
    which lines are judged on machines that were fitted to it. jobs, tell: as of `ahbm.sweep`. The
    catalogue of a ccl.yaml is its own.

    Raises ConfigError (AHBM-C146) for a file of several collectives of which none is named, or that has no rule for it;
    and as `ahbm.choose.formats.read` and `Oracle`.
    """
    read = formats.read(file, format)
    name = _collective(file, read, collective)
    if read.format == _CCL:
        ccl = file
    if measured is not None:
        measured.check(machines, name, nodes)
    if algorithms is None:
        algorithms = _itself(read, name, machines) or _every(name, machines, ccl, overrides)
    catalogue = Catalogue.of(name, algorithms, ccl=ccl, overrides=overrides)
    if read.format == msccl.NAME:
        read, catalogue = _with_files(read, catalogue, name, ccl, overrides)
    kept, _, resized = whole_sizes(sizes, catalogue, machines, dtype)
    table = Oracle(catalogue, list(machines), kept, collective=name, dtype=dtype, jobs=jobs, tell=tell).table()
    fitted = None if measured is None else fitted_in(table, measured)
    return replace(judge(str(file), read, table, nodes, fitted=fitted), resized=tuple(resized))


def beside(folder: Path, table: OracleTable, jobs: int | None = None) -> Evaluation:
    """What the MSCCL-IR files of a folder lose at the points of a table, which has run all but these files.

    Raises as `evaluate`.
    """
    known = table.catalogue
    read, own = _as_entries(formats.read(folder, msccl.NAME), table.collective, known.ccl, known.overrides)
    sizes = sorted({point.nbytes for point in table.points()})
    ran = Oracle(
        own, list(table.machines.values()), sizes, collective=table.collective, dtype=table.dtype, jobs=jobs
    ).table()
    judged = judge(str(folder), read, table.joined(ran))
    return replace(judged, runs=ran.runs)


_CCL = ccl.FORMAT.name


def _collective(file: object, read: Read, wanted: str | None) -> str:
    known = list(dict.fromkeys(rule.collective for rule in read.rules))
    if wanted is not None and (wanted in known or not known):
        return wanted
    if not known:
        why = "; ".join([*read.notes, *(finding.message for finding in read.findings)])
        raise ConfigError("AHBM-C146", f"{file} has no rule", hint=why[:400] or None)
    message = ", ".join(known) or "nothing"
    if wanted is not None:
        raise ConfigError("AHBM-C146", f"{file} has no rule for {wanted}: it is for {message}")
    if len(known) != 1:
        raise ConfigError(
            "AHBM-C146", f"{file} is for {message}", hint="name one: ahbm tune COLLECTIVE --evaluate FILE"
        )
    return known[0]


def _itself(read: Read, collective: str, machines: Sequence[Machine]) -> list[AnyAlgorithm]:
    """The algorithms of the libraries of machines that were all fitted to measurements of the file's library: its lines
    are judged against these alone. None for others."""
    if read.library is not NCCL or any(machine.bands is None for machine in machines):
        return []
    return list(dict.fromkeys(name for machine in machines for name in dict(machine.library).get(collective, ())))


def _every(
    collective: str, machines: Sequence[Machine], ccl: str | Path | None, overrides: Mapping[str, object] | None
) -> list[AnyAlgorithm]:
    """What is configured for a collective, and the synthesis methods whose names are not."""
    known = configured(collective, machines, ccl, overrides)
    methods = METHODS[1:] if collective in SYNTHESIZED else ()
    schedules = [f"{SYNTH}{method}" for method in methods]
    named = zip(schedules, with_schedules(schedules)[0], strict=True)
    return [*known, *(schedule for schedule, name in named if name not in known)]


def _with_files(
    read: Read, catalogue: Catalogue, name: str, ccl: str | Path | None, overrides: Mapping[str, object] | None
) -> tuple[Read, Catalogue]:
    """The files that are rules as algorithms of the catalogue, and the rules by their names there."""
    read, own = _as_entries(read, name, ccl, overrides)
    taken = {entry.name for entry in own}
    others = Catalogue([entry for entry in catalogue if entry.name not in taken], ccl, catalogue.overrides)
    return read, others + own


def _as_entries(
    read: Read, name: str, ccl: str | Path | None, overrides: Mapping[str, object] | None
) -> tuple[Read, Catalogue]:
    """The files that are rules as algorithms, and the rules by their names there."""
    files = list(dict.fromkeys(rule.algorithm for rule in read.rules if rule.collective == name))
    own = Catalogue.of(name, files, ccl=ccl, overrides=overrides)
    names = {file: entry.name for file, entry in zip(files, own, strict=True)}
    rules = [replace(rule, algorithm=names.get(rule.algorithm, rule.algorithm)) for rule in read.rules]
    return replace(read, rules=Rules(tuple(rules))), own
