"""Plans: algorithms that are files of other projects instead of kernels (`algorithms.<name>.plan` in ccl.yaml,
`ahbm run FILE`).

A plan works on whole arrays: rank r's operand and result stand in the memory of SIP r, and are one memory where the
plan runs in place. `docs/imports.md` tells what is supported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ahbm._core import Machine, Plan, Program, convert_plan
from ahbm.collectives import COLLECTIVES
from ahbm.config import SLOTS, UNBOUNDED
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.reading import PLAIN, Reading

if TYPE_CHECKING:
    from ahbm.algorithm import Request
    from ahbm.config import Settings
    from ahbm.report import Report

Piece = tuple[int, int, int, int]
"""Buffer, first byte in the array, first byte in the buffer, bytes: a row of `Memory.scatter`."""


@dataclass(frozen=True)
class Lowered:
    """A plan as a program, and where every rank's array goes."""

    program: Program
    operands: list[list[Piece]]
    """Per rank, what is copied from its array before the run."""
    results: list[list[Piece]]
    """Per rank, what is copied into its array after the run."""


@dataclass(frozen=True, eq=False)
class PlanAlgorithm:
    """A plan that was read, as an algorithm of the emulator."""

    name: str
    path: Path
    digest: str
    """Hash of the file's content."""
    plan: Plan

    @property
    def collectives(self) -> tuple[str, ...]:
        """What it computes: one collective."""
        return (self.plan.collective,)

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return str(self.path)

    @property
    def identity(self) -> tuple[str, str]:
        """Path and content hash."""
        return (str(self.path), self.digest)

    def check(self, request: Request) -> None:
        """Raises ConfigError AHBM-C115 for another collective than the plan's, C117 for another number of ranks,
        UnsupportedError AHBM-U112 for another root than the plan's."""
        if request.collective not in self.collectives:
            raise ConfigError(
                "AHBM-C115",
                f"{self.name} implements {self.plan.collective}, not {request.collective}",
                sites=(self._site(),),
                hint="choose another algorithm",
            )
        if request.world_size != self.plan.ranks:
            raise ConfigError(
                "AHBM-C117",
                f"{self.name} is a plan for {self.plan.ranks} ranks, not {request.world_size}",
                sites=(self._site(),),
                hint=f"set system.sips.count={self.plan.ranks}, or world_size: {self.plan.ranks} for this algorithm",
            )
        if COLLECTIVES[request.collective].rooted and request.root != self.plan.root:
            raise UnsupportedError(
                "AHBM-U112",
                f"{self.name} is rooted at rank {self.plan.root}, not {request.root}",
                sites=(self._site(),),
            )

    def lower(self, machine: Machine, request: Request, settings: Settings, nbytes: int) -> Lowered:
        """The plan as a program for arrays of `nbytes` bytes per rank, in the collective's in-place layout.

        Raises FormatError (AHBM-F127) when the size does not split into the plan's chunks, UnsupportedError,
        BudgetError, LintError.
        """
        return lower(self.plan, machine, request, settings, nbytes)

    def _site(self) -> Site:
        return Site(self.name, str(self.path))


def lower(plan: Plan, machine: Machine, request: Request, settings: Settings, nbytes: int) -> Lowered:
    """`plan` as a program for arrays of `nbytes` bytes per rank; raises as `PlanAlgorithm.lower`."""
    program, ranks, _ = plan.lower(
        machine,
        nbytes=nbytes,
        dtype=request.dtype,
        op=request.op,
        slots=settings.n_slots,
        protocol=settings.protocol,
        instances=settings.instances,
        tier=settings.buffer_kind,
        credit_bytes=settings.ipcq_credit_size_bytes,
        slice_bytes=settings.slice_bytes,
    )
    part = nbytes // request.world_size
    operands: list[list[Piece]] = []
    results: list[list[Piece]] = []
    for rank, ((source, at, _), (target, to, _), _) in enumerate(ranks):
        first, size = _share(request, rank, nbytes, part, operand=True)
        operands.append([(source, first, at, size)] if size else [])
        first, size = _share(request, rank, nbytes, part, operand=False)
        results.append([(target, first, to, size)] if size else [])
    return Lowered(program, operands, results)


def load(name: str, path: Path, content: bytes, reading: Reading = PLAIN) -> PlanAlgorithm:
    """Reads the plan at `path`, whose bytes are `content`.

    Raises FormatError, UnsupportedError (AHBM-U233 for a trace without buffers), BudgetError.
    """
    return PlanAlgorithm(name, path, hashlib.sha256(content).hexdigest(), _with_buffers(path, reading))


def run(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    *,
    nbytes: int,
    dtype: str = "f16",
    op: str = "sum",
    slots: int | None = SLOTS,
    protocol: str | None = None,
    instances: int = 1,
    slice_bytes: int | None = None,
    data: bool = True,
    check: bool | str = False,
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
    et: str | Path | None = None,
    trace: str | Path | None = None,
    reading: Reading = PLAIN,
) -> Report:
    """Runs the plan in `file` once, on the SIPs of its ranks, and reports it like `ahbm.run`.

    nbytes: size of one rank's array in the sense of nccl-tests. slots: messages a queue holds, None for no bound.
    protocol: "Simple", "LL" or "LL128" instead of the plan's own. instances: parallel copies of the plan, each on its
    share of every chunk. slice_bytes: size of the largest message instead of the protocol's. data: also move the data
    and compare with NumPy. check: as for `ahbm.run`. et, trace: what to write, as in `ahbm.run`. reading: how the file
    is read.

    Raises UnsupportedError: AHBM-U233 for a trace without buffers, AHBM-U113 for a plan whose collective has no known
    result (both run for their time with `ahbm.timed.run`); and as `ahbm.run`.
    """
    import ahbm

    collective, name, root, settings = as_algorithm(
        file, slots=slots, protocol=protocol, instances=instances, slice_bytes=slice_bytes, reading=reading
    )
    return ahbm.run(
        collective,
        name,
        topology,
        bytes_per_rank=nbytes,
        dtype=dtype,
        op=op,
        root=root,
        data=data,
        check=check,
        overrides={**(overrides or {}), **settings},
        ccl=ccl,
        et=et,
        trace=trace,
    )


def as_algorithm(
    file: str | Path,
    *,
    slots: int | None = SLOTS,
    protocol: str | None = None,
    instances: int = 1,
    slice_bytes: int | None = None,
    reading: Reading = PLAIN,
) -> tuple[str, str, int, dict[str, object]]:
    """The collective that the plan in `file` performs, a name for it as an algorithm, its root (0 without one), and
    the overrides of ccl.yaml that make it one. Arguments and errors are those of `run`.
    """
    plan = _with_buffers(file, reading)
    if plan.collective not in COLLECTIVES:
        raise UnsupportedError(
            "AHBM-U113",
            f"{file}: what a {plan.collective} plan should compute is not known",
            hint="ahbm run FILE runs it for its time, ahbm check follows its chunks",
        )
    name = label(file)
    entry: dict[str, object] = {
        "plan": str(Path(file).absolute()),
        "n_slots": UNBOUNDED if slots is None else slots,
        "instances": instances,
        "world_size": plan.ranks,
        **reading.entry(),
    }
    if protocol is not None:
        entry["protocol"] = protocol
    if slice_bytes is not None:
        entry["slice_bytes"] = slice_bytes
    return plan.collective, name, plan.root or 0, {f"algorithms.{name}.{key}": value for key, value in entry.items()}


def convert(
    source: str | Path,
    target: str | Path,
    *,
    nbytes: int | None = None,
    link_order: bool = False,
    slots: int = SLOTS,
    quirks: bool = False,
    limits: Sequence[tuple[str, int]] = (),
) -> list[Path]:
    """Writes the algorithm in `source` as what the name of `target` says: .xml, .json, or the prefix of a trace, .et.

    nbytes: the size, of the larger of operand and result, by which a trace states its `comm_size`; about 1 MiB.
    link_order: orders the sends of every link of a trace by control dependencies. slots: messages that the queues of an
    execution plan hold. quirks, limits: as in `ahbm.check.Settings`. Returns the files that were written; after an
    error there are none.

    Raises FormatError, BudgetError, and UnsupportedError (AHBM-U292) for what the format of `target` cannot express.
    """
    return convert_plan(source, target, nbytes=nbytes, link_order=link_order, slots=slots, quirks=quirks, limits=limits)


def _with_buffers(file: str | Path, reading: Reading) -> Plan:
    plan = reading.read(file)
    if not plan.buffers:
        raise UnsupportedError(
            "AHBM-U233",
            f"the trace {file} names no buffers, so there is no data to run it on",
            hint="ahbm run FILE.et runs it for its time, ahbm check follows its messages",
        )
    return plan


def label(file: str | Path) -> str:
    """Name of the algorithm in a file: of `ring.xml`, `ring.et` and `ring.3.et` it is `ring`."""
    name = re.sub(r"(\.\d+)?\.et$", "", Path(file).name)
    return re.sub(r"\.(xml|json)$", "", name).replace(".", "_")


def _share(request: Request, rank: int, nbytes: int, part: int, *, operand: bool) -> tuple[int, int]:
    """First byte and size of what a rank contributes, or ends with, inside its array."""
    whole, own, nothing = (0, nbytes), (rank * part, part), (0, 0)
    is_root = rank == request.root
    match request.collective:
        case "all_gather":
            return own if operand else whole
        case "reduce_scatter":
            return whole if operand else own
        case "gather":
            return own if operand else whole if is_root else nothing
        case "scatter":
            return (whole if is_root else nothing) if operand else own
        case "reduce":
            return whole if operand or is_root else nothing
        case "send_recv":
            return whole if operand or rank == request.dst else nothing
        case _:
            return whole
