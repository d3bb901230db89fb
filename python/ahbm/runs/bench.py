"""`ahbm bench`: sweeps of one collective over sizes, in nccl-tests' columns; every time in them is simulated.

Collectives run in place, so there is one column group instead of two. GB/s is 1e9 B/s. The size is that of one rank's
whole buffer (all chunks together where the collective has chunks), as nccl-tests counts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ahbm
from ahbm.base import codes
from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.errors import ConfigError, Finding, FormatError, told
from ahbm.source.plan import PlanAlgorithm

if TYPE_CHECKING:
    from ahbm.check.case import Case
    from ahbm.core.emulator import Emulator
    from ahbm.runs.report import Report

JSON_VERSION = 3
"""Version of nccl-tests' JSON whose keys we use."""

NCCL_TYPES = {
    "f16": "half",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
"""The kernels' name of a dtype -> nccl-tests' name."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Sweep:
    """The measurement that is asked for."""

    collective: str
    begin: int
    """First size, in bytes."""
    end: int
    """Last size, in bytes."""
    factor: int = 2
    """Sizes grow by this factor ..."""
    step: int = 0
    """... or, when not 0, by this many bytes."""
    dtype: str = "f16"
    op: str = "sum"
    root: int = 0
    algorithms: Sequence[str] = ()
    """Names or paths; empty: the configured algorithm."""
    topology: str | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    data: bool = True
    device: bool = False
    """On device tensors: every cube of every SIP holds one tile of the size, and is a contribution of its own."""
    check: bool | str = False
    """Checks to make of every size, as for `ahbm.run`."""

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C140) for sizes that are no sweep, C105 for an unknown collective."""
        if self.collective not in COLLECTIVES:
            raise ConfigError(
                "AHBM-C105", f"unknown collective {self.collective!r}", hint=f"one of {', '.join(COLLECTIVES)}"
            )
        if not 0 < self.begin <= self.end:
            raise ConfigError(
                "AHBM-C140",
                f"sizes from {self.begin} to {self.end} bytes are no sweep",
                hint="-b and -e take bytes, or a number with K, M or G",
            )
        if self.step < 0 or (self.step == 0 and self.factor < 2):
            raise ConfigError(
                "AHBM-C140",
                f"sizes do not grow: factor {self.factor}, step {self.step} bytes",
                hint="use -f 2 or more, or -i with a number of bytes",
            )

    def emulator(self) -> Emulator:
        """The machine and configuration. Raises TopologyError, ConfigError."""
        from ahbm.core.emulator import Emulator

        return Emulator.load(self.topology, self.ccl, self.overrides)

    def case(self, algorithm: str | None, nbytes: int, emulator: Emulator) -> Case:
        """The case of one size."""
        from ahbm.runs.measure import prepare

        return prepare(
            self.collective,
            algorithm,
            bytes_per_pe=nbytes if self.device else None,
            bytes_per_rank=None if self.device else nbytes,
            placement=ahbm.DPPolicy(cube="row_wise") if self.device else None,
            dtype=self.dtype,
            op=self.op,
            root=self.root,
            emulator=emulator,
        )

    def unit(self, algorithm: str | None, emulator: Emulator) -> int:
        """Bytes of which every size of an algorithm is a multiple; for a plan, of its own unit too."""
        ranks = emulator.settings(algorithm).world_size or emulator.world_size
        itemsize = element(self.dtype).storage.itemsize
        unit = itemsize * COLLECTIVES[self.collective].chunks(ranks)
        plan = emulator.algorithm(algorithm) if algorithm is not None else None
        return lcm(unit, plan.read.unit(itemsize) * plan.how.instances) if isinstance(plan, PlanAlgorithm) else unit

    def sizes(self, unit: int) -> Iterator[int]:
        """The sizes, each rounded down to a multiple of `unit` bytes (at least one), without repetitions; of a barrier,
        one element."""
        if self.collective == "barrier":
            yield element(self.dtype).storage.itemsize
            return
        last, size = 0, self.begin
        while size <= self.end:
            rounded = max(size // unit, 1) * unit
            if rounded != last:
                yield rounded
            last = rounded
            size = size + self.step if self.step else size * self.factor


def parse_size(text: str) -> int:
    """Bytes of `256`, `4K`, `1M`, `2G` (powers of 1024). Raises ConfigError (AHBM-C147)."""
    # More digits are no size of anything, and Python reads only so many.
    found = re.fullmatch(r"([0-9]{1,18})([KMG]?)B?", text.strip().upper())
    if found is None or int(found[1]) * _UNITS[found[2]] >= 1 << 60:
        raise ConfigError(
            "AHBM-C147", f"{shown(text)} is no size", hint="bytes, or a number with K, M or G: 256, 64K, 1M"
        )
    return int(found[1]) * _UNITS[found[2]]


def parse_dtype(text: str) -> str:
    """A dtype by our name or nccl-tests'. Raises ConfigError (AHBM-C143)."""
    names = {**{nccl: ours for ours, nccl in NCCL_TYPES.items()}, **{ours: ours for ours in NCCL_TYPES}}
    if text not in names:
        raise ConfigError("AHBM-C143", f"unknown dtype {text!r}", hint=f"one of {', '.join(NCCL_TYPES)}")
    return names[text]


@dataclass(frozen=True)
class Skipped:
    """A size that a plan does not take."""

    algorithm: str
    bytes: int
    why: str


def measure(sweep: Sweep, emulator: Emulator | None = None) -> Iterator[Report]:
    """Runs the sweep, algorithm by algorithm, and gives one report per size; on `emulator` where it is made already."""
    return (found for found in attempt(sweep, emulator) if not isinstance(found, Skipped))


def attempt(sweep: Sweep, emulator: Emulator | None = None) -> Iterator[Report | Skipped]:
    """As `measure`, with the sizes that a plan does not take (AHBM-F127) told instead of raised.

    The sizes of a plan are multiples of its own unit. Raises FormatError (AHBM-F127) where a plan takes none of them.
    """
    from ahbm.runs import measure as m

    emulator = emulator or sweep.emulator()
    for algorithm in sweep.algorithms or (None,):
        ran = False
        refused: FormatError | None = None
        for size in sweep.sizes(sweep.unit(algorithm, emulator)):
            try:
                report = m.measure(sweep.case(algorithm, size, emulator), data=sweep.data, check=sweep.check)
            except FormatError as error:
                if error.code != codes.SIZE_UNFIT:
                    raise
                refused = error
                yield Skipped(str(algorithm), size, error.message)
                continue
            ran = True
            yield report
        if refused is not None and not ran:
            raise refused


def header(sweep: Sweep) -> list[str]:
    """The comment lines above the table."""
    own = tuple(f"algorithms.{name}." for name in sweep.algorithms)
    return [
        f"# ahbm {ahbm.__version__}  collective {sweep.collective}  (all times are simulated)",
        "# busbw counts one direction and assumes point-to-point algorithms",
        f"# topology {sweep.topology or 'default'}  minBytes {sweep.begin} maxBytes {sweep.end} "
        + (f"step {sweep.step}(bytes)" if sweep.step else f"step {sweep.factor}(factor)")
        + f" validation {int(sweep.data)}",
        *(f"# set {key}={value}" for key, value in sweep.overrides.items() if not key.startswith(own)),
    ]


def columns(report: Report) -> list[str]:
    """The comment lines above one algorithm's rows."""
    size, head = "size", f"#{'':>57}{'in-place':^31}{'bound':>18}"
    return [
        "#",
        f"# algorithm {report.algorithm}  ranks {report.ranks}  topology {report.topology}",
        head.rstrip(),
        f"#{size:>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
        f"  {'#wrong':>6}  {'time':>8}  {'%':>5}",
        f"#{'(B)':>11}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
        f"  {'':>6}  {'(us)':>8}",
    ]


def row(report: Report) -> str:
    """One line of the table."""
    us = report.latency_ns / 1000
    time = f"{us:7.0f}" if us >= 10000 else f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"
    bound = "N/A" if report.bound_ns is None else f"{report.bound_ns / 1000:.2f}"
    percent = "N/A" if report.percent_of_bound is None else f"{report.percent_of_bound:.1f}"
    wrong = "N/A" if report.wrong is None else str(report.wrong)
    return (
        f"{report.bytes:>12}  {report.count:>12}  {NCCL_TYPES[report.dtype]:>8}  {report.op:>6}  "
        f"{report.root:>6}  {time}  {report.algbw_gbs:6.2f}  {report.busbw_gbs:6.2f}  {wrong:>6}"
        f"  {bound:>8}  {percent:>5}"
    )


def footer(reports: Sequence[Report]) -> list[str]:
    """The comment lines below the table."""
    return [
        f"# Out of bounds values : {wrong(reports)} {'OK' if not wrong(reports) else 'FAILED'}",
        f"# Avg bus bandwidth    : {average_busbw(reports):.4f}",
        f"# Bound of last size   : {max(reports, key=lambda report: report.bytes).limited_by}",
        *(f"# Note                 : {note}" for note in notes(reports)),
        *(f"# {line}" for line in told(_reasons(reports)).splitlines()),
    ]


def _reasons(reports: Sequence[Report]) -> tuple[Finding, ...]:
    """Why the first wrong result of the smallest size is wrong."""
    failed = [report for report in reports if report.wrong]
    return min(failed, key=lambda report: report.bytes).findings if failed else ()


def notes(reports: Sequence[Report]) -> list[str]:
    """Choices for some of the reports, each once, with the smallest size of the choice."""
    found: dict[str, int] = {}
    for report in reports:
        for note in report.notes:
            found[note] = min(report.bytes, found.get(note, report.bytes))
    return [f"from {size} B on {note}" for note, size in found.items()]


def wrong(reports: Sequence[Report]) -> int:
    """Wrong elements of all reports."""
    return sum(report.wrong or 0 for report in reports)


def average_busbw(reports: Sequence[Report]) -> float:
    """Mean bus bandwidth in GB/s."""
    return sum(report.busbw_gbs for report in reports) / len(reports)


def to_json(sweep: Sweep, reports: Sequence[Report], args: Sequence[str]) -> dict[str, Any]:
    """The sweep with the keys of nccl-tests' JSON, ours beside them. No times of day, no environment."""
    bad = wrong(reports)
    return {
        "version": JSON_VERSION,
        "simulated": True,
        "ahbm_version": ahbm.__version__,
        "args": list(args),
        "config": {
            "collective": sweep.collective,
            "min_bytes": sweep.begin,
            "max_bytes": sweep.end,
            "step_factor": sweep.factor,
            "step_bytes": sweep.step,
            "validation": sweep.data,
            "device": sweep.device,
            "topology": sweep.topology,
            "overrides": {key: str(value) for key, value in sweep.overrides.items()},
        },
        "results": [
            {
                "size": report.bytes,
                "count": report.count,
                "type": NCCL_TYPES[report.dtype],
                "redop": report.op,
                "root": report.root,
                "in_place": {
                    "time": report.latency_ns / 1000,
                    "alg_bw": report.algbw_gbs,
                    "bus_bw": report.busbw_gbs,
                    "nwrong": "N/A" if report.wrong is None else report.wrong,
                },
                "bound": {
                    "time": None if report.bound_ns is None else report.bound_ns / 1000,
                    "percent": report.percent_of_bound,
                    "limited_by": report.limited_by,
                },
                "experiment_name": report.algorithm,
                "report": report.to_json(),
            }
            for report in reports
        ],
        "out_of_bounds": {"count": bad, "okay": not bad},
        "average_bus_bandwidth": {"bandwidth": average_busbw(reports), "okay": True},
    }
