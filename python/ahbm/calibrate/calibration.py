"""`ahbm calibrate`: tables in, a machine out, and how far it is off at sizes that it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from ahbm.calibrate import clusters, coefficients, constants, fit, library, residuals, templates, uncertainty, written
from ahbm.calibrate.cleaning import FEWEST, cleaned
from ahbm.calibrate.judged import Judged, bands, clusters_of, errors
from ahbm.calibrate.laws import Law, Rows
from ahbm.calibrate.tables import Floats, Table
from ahbm.calibrate.templates import Template
from ahbm.errors import ConfigError

ADDS_UP, NEARER = 2.0, 12
"""Percent by which runs may differ from the law before it is fitted again, and how often that is done."""
SURE, SETTLED = 1e-4, 0.01
"""Error of a machine that is near enough, and the part by which it changes where it no longer does."""
DEVIATES = 10.0
"""Percent by which runs may differ from the law without a note."""
MARGIN = 16
"""A protocol of less bandwidth is tried up to so many times the size that it is the quickest for on few ranks."""
BEYOND = 2
"""How many times the largest size of its rows the protocol of calls of few bytes is used for."""
SHARED = {
    "launch_us": ("launch.overhead_ns", 1000.0),
    "nic_steps": ("protocols.*.nic_step_ns / step_ns", 1.0),
}
"""Parameters that protocols share, by the field of a law: key, and the key's value for one of the field."""


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter of the machine."""

    key: str
    value: float
    percent: float | None
    """Standard error, in percent; None for what the rows do not tell."""
    source: str | None = None
    """What tells it then."""


@dataclass(frozen=True)
class Calibrated:
    """A fitted machine."""

    tree: dict[str, Any]
    """As `topology.yaml` declares it, with its calibration block."""
    law: Law | None
    """None where keys of a template were fitted."""
    parameters: tuple[Parameter, ...]
    judged: tuple[Judged, ...]
    deviation_percent: float
    """Largest difference between the law and runs of the machine, at the tables' rows."""
    notes: tuple[str, ...]
    like: str = "another cluster of its kind"
    """Whose times the bands are of."""

    def text(self) -> str:
        """For people."""
        lines = ["# parameter                                value   +- %"]
        for each in self.parameters:
            sure = f"from {each.source}" if each.percent is None else f"{each.percent:6.1f}"
            lines.append(f"  {each.key:<34} {each.value:>12.6g}  {sure}")
        for table in self.judged:
            lines += [
                f"# {table.table.name}: {table.table.collective} of {table.table.ranks} ranks",
                f"  {'bytes, held back':>26}  rows  mean %  worst %",
                *(
                    f"  {band['from_bytes']:>12}-{band['to_bytes']:<13}  {band['rows']:>4}  {band['mean_percent']:6.1f}"
                    f"  {band['worst_percent']:7.1f}"
                    for band in table.decades
                ),
                f"  mean {table.mean:.1f} %, median {table.median:.1f} %; lines between the neighbours: "
                f"mean {table.interpolated:.1f} %",
            ]
        lines += clusters_of(self.judged, self.like)
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "parameters": [vars(each) for each in self.parameters],
            "free_parameters": sum(each.percent is not None for each in self.parameters),
            "tables": [
                {
                    "table": each.table.name,
                    "collective": each.table.collective,
                    "ranks": each.table.ranks,
                    "nodes": each.table.nodes,
                    "rows": len(each.table.measured),
                    "mean_percent": each.mean,
                    "median_percent": each.median,
                    "interpolation_mean_percent": each.interpolated,
                    "decades": each.decades,
                    "held_back": [vars(error) for error in each.errors],
                }
                for each in self.judged
            ],
            "deviation_percent": self.deviation_percent,
            "notes": list(self.notes),
            "machine": self.tree,
        }


def calibrate(
    tables: Sequence[Table],
    template: Template | str | Path | None = None,
    tell: Callable[[str], object] = lambda text: None,
    accelerator: str | None = None,
    nic_gbs: float | None = None,
) -> Calibrated:
    """The machine that is nearest to the tables, with the errors at rows that were held back.

    template: what to fit; None follows the heads of the tables, `accelerator` and `nic_gbs` as `templates.of` does.
    What the machine computes at is the data sheet of `accelerator`, else of the heads', else the template's. `tell`
    is told what is done next, for people. Raises ConfigError (AHBM-C195), and as `templates.read` and
    `Emulator.compile`.
    """
    if not tables:
        raise ConfigError("AHBM-C195", "there is no table to fit a machine to")
    notes: list[str] = []
    tidy = [cleaned(table, notes) for table in tables]
    shape = template if isinstance(template, Template) else templates.read(template) if template else None
    if shape is not None and accelerator is not None:
        shape = replace(shape, tree=templates.computing(shape.tree, accelerator))
    given = (shape or templates.of(tidy, accelerator, nic_gbs)).among(tidy)
    if any(len(table.measured) < FEWEST for table in tidy):
        few = min(tidy, key=lambda table: len(table.measured))
        raise ConfigError(
            "AHBM-C195", f"{few.name} has {len(few.measured)} rows: a machine needs {FEWEST}", hint="measure more sizes"
        )
    tell("counting the steps and bytes of every row")
    known = coefficients.known(given, tidy)
    nearest = None
    if coefficients.rows(tidy, known).shared == ("nic_steps",):
        nearest, known = coefficients.nearest(given, tidy, known, tell)
    tell("fitting to all rows")
    apart = clusters.alike(tidy)
    fitted: Sequence[Table] = [clusters.middle(tidy)] if apart else tidy
    machine = _machine(given, fitted, tidy, known, nearest)
    if not nearest and not apart and machine.deviation > ADDS_UP:
        tell("fitting to all rows, whose steps and bytes hide behind each other")
        machine, fitted = _settled(machine, given, tidy, known)
    if (left := _left(machine.law, fitted, known)) is not None:
        tell("running what the law leaves of the rows")
        machine = _machine(given, fitted, tidy, known, machine.free, left)
    tell("fitting to every second row")
    held = _held_back(fitted, known) * (len(tidy) if apart else 1)
    parameters, covariance = _parameters(machine.free, machine.law, coefficients.rows(fitted, known), given)
    judged = tuple(
        _judged(table, laws, own, ratios)
        for table, laws, own, ratios in zip(tidy, held, machine.predicted, machine.ratios, strict=True)
    )
    named = accelerator or tables[0].accelerator
    machine.tree["calibration"] = block(named, judged, parameters, covariance)
    machine.tree["calibration"]["ranges"] = ranges(machine, fitted if apart else tidy, known)
    notes += templates.unstated(machine.tree, named)
    if machine.deviation > DEVIATES:
        message = f"runs of the machine differ from its law by up to {machine.deviation:.0f} %"
        notes.append(f"{message}: the held-back errors are those of the machine")
    return Calibrated(machine.tree, machine.law, parameters, judged, machine.deviation, tuple(notes))


@dataclass(frozen=True)
class _Machine:
    """A law as a machine that has run."""

    free: Law
    """Without a launch, where the rows do not tell it from the steps."""
    law: Law
    tree: dict[str, Any]
    predicted: tuple[Floats, ...]
    """Of each table, the us of the law at its rows."""
    ratios: tuple[Floats, ...]
    """And what runs take of these."""
    off: float
    """Mean error of runs at the measured rows, as the magnitude of a logarithm."""

    @property
    def deviation(self) -> float:
        """Percent by which runs differ from the law at most."""
        return max(100 * float(np.abs(ratios - 1).max()) for ratios in self.ratios)


def _machine(
    template: Template,
    fitted: Sequence[Table],
    tables: Sequence[Table],
    known: coefficients.Coefficients,
    nearest: Law | None = None,
    left: residuals.Residual | None = None,
) -> _Machine:
    """The machine of the law that is nearest to `fitted`: `tables`, by what runs take of a law's time. nearest: it, if
    it is known; left: what it leaves of the rows, if that is."""
    rows = coefficients.rows(fitted, known)
    free = nearest or fit.chosen(rows)
    law = _split(free, rows, template, max(table.nodes for table in tables) > 1)
    ranks = max(table.ranks for table in tables)
    last = _last(law, rows) if law.shape.bordered else _few(law, rows)
    factors = [] if left is None else left.factors(law, rows)
    tree = written.tree(template, law, ranks, tables[0].collective, last, factors)
    tree["protocols"] |= library.others(template, tree, law, tables, known)
    library.without_protocol(tree, tables)
    predicted = tuple(_us(law, left, coefficients.rows([table], known)) for table in tables)
    ratios = tuple(_ratios(tree, table, partial(_us, law, left), coefficients.rows([table], known)) for table in tables)
    runs = np.concatenate([us * each for us, each in zip(predicted, ratios, strict=True)])
    measured = coefficients.rows(tables, known)
    off = np.abs(np.log(runs / measured.us))[measured.counts > 0]
    return _Machine(free, law, tree, predicted, ratios, float(np.minimum(off, fit.WORST).mean()))


def _settled(
    machine: _Machine, template: Template, tables: Sequence[Table], known: coefficients.Coefficients
) -> tuple[_Machine, Sequence[Table]]:
    """The machine whose law is nearest to the rows by what its runs take of the law's times, and the tables with these
    times: the fixed point, by Anderson's mixing of two steps (Walker and Ni, "Anderson acceleration for fixed-point
    iterations", 2011), as far as the runs come nearer to the rows."""
    fitted: Sequence[Table] = tables
    used = np.zeros(sum(len(table.rows) for table in tables))
    best, before = machine, None
    for _ in range(NEARER):
        gives = np.log(np.concatenate(machine.ratios))
        apart, next_ = gives - used, gives
        if before is not None and (change := apart - before[0]).any():
            next_ = gives - (apart @ change) / (change @ change) * (gives - before[1])
        before, used = (apart, gives), next_
        parts = np.split(np.exp(next_), np.cumsum([len(table.rows) for table in tables])[:-1])
        again = [table.by(each) for table, each in zip(tables, parts, strict=True)]
        last, machine = machine, _machine(template, again, tables, known)
        if machine.off < best.off:
            best, fitted = machine, again
        if machine.off < SURE or abs(machine.off / last.off - 1) < SETTLED:
            break
    return best, fitted


def _left(law: Law, tables: Sequence[Table], known: coefficients.Coefficients) -> residuals.Residual | None:
    """What a law leaves of the rows of tables; None for those of several collectives, whose sizes are not alike."""
    one = len({(table.collective, table.ranks) for table in tables}) == 1
    return residuals.of(law, coefficients.rows(tables, known)) if one else None


def _us(law: Law, left: residuals.Residual | None, rows: Rows) -> Floats:
    """us of rows by a law and what it leaves of those that it was fitted to."""
    us = law.us(rows)
    return us if left is None else us * np.exp(left.at(rows.n))


def _held_back(tables: Sequence[Table], known: coefficients.Coefficients) -> list[dict[int, float]]:
    """Of each table, by its bytes, the us that a law of every second row predicts for the others, and the other way
    round."""
    found: list[dict[int, float]] = [{} for _ in tables]
    for held in (True, False):
        fitted = [table.half(not held) for table in tables]
        if len(np.unique([row.bytes for table in fitted for row in table.rows])) < 2:
            continue
        law = fit.chosen(coefficients.rows(fitted, known))
        left = _left(law, fitted, known)
        for laws, table in zip(found, tables, strict=True):
            tested = table.half(held)
            if tested.rows:
                sizes = [row.bytes for row in tested.rows]
                us = _us(law, left, coefficients.rows([tested], known))
                laws |= zip(sizes, us.tolist(), strict=True)
    return found


def _judged(table: Table, laws: Mapping[int, float], own: Floats, ratios: Floats) -> Judged:
    """The errors of the machine at a table's rows: those of laws by what runs take of a law's time. laws: by the bytes
    of a row, us of one that has not seen it; own: of the one that has seen all."""
    at = dict(zip([row.bytes for row in table.rows], ratios.tolist(), strict=True))
    found = []
    for held in (True, False):
        tested = table.half(held)
        if all(row.bytes in laws for row in tested.rows):
            us = np.array([laws[row.bytes] * at[row.bytes] for row in tested.rows])
            found += errors(tested, table.half(not held), us)
    found.sort(key=lambda each: each.bytes)
    us = own * ratios
    return Judged(table, tuple(found), tuple(errors(table, table, us)), tuple(us.tolist()))


def _last(law: Law, rows: Rows) -> list[int | None]:
    """The sizes up to which protocols of less bandwidth are tried, also on more ranks; None is all."""
    quickest = np.argmin(law.each(rows), axis=0)
    found: list[int | None] = []
    for number in range(sum(term.free > 0 for term in law.shape.terms) - 1):
        sizes = rows.n[quickest == number]
        found.append(int(sizes.max()) * MARGIN if len(sizes) else None)
    return found


def _few(law: Law, rows: Rows) -> list[int | None]:
    """The sizes up to which the protocol of calls of few bytes is used, if there is one: its numbers say nothing of
    others."""
    sizes = rows.n[law.used(rows) == 0]
    return [BEYOND * int(sizes.max())] if law.few and len(sizes) and not law.borders else []


def _split(law: Law, rows: Rows, template: Template, across: bool) -> Law:
    """The law with a launch.

    Where all rows have as many steps, the table does not say how a floor divides into launch and steps: the template's
    launch does, or the proportion of NCCL's.
    """
    if rows.shared:
        return law
    steps = float(rows.steps[0, 0])
    least = min(each.step_us for each in law.protocols)
    if template.launch_ns is not None:
        launch = min(template.launch_ns / 1000, 0.999 * least * steps)
    else:
        nccl = constants.steps()
        step = template.steps_ns[0] / 1000 if template.steps_ns else nccl.ring if across else nccl.inside
        launch = least * steps * nccl.launch / (nccl.launch + steps * step)
    protocols = tuple(replace(each, step_us=each.step_us - launch / steps) for each in law.protocols)
    return replace(law, launch_us=law.launch_us + launch, protocols=protocols)


def _parameters(free: Law, law: Law, rows: Rows, template: Template) -> tuple[tuple[Parameter, ...], Floats]:
    """The parameters with their standard errors, and the covariance of their logarithms."""
    names, values = [], []
    gbs = "max_gbs" if law.chunk_bytes is None else "nic_gbs"
    paths = {"step_us": "step_ns", "gbs": gbs, "exponent": "ramp_exponent"}
    for number, field in uncertainty.parameters(law, rows):
        if number is None:
            key, unit = SHARED[field]
            names.append(key)
            values.append(unit * getattr(law, field))
        else:
            names.append(f"protocols.{written.names(law)[number]}.{paths.get(field, field)}")
            values.append(getattr(law.protocols[number], field) * (1000 if field == "step_us" else 1))
    covariance = uncertainty.covariance(free, rows)
    found = [
        Parameter(name, float(value), 100 * sqrt(covariance[at, at]))
        for at, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    for number, border in enumerate(law.borders):
        first = sum(len(group) for group in law.shape.groups[: number + 1])
        found.append(Parameter(f"protocols.{written.names(law)[first]}.min_bytes", border, 0.0))
    if law.chunk_bytes is not None:
        found.append(Parameter(f"protocols.{written.TIED}.min_chunk_bytes", law.chunk_bytes, 0.0))
    if not rows.shared:
        source = "NCCL's proportion of launch and steps" if template.launch_ns is None else "the template"
        found.append(Parameter("launch.overhead_ns", 1000 * law.launch_us, None, source))
    return tuple(found), covariance


def block(
    accelerator: str,
    judged: Sequence[Judged],
    parameters: Sequence[Parameter],
    covariance: Floats,
) -> dict[str, Any]:
    return {
        "accelerator": accelerator or "not stated",
        "sources": [
            {
                "table": each.table.name,
                "digest": each.table.digest,
                "collective": each.table.collective,
                "ranks": each.table.ranks,
                "rows": len(each.table.measured),
                "mean_percent": round(each.mean, 3),
            }
            for each in judged
        ],
        "parameters": [each.key for each in parameters[: len(covariance)]],
        "covariance": [[float(f"{max(min(each, 1e6), -1e6):.4g}") for each in row] for row in covariance.tolist()],
        "bands": bands(judged),
    }


def ranges(machine: _Machine, tables: Sequence[Table], known: coefficients.Coefficients) -> list[dict[str, Any]]:
    """The sizes of the rows that each protocol was fitted to: those that the law takes it for. Calls of few bytes are
    those of the library's protocol of small arrays, too, which takes hardly more."""
    found = []
    for table in tables:
        rows = coefficients.rows([table], known)
        used = machine.law.used(rows)
        for number, name in enumerate(written.names(machine.law)):
            sizes = rows.n[(used == number) | ((number == machine.law.few) & (used < machine.law.few))]
            if len(sizes):
                ends = {"from_bytes": int(sizes.min()), "to_bytes": int(sizes.max())}
                found.append({"protocol": name, "ranks": table.ranks, **ends})
    return found


def _ratios(tree: dict[str, Any], table: Table, predict: Callable[[Rows], Floats], rows: Rows) -> Floats:
    """What runs of the machine take of the times, in us, that are predicted for the rows of a table."""
    emulator = written.emulator(written.sized(tree, table.ranks))
    every = 1 if table.ranks <= written.VERIFIED else max(len(table.rows) // 4, 1)
    sizes = [written.even(table.collective, table.ranks, row.bytes) for row in table.rows[::every]]
    some = rows.at(np.arange(0, len(rows), every))
    n = np.array(sizes, np.float64)
    predicted = predict(replace(some, n=n, volume=some.volume * some.n / n))
    ran = [written.us(emulator, table.collective, table.ranks, size) for size in sizes]
    logs = np.log(rows.n)
    return np.interp(logs, logs[::every], np.array(ran) / predicted)
