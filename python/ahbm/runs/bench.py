"""`ahbm bench`: sweeps of one collective over sizes, in nccl-tests' columns; every time in them is simulated.

Collectives run in place, so there is one column group instead of two. GB/s is 1e9 B/s. The size is that of one rank's
whole buffer (all chunks together where the collective has chunks), as nccl-tests counts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ahbm
from ahbm.base import codes
from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.base.sizes import Resized, Unit
from ahbm.base.sizes import told as told_sizes
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import are_of
from ahbm.config.topology import read_for
from ahbm.core.spec import Spec, machine_name
from ahbm.errors import AhbmError, ConfigError, Finding, InterruptedRun, told
from ahbm.runs import bands
from ahbm.source.algorithm import Algorithm
from ahbm.source.located import refuse_kernel
from ahbm.source.plan import PlanAlgorithm
from ahbm.source.switches import count_nodes

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.base.request import Request
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
    "f8e4m3": "f8e4m3",
    "f8e5m2": "f8e5m2",
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
    """Names or paths, of plans too; empty: the configured algorithm."""
    given: Mapping[str, Algorithm] = field(default_factory=dict)
    """The algorithms among these that ccl.yaml does not name, by the names that they have in `algorithms`."""
    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    data: bool | None = True
    """None: only where the check of the result cannot decide without."""
    device: bool = False
    """On device tensors: every cube of every SIP holds one tile of the size, and is a contribution of its own."""
    check: bool | str = False
    """Checks to make of every size, as for `ahbm.run`."""
    listed: Sequence[int] = ()
    """These sizes, in bytes, instead of those from `begin` to `end`."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By algorithm, what a reader of its rows should know."""

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C140) for sizes that are no sweep, C105 for an unknown collective."""
        if self.collective not in COLLECTIVES:
            refuse_kernel(self.collective)
            raise ConfigError(
                "AHBM-C105",
                f"unknown collective {self.collective!r}",
                hint=did_you_mean(self.collective, COLLECTIVES),
            )
        least = min(self.listed, default=self.begin)
        if least < 1:
            raise ConfigError("AHBM-C140", f"a sweep of {least} bytes", hint="the smallest size is 1 byte")
        if self.begin > self.end and not self.listed:
            raise ConfigError(
                "AHBM-C140",
                f"the first size, {self.begin} bytes, is larger than the last, {self.end} bytes",
                hint="-b takes the first and -e the last; 1K is 1024 bytes, 1e3 are 1000",
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

    def case(self, algorithm: str | None, nbytes: int, emulator: Emulator, resized: Resized | None = None) -> Case:
        """The case of one size; `resized`: those that became it."""
        from ahbm.runs.measure import prepare

        case = prepare(
            self.collective,
            self._named(algorithm),
            bytes_per_pe=nbytes if self.device else None,
            bytes_per_rank=None if self.device else nbytes,
            placement=ahbm.DPPolicy(cube="row_wise") if self.device else None,
            dtype=self.dtype,
            op=self.op,
            root=self.root,
            emulator=emulator,
        )
        note = self.notes.get(algorithm or "")
        return replace(case, notes=case.notes if note is None else (*case.notes, note), resized=resized or case.resized)

    def deciding(self, emulator: Emulator) -> Sweep:
        """As this, for whoever chooses the quickest of it: where a calibrated machine is asked for times alone,
        contributions to the results are followed."""
        if not self.data or self.check or emulator.machine.bands is None:
            return self
        return replace(self, data=None, check="result")

    def unit(self, algorithm: str | None, emulator: Emulator) -> Unit:
        """What every size of an algorithm is a multiple of; for a plan, of its own unit too."""
        named = self._named(algorithm)
        ranks = emulator.settings(named).world_size or emulator.world_size
        unit = Unit.of_arrays(self.collective, ranks, self.dtype)
        plan = emulator.algorithm(named) if named is not None else None
        if not isinstance(plan, PlanAlgorithm):
            return unit
        own = plan.read.unit(element(self.dtype).storage.itemsize) * plan.how.instances
        return unit.and_of(own, f"{self.collective} by {plan.name}")

    def _named(self, algorithm: str | None) -> str | Algorithm | None:
        return None if algorithm is None else self.given.get(algorithm, algorithm)

    def sizes(self, unit: Unit) -> Iterator[tuple[int, Resized | None]]:
        """The sizes in ascending order, as `unit` takes them, without repetitions, each with those that became it; of a
        barrier, one element."""
        if self.collective == "barrier":
            return iter([(element(self.dtype).storage.itemsize, None)])
        return unit.fit(self.asked())

    def asked(self) -> Iterator[int]:
        """The sizes in ascending order, as they are asked for."""
        if self.listed:
            yield from sorted(self.listed)
            return
        size = self.begin
        while size <= self.end:
            yield size
            size = size + self.step if self.step else size * self.factor


def parse_size(text: str) -> int:
    """Bytes of `256`, `1_000_000`, `1e6`, `4K`, `1M`, `2G` (powers of 1024, as `4KB` and `4KiB` are).

    Raises ConfigError (AHBM-C147).
    """
    # More digits are no size of anything, and Python reads only so many.
    found = re.fullmatch(r"([0-9](?:_?[0-9]){0,17})(?:E\+?([0-9]{1,2}))?(?:([KMG])(?:IB?|B)?|B)?", text.strip().upper())
    nbytes = int(found[1]) * 10 ** int(found[2] or 0) * _UNITS[found[3] or ""] if found else 1 << 60
    if nbytes >= 1 << 60:
        hint = "bytes, or a number with K, M or G for powers of 1024: 256, 64K, 1M, 1MiB, 1e6"
        raise ConfigError("AHBM-C147", f"{shown(text)} is no size", hint=hint)
    return nbytes


def parse_dtype(text: str) -> str:
    """A dtype by our name or nccl-tests'. Raises ConfigError (AHBM-C143)."""
    names = {**{nccl: ours for ours, nccl in NCCL_TYPES.items()}, **{ours: ours for ours in NCCL_TYPES}}
    if text not in names:
        raise ConfigError("AHBM-C143", f"unknown dtype {text!r}", hint=did_you_mean(text, names))
    return names[text]


@dataclass(frozen=True)
class Refused:
    """A cell of a sweep that did not run."""

    algorithm: str
    bytes: int
    machine: str
    error: AhbmError
    resized: Resized | None = None
    """Sizes that were asked for in place of `bytes`."""

    @property
    def left_out(self) -> bool:
        """Whether this is a size that a plan does not take (AHBM-F127): no failure where the plan takes others."""
        return self.error.code == codes.SIZE_UNFIT


def measure(sweep: Sweep, emulator: Emulator | None = None) -> Iterator[Report]:
    """Runs the sweep, algorithm by algorithm, and gives one report per size; on `emulator` where it is made already.

    A cell that fails does not end the sweep: when all others have run, the error of the first one is raised, and
    `attempt` gives the failures instead. Sizes that a plan does not take are left out, unless it takes none.
    """
    cells: list[Report | Refused] = []
    for cell in attempt([sweep], emulator):
        cells.append(cell)
        if not isinstance(cell, Refused):
            yield cell
    error = failure(cells)
    if error is not None:
        raise error


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. Can be pickled where the sweep has no functions."""

    sweep: Sweep
    algorithm: str | None
    size: int
    resized: Resized | None = None

    def run(self, emulator: Emulator) -> Report:
        """Runs it. Raises as `ahbm.runs.measure.measure`."""
        from ahbm.runs import measure as m

        sweep = self.sweep
        case = sweep.case(self.algorithm, self.size, emulator, self.resized)
        return m.measure(case, data=self.with_data(emulator), check=sweep.check)

    def with_data(self, emulator: Emulator) -> bool | None:
        """Whether the data move. A calibrated machine is asked for times, of sizes as large as were measured."""
        return self.sweep.data and (emulator.machine.bands is None or bool(self.sweep.check))


Spread = Callable[[Sequence[Cell]], Iterator[Mapping[str, Any] | AhbmError | None]]
"""Runs cells elsewhere and gives, in their order, their reports as JSON, or None where a cell does not run: it is run
here, where its error is whole. An error is that of a cell that cannot be run again."""


def attempt(
    sweeps: Sequence[Sweep],
    emulator: Emulator | None = None,
    tell: Callable[[str], object] = lambda text: None,
    spread: Spread | None = None,
) -> Iterator[Report | Refused]:
    """Runs the sweeps, machine by machine and algorithm by algorithm; a cell that fails is given as `Refused`.

    The sizes of a plan are multiples of its own unit. `tell` is told what runs next, for people. `spread` runs the
    cells elsewhere.
    Raises, before anything runs, what loading machines, configurations and algorithms raises; and InterruptedRun.
    """
    from ahbm.runs.plans import with_plans

    planned = []
    for sweep in sweeps if emulator is not None else map(with_plans, sweeps):
        machine = emulator or sweep.emulator()
        for algorithm in sweep.algorithms or (None,):
            sizes = sweep.sizes(sweep.unit(algorithm, machine))
            planned += [(Cell(sweep, algorithm, *size), machine) for size in sizes]
    return ran(planned, tell, spread)


def ran(
    cells: Sequence[tuple[Cell, Emulator]], tell: Callable[[str], object], spread: Spread | None
) -> Iterator[Report | Refused]:
    """Runs cells, each on the emulator beside it. As `attempt`."""
    from ahbm.choice.configured import likely

    elsewhere = repeat(None) if spread is None else spread([cell for cell, _ in cells])
    for number, ((cell, machine), found) in enumerate(zip(cells, elsewhere, strict=False), 1):
        name = cell.algorithm or "-"
        try:
            name = cell.algorithm or likely(machine, cell.sweep.collective, cell.size)
            tell(f"{cell.size:,} B by {name}, row {number} of {len(cells)}")
            if isinstance(found, AhbmError):
                raise found
            yield cell.run(machine) if found is None else _told(found, cell, machine)
        except InterruptedRun:
            raise
        except AhbmError as error:
            yield Refused(name, cell.size, machine_name(machine.machine), error, cell.resized)


def _told(found: Mapping[str, Any], cell: Cell, machine: Emulator) -> Report:
    """The report of a cell that ran elsewhere, with what it takes to run it here."""
    from ahbm.runs.report import Report

    report = Report.from_json(found)
    case = cell.sweep.case(cell.algorithm, cell.size, machine)
    by = cell.sweep.given.get(report.algorithm, report.algorithm)
    spec = replace(Spec.of(machine, case.request, by), checks=report.checks, data=report.wrong is not None)
    return replace(report, spec=spec)


def failure(cells: Sequence[Report | Refused]) -> AhbmError | None:
    """The error of the first cell that failed; None where every cell ran, or is left out of a plan that ran."""
    ran = {(cell.machine, cell.algorithm) for cell in cells if not isinstance(cell, Refused)}
    for cell in cells:
        if isinstance(cell, Refused) and not (cell.left_out and (cell.machine, cell.algorithm) in ran):
            return cell.error
    return None


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
        f"# topology {read_for(sweep.topology)}  {sizes} validation {int(bool(sweep.data))}{_checked(sweep)}",
        *(f"# set {key}={value}" for key, value in sweep.overrides.items() if key not in own),
    ]


def _checked(sweep: Sweep) -> str:
    if isinstance(sweep.check, bool):
        return ""
    return f" check {sweep.check if isinstance(sweep.check, str) else ','.join(sweep.check)}"


def columns(cell: Report | Refused) -> list[str]:
    """The comment lines above one algorithm's rows on one machine."""
    what = f"ranks {cell.ranks}  topology {cell.topology}  " if not isinstance(cell, Refused) else ""
    size, head = "size", f"#{'':>57}{'in-place':^31}{'bound':>18}"
    return [
        "#",
        f"# algorithm {cell.algorithm}  {what}machine {cell.machine}",
        head.rstrip(),
        f"#{size:>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {'time':>7}  {'algbw':>6}  {'busbw':>6}"
        f"  {'#wrong':>6}  {'time':>8}  {'%':>5}",
        f"#{'(B)':>11}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}"
        f"  {'':>6}  {'(us)':>8}",
    ]


def refusal(refused: Refused, asked: Sweep | Request) -> str:
    """The line of the table for a cell that did not run: its code, without the prefix that all codes have."""
    kind = COLLECTIVES[asked.collective]
    op, root = asked.op if kind.reduces else "none", asked.root if kind.rooted else -1
    code = refused.error.code.removeprefix("AHBM-")
    return f"{refused.bytes:>12}  {'-':>12}  {NCCL_TYPES[asked.dtype]:>8}  {op:>6}  {root:>6}  {code:>7}"


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


def footer(reports: Sequence[Report], refused: Sequence[Refused] = ()) -> list[str]:
    """The comment lines below the table; without any report, only why."""
    failed: dict[tuple[str, str, str], list[int]] = {}
    for cell in refused:
        failed.setdefault((cell.algorithm, cell.error.code, cell.error.message), []).append(cell.bytes)
    reasons = [
        f"# {code} : {name} at {' '.join(str(size) for size in sizes)} B: {message}"
        for (name, code, message), sizes in failed.items()
    ]
    resized = [*(report.resized for report in reports), *(cell.resized for cell in refused)]
    changed = [f"# Note                 : {note}" for note in told_sizes(resized)]
    if not reports:
        return reasons + changed
    return [
        *reasons,
        f"# Out of bounds values : {wrong(reports)} {'OK' if not wrong(reports) else 'FAILED'}",
        f"# Avg bus bandwidth    : {average_busbw(reports):.4f}",
        f"# Bound of last size   : {max(reports, key=lambda report: report.bytes).limited_by}",
        *changed,
        *(f"# Note                 : {note}" for note in notes(reports)),
        *(f"# {line}" for line in told(_reasons(reports)).splitlines()),
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
            "validation": sweep.data,
            "device": sweep.device,
            **machines[0],
            "machines": machines,
        },
        "results": [result(cell, sweep) for cell in cells],
        "out_of_bounds": {"count": bad, "okay": not bad},
        "average_bus_bandwidth": {"bandwidth": average_busbw(reports) if reports else None, "okay": True},
    }


def result(cell: Report | Refused, sweep: Sweep) -> dict[str, Any]:
    """One row of `to_json`."""
    if isinstance(cell, Refused):
        return {
            "size": cell.bytes,
            "type": NCCL_TYPES[sweep.dtype],
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
    return {
        "percent": report.band.percent,
        "worst_percent": report.band.worst_percent,
        "low_us": low,
        "high_us": high,
    }
