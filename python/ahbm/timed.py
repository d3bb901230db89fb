"""Plans that run for their time only (`ahbm run FILE`): no result is known to compare with.

Chakra traces without buffers say how many bytes travel, not which: a node is issued as soon as what it waits for has
ended, messages carry zeros. Plans of custom collectives run like all others (`ahbm.plans`), without data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ahbm._core import Machine, Plan
from ahbm.config import CclConfig, split_overrides
from ahbm.errors import Finding
from ahbm.topology import load_machine
from ahbm.traces import check_name, write_timeline


@dataclass(frozen=True)
class TimeReport:
    """One simulated plan. Times are simulated; no data were moved, so nothing was compared."""

    plan: str
    collective: str
    """What the file says it computes; "custom" where it does not say."""
    topology: str
    """Network between the SIPs."""
    ranks: int
    steps: int
    """As the file counts them."""
    messages: int
    bytes: int
    """Payload of all messages."""
    latency_ns: float
    timeline_hash: str
    """16 hex digits; equal hashes are equal timelines."""
    machine_hash: str
    program_hash: str
    version: str
    """Of this package."""
    warnings: tuple[Finding, ...] = ()
    """What was left out in reading, and what a real runtime would reject."""
    reason: str = ""
    """Why only the time is known."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return {**asdict(self), "warnings": [finding.to_json() for finding in self.warnings]}

    def __str__(self) -> str:
        lines = [
            f"{self.plan} on {self.topology}: {self.ranks} ranks, {self.steps} steps, {self.messages} messages of "
            f"{self.bytes} B in {self.latency_ns:,.2f} ns (simulated), time only: {self.reason}"
        ]
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        return "\n".join(lines)


def run(
    plan: Plan,
    name: str,
    topology: str | Path | Machine | None = None,
    *,
    nbytes: int | None = None,
    dtype: str = "u8",
    op: str = "sum",
    slots: int | None = None,
    protocol: str | None = None,
    instances: int = 1,
    slice_bytes: int | None = None,
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
    et: str | Path | None = None,
    trace: str | Path | None = None,
) -> TimeReport:
    """Runs a plan once, rank r on SIP r.

    nbytes: size of the larger of operand and result; None takes the sizes that a trace without buffers states. slots:
    messages a queue holds, None for no bound. protocol, instances, slice_bytes: as in `ahbm.plans.run`, for plans with
    buffers. et: prefix of a post-execution trace to write. trace: file to write the timeline to, as in `ahbm.run`.

    Raises UnsupportedError (AHBM-U231 for nodes of a workload, AHBM-U232 for a size that is missing or that the trace
    cannot take), FormatError, ConfigError, TopologyError, LintError, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    check_name(trace)
    for_topology, for_ccl = split_overrides(overrides)
    machine = load_machine(topology, for_topology)
    ccl_config = CclConfig.load(ccl, for_ccl)
    settings = ccl_config.settings(ccl_config.default_algorithm)
    program, _, _ = plan.lower(
        machine,
        nbytes=nbytes or 0,
        dtype=dtype,
        op=op,
        slots=slots,
        protocol=protocol,
        instances=instances,
        tier=settings.buffer_kind,
        credit_bytes=settings.ipcq_credit_size_bytes,
        slice_bytes=slice_bytes,
    )
    timeline = program.simulate(record=et is not None, max_events=settings.event_budget)
    if et is not None:
        program.write_trace(timeline, et)
    if trace is not None:
        write_timeline(program, trace)
    return TimeReport(
        name,
        plan.collective,
        machine.topology,
        plan.ranks,
        plan.ops,
        timeline.messages,
        timeline.bytes,
        timeline.latency_ps / 1000,
        f"{timeline.hash:016x}",
        f"{machine.hash:016x}",
        f"{program.hash:016x}",
        __version__,
        tuple(Finding.from_json(warning) for warning in plan.warnings),
        f"what a {plan.collective} plan computes is not compared" if plan.buffers else "the trace names no buffers",
    )
