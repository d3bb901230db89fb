"""The selection ladder: every candidate simulated at every size, the quickest kept for each range of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from ahbm.base import codes
from ahbm.base.load import load_text
from ahbm.base.quickest import quickest
from ahbm.base.rules import Rule, merged, spans
from ahbm.base.sizes import Resized, Unit, resize_notes
from ahbm.base.store import make_folders, store, writing
from ahbm.base.words import slug
from ahbm.config.ccl import CclConfig, entry_overrides
from ahbm.core.emulator import Emulator
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, ConfigError
from ahbm.runs.candidates import none_left
from ahbm.runs.report import Report, notes_of, place
from ahbm.source.synth import SYNTH, Synth, SynthAlgorithm
from ahbm.table.cases import Case, Refused, Sweep
from ahbm.table.running import live, ran


@dataclass(frozen=True)
class Rung:
    """One size."""

    nbytes: int
    """Bytes of one rank's tensor."""
    resized: Resized | None
    """Sizes that were asked for in place of `nbytes`."""
    cells: Mapping[str, Report | Refused]
    """By candidate, what it gave."""

    @cached_property
    def reports(self) -> dict[str, Report]:
        """By candidate, those that ran and were right."""
        return {name: cell for name, cell in self.cells.items() if not isinstance(cell, Refused) and cell.right}

    @cached_property
    def refused(self) -> dict[str, str]:
        """By candidate, the code and message of why it did not run, or that it was wrong."""
        return {
            name: f"{cell.error.code} {cell.error.message}"
            if isinstance(cell, Refused)
            else f"{cell.wrong} wrong elements"
            for name, cell in self.cells.items()
            if name not in self.reports
        }

    @property
    def wrong(self) -> tuple[str, ...]:
        """The candidates whose result is wrong."""
        return tuple(
            name
            for name in self.refused
            for cell in [self.cells[name]]
            if not isinstance(cell, Refused) or codes.says_wrong(cell.error.code)
        )

    @property
    def winner(self) -> str:
        """The quickest; the first in order of candidates among equals. Raises for none as `none_left`."""
        if not self.reports:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.refused.items())
            of, at = f"of {len(self.refused)} candidates", f"at {self.nbytes} bytes"
            raise none_left(of, self.refused, self.wrong, at, why=reasons or "none is configured")
        winner = quickest({name: report.latency_ns for name, report in self.reports.items()})
        assert winner is not None
        return winner


@dataclass(frozen=True)
class Ladder:
    """The result of `climb`."""

    sweep: Sweep
    """What was measured."""
    emulator: Emulator = field(repr=False)
    candidates: tuple[str, ...]
    rungs: tuple[Rung, ...]

    @property
    def machine(self) -> str:
        """The machine in words: its topology, and the overrides that changed it."""
        return machine_name(self.emulator.machine)

    @property
    def _terms(self) -> str:
        """Operator and root in words, where they are not the usual ones; and that results are not compared."""
        unchecked = all(report.wrong is None for rung in self.rungs for report in rung.reports.values())
        parts = [self.sweep.op] if self.sweep.op != "sum" else []
        parts += [f"root {self.sweep.root}"] if self.sweep.root else []
        parts += ["no data"] if unchecked else []
        return "".join(f", {part}" for part in parts)

    @property
    def place(self) -> str:
        """The machine without its overrides, and its network."""
        return place(self.machine, self.emulator.machine.topology)

    @property
    def failure(self) -> AhbmError | None:
        """The error of `none_left` for sizes at which no candidate runs and is right, where there are any."""
        empty = [rung for rung in self.rungs if not rung.reports]
        if not empty:
            return None
        of = f"of the {len(self.candidates)} candidates for {self.sweep.collective}"
        wrong = {name for rung in empty for name in rung.wrong}
        at = f"at {' '.join(str(rung.nbytes) for rung in empty)} bytes"
        hint = "-a or --synth name other candidates, --sizes other sizes"
        return none_left(of, self.candidates, wrong, at, hint=hint)

    @property
    def wrong(self) -> bool:
        """Whether a candidate's result is wrong at a size."""
        return any(rung.wrong for rung in self.rungs)

    @property
    def notes(self) -> list[str]:
        """The notes that ccl.yaml has its own number of ranks, where it has; and the errors of a calibrated machine."""
        return notes_of([report for rung in self.rungs for report in rung.reports.values()])

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        reports = (report for rung in self.rungs for report in rung.reports.values())
        return next((report.ranks for report in reports), self.emulator.machine.sips)

    def ranges(self) -> list[Rule]:
        """A rule for each range of neighbouring sizes with one winner, in ascending order, from border to border as
        `ahbm tune` has them. Raises as `Rung.winner`."""
        return list(merged(self._won()))

    def _won(self) -> Iterator[Rule]:
        for rung, span in zip(self.rungs, spans([rung.nbytes for rung in self.rungs], self.ranks), strict=True):
            yield Rule(self.sweep.collective, rung.winner, span)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Winners that are neither plans nor synthesized: `save` writes no MSCCL file of them."""
        names = dict.fromkeys(entry.algorithm for entry in self.ranges())
        return tuple(name for name in names if not self.emulator.algorithm(name).is_plan)

    def ccl(self) -> str:
        """A ccl.yaml that runs the winners: an entry for each, and the ranges."""
        ranges = self.ranges()
        names = list(dict.fromkeys(entry.algorithm for entry in ranges))
        choice = [
            ({} if entry.nbytes.most is None else {"max_bytes": entry.nbytes.most}) | {"algorithm": entry.algorithm}
            for entry in ranges
        ]
        entries = {name: self.emulator.ccl.entry(name) for name in names}
        document = {"algorithms": entries, "collectives": {self.sweep.collective: choice}}
        machine = self.emulator.machine
        title = f"# The quickest of {len(self.candidates)} algorithms for {self.sweep.collective} of {self.sweep.dtype}"
        return f"{title} on {self.place}, {machine.sips} SIPs.\n" + yaml.safe_dump(document, sort_keys=False)

    def save(self, path: str | Path) -> list[Path]:
        """Writes the ccl.yaml at `path`; into a folder (no .yaml or .yml), also an MSCCL file per range, with its
        minBytes and maxBytes, for the winners that are plans, and one per size for those that are synthesized for a
        size. Returns the files.

        Raises FormatError (AHBM-F102) for what cannot be written, UnsupportedError (AHBM-U292) for what MSCCL-IR cannot
        express.
        """
        path = Path(path)
        with writing(path):
            if path.suffix in (".yaml", ".yml"):
                store({path: self.ccl().encode()})
                return [path]
            make_folders(path)
            files = [path / "ccl.yaml"]
            store({files[0]: self.ccl().encode()})
        plans = [rule for rule in self._won() if self.emulator.algorithm(rule.algorithm).is_plan]
        for index, rule in enumerate(merged(plans, lambda rule: is_for_every_size(self.emulator, rule.algorithm))):
            largest = max(rung.nbytes for rung in self.rungs if rung.nbytes in rule.nbytes)
            request = Case(self.sweep, rule.algorithm, largest).prepared(self.emulator).request
            plan = self.emulator.plan(request, rule.algorithm)
            file = path / f"{self.sweep.collective}_{index}_{slug(rule.algorithm, 'plan')}.xml"
            files += plan.save(file, min_bytes=rule.nbytes.least, max_bytes=rule.nbytes.most or 0)
        return files

    def last(self) -> Report:
        """The report of the last size's winner, with what it takes to explain it."""
        rung = self.rungs[-1]
        return live(rung.reports[rung.winner], Case(self.sweep, rung.winner, rung.nbytes), self.emulator)

    def table(self) -> Iterator[str]:
        """Per size, the time of every candidate in us, the winner and its share of what the network allows."""
        width = max(10, *(len(name) for name in self.candidates))
        names = "  ".join(f"{name:>{width}}" for name in self.candidates)
        reasons: dict[tuple[str, str], list[int]] = {}
        what = f"{self.sweep.collective} of {self.sweep.dtype}{self._terms}"
        yield f"# {what} on {self.place}, simulated us; - did not run"
        yield f"#{'bytes':>11}  {names}  {'% of bound':>10}  winner"
        for rung in self.rungs:
            times = (rung.reports.get(name) for name in self.candidates)
            cells = "  ".join(f"{'-' if t is None else f'{t.latency_ns / 1000:.3f}':>{width}}" for t in times)
            winner = rung.winner if rung.reports else "-"
            percent = rung.reports[winner].percent_of_bound if rung.reports else None
            yield f"{rung.nbytes:>12}  {cells}  {'-' if percent is None else f'{percent:.1f}':>10}  {winner}"
            for name, reason in rung.refused.items():
                reasons.setdefault((name, reason), []).append(rung.nbytes)
        for (name, reason), sizes in reasons.items():
            yield f"# {name} at {' '.join(map(str, sizes))} B: {reason}"
        yield from (f"# {note}" for note in resize_notes(rung.resized for rung in self.rungs))
        yield from (f"# {note}" for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        """The ladder as JSON-serialisable data."""
        return {
            "collective": self.sweep.collective,
            "topology": self.emulator.machine.topology,
            "machine": self.machine,
            "dtype": self.sweep.dtype,
            **({} if not (found := self.notes) else {"notes": found}),
            "rungs": [
                {
                    "bytes": rung.nbytes,
                    **({} if rung.resized is None else {"resized": rung.resized.to_json()}),
                    "winner": rung.winner if rung.reports else None,
                    "percent_of_bound": rung.reports[rung.winner].percent_of_bound if rung.reports else None,
                    "times_us": {name: report.latency_ns / 1000 for name, report in rung.reports.items()},
                    "refused": dict(rung.refused),
                }
                for rung in self.rungs
            ],
            "ranges": [
                {
                    "algorithm": entry.algorithm,
                    "min_bytes": entry.nbytes.least,
                    "max_bytes": entry.nbytes.most or 0,
                }
                for entry in ([] if self.failure else self.ranges())
            ],
        }


def is_for_every_size(emulator: Emulator, algorithm: str) -> bool:
    """Whether one plan of an algorithm is for every size: a schedule is synthesized for one."""
    return not isinstance(emulator.algorithm(algorithm), SynthAlgorithm)


def of_file(path: str | Path) -> tuple[str, tuple[str, ...]]:
    """The collective whose ranges of sizes a ccl.yaml names, and their algorithms in order.

    Raises ConfigError (AHBM-C101 to C109) for a file that is no sound ccl.yaml, C151 unless it names ranges of one
    collective.
    """
    CclConfig.load(path)
    document = yaml.safe_load(load_text(path)) or {}
    found = {name: choice for name, choice in (document.get("collectives") or {}).items() if isinstance(choice, list)}
    if len(found) != 1:
        message = f"ranges of {', '.join(found)}" if found else "no ranges of sizes"
        hint = "a ladder is what `ahbm ladder COLLECTIVE -o ccl.yaml` writes"
        raise ConfigError("AHBM-C151", f"{path} names {message}: it is no ladder", hint=hint)
    ((collective, ranges),) = found.items()
    return collective, tuple(dict.fromkeys(entry["algorithm"] for entry in ranges))


def schedules(methods: Sequence[str], chunks: int = 1, seed: int = 0) -> tuple[tuple[str, ...], dict[str, object]]:
    """Synthesized schedules by these methods as algorithms: their names, and the overrides of ccl.yaml."""
    found = {f"synth_{method}": Synth(method, chunks, seed) for method in methods}
    keys: dict[str, object] = {}
    for name, synth in found.items():
        keys |= entry_overrides(name, {f"synth.{key}": value for key, value in vars(synth).items()})
    return tuple(found), keys


def with_schedules(names: Sequence[str]) -> tuple[tuple[str, ...], dict[str, object]]:
    """Algorithms with schedules, `synth:METHOD`, under names of ccl.yaml; and the overrides that give it these."""
    found: list[str] = []
    keys: dict[str, object] = {}
    for name in names:
        made, entries = schedules([name.removeprefix(SYNTH)]) if name.startswith(SYNTH) else ((name,), {})
        found += made
        keys |= entries
    return tuple(found), keys


def climb(
    sweep: Sweep,
    methods: Sequence[str] = (),
    *,
    chunks: int = 1,
    seed: int = 0,
    tell: Callable[[str], object] = lambda text: None,
    jobs: int | None = None,
    store: str | Path | None = None,
) -> Ladder:
    """Simulates the candidates over the sizes of `sweep`: its algorithms (names, paths of modules, plans; without any,
    all that are configured for the collective) and a synthesized schedule for each of `methods`.

    A candidate that does not run at a size, or is wrong there (`sweep.data`), does not stand for it: its rung says why,
    and `Ladder.failure` where none is left. tell, jobs, store: as of `ahbm.table.running.attempt`.
    Raises what loading topology and ccl.yaml raises.
    """
    sweep = sweep.with_plans()
    names = list(sweep.algorithms)
    synthesized, entries = schedules(methods, chunks, seed)
    run = replace(sweep, overrides={**sweep.overrides, **entries}, check=False)
    emulator = run.emulator()
    if not sweep.algorithms:
        configured = (name for name in emulator.ccl.algorithms if name not in synthesized)
        names = [name for name in configured if sweep.collective in emulator.algorithm(name).collectives]
    names += synthesized
    unit = Unit.of_arrays(sweep.collective, emulator.machine.sips, sweep.dtype)
    whole = [sweep.unit(name, emulator) for name in sweep.algorithms if name in emulator.ccl.algorithms]
    for own in whole:
        unit = unit.and_of(*own)
    if whole and unit.nbytes > sweep.end:
        unit = Unit(sweep.end, unit.of)
    sizes = list(sweep.sizes(unit))
    run = run.measured_on(emulator, choosing=True)
    cells = ran([(Case(run, name, size), emulator) for size, _ in sizes for name in names], tell, jobs, store)
    rungs = [Rung(*size, dict(zip(names, islice(cells, len(names)), strict=True))) for size in sizes]
    return Ladder(run, emulator, tuple(names), tuple(rungs))
