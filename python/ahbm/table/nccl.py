"""nccl-tests' table: cases over sizes in its columns, and its JSON; every time in them is simulated.

Collectives run in place, so there is one column group instead of two. GB/s is 1e9 B/s. The size is that of one rank's
whole buffer (all chunks together where the collective has chunks), as nccl-tests counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ahbm
from ahbm.base.elements import NCCL_TYPES
from ahbm.base.sizes import resize_notes
from ahbm.config.ccl import are_of
from ahbm.config.topology import read_for
from ahbm.errors import AhbmError, Finding, described
from ahbm.runs import bands
from ahbm.runs.report import Report
from ahbm.source.switches import count_nodes
from ahbm.table.cases import Refused, Sweep
from ahbm.table.columns import PRINTED
from ahbm.table.running import outcome

JSON_VERSION = 3
"""Version of nccl-tests' JSON whose keys we use."""


def header(sweep: Sweep) -> list[str]:
    """The comment lines above the table."""
    own = set[str]().union(*(are_of(name, sweep.overrides) for name in sweep.algorithms))
    sizes = f"minBytes {sweep.begin} maxBytes {sweep.end} "
    sizes += f"step {sweep.step}(bytes)" if sweep.step else f"step {sweep.factor}(factor)"
    if sweep.listed:
        sizes = f"sizes {','.join(map(str, sweep.listed))}"
    return [
        f"# ahbm {ahbm.__version__}  collective {sweep.collective}  (all times are simulated)",
        "# busbw counts one direction and assumes point-to-point algorithms",
        f"# topology {read_for(sweep.topology)}  {sizes} validation {int(_validates(sweep))}{_checked(sweep)}",
        *(f"# set {key}={value}" for key, value in sweep.overrides.items() if key not in own),
    ]


def _validates(sweep: Sweep) -> bool:
    """Whether data move and are compared: on a calibrated machine they do not, unless somebody asks for a check."""
    emulator = outcome(sweep.emulator)
    return bool(sweep.data if isinstance(emulator, AhbmError) else sweep.measured_on(emulator).data)


def _checked(sweep: Sweep) -> str:
    return f" check {sweep.check}" if isinstance(sweep.check, str) else ""


HEADLINE = f"#{'':>57}{'in-place':^31}{'bound':>18}".rstrip()
"""Above the names of the columns: which of them are of the run, and which of its bound."""


def columns(cell: Report | Refused, settings: Sequence[str] = ()) -> list[str]:
    """The comment lines above one algorithm's rows on one machine; `settings` are among them."""
    what = f"ranks {cell.ranks}  topology {cell.topology}  " if not isinstance(cell, Refused) else ""
    headings = _line([(column.heading, column.width) for column in PRINTED])
    units = _line([(column.unit, column.width) for column in PRINTED])
    return [
        "#",
        f"# algorithm {cell.algorithm}  {what}machine {cell.machine}",
        *settings,
        HEADLINE,
        f"#{headings[1:]}",
        f"#{units[1:]}".rstrip(),
    ]


def row(cell: Report | Refused) -> str:
    """One line of the table; of a case that did not run, its code."""
    if isinstance(cell, Refused):
        return _line([(column.refused(cell), column.width) for column in PRINTED if column.refused is not None])
    return _line([(column.of(cell), column.width) for column in PRINTED])


def _line(texts: Sequence[tuple[str, int]]) -> str:
    return "  ".join(f"{text:>{width}}" for text, width in texts)


def footer(cells: Sequence[Report | Refused]) -> list[str]:
    """The comment lines below the table; where nothing ran, only why."""
    reports = [cell for cell in cells if not isinstance(cell, Refused)]
    failed: dict[tuple[str, str, str], list[int]] = {}
    for cell in cells:
        if isinstance(cell, Refused):
            failed.setdefault((cell.algorithm, cell.error.code, cell.error.message), []).append(cell.bytes)
    reasons = [
        f"# {code} : {name} at {' '.join(str(size) for size in sizes)} B: {message}"
        for (name, code, message), sizes in failed.items()
    ]
    ordered = sorted(cells, key=lambda cell: isinstance(cell, Refused))
    changed = [f"# Note                 : {note}" for note in resize_notes(cell.resized for cell in ordered)]
    if not reports:
        return reasons + changed
    return [
        *reasons,
        f"# Out of bounds values : {wrong(reports)} {'OK' if not wrong(reports) else 'FAILED'}",
        f"# Avg bus bandwidth    : {average_busbw(reports):.4f}",
        f"# Bound of last size   : {max(reports, key=lambda report: report.bytes).limited_by}",
        *changed,
        *(f"# Note                 : {note}" for note in notes(reports)),
        *(f"# {line}" for line in described(_reasons(reports)).splitlines()),
    ]


def _reasons(reports: Sequence[Report]) -> tuple[Finding, ...]:
    """Why the first wrong result of the smallest size is wrong; of right ones, what a check could not decide."""
    failed = [report for report in reports if not report.right] or [report for report in reports if report.findings]
    return min(failed, key=lambda report: report.bytes).findings if failed else ()


def notes(reports: Sequence[Report]) -> list[str]:
    """Choices for some of the reports, each once, with the smallest size of the choice; errors of calibrated
    machines."""
    found: dict[str, int] = {}
    for report in reports:
        for note in report.notes:
            if note != report.error.note:
                found[note] = min(report.bytes, found.get(note, report.bytes))
    return [
        *(f"from {size} B on {note}" for note, size in found.items()),
        *bands.over(report.error for report in reports),
    ]


def wrong(reports: Sequence[Report]) -> int:
    """Wrong elements of all reports."""
    return sum(report.wrong or 0 for report in reports)


def average_busbw(reports: Sequence[Report]) -> float:
    """Mean bus bandwidth in GB/s."""
    return sum(report.busbw_gbs for report in reports) / len(reports)


def to_json(sweeps: Sequence[Sweep], cells: Sequence[Report | Refused], args: Sequence[str]) -> dict[str, Any]:
    """The sweeps with the keys of nccl-tests' JSON, ours beside them. No times of day, no environment.

    Sweeps differ in their machines alone. A cell that did not run has an `error` in place of times.
    """
    sweep, reports = sweeps[0], [cell for cell in cells if not isinstance(cell, Refused)]
    bad = wrong(reports)
    machines = [
        {
            "topology": read_for(each.topology),
            "overrides": {key: str(value) for key, value in each.overrides.items()},
            "nodes": count_nodes(machine, range(machine.sips)),
        }
        for each in sweeps
        for machine in [each.emulator().machine]
    ]
    return {
        "version": JSON_VERSION,
        "simulated": True,
        "ahbm_version": ahbm.__version__,
        "args": list(args),
        "config": {
            "collective": sweep.collective,
            "min_bytes": min(sweep.listed, default=sweep.begin),
            "max_bytes": max(sweep.listed, default=sweep.end),
            "step_factor": sweep.factor,
            "step_bytes": sweep.step,
            "sizes": list(sweep.listed),
            "validation": _validates(sweep),
            "device": sweep.device,
            **machines[0],
            "machines": machines,
        },
        "results": [result(cell) for cell in cells],
        "out_of_bounds": {"count": bad, "okay": not bad},
        "average_bus_bandwidth": {"bandwidth": average_busbw(reports) if reports else None, "okay": True},
    }


def result(cell: Report | Refused) -> dict[str, Any]:
    """One row of `to_json`."""
    if isinstance(cell, Refused):
        return {
            "size": cell.bytes,
            "type": NCCL_TYPES[cell.dtype],
            "experiment_name": cell.algorithm,
            "machine": cell.machine,
            **({} if cell.resized is None else {"resized": cell.resized.to_json()}),
            "error": cell.error.to_json(),
        }
    return {
        "size": cell.bytes,
        "count": cell.count,
        "type": NCCL_TYPES[cell.dtype],
        "redop": cell.op,
        "root": cell.root,
        "in_place": {
            "time": cell.latency_ns / 1000,
            "alg_bw": cell.algbw_gbs,
            "bus_bw": cell.busbw_gbs,
            "nwrong": "N/A" if cell.wrong is None else cell.wrong,
        },
        "bound": {
            "time": None if cell.bound_ns is None else cell.bound_ns / 1000,
            "percent": cell.percent_of_bound,
            "limited_by": cell.limited_by,
            "is_tightest": cell.bound_is_tightest,
        },
        **({} if cell.band is None else {"error_band": _band(cell)}),
        "experiment_name": cell.algorithm,
        "machine": cell.machine,
        "report": cell.to_json(),
    }


def _band(report: Report) -> dict[str, float]:
    assert report.band is not None, "only reports of calibrated machines have one"
    us, share = report.latency_ns / 1000, report.band.percent / 100
    low, high = us / (1 + share), us * (1 + share)
    others = report.band.others
    return {
        "percent": report.band.percent,
        "worst_percent": report.band.worst_percent,
        "low_us": low,
        "high_us": high,
        **({} if others is None else {"others_low_us": us * (1 + others[0] / 100)}),
        **({} if others is None else {"others_high_us": us * (1 + others[1] / 100)}),
    }
