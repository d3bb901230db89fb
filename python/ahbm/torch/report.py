"""The cost of a job's collectives: a table at exit, and files where AHBM_REPORT says so.

AHBM_REPORT is `-` for the table alone, or a folder for `report.txt` (the table), `calls.json` (every call) and
`trace.pftrace` (all ranks on one timeline, which Perfetto opens). All times are simulated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ahbm._core import write_job_timeline
from ahbm.base.store import make_folders, store
from ahbm.errors import AhbmError, ConfigError
from ahbm.ranks.calls import CallRecord, calibrated, kinds, protocol_notes, rows, table
from ahbm.ranks.ledger import Ledger

ENV = "AHBM_REPORT"


def add(ledger: Ledger) -> None:
    """Reports on a session that has ended, if AHBM_REPORT asks for it."""
    if not os.environ.get(ENV) or not any(ledger.performed):
        return
    table = text(ledger)
    print(table, file=sys.stderr)
    if (asked := target()) is not None:
        with saving():
            folder = _folder(asked)
            records = json.dumps([asdict(call) for call in calls(ledger)])
            store({folder / "report.txt": f"{table}\n".encode(), folder / "calls.json": records.encode()})
            write_job_timeline(folder / "trace.pftrace", "torch.distributed", stretches(ledger))


def target() -> Path | None:
    """The folder that AHBM_REPORT names."""
    asked = os.environ.get(ENV)
    return Path(asked) if asked and asked != "-" else None


def check() -> None:
    """Raises ConfigError (AHBM-C141) where AHBM_REPORT names a folder that cannot be written, before a job does its
    work."""
    asked = target()
    if asked is None:
        return
    try:
        make_folders(asked)
        if os.access(asked, os.W_OK | os.X_OK):
            return
        why = "it does not let this user write"
    except OSError as error:
        why = error.strerror or str(error)
    hint = "name a folder, which need not be there yet, or - for the table alone"
    raise ConfigError("AHBM-C141", f"cannot write the report into {ENV}={asked}: {why}", hint=hint)


@contextmanager
def saving() -> Iterator[None]:
    """Around what is written after a job: one that cannot be is told of, and the job's own results stand."""
    try:
        yield
    except (OSError, AhbmError) as error:
        print(f"ahbm: AHBM-C141 the report into {ENV}={target()} is not complete: {error}", file=sys.stderr)


def _folder(asked: Path) -> Path:
    """`asked`, or where it has a report, the first of its sub-folders 2, 3, ... that has none."""
    folder, number = asked, 1
    while (folder / "report.txt").exists():
        number += 1
        folder = asked / str(number)
    make_folders(folder)
    return folder


def calls(ledger: Ledger) -> list[CallRecord]:
    """Every performed operation once, by start, then group, then kind."""
    times = ledger.times()
    found = {made.number: record for rank in range(ledger.size) for made, record in ledger.records(rank, times)}
    return sorted(found.values(), key=lambda call: (call.start_ns, call.group, call.collective, call.bytes))


def text(ledger: Ledger) -> str:
    """The table, the protocols of the calls, and what is known of the error of their times."""
    machine = ledger.emulator.machine
    performed = calls(ledger)
    end_us = max((call.start_ns + call.latency_ns for call in performed), default=0.0) / 1000
    title = f"ahbm: {ledger.size} ranks on {machine.sips} SIPs in a {machine.topology}, {end_us:.2f} us simulated"
    each = [*protocol_notes(call.protocol for call in performed), *calibrated(kinds(performed), machine)]
    notes = [f"note: {note}" for note in each]
    return "\n".join([title, *table(rows(performed, ledger.emulator.limits)), *notes])


Stretch = tuple[list[str], str, str, int, int, tuple[int, bool] | None]


def stretches(ledger: Ledger) -> list[Stretch]:
    """Activity of the ranks, for `write_job_timeline`: per rank a row for computing (AHBM_COMPUTE) and one per group.

    A send and its receive are a message; the other operations have none.
    """
    times = ledger.times()
    out: list[Stretch] = []
    numbers: dict[int, int] = {}
    width = len(str(ledger.size - 1))
    for rank in range(ledger.size):
        name = f"rank {rank:0{width}}"
        out += [([name, "compute"], "compute", "", start, end, None) for start, end in times.computed[rank].tolist()]
        for made, call in ledger.records(rank, times):
            row = [name, call.group if call.collective != "send_recv" else f"{call.group}, point to point"]
            message = None
            if call.collective == "send_recv":
                message = (numbers.setdefault(made.number, len(numbers)), made.sends)
            what = " ".join(filter(None, (call.collective, call.op, call.dtype, f"{call.bytes} B by", call.algorithm)))
            _, start_ps, end_ps = times.calls[rank][made.call].tolist()
            out.append((row, what, made.origin, start_ps, end_ps, message))
    return out
