"""What a job's collectives took: a table at exit, and files where AHBM_REPORT says so.

AHBM_REPORT is `-` for the table alone, or a folder for `report.txt` (the table), `calls.json` (every call) and
`trace.pftrace` (all ranks on one timeline, which Perfetto opens). All times are simulated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ahbm._core import write_job_timeline
from ahbm.collectives import COLLECTIVES
from ahbm.limits import Limits
from ahbm.session import CallRecord, Session

ENV = "AHBM_REPORT"


def add(session: Session) -> None:
    """Reports on a session that has ended, if AHBM_REPORT asks for it."""
    target = os.environ.get(ENV)
    if not target or not any(session.calls):
        return
    table = text(session)
    print(table, file=sys.stderr)
    if target != "-":
        folder = _folder(Path(target))
        (folder / "report.txt").write_text(table + "\n", encoding="utf-8")
        (folder / "calls.json").write_text(json.dumps([asdict(call) for call in calls(session)]), encoding="utf-8")
        write_job_timeline(folder / "trace.pftrace", "torch.distributed", stretches(session))


def _folder(asked: Path) -> Path:
    """`asked`, or where it has a report, the first of its sub-folders 2, 3, ... that has none."""
    folder, number = asked, 1
    while (folder / "report.txt").exists():
        number += 1
        folder = asked / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def calls(session: Session) -> list[CallRecord]:
    """Every performed operation once, by start, then group, then kind."""
    found = {
        id(part.operation): part.operation.record
        for parts in session.calls
        for part in parts
        if isinstance(part.operation.record, CallRecord)
    }
    records = [record for record in found.values() if isinstance(record, CallRecord)]
    return sorted(records, key=lambda call: (call.start_ns, call.group, call.collective, call.bytes))


@dataclass
class Row:
    """All calls of one collective on groups of one size."""

    collective: str
    ranks: int
    calls: int = 0
    bytes: int = 0
    time_ns: float = 0.0
    bound_ns: float | None = 0.0
    algorithms: set[str] = field(default_factory=set)

    @property
    def busbw_gbs(self) -> float:
        """Of all calls together, as nccl-tests counts it."""
        factor = COLLECTIVES[self.collective].bus_factor(self.ranks)
        return self.bytes * factor / self.time_ns if self.time_ns else 0.0


def rows(records: Iterable[CallRecord], limits: Limits) -> list[Row]:
    """The table's rows, by collective and number of ranks."""
    found: dict[tuple[str, int], Row] = {}
    for call in records:
        row = found.setdefault((call.collective, call.ranks), Row(call.collective, call.ranks))
        row.calls += 1
        row.bytes += call.bytes
        row.time_ns += call.latency_ns
        row.algorithms.add(call.algorithm)
        kind = COLLECTIVES[call.collective]
        bound = limits.bound(call.collective, call.ranks, call.bytes // kind.chunks(call.ranks), root=call.root).ps
        row.bound_ns = None if bound is None or row.bound_ns is None else row.bound_ns + bound / 1000
    return [found[key] for key in sorted(found)]


def text(session: Session) -> str:
    """The table."""
    machine = session.emulator.machine
    head = ("collective", "ranks", "calls", "bytes", "time (us)", "busbw (GB/s)", "% of bound", "algorithm")
    lines = [
        (
            row.collective,
            str(row.ranks),
            str(row.calls),
            str(row.bytes),
            f"{row.time_ns / 1000:.2f}",
            f"{row.busbw_gbs:.2f}",
            "-" if row.bound_ns is None or not row.time_ns else f"{100 * row.bound_ns / row.time_ns:.1f}",
            ", ".join(sorted(row.algorithms)),
        )
        for row in rows(calls(session), session.emulator.limits)
    ]
    end_us = max((part.operation.end_ps for parts in session.calls for part in parts), default=0) / 1e6
    title = (
        f"ahbm: {session.world.size} ranks on {machine.sips} SIPs in a {machine.topology}, {end_us:.2f} us simulated"
    )
    return "\n".join([title, *_aligned([head, *lines])])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = []
    for line in lines:
        cells = [
            cell.ljust(width) if at in (0, len(line) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    return out


Stretch = tuple[list[str], str, str, int, int, tuple[int, bool] | None]


def stretches(session: Session) -> list[Stretch]:
    """What the ranks did, for `write_job_timeline`: per rank a row for computing (AHBM_COMPUTE) and one per group.

    A send and its receive are a message; the other operations have none.
    """
    numbers: dict[int, int] = {}
    out: list[Stretch] = []
    width = len(str(session.world.size - 1))
    for rank, parts in enumerate(session.calls):
        name, computed_ps = f"rank {rank:0{width}}", 0
        for part in parts:
            done, call = part.operation, part.operation.record
            if not isinstance(call, CallRecord):
                continue
            if part.clock_ps > computed_ps:
                out.append(([name, "compute"], "compute", part.origin, computed_ps, part.clock_ps, None))
            computed_ps = max(computed_ps, part.clock_ps, done.end_ps)
            row = [name, call.group if call.collective != "send_recv" else f"{call.group}, point to point"]
            message = None
            if call.collective == "send_recv":
                message = (numbers.setdefault(id(done), len(numbers)), rank == done.members[0])
            what = " ".join(filter(None, (call.collective, call.op, call.dtype, f"{call.bytes} B by", call.algorithm)))
            start_ps = done.end_ps - round(call.latency_ns * 1000)
            out.append((row, what, part.origin, start_ps, done.end_ps, message))
    return out
