"""What a job's collectives took: a table at exit, and files where AHBM_REPORT says so.

AHBM_REPORT is `-` for the table alone, or a folder for `report.txt` (the table), `calls.json` (every call) and
`trace.json` (all ranks on one timeline, which Perfetto and chrome://tracing open). All times are simulated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ahbm.collectives import COLLECTIVES
from ahbm.limits import Limits
from ahbm.operation import Part
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
        (folder / "trace.json").write_text(json.dumps(trace(session)), encoding="utf-8")


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


def trace(session: Session) -> dict[str, Any]:
    """The Trace Event Format: a process per rank, a thread per group; computing (AHBM_COMPUTE) in thread 0."""
    events: list[dict[str, Any]] = []
    groups = sorted({call.group for call in calls(session)})
    for rank, parts in enumerate(session.calls):
        events.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        for at, group in enumerate(("compute", *groups)):
            events.append({"ph": "M", "pid": rank, "tid": at, "name": "thread_name", "args": {"name": group}})
        events += _events(rank, parts, groups)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _events(rank: int, parts: Iterable[Part], groups: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    computed_ps = 0
    for part in parts:
        call = part.operation.record
        if not isinstance(call, CallRecord):
            continue
        if part.clock_ps > computed_ps:
            span = {"ts": computed_ps / 1e6, "dur": (part.clock_ps - computed_ps) / 1e6}
            out.append({"ph": "X", "pid": rank, "tid": 0, "name": "compute", **span})
        computed_ps = max(computed_ps, part.clock_ps, part.operation.end_ps)
        facts = {"bytes": call.bytes, "dtype": call.dtype, "op": call.op, "algorithm": call.algorithm}
        span = {"ts": call.start_ns / 1000, "dur": call.latency_ns / 1000}
        tid = 1 + groups.index(call.group)
        args = {**facts, "busbw_gbs": call.busbw_gbs, "issued_us": part.clock_ps / 1e6, "line": part.origin}
        out.append({"ph": "X", "pid": rank, "tid": tid, "name": call.collective, **span, "args": args})
    return out
