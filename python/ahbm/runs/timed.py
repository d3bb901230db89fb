"""Plans that run for their time only (`ahbm run FILE`): no result is known to compare with.

Chakra traces without buffers say how many bytes travel, not which: a node is issued as soon as what it waits for has
ended, messages carry zeros. Plans of custom collectives run like all others (`ahbm.runs.plans`), without data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ahbm._core import Machine, Plan, Program
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.protocols import chosen
from ahbm.config.settings import Settings
from ahbm.config.topology import load_machine, sized
from ahbm.core.fitting import fitting
from ahbm.core.spec import machine_name
from ahbm.errors import Finding
from ahbm.runs import bands
from ahbm.runs.plans import Options
from ahbm.runs.report import place
from ahbm.runs.traces import Run
from ahbm.source.plan import as_program, off_range

UNBOUNDED_QUEUES = Options(slots=None)
"""A trace's queues hold what is sent."""


_SILENT, _FLAT = "without a protocol", "a protocol without its ramp"
"""Beginnings of notes on protocols."""


def without(machine: Machine, why: str) -> str:
    """The note on what the protocols of a machine's library leave out of messages that are no call of some size; "" for
    nothing. `why`: a reason to know no size, in words."""
    of_all = chosen(machine)
    if of_all is not None:
        return f"{_FLAT}, {of_all.name}: {why}" if of_all.by_size else ""
    names = ", ".join(protocol.name for protocol in machine.protocols)
    hint = "--set protocol=NAME adds the steps and limits of one, without its ramp"
    return f"{_SILENT} of the machine's library, which has {names}: {why}; {hint}" if names else ""


@dataclass(frozen=True)
class TimeReport(Run):
    """One simulated plan. Times are simulated; no data were moved, so nothing was compared."""

    plan: str
    collective: str
    """The collective that the file names; "custom" if it names none."""
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
    """Warnings: parts that were left out in reading, and parts that a real runtime would reject."""
    reason: str = ""
    """The reason that only the time is known."""
    notes: tuple[str, ...] = ()
    """Choices that the configuration left open and that were not its first option, and what is not in the time."""
    machine: str = ""
    """The machine in words: its topology, and the overrides that changed it."""
    ran: Program | None = field(default=None, repr=False, compare=False)
    """The program that ran."""

    @property
    def beside(self) -> list[str]:
        """The notes on the protocol, and on the error of a calibrated machine."""
        of_protocol = [note for note in self.notes if note.startswith((_SILENT, _FLAT))]
        return [*of_protocol, *filter(None, [bands.of(self.notes)])]

    def program(self) -> Program | None:
        """The program that ran."""
        return self.ran

    def to_json(self) -> dict[str, Any]:
        """All fields but `ran` as JSON-serialisable data."""
        data = asdict(replace(self, ran=None))
        del data["ran"]
        return data

    def __str__(self) -> str:
        lines = [
            f"{self.plan} on {place(self.machine, self.topology)}: {self.ranks} ranks, {self.steps} steps, "
            f"{self.messages} messages of {self.bytes} B in {self.latency_ns:,.2f} ns (simulated), "
            f"time only: {self.reason}"
        ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        return "\n".join(lines)


def prepare(
    plan: Plan,
    topology: str | Path | Machine | None,
    options: Options,
    nbytes: int | None,
    dtype: str,
    op: str,
    overrides: Mapping[str, object] | None,
    ccl: str | Path | None,
) -> tuple[Program, Settings, str]:
    """The program that `run` runs, the settings that it runs with, and a note on the memory of its queues.

    Arguments and errors are those of `run`.
    """
    for_topology, for_ccl = split_overrides(sized(plan.ranks, topology, overrides))
    machine = load_machine(topology, for_topology)
    config = CclConfig.load(ccl, for_ccl)
    settings = config.settings(config.default_algorithm)
    settings = replace(settings, queues=options.queues(settings.queues))
    (program, _), note = fitting(
        machine, settings, lambda chosen: as_program(plan, machine, chosen.queues, options, nbytes or 0, dtype, op)
    )
    return program, settings, note


def run(
    plan: Plan,
    name: str,
    topology: str | Path | Machine | None = None,
    options: Options = UNBOUNDED_QUEUES,
    *,
    nbytes: int | None = None,
    dtype: str = "u8",
    op: str = "sum",
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
) -> TimeReport:
    """Runs a plan once, rank r on SIP r.

    nbytes: size of the larger of operand and result; None takes the sizes that a trace without buffers states.

    Raises UnsupportedError (AHBM-U231 for nodes of a workload, AHBM-U232 for a size that is missing or that the trace
    cannot take), FormatError, ConfigError, TopologyError, LintError, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    program, settings, note = prepare(plan, topology, options, nbytes, dtype, op, overrides, ccl)
    machine = program.machine
    timeline = program.simulate(record=False, max_events=settings.event_budget)
    why = "a custom collective is no call of the library" if plan.buffers else "the trace does not state a call's size"
    calibrated = bands.note_of(machine, plan.collective, name, plan.ranks, nbytes or 0)
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
        tuple(filter(None, (note, off_range(plan, name, nbytes) if nbytes else "", without(machine, why), calibrated))),
        machine_name(machine),
        program,
    )
