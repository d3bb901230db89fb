"""The result of a run, as an object, text and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ahbm.base import html
from ahbm.base.arguments import checked, whole
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.sizes import Resized, resize_notes
from ahbm.base.words import IDLE
from ahbm.check.case import Case
from ahbm.config.topology import ASSUMED, OVERRULED
from ahbm.core.limits import Bound
from ahbm.core.spec import Spec
from ahbm.errors import ConfigError, Finding, described
from ahbm.runs import bands
from ahbm.runs.bands import Band
from ahbm.runs.traces import Run

if TYPE_CHECKING:
    from ahbm._core import Program
    from ahbm.check.numerics import Numerics
    from ahbm.runs.inspection import Inspection
    from ahbm.runs.rivals import Alternatives

OF_BOUND = ("bound_ns", "percent_of_bound", "limited_by", "bound_is_tightest")
"""Names under which JSON has the bound; files may lack the last."""


@dataclass(frozen=True)
class Report(Run):
    """One simulated collective. Bandwidths are in GB/s = 1e9 bytes per second; times are simulated."""

    collective: str
    algorithm: str
    topology: str
    """Network between the SIPs."""
    ranks: int
    """Contributions: ranks, or tiles when the tensors are placed on cubes."""
    bytes: int
    """Size in the sense of nccl-tests: one rank's (or tile's) array, all chunks included."""
    count: int
    """Elements of a chunk."""
    dtype: str
    op: str
    """Reduction operator; "none" for collectives that do not reduce."""
    root: int
    """-1 for collectives without a root."""
    latency_ns: float
    messages: int
    algbw_gbs: float
    """bytes / latency."""
    busbw_gbs: float
    """algbw times the collective's factor in nccl-tests."""
    bound: Bound = field(repr=False, compare=False)
    """The least time any algorithm could take, found when one of the four properties that tell of it is first read."""
    wrong: int | None
    """Elements that differ from NumPy's answer; None when no data was run."""
    timeline_hash: str
    """16 hex digits; equal hashes are equal timelines."""
    machine_hash: str
    program_hash_of: Callable[[], str] = field(repr=False, compare=False)
    """Finds `program_hash`."""
    version: str
    """Of this package."""
    ops: int = 0
    """Operations of all agents."""
    memory_bytes: int = 0
    """Bytes of the buffers and queue slots at the PE that has most."""
    checks: tuple[str, ...] = ()
    """Checks of the program that were made, and passed but for what `findings` say."""
    findings: tuple[Finding, ...] = ()
    """Why the result is wrong where nobody asked for an error, what checks could not decide, and bits that differ
    between ranks (AHBM-V412)."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Choices that the configuration left open, and that a run by the same algorithm does not make again."""
    band: Band | None = field(default=None, compare=False)
    """On a calibrated machine, how far it was off near this size; None where that is not known."""
    resized: Resized | None = field(default=None, compare=False)
    """Sizes that were asked for and cannot be divided: `bytes` is what ran in their place."""
    machine: str = ""
    """The machine in words: its topology, and the overrides that changed it."""
    spec: Spec | None = field(default=None, repr=False, compare=False)
    """The run as a value; None in a report that was read from JSON."""

    @property
    def right(self) -> bool:
        """False where elements are wrong: such a run is nobody's quickest. True where no data was run."""
        return not self.wrong

    def _least(self) -> Bound:
        return self.bound

    def alternatives(self) -> Alternatives | None:
        """As in `Run`."""
        from ahbm.runs.rivals import Measured

        return None if self.spec is None else Measured(self._case(), self)

    @cached_property
    def program_hash(self) -> str:
        """16 hex digits, found when they are first read; empty when there was nothing to run. Equal programs have equal
        hashes."""
        return self.program_hash_of()

    def __getstate__(self) -> dict[str, object]:
        found = self.program_hash
        return {**vars(self), "program_hash_of": _Known(found), "program_hash": found}

    @property
    def bound_ps(self) -> int | None:
        """`bound_ns` in ps."""
        return self.bound.ps

    @property
    def bound_ns(self) -> float | None:
        """The least time any algorithm could take; None where none is known."""
        return None if self.bound.ps is None else self.bound.ps / 1000

    @property
    def percent_of_bound(self) -> float | None:
        """bound / latency; 100 cannot be beaten."""
        latency_ps = round(1000 * self.latency_ns)
        return None if self.bound.ps is None or not latency_ps else 100 * self.bound.ps / latency_ps

    @property
    def limited_by(self) -> str:
        """The tight cut or the longest way behind the bound, or why no bound is known."""
        return self.bound.reason

    @property
    def bound_is_tightest(self) -> bool:
        """Whether no cut of the machine is tighter and no way longer; False where that is not known."""
        return self.bound.tightest

    def program(self) -> Program | None:
        """The program that ran; None when there was nothing to run. Raises ConfigError: AHBM-C148 without a
        spec, C163 when the algorithm is not what it was."""
        return self._case().compiled().program

    def numerics(self, seeds: int = 4) -> Numerics:
        """The exactness of the reduction; raises as `ahbm.check.numerics.numerics`, and as `program`."""
        from ahbm.check.numerics import numerics

        return numerics(self._case(), whole("seeds", seeds, 1, 2**32 - 1))

    def inspect(self) -> Inspection:
        """Looks into the run: its state at any time, and the history of any element. Raises as `program`."""
        from ahbm.runs.inspection import Inspection

        spec, case = self.spec, self._case()
        return Inspection.of(case) if spec is None else Inspection.of(case, spec.mode, spec.seed)

    def _case(self) -> Case:
        if self.spec is None:
            raise ConfigError("AHBM-C148", "a report that was read from JSON has no program", hint="run it again")
        return Case.of(self.spec)

    def to_json(self) -> dict[str, Any]:
        """All fields but `spec` as JSON-serialisable data, and what is known of the bound."""
        data: dict[str, Any] = {}
        for name, value in asdict(replace(self, spec=None, findings=())).items():
            if name == "bound":
                data |= {key: getattr(self, key) for key in OF_BOUND}
            elif name == "program_hash_of":
                data["program_hash"] = self.program_hash
            elif name == "resized":
                data[name] = None if self.resized is None else self.resized.to_json()
            elif name != "spec":
                data[name] = value
        return data | {"findings": [finding.to_json() for finding in self.findings]}

    @staticmethod
    @checked
    def from_json(data: Mapping[str, Any] | str) -> Report:
        """The inverse of `to_json`; takes its JSON text too. Raises ConfigError (AHBM-C129, C160)."""
        try:
            known = dict(json.loads(data) if isinstance(data, str) else data)
            known["checks"] = tuple(known.get("checks", ()))
            known["notes"] = tuple(known.get("notes", ()))
            known["band"] = None if known.get("band") is None else Band.of(known["band"])
            known["resized"] = None if known.get("resized") is None else Resized.from_json(known["resized"])
            known["findings"] = tuple(map(Finding.from_json, known.get("findings", ())))
            ns, _, reason = (known.pop(name) for name in OF_BOUND[:3])
            ps = None if ns is None else round(1000 * ns)
            bound = Bound.known(ps, reason, known.pop("bound_is_tightest", False))
            program = _Known(known.pop("program_hash"))
            return Report(**known, bound=bound, program_hash_of=program)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise ConfigError("AHBM-C160", f"no report: {error}", hint="give what Report.to_json has made") from error

    def _repr_html_(self) -> str:
        bound = self.limited_by
        if self.bound_ns is not None and self.percent_of_bound is not None:
            bound = f"{self.bound_ns:,.2f} ns, {self.percent_of_bound:.1f} % reached ({self.limited_by})"
        pairs: list[tuple[str, object]] = [
            ("time (simulated)", f"{self.latency_ns:,.2f} ns"),
            ("bandwidth", f"algbw {self.algbw_gbs:.2f} GB/s, busbw {self.busbw_gbs:.2f} GB/s"),
            ("bound", bound),
            ("elements wrong", "not checked" if self.wrong is None else self.wrong),
            ("messages", self.messages),
            ("timeline hash", self.timeline_hash),
        ]
        pairs += [("checked for", ", ".join(self.checks))] if self.checks else []
        pairs += [("note", note) for note in self._all_notes()]
        pairs += [("findings", described(self.findings))] if self.findings else []
        what = f"{self.collective} by {self.algorithm} on {self.machine or self.topology}"
        return html.facts(f"{what}: {self.ranks} × {self.bytes:,} B {self.dtype}", pairs)  # noqa: RUF001

    @property
    def overruled(self) -> list[str]:
        """The note that ccl.yaml has its own number of ranks, where it has."""
        return [note for note in self.notes if note.endswith(OVERRULED)]

    @property
    def assumed(self) -> list[str]:
        """The notes on what was assumed of a machine that another tool's file describes."""
        return [note for note in self.notes if note.startswith(ASSUMED)]

    @property
    def idle(self) -> list[str]:
        """The notes on choices that change nothing."""
        return [note for note in self.notes if note.endswith(IDLE)]

    @property
    def beside(self) -> list[str]:
        """The notes of the time alone: on the number of ranks, on choices that change nothing, and on the error of a
        calibrated machine."""
        return [*self.assumed, *self.overruled, *self.idle, *filter(None, [self.error.note])]

    @property
    def error(self) -> bands.Noted:
        """What is told of the error of a calibrated machine."""
        return bands.Noted(self.machine or self.topology, self.bytes, bands.of(self.notes))

    def _all_notes(self) -> list[str]:
        """What is said to people beside the numbers."""
        return [*resize_notes([self.resized]), *self.notes]

    def __str__(self) -> str:
        checked = "not checked" if self.wrong is None else f"{self.wrong} wrong"
        bound = (
            self.limited_by
            if self.bound_ns is None or self.percent_of_bound is None
            else f"{self.percent_of_bound:.1f} % of the bound of {self.bound_ns:,.2f} ns ({self.limited_by})"
        )
        return (
            f"{self.collective} by {self.algorithm} on {place(self.machine, self.topology)}: "
            f"{self.ranks} x {self.bytes} B {self.dtype}{'' if self.op in ('sum', 'none') else f' {self.op}'} in "
            f"{self.latency_ns:,.2f} ns (simulated), algbw {self.algbw_gbs:.2f} GB/s, busbw {self.busbw_gbs:.2f} GB/s, "
            f"{bound}, {self.messages} messages, {checked}"
            + (f", checked for {', '.join(self.checks)}" if self.checks else "")
            + "".join(f"\nnote: {note}" for note in self._all_notes())
            + (f"\n{described(self.findings)}" if self.findings else "")
        )


@dataclass(frozen=True)
class _Known:
    """Finds a text that is known."""

    text: str

    def __call__(self) -> str:
        return self.text


def place(machine: str, network: str) -> str:
    """A machine without its overrides, and its network, such as "npu_ring_8 (ring_1d)"."""
    name = re.split(r", (?=[\w.]+=)", machine)[0]
    return f"{name} ({network})" if name not in ("", network) else network


def notes_of(reports: Sequence[Report]) -> list[str]:
    """What is said of the times of many: the notes of numbers of ranks and of choices that change nothing, each once,
    and the errors of calibrated machines."""
    own = dict.fromkeys(note for report in reports for note in (*report.assumed, *report.overruled, *report.idle))
    return [*own, *bands.over(report.error for report in reports)]


def bandwidths(collective: str, ranks: int, nbytes: int, latency_ps: int) -> tuple[float, float]:
    """(algbw, busbw) in GB/s as nccl-tests counts them; 0 for no time at all."""
    algbw = nbytes * 1000 / latency_ps if latency_ps else 0.0
    return algbw, algbw * COLLECTIVES[collective].bus_factor(ranks)
