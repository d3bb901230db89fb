"""A measured table beside what a machine predicts, or beside another table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ahbm.base import foreign
from ahbm.base.collectives import COLLECTIVES
from ahbm.calibrate.readers import imb, osu, rccl
from ahbm.calibrate.tables import Table, interpolated
from ahbm.config.topology import ASSUMED, load_machine, with_ranks
from ahbm.errors import ConfigError
from ahbm.runs.measure import run

_TABLE = re.compile(r"^\s*(\"?bytes\"?\s*,|collective,)|#\s*size\s+count\b|_perf\b", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A size, what was measured and what it is compared with, in us."""

    bytes: int
    us: float
    other_us: float
    by: str
    """The algorithm that the machine takes, or nothing for a table."""

    @property
    def factor(self) -> float:
        """What it is compared with, over what was measured."""
        return self.other_us / self.us

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {"bytes": self.bytes, "us": self.us, "other_us": self.other_us, "factor": self.factor, "by": self.by}


@dataclass(frozen=True)
class Beside:
    """A table and what it is compared with."""

    table: Table
    other: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """For people."""
        what = f"{self.table.collective} of {self.table.ranks} ranks on {self.table.nodes} nodes"
        lines = [
            f"# {what}: {self.table.name} and {self.other}",
            f"{'# bytes':>12} {'us':>12} {'us':>12} {'factor':>8}  by",
        ]
        lines += [
            f"{row.bytes:>12} {row.us:>12,.2f} {row.other_us:>12,.2f} {row.factor:>8.3f}  {row.by}".rstrip()
            for row in self.rows
        ]
        off = sum(abs(row.factor - 1) for row in self.rows) / len(self.rows)
        worst = max(self.rows, key=lambda row: abs(row.factor - 1))
        lines.append(f"apart: {100 * off:.1f} % on average, {100 * abs(worst.factor - 1):.1f} % at {worst.bytes} B")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        facts = {"collective": self.table.collective, "ranks": self.table.ranks, "nodes": self.table.nodes}
        rows = [row.to_json() for row in self.rows]
        return {"table": self.table.name, "other": self.other, **facts, "rows": rows, "notes": list(self.notes)}


def is_table(path: str | Path) -> bool:
    """Whether a file is a measured table, by its beginning."""
    head = foreign.ESCAPES.sub("", foreign.head_of(path))
    if head.startswith('{"log"'):
        return _TABLE.search(head) is not None or osu.is_log(head) or imb.is_log(head)
    if head.lstrip().startswith(("{", "<")):
        return foreign.of_text(head) is foreign.LOG
    return rccl.is_csv(head) or osu.is_log(head) or imb.is_log(head) or _TABLE.search(head) is not None


def predicted(table: Table, topology: str | None, overrides: Mapping[str, object]) -> Beside:
    """A table beside a machine's times of the same calls, by what the machine's library takes.

    Raises ConfigError (AHBM-C146) for a machine of another size that cannot have the table's ranks; as `ahbm.run`.
    """
    machine = load_machine(topology, overrides)
    if machine.sips != table.ranks:
        machine = load_machine(topology, with_ranks(table.ranks, topology, overrides))
    unit = table.ranks if COLLECTIVES[table.collective].chunks(table.ranks) > 1 else 1
    rows, notes = [], list(table.notes)
    for row in table.measured:
        if row.bytes % (unit * 2):
            notes.append(f"{row.bytes} B do not split into {unit} parts of two bytes: left out")
            continue
        report = run(table.collective, topology=machine, size=row.bytes, data=False)
        rows.append(Row(row.bytes, row.us, report.latency_ns / 1000, report.algorithm))
        notes += [note for note in report.notes if note not in notes and note.startswith(ASSUMED)]
    return _found(table, topology or machine.origin, rows, notes)


def measured(table: Table, other: Table) -> Beside:
    """A table beside another one of its collective and ranks, at its sizes that lie within the other's.

    Raises ConfigError (AHBM-C146) for one of another collective or number of ranks.
    """
    if (table.collective, table.ranks) != (other.collective, other.ranks):
        both = [f"{each.collective} of {each.ranks} ranks" for each in (table, other)]
        raise ConfigError("AHBM-C146", f"{table.name} is of {both[0]}, {other.name} of {both[1]}")
    low, high = other.measured[0].bytes, other.measured[-1].bytes
    own = [row for row in table.measured if low <= row.bytes <= high]
    times = interpolated(other.measured, [row.bytes for row in own]).tolist() if own else []
    rows = [Row(row.bytes, row.us, float(us), "") for row, us in zip(own, times, strict=True)]
    return _found(table, other.name, rows, [*table.notes, *other.notes])


def _found(table: Table, other: str, rows: Sequence[Row], notes: Sequence[str]) -> Beside:
    if not rows:
        raise ConfigError("AHBM-C146", f"{table.name} and {other} have no size in common")
    return Beside(table, other, tuple(rows), tuple(notes))
