"""Chakra traces that say how many bytes travel, not which: they run for their time only (`ahbm run FILE.et`).

Every node is issued as soon as what it waits for has ended; messages carry zeros. Traces that name buffers are plans
(`ahbm.plans`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import Machine, Plan
from ahbm.config import CclConfig, split_overrides
from ahbm.errors import ConfigError, Finding
from ahbm.topology import load_machine

if TYPE_CHECKING:
    from ahbm._core import Program, Timeline


@dataclass(frozen=True)
class TraceReport:
    """One simulated trace. Times are simulated; there is no data, so nothing was compared."""

    trace: str
    collective: str
    """What the trace says it computes; "custom" where it does not say."""
    topology: str
    """Network between the SIPs."""
    ranks: int
    nodes: int
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
    """What was left out in reading."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return {**asdict(self), "warnings": [finding.to_json() for finding in self.warnings]}

    def __str__(self) -> str:
        lines = [
            f"{self.trace} on {self.topology}: {self.ranks} ranks, {self.nodes} nodes, {self.messages} messages of "
            f"{self.bytes} B in {self.latency_ns:,.2f} ns (simulated), time only: the trace names no buffers"
        ]
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        return "\n".join(lines)


def run(
    plan: Plan,
    name: str,
    topology: str | Path | Machine | None = None,
    *,
    nbytes: int | None = None,
    slots: int | None = None,
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
    et: str | Path | None = None,
) -> TraceReport:
    """Runs a trace without buffers once: rank r on SIP r, a node as soon as what it waits for has ended.

    nbytes: the size that messages are shares of; None takes the sizes that the trace states. slots: messages a queue
    holds, None for no bound, as a trace knows none. et: prefix of a post-execution trace to write.

    Raises UnsupportedError (AHBM-U231 for nodes of a workload, AHBM-U232 for a size that is missing or that the trace
    cannot take), FormatError, ConfigError, TopologyError, LintError, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    for_topology, for_ccl = split_overrides(overrides)
    machine = load_machine(topology, for_topology)
    ccl_config = CclConfig.load(ccl, for_ccl)
    settings = ccl_config.settings(ccl_config.default_algorithm)
    program, _, _ = plan.lower(
        machine,
        nbytes=nbytes or 0,
        dtype="u8",
        slots=slots,
        tier=settings.buffer_kind,
        credit_bytes=settings.ipcq_credit_size_bytes,
    )
    timeline = program.simulate(record=et is not None, max_events=settings.event_budget)
    if et is not None:
        program.write_trace(timeline, et)
    return TraceReport(
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
    )


def write_executed(
    program: Program | None, timeline: Timeline | None, recorded: bool, prefix: str | Path
) -> list[Path]:
    """Writes a run as a post-execution trace, `PREFIX.<rank>.et`, and returns its files.

    A timeline that was not recorded is simulated again: the same inputs give the same times. Raises ConfigError
    (AHBM-C148) when nothing was run, FormatError for files that cannot be written.
    """
    if program is None or timeline is None:
        raise ConfigError("AHBM-C148", "there was nothing to run, so there is no trace of it", hint="give a size")
    return program.write_trace(timeline if recorded else program.simulate(), prefix)
