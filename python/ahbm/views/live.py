"""`ahbm view`: a run whose machine and algorithm change while it is looked at. Nothing here knows HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from ahbm.base import foreign
from ahbm.base.arguments import whole
from ahbm.base.sizes import parse_size
from ahbm.base.store import store
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.open import open_
from ahbm.job.replay import JobReport
from ahbm.job.targets import Target
from ahbm.runs.answer import sentences
from ahbm.runs.report import Report
from ahbm.views import job_lanes, workbench
from ahbm.views.words import size, time

MOST_TEXT = 256 << 10
"""Bytes of an algorithm that may be written."""
MOST_SIZE = 64 << 20
"""Bytes of one rank's array that may be asked for: a slider is no place for a long run."""
MOST_DATA = 64 << 20
"""Bytes of all ranks up to which data moves and is compared."""
MOST_FILES = 200
MOST_STEPS = 200
"""Operations behind an element that are shown."""
SWEPT, MOST_CASES = tuple(1 << power for power in range(10, 21, 2)), 400
"""Sizes of a sweep, and cases of it."""
LINK, LATENCY, SLOTS = "system.sips.link.bandwidth_gbs", "system.sips.link.latency_ns", "n_slots"
RANGES = {"bandwidth": (LINK, 0.001, 1e6), "latency": (LATENCY, 0.0, 1e9), "slots": (SLOTS, 1.0, 4096.0)}
"""What a slider changes, and its least and greatest value."""
MODULES = (".py",)
_NUMBER = re.compile(r"([\d.]+(?:e[-+]?\d+)?)(.*)")
KERNEL = re.compile(r"^(def kernel\b|kernel\s*[:=]|from \S+ import .*\bkernel\b)", re.MULTILINE)
"""What a module of an algorithm has, even where it is broken just now: a kernel under the contract's name."""


@dataclass(frozen=True)
class Item:
    """Something to look at: the client names it by its position, never by a path."""

    name: str
    kind: str
    """module (a file that can be edited), algorithm (by name) or target (a plan or a job)."""
    path: Path | None = None


@dataclass
class Sweeping:
    """A sweep that runs, or has run."""

    cases: int
    changes: Mapping[str, object]
    rows: list[dict[str, Any]] = field(default_factory=list)
    """By case what it took, in ps, and its share of the bound; or the code of why it did not run."""
    stop: bool = False

    def state(self) -> dict[str, Any]:
        """As a client hears of it."""
        return {"cases": self.cases, "rows": list(self.rows)}


@dataclass
class Bench:
    """What is looked at, on which machine."""

    items: Sequence[Item]
    collective: str = "all_reduce"
    topology: str | Path | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    bytes: int = 64 << 10
    _one: Lock = field(default_factory=Lock, repr=False)
    _sweep: Sweeping | None = field(default=None, repr=False)

    def values(self) -> dict[str, float]:
        """The values that sliders begin with, those of the machine."""
        from ahbm.core.emulator import Emulator

        emulator = Emulator.load(self.topology, None, self.overrides)
        numbers = {key: _NUMBER.match(value) for key, value in emulator.machine.parameters}
        known = {key: float(n[1]) / (1000 if n[2] == "ps" else 1) for key, n in numbers.items() if n is not None}
        found = {
            "bandwidth": known.get(LINK),
            "latency": known.get(LATENCY),
            "slots": emulator.settings().queues.n_slots,
        }
        return {name: float(value) for name, value in found.items() if value is not None}

    def state(self) -> dict[str, Any]:
        """What a client is lines first."""
        return {
            "items": [{"name": item.name, "kind": item.kind} for item in self.items],
            "collective": self.collective,
            "values": self.values(),
            "bytes": self.bytes,
        }

    def item(self, number: object) -> Item:
        """An item by its position. Raises ConfigError (AHBM-C129)."""
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self.items):
            raise ConfigError("AHBM-C129", f"item is 0 to {len(self.items) - 1}")
        return self.items[number]

    def run(self, asked: Mapping[str, object], check: bool = True) -> dict[str, Any]:
        """Runs an item with what is asked for: `item`, `size` in bytes, and `RANGES`. Gives the picture with sentences,
        or the error with the lines where it is.
        """
        with self._one:
            try:
                return self._run(asked, check)
            except AhbmError as error:
                return {"error": error_of(error)}

    def _opened(self, asked: Mapping[str, object]) -> Target:
        item, nbytes = self.item(asked.get("item", 0)), self._size(asked.get("size", self.bytes))
        overrides = {**self.overrides, **_changes(asked)}
        if item.kind == "target":
            assert item.path is not None
            of_file = open_(item.path, topology=self.topology, overrides=overrides)
            assert isinstance(of_file, Target)
            return of_file.at(nbytes)
        of_collective = open_(
            self.collective,
            topology=self.topology,
            algorithm=str(item.path) if item.path is not None else item.name,
            size=nbytes,
            overrides=overrides,
        )
        assert isinstance(of_collective, Target)
        return of_collective

    def _run(self, asked: Mapping[str, object], check: bool) -> dict[str, Any]:
        item, nbytes, opened = (
            self.item(asked.get("item", 0)),
            self._size(asked.get("size", self.bytes)),
            self._opened(asked),
        )
        ran = opened.run(data=False)
        explanation = ran.explain()
        name = f"{item.name} on {ran.topology} (simulated)"
        if isinstance(ran, JobReport):
            picture = job_lanes.of_job(ran, explanation, name)
        else:
            picture = workbench.of_run(explanation, explanation.machine, name)
        lines = [f"{item.name} takes {time(explanation.latency_ps)} at {size(nbytes)} on {_ranks(ran)} ranks."]
        if isinstance(ran, Report):
            if ran.percent_of_bound is not None and ran.bound_ns:
                lines[0] = (
                    f"{lines[0][:-1]}, {ran.percent_of_bound:.3g} % of the bound of {time(1000 * ran.bound_ns)} "
                    f"({ran.limited_by})."
                )
            if check and nbytes * ran.ranks <= MOST_DATA:
                lines.append(_verdict(opened.run(data=True)))
        lines += sentences(explanation, ())[1:2]
        return {"picture": picture, "told": lines, "latency_ps": explanation.latency_ps}

    def origin(self, asked: Mapping[str, object]) -> dict[str, Any]:
        """Where the element `element` of the array of rank `rank` has come from in the run that `run` makes: what it is
        the sum of, and the operations behind it, the last first, each with its time and its rank. Or the error.
        """
        with self._one:
            try:
                return self._origin(asked)
            except AhbmError as error:
                return {"error": error_of(error)}

    def _origin(self, asked: Mapping[str, object]) -> dict[str, Any]:
        rank, element = (whole(name, asked.get(name), 0, 2**40) for name in ("rank", "element"))
        opened = self._opened(asked)
        inspection = opened.inspect()
        found = inspection.origin_of(rank, element)
        ranks = inspection.ranks
        made = sorted((step for step in reversed(found.steps) if step.agent >= 0), key=lambda step: -step.at_ps)
        steps = [
            {
                "at": step.at_ps,
                "rank": ranks[step.agent],
                "text": f"{step.what}{f' ({Path(step.origin).name})' if step.origin else ''} = {step.value}",
            }
            for step in made[:MOST_STEPS]
        ]
        head = f"element {element} of rank {rank} = {found.value}: {found.formula}"
        return {"told": head, "steps": steps, "more": len(made) - len(steps)}

    def begin_sweep(self, asked: Mapping[str, object]) -> dict[str, Any]:
        """Begins to run every algorithm at the sizes `SWEPT` on the machine of the sliders; a sweep before it ends.

        Raises ConfigError (AHBM-C129).
        """
        changes = _changes(asked)
        numbers = [at for at, item in enumerate(self.items) if item.kind != "target"]
        if self._sweep is not None:
            self._sweep.stop = True
        cases = [{**asked, "item": number, "size": nbytes} for nbytes in SWEPT for number in numbers][:MOST_CASES]
        self._sweep = sweep = Sweeping(len(cases), changes)
        Thread(target=self._sweeping, args=(sweep, cases), daemon=True).start()
        return sweep.state()

    def sweep_state(self) -> dict[str, Any]:
        """How far the last sweep is, with its rows. Raises ConfigError (AHBM-C129) where none was begun."""
        if self._sweep is None:
            raise ConfigError("AHBM-C129", "no sweep was begun")
        return self._sweep.state()

    def _sweeping(self, sweep: Sweeping, cases: Sequence[Mapping[str, object]]) -> None:
        for case in cases:
            if sweep.stop:
                return
            row: dict[str, Any] = {"name": self.item(case["item"]).name, "size": case["size"]}
            # Between two cases a slider may have its turn.
            with self._one:
                try:
                    ran: Any = self._opened(case).run(data=False)
                    row |= {"ps": round(1000 * ran.latency_ns), "percent": ran.percent_of_bound}
                except AhbmError as error:
                    row["code"] = error.code
            sweep.rows.append(row)

    def _size(self, value: object) -> int:
        found = parse_size(value) if isinstance(value, str) else value
        if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= MOST_SIZE:
            raise ConfigError("AHBM-C129", f"size is 1 B to {size(MOST_SIZE)}")
        return found

    def source(self, number: object) -> str:
        """The text of a module. Raises ConfigError (AHBM-C129, C161)."""
        return self._module(number).read_text(encoding="utf-8")

    def save(self, number: object, text: object) -> None:
        """Writes a module. Raises ConfigError (AHBM-C129) for too much, C161 where it cannot be written."""
        path = self._module(number)
        if not isinstance(text, str) or len(text.encode()) > MOST_TEXT:
            raise ConfigError("AHBM-C129", f"text is at most {size(MOST_TEXT)}")
        try:
            store({path: text.encode()})
        except OSError as error:
            raise ConfigError("AHBM-C161", f"cannot write {path.name}: {error.strerror}") from error

    def stamp(self, number: object) -> str:
        """Changes whenever the file of a module does; empty where it has none."""
        path = self.item(number).path
        try:
            return "" if path is None else str(path.stat().st_mtime_ns)
        except OSError:
            return ""

    def _module(self, number: object) -> Path:
        item = self.item(number)
        if item.kind != "module" or item.path is None:
            raise ConfigError("AHBM-C129", f"{item.name} is no module that can be edited")
        return item.path


def _verdict(report: object) -> str:
    assert isinstance(report, Report)
    if not report.wrong:
        return "The result is right."
    return (
        f"The result is wrong: {report.wrong:,} elements. {next((str(f.message) for f in report.findings), '')}".strip()
    )


def _ranks(ran: Any) -> int:
    return len(ran.ranks) if isinstance(ran, JobReport) else int(ran.ranks)


def _changes(asked: Mapping[str, object]) -> dict[str, object]:
    """Overrides of the sliders that were moved. Raises ConfigError (AHBM-C129)."""
    found: dict[str, object] = {}
    for name, (key, least, most) in RANGES.items():
        value = asked.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not least <= float(str(value)) <= most:
            raise ConfigError("AHBM-C129", f"{name} is {least:g} to {most:g}")
        found[key] = round(float(str(value))) if name == "slots" else value
    return found


def error_of(error: AhbmError) -> dict[str, Any]:
    """An error for a page: its code, its text, and lines by their files' names."""
    sites = [site for finding in error.findings for site in finding.to_json()["sites"]]
    lines = [{"file": Path(site["file"]).name, "line": site["line"]} for site in sites if site.get("line")]
    return {"code": error.code, "text": str(error), "lines": lines}


def found_in(target: Path | None, collective: str, topology: str | Path | None) -> list[Item]:
    """What there is to look at: a file; or the algorithms and files of a folder, then those of `ccl.yaml` that perform
    the collective. Raises ConfigError (AHBM-C144) for what is no file that can be run.
    """
    if target is not None and not target.is_dir():
        if target.suffix in MODULES and _is_module(target):
            return [Item(target.name, "module", target.resolve())]
        if not target.exists() and not list(target.parent.glob(f"{target.name}.*")):
            raise ConfigError("AHBM-C144", f"{target} is no file and no folder")
        if (other := foreign.known(target)) is not None and not other.is_read_by("run", ()):
            hint = other.advice(str(target))
            raise ConfigError("AHBM-C144", f"{target} is no module, no plan and no job", hint=hint)
        return [Item(target.name, "target", target)]
    folder = target or Path()
    modules = sorted({*folder.glob("*.py"), *folder.glob("algorithms/*.py")})[:MOST_FILES]
    items = [Item(str(path.relative_to(folder)), "module", path.resolve()) for path in modules if _is_module(path)]
    plans = sorted(folder.glob("*.xml"))[: MOST_FILES - len(items)]
    items += [Item(path.name, "target", path) for path in plans]
    return [*items, *(Item(name, "algorithm") for name in performing(collective))]


def performing(collective: str) -> list[str]:
    """The configured algorithms of a collective."""
    from ahbm.core.emulator import Emulator

    return Emulator.load().algorithms(collective)


def _is_module(path: Path) -> bool:
    """Whether a file looks like the module of an algorithm; it is not imported for that."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return KERNEL.search(text) is not None and not path.name.startswith("test_")
