"""Measurements of NCCL by which a file of its tuner is judged: what it takes by itself, and what it was made to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ahbm._core import Machine
from ahbm.base.arguments import shown
from ahbm.calibrate import tables
from ahbm.calibrate.tables import Row
from ahbm.choose.formats import nccl_sweep
from ahbm.choose.formats.format import load
from ahbm.choose.names import ALGORITHMS, NCCL, PROTOCOLS
from ahbm.choose.regret import Point
from ahbm.errors import ConfigError
from ahbm.source.switches import count_nodes


class Forced(NamedTuple):
    """What NCCL was made to run, by its own names."""

    algorithm: str
    protocol: str
    channels: int | None = None
    """None: its own number."""


class Ran(NamedTuple):
    """What ran, and where."""

    collective: str
    ranks: int
    nodes: int
    forced: Forced | None = None
    """None: NCCL chose."""

    @property
    def text(self) -> str:
        """The calls, in words."""
        return f"{self.collective} of {self.ranks} ranks on {self.nodes} nodes"


@dataclass(frozen=True)
class Measurements:
    """Measured times by what ran; of each, rows by size."""

    rows: Mapping[Ran, tuple[Row, ...]] = field(default_factory=dict)

    def check(self, machines: Iterable[Machine], collective: str, nodes: int | None) -> None:
        """Raises ConfigError (AHBM-C146) for measurements of calls that no machine of some has, of those that were
        fitted to measurements. nodes: computers of the ranks of every machine; None: its nodes."""
        fitted = [machine for machine in machines if machine.bands is not None]
        known = [(one.sips, nodes or count_nodes(one, range(one.sips))) for one in fitted]
        for ran in self.rows:
            if known.count((ran.ranks, ran.nodes)) > 1:
                what = f"--measured is of {ran.text}, as several of the machines have them"
                raise ConfigError("AHBM-C146", what, hint="tune them one by one")
            if ran.collective != collective or (ran.ranks, ran.nodes) not in known:
                has = (
                    ", ".join(f"{ranks} ranks on {count} nodes" for ranks, count in sorted(known)) or "no such machine"
                )
                what = f"--measured is of {ran.text}: the calibrated machines have {collective} of {has}"
                raise ConfigError("AHBM-C146", what, hint="name the machine that the table is of, and its collective")

    def us(self, point: Point, nodes: int, forced: Forced | None = None) -> float | None:
        """The measured time of what NCCL was made to run at a point, or of NCCL by itself; between rows on the line in
        logarithms. None outside the rows."""
        rows = self.rows.get(Ran(point.collective, point.ranks, nodes, forced), ())
        if not rows or not rows[0].bytes <= point.nbytes <= rows[-1].bytes:
            return None
        return float(tables.interpolated(rows, [point.nbytes])[0])

    def quickest(
        self, point: Point, nodes: int, algorithm: str, protocol: str, channels: int | None = None
    ) -> tuple[float, Forced] | None:
        """The least measured time of an algorithm in a protocol at a point, with so many channels where that is said
        and was measured, and what ran; None where it was not measured."""
        alike = [ran.forced for ran in self.rows if ran.forced is not None and ran.forced[:2] == (algorithm, protocol)]
        alike = [forced for forced in dict.fromkeys(alike) if channels in (None, forced.channels)] or alike
        found = [(us, forced) for forced in alike if (us := self.us(point, nodes, forced)) is not None]
        return min(found, key=lambda each: each[0], default=None)


def read(files: Iterable[str]) -> Measurements:
    """The measurements in files: tables as `ahbm calibrate` reads them, of NCCL by itself, or, as
    `ALGORITHM/PROTOCOL=FILE`, of what it was made to run; and sweeps of NCCL's tuner, which say what ran.

    Raises ConfigError (AHBM-C146) for two tables of the same, for what NCCL has not, and for what it was made to run
    without what it takes by itself; and as `ahbm.calibrate.tables.read`
    and the reader of sweeps.
    """
    found: dict[Ran, tuple[Row, ...]] = {}
    for given in files:
        for ran, rows in _one(given):
            if ran in found:
                raise ConfigError("AHBM-C146", f"{shown(given)} and an earlier --measured are measurements of the same")
            found[ran] = rows
    for ran in found:
        if ran.forced is not None and ran._replace(forced=None) not in found:
            what = f"{ran.text} in {ran.forced.algorithm}/{ran.forced.protocol} was measured, and not NCCL by itself"
            raise ConfigError(
                "AHBM-C146", what, hint="a --measured table of the same calls without ALGORITHM/PROTOCOL="
            )
    return Measurements(found)


def _one(given: str) -> Iterator[tuple[Ran, tuple[Row, ...]]]:
    named, sign, file = given.rpartition("=")
    if not sign and nccl_sweep.FORMAT.claims(text := load(file)):
        yield from _of_sweep(text, file)
        return
    table = tables.read(file)
    algorithm, _, protocol = named.partition("/")
    if sign and (algorithm not in ALGORITHMS or protocol not in PROTOCOLS):
        hint = f"ALGORITHM/PROTOCOL=FILE, of {', '.join(ALGORITHMS)} and {', '.join(PROTOCOLS)}"
        raise ConfigError("AHBM-C146", f"--measured {shown(named)}: no algorithm and protocol of NCCL", hint=hint)
    if sign and (lacking := NCCL.lacks(table.collective, algorithm, protocol, table.nodes, table.ranks / table.nodes)):
        raise ConfigError("AHBM-C146", f"--measured {shown(named)}: NCCL has {lacking}")
    yield Ran(table.collective, table.ranks, table.nodes, Forced(algorithm, protocol) if sign else None), table.measured


def _of_sweep(text: str, file: str) -> Iterator[tuple[Ran, tuple[Row, ...]]]:
    found: dict[Ran, dict[int, Row]] = {}
    for row in nccl_sweep.rows(text, file):
        forced = Forced(row.algorithm, row.protocol, row.channels if row.channels > 0 else None)
        ran = Ran(row.collective, row.ranks, row.nodes, forced)
        sizes = found.setdefault(ran, {})
        if row.latency_us > 0 and (row.nbytes not in sizes or row.latency_us < sizes[row.nbytes].us):
            sizes[row.nbytes] = Row(row.nbytes, row.latency_us, row.line)
    yield from ((ran, tuple(sizes[size] for size in sorted(sizes))) for ran, sizes in found.items() if sizes)
