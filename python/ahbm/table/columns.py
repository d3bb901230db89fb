"""The columns of tables of runs, declared once: those of rows, of what `ahbm bench` prints, and of pages.

A column is added here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ahbm.base.elements import NCCL_TYPES

if TYPE_CHECKING:
    from ahbm.runs.report import Report
    from ahbm.table.cases import Refused

FAILED = ("code", "message")
"""Of a row of what did not run: the code of its error and what it says; None in every other row."""
LOST = "AHBM-X140"
"""Code of a case whose process died. No proof: it may run on another day."""


class Column(NamedTuple):
    """A column of rows."""

    name: str
    kind: type[int] | type[float] | type[str]
    few: bool = False
    """Whether it holds few different texts, which stores do not read one by one."""
    of: Callable[[Report], Any] | None = None
    """What it holds of a report; None: the field of its name."""
    unit: str = ""
    """Of its numbers; empty for texts, and for numbers of things that its name says."""

    def value(self, report: Report) -> Any:
        """What it holds of a report."""
        return getattr(report, self.name) if self.of is None else self.of(report)


MEASURED = (
    Column("collective", str, few=True),
    Column("algorithm", str, few=True),
    Column("machine", str, few=True),
    Column("topology", str, few=True),
    Column("ranks", int),
    Column("bytes", int, unit="B"),
    Column("count", int, unit="elements"),
    Column("dtype", str, few=True),
    Column("op", str, few=True),
    Column("root", int),
    Column("latency_ns", float, unit="ns"),
    Column("algbw_gbs", float, unit="GB/s"),
    Column("busbw_gbs", float, unit="GB/s"),
    Column("bound_ns", float, unit="ns"),
    Column("percent_of_bound", float, unit="%"),
    Column("limited_by", str, few=True),
    Column("messages", int),
    Column("memory_bytes", int, unit="B"),
    Column("wrong", int, unit="elements"),
    Column("timeline_hash", str),
)
"""What a row holds of a report."""
STORED = (
    *MEASURED,
    Column("seed", int),
    Column("job", str, few=True),
    Column("links", int),
    Column("link_gbs", float, unit="GB/s"),
    Column("calibration", str, few=True),
    Column("version", str, few=True),
    Column(FAILED[0], str, few=True),
    Column(FAILED[1], str),
)
"""The values of a row: `MEASURED`; the seed of the data; the job, of replays; the links between SIPs, and GB/s of one
link; what is known of the error of a calibrated machine; the build of this package; `FAILED`."""


_UNITS = {column.name: column.unit for column in STORED}
_ENDINGS = {"_gbs": "GB/s", "_ns": "ns", "_bytes": "B", "_mb": "MiB", "_gb": "GiB", "_tflops": "TFLOP/s", "_mm": "mm"}


def unit_of(name: str) -> str:
    """The unit of a column of rows, also of an override, whose name ends with it; empty for a column without one."""
    if name in _UNITS:
        return _UNITS[name]
    return next((unit for ending, unit in _ENDINGS.items() if name.endswith(ending)), "")


class Printed(NamedTuple):
    """A column of nccl-tests' table."""

    heading: str
    unit: str
    width: int
    of: Callable[[Report], str]
    refused: Callable[[Refused], str] | None = None
    """Of a case that did not run; the columns behind the last that says something are empty."""


def _us(report: Report) -> str:
    us = report.latency_ns / 1000
    return f"{us:.0f}" if us >= 10000 else f"{us:.1f}" if us >= 100 else f"{us:.2f}"


PRINTED = (
    Printed("size", "(B)", 12, lambda report: f"{report.bytes}", lambda refused: f"{refused.bytes}"),
    Printed("count", "(elements)", 12, lambda report: f"{report.count}", lambda refused: "-"),
    Printed("type", "", 8, lambda report: NCCL_TYPES[report.dtype], lambda refused: NCCL_TYPES[refused.dtype]),
    Printed("redop", "", 6, lambda report: report.op, lambda refused: refused.op),
    Printed("root", "", 6, lambda report: f"{report.root}", lambda refused: f"{refused.root}"),
    # A code without the prefix that all codes have.
    Printed("time", "(us)", 7, _us, lambda refused: refused.error.code.removeprefix("AHBM-")),
    Printed("algbw", "(GB/s)", 6, lambda report: f"{report.algbw_gbs:.2f}"),
    Printed("busbw", "(GB/s)", 6, lambda report: f"{report.busbw_gbs:.2f}"),
    Printed("#wrong", "", 6, lambda report: "N/A" if report.wrong is None else f"{report.wrong}"),
    Printed("time", "(us)", 8, lambda report: "N/A" if report.bound_ns is None else f"{report.bound_ns / 1000:.2f}"),
    Printed("%", "", 5, lambda report: "N/A" if report.percent_of_bound is None else f"{report.percent_of_bound:.1f}"),
)
"""What `ahbm bench` prints; the last two are of the bound."""

PAGE: dict[str, Callable[[Report], str]] = {
    "algorithm": lambda report: report.algorithm,
    "size (B)": lambda report: f"{report.bytes:,}",
    "time (us)": lambda report: f"{report.latency_ns / 1000:,.3f}",
    "algbw (GB/s)": lambda report: f"{report.algbw_gbs:.2f}",
    "busbw (GB/s)": lambda report: f"{report.busbw_gbs:.2f}",
    "bound (us)": lambda report: "not known" if report.bound_ns is None else f"{report.bound_ns / 1000:,.3f}",
    "% of bound": lambda report: "" if report.percent_of_bound is None else f"{report.percent_of_bound:.1f}",
    "wrong": lambda report: "not checked" if report.wrong is None else f"{report.wrong}",
}
"""What tables of pages show, by heading."""
