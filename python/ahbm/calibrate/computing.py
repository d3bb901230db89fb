"""`ahbm calibrate TRACE`: what the kernels of an accelerator take by their class and dimensions, fitted to measured
operations of it, and how far that is off at operations that were held back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from ahbm._core import Machine
from ahbm.calibrate import templates
from ahbm.calibrate.accelerators import Accelerator, known, named
from ahbm.calibrate.hosts import SURE, Relative, relative
from ahbm.calibrate.nearest import Nearest, nearest
from ahbm.calibrate.readers.operations import Measured, Operations
from ahbm.calibrate.tables import Floats
from ahbm.calibrate.written import text
from ahbm.errors import ConfigError

SHEET = ("units", "clock_mhz", "l2_mib", "watts")
"""Keys of `compute` that a data sheet says: they are not fitted."""
HOST = "host."
"""Keys of what the host takes."""
PARTS = ("share", "wave", "narrow")
"""Ends of the names of numbers that are a part of a whole."""
WIDE = 8.0
"""How far a number may be from that of the H200, as a factor."""
SUPPOSED = 0.01
"""What a number that leaves that of the H200 by a factor of e counts, in squared residuals."""
REACTS = 1e-6
"""Part by which a row's time changes, at least, with a number that it says anything of."""
HEAVY = 8.0
"""Weight of a row at most, and one by it at least: rows count by the fourth root of the time that they take in all."""
ROUNDS, FEWEST, WORK = 30, 3, 1.2e7
"""Rounds of a fit at most and at least, and how many times it asks what a kernel takes: some ten seconds."""
LIKELY = 1.4826
"""Standard deviation by the median of magnitudes, of a normal distribution."""


@dataclass(frozen=True)
class Parameter:
    """A number of `compute`."""

    key: str
    value: float
    supposed: float
    """What it was before."""
    percent: float
    """Standard error."""


@dataclass(frozen=True)
class Errors:
    """How far predictions are off at operations of one class that were held back, in percent."""

    kind: str
    rows: int
    us: float
    """What they take together."""
    median: float
    ninth: float
    """Nine of ten are nearer."""
    worst: float
    total: float
    """Of the sum of all times, with its sign."""

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        numbers = {
            "median_percent": self.median,
            "p90_percent": self.ninth,
            "worst_percent": self.worst,
            "total_percent": self.total,
        }
        return {"kind": self.kind, "rows": self.rows, "us": round(self.us, 3)} | {
            key: round(value, 2) for key, value in numbers.items()
        }


@dataclass(frozen=True)
class Fitted:
    """A machine whose kernels were fitted."""

    tree: dict[str, Any]
    """As `topology.yaml` declares it, with `compute`."""
    parameters: tuple[Parameter, ...]
    errors: tuple[Errors, ...]
    """By class, those that take the longest first; the first is of all."""
    notes: tuple[str, ...]

    def text(self) -> str:
        """For people."""
        lines = ["# parameter                                value   +- %   before"]
        for each in self.parameters:
            lines.append(f"  {each.key:<34} {each.value:>12.6g}  {each.percent:5.1f}  {each.supposed:7.4g}")
        lines.append("# operations, held back     rows        ms  median %  9 of 10 %  worst %  total %")
        for of in self.errors:
            lines.append(
                f"  {of.kind:<22} {of.rows:>7}  {of.us / 1000:>8.4g}  {of.median:>8.1f}  {of.ninth:>9.1f}"
                f"  {of.worst:>7.1f}  {of.total:>+7.1f}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "parameters": [vars(each) for each in self.parameters],
            "held_back": [each.to_json() for each in self.errors],
            "notes": list(self.notes),
            "machine": self.tree,
        }


def calibrate(
    files: Sequence[Operations],
    template: str | Path | None = None,
    accelerator: str | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> Fitted:
    """The machine whose kernels are nearest to measured operations of one accelerator.

    template: a machine whose sheet holds; else that of `accelerator`, or of the accelerator that the files name. `tell`
    is told what is done next, for people. Raises ConfigError (AHBM-C195) for files of several accelerators, of one
    whose sheet is not known, and for a machine that says nothing of its units; as `templates.read`.
    """
    devices = sorted({each.device for each in files})
    if len(devices) > 1:
        raise ConfigError(
            "AHBM-C195", f"the files are of several accelerators: {', '.join(devices)}", hint="--device names one"
        )
    tree, facts = _machine(devices[0], template, accelerator)
    notes = [note for each in files for note in each.notes]
    of = {each.units for each in files if each.units is not None}
    if of and of != {tree["compute"]["units"]}:
        notes.append(f"the trace says {', '.join(map(str, sorted(of)))} units, the sheet {tree['compute']['units']}")
    if template is None:
        notes.append(f"links and memory are those of the data sheet of {facts.name}" if facts else "")
    rows = _together(files)
    fit = _Fit(tree, rows)
    tell("fitting to all operations")
    best = fit.to(np.ones(len(rows), bool))
    # Rows of a class lie by what they take; of two neighbours each is held back once.
    order = sorted(range(len(rows)), key=lambda at: (rows[at].kind, rows[at].us, rows[at].name))
    odd = np.zeros(len(rows), bool)
    odd[order[1::2]] = True
    tell("fitting to every second operation")
    held = np.empty(len(rows))
    for part in (odd, ~odd):
        # One row alone has nobody to be predicted by.
        found = fit.to(~part) if (~part).any() else best
        held[part] = np.exp(found.off[part])
    errors = _errors(rows, held)
    parameters = fit.parameters(best)
    compute = dict(tree["compute"])
    compute.pop("fit", None)
    compute["source"] = f"fitted to operations of {devices[0] or 'an accelerator'}"
    for each in parameters:
        section, key = each.key.split(".")
        compute[section] = {**compute.get(section, {}), key: float(f"{each.value:.5g}")}
    profiles = [each.profile for each in files if each.profile is not None]
    host = relative(profiles)
    notes += _host(compute, host) if profiles else []
    compute["fit"] = _record(files, parameters, errors, fit.covariance(best), host)
    tree["compute"] = compute
    return Fitted(tree, parameters, errors, tuple(note for note in notes if note))


def _host(compute: dict[str, Any], host: Relative | None) -> list[str]:
    """Puts into `compute` what the host of the traces takes, and says how that was found."""
    if host is None:
        return ["the host is that of the machine: no trace says enough of another"]
    said = f"the host takes {host.factor:.2f} times what that of the reference takes ({host.operations} operations)"
    if 1 / SURE <= host.factor <= SURE:
        return [f"{said}: traces of one host differ by as much, so it is that of the machine"]
    compute["host"] = {**compute.get("host", {}), "factor": float(f"{host.factor:.4g}")}
    return [said]


def _together(files: Sequence[Operations]) -> list[Measured]:
    """The rows of all files, those that are alike as one."""
    found: dict[tuple[str, Any], list[Measured]] = {}
    for each in files:
        for row in each.rows:
            found.setdefault((row.name, row.kernels), []).append(row)
    return [
        Measured(name, kernels, sum(row.us * row.count for row in rows) / count, count)
        for (name, kernels), rows in found.items()
        for count in [sum(row.count for row in rows)]
    ]


def _machine(
    device: str, template: str | Path | None, accelerator: str | None
) -> tuple[dict[str, Any], Accelerator | None]:
    """What is fitted, with the `compute` of its sheet, and the sheet."""
    facts = named(accelerator) if accelerator else known(device)
    if template is None:
        if facts is None:
            raise ConfigError(
                "AHBM-C195",
                f"no data sheet of {device!r} is known" if device else "the file does not name its accelerator",
                hint="--accelerator names one, or -t a machine that has a section compute",
            )
        tree = templates.alone(facts)
    else:
        tree = templates.declared(template)
        tree = tree if accelerator is None else templates.computing(tree, accelerator)
    said = ((tree.get("pe") or {}).get("roofline") or {}).get("accelerator")
    facts = facts if accelerator or template is None else (known(str(said)) if said else facts)
    if accelerator or not tree.get("compute"):
        if facts is None or facts.compute() is None:
            raise ConfigError(
                "AHBM-C195",
                f"the units of {facts.name if facts else template} are not known",
                hint="give the machine a section compute: {units: ..., clock_mhz: ..., l2_mib: ...}",
            )
        tree["compute"] = facts.compute()
    return tree, facts


class _Fit:
    """Rows, and the numbers of `compute` that they say something of."""

    def __init__(self, tree: dict[str, Any], rows: Sequence[Measured]) -> None:
        self.machine = Machine.from_yaml(text(tree), "template", [])
        self.us = np.array([row.us for row in rows])
        kernels = [each for row in rows for each in row.kernels]
        self.kernels = [
            (each.kind, each.dims, each.operations, each.nbytes, each.arithmetic, False) for each in kernels
        ]
        self.ends = np.cumsum([0, *(len(row.kernels) for row in rows)])[:-1]
        total = (self.us * np.array([row.count for row in rows])) ** 0.25
        self.weights = np.clip(total / total.mean(), 1 / HEAVY, HEAVY)
        compute = self.machine.compute
        assert compute is not None, "the machine has a section compute"
        free = {
            key: value
            for key, value in compute.values.items()
            if 0 < value < inf and key not in SHEET and not key.startswith(HOST)
        }
        self.keys = list(free)
        self.start = np.log(list(free.values()))
        base = self.predicted(self.start)
        reacts = []
        for at in range(len(self.keys)):
            moved = self.start.copy()
            moved[at] += 0.1
            reacts.append(bool((np.abs(self.predicted(moved) - base) > REACTS * base).any()))
        self.keys = [key for key, each in zip(self.keys, reacts, strict=True) if each]
        self.start = self.start[reacts]
        self.bounds = self.start - np.log(WIDE), self.start + np.log(WIDE)
        for at, key in enumerate(self.keys):
            if key.endswith(PARTS):
                self.bounds[1][at] = max(0.0, self.start[at])

    def predicted(self, point: Floats) -> Floats:
        """us of every row at a point of logarithms."""
        values = [
            (f"compute.{key}", f"{value:.12g}") for key, value in zip(self.keys, np.exp(point).tolist(), strict=True)
        ]
        ps = np.array(self.machine.changed(values).kernels_ps(self.kernels), np.float64)
        return np.asarray(np.add.reduceat(ps, self.ends) / 1e6)

    def to(self, which: Any) -> Nearest:
        """The fit to some of the rows."""
        weights = np.where(which, self.weights, 0.0)
        rounds = int(np.clip(WORK / (len(self.kernels) * (len(self.keys) + 1)), FEWEST, ROUNDS))
        return nearest(self.predicted, self.us, weights, self.start, self.bounds, SUPPOSED, rounds)

    def covariance(self, found: Nearest) -> Floats:
        """Of the logarithms of the parameters."""
        sure = LIKELY * float(np.median(np.abs(found.off)))
        return np.asarray(max(sure, 1e-3) ** 2 * np.linalg.inv(found.normal))

    def parameters(self, found: Nearest) -> tuple[Parameter, ...]:
        """The numbers that were fitted."""
        spread = 100 * np.sqrt(np.diag(self.covariance(found)))
        values = zip(self.keys, np.exp(found.point).tolist(), np.exp(self.start).tolist(), spread.tolist(), strict=True)
        return tuple(Parameter(*each) for each in values)


def _errors(rows: Sequence[Measured], ratios: Floats) -> tuple[Errors, ...]:
    """How far rows are off whose times were predicted so many times as long as they are, by class."""
    kinds = np.array([row.kind for row in rows])
    us = np.array([row.us * row.count for row in rows])

    def of(kind: str, part: Any) -> Errors:
        off = 100 * np.abs(ratios[part] - 1)
        ninth = float(np.quantile(off, 0.9, method="higher"))
        total = 100 * (float((ratios[part] * us[part]).sum() / us[part].sum()) - 1)
        return Errors(
            kind, int(part.sum()), float(us[part].sum()), float(np.median(off)), ninth, float(off.max()), total
        )

    found = [of(kind, kinds == kind) for kind in sorted(set(kinds.tolist()))]
    return (of("all", np.ones(len(rows), bool)), *sorted(found, key=lambda each: -each.us))


def _record(
    files: Sequence[Operations],
    parameters: Sequence[Parameter],
    errors: Sequence[Errors],
    covariance: Floats,
    host: Relative | None,
) -> dict[str, Any]:
    """How it was fitted, as a machine keeps it."""
    of_host = None if host is None else {key: round(value, 3) for key, value in host._asdict().items()}
    return {
        **({} if of_host is None else {"host": of_host}),
        "sources": [
            {
                "file": each.name,
                "digest": each.digest,
                "device": each.device,
                "rows": len(each.rows),
                "covered": round(each.covered, 4),
            }
            for each in files
        ],
        "held_back": [each.to_json() for each in errors],
        "parameters": [each.key for each in parameters],
        "covariance": [[float(f"{each:.3g}") for each in row] for row in covariance.tolist()],
    }
