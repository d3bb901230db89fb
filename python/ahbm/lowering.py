"""Plans as algorithms of the emulator, and the programs they are lowered to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ahbm._core import Machine, Plan, Program
from ahbm.collectives import COLLECTIVES, Request
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.reading import PLAIN, Reading

if TYPE_CHECKING:
    from ahbm.config import Settings

Region = tuple[int, int, int]
"""Buffer, first byte, bytes."""

Piece = tuple[int, int, int, int]
"""Buffer, first byte in the array, first byte in the buffer, bytes: a row of what `Memory.run` takes."""


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

    def lower(
        self, machine: Machine, request: Request, settings: Settings, nbytes: int, sips: Sequence[int]
    ) -> Lowered:
        """The plan as a program for arrays of `nbytes` bytes per rank, in the collective's in-place layout; rank i is
        on SIP `sips[i]`.

        Raises FormatError (AHBM-F127) when the size does not split into the plan's chunks, UnsupportedError,
        BudgetError, LintError.
        """
        return lower(self.plan, machine, request, settings, nbytes, sips)

    def _site(self) -> Site:
        return Site(self.name, str(self.path))


def as_program(
    plan: Plan, machine: Machine, settings: Settings, nbytes: int, dtype: str, op: str, sips: Sequence[int] = ()
) -> tuple[Program, list[list[Region]]]:
    """`plan` as a program for `nbytes` bytes, and per rank where its operand, result and scratch are.

    Rank i is on SIP `sips[i]`; without any, on SIP i.
    """
    program, ranks, _ = plan.lower(
        machine,
        nbytes=nbytes,
        dtype=dtype,
        op=op,
        slots=settings.n_slots,
        protocol=settings.protocol,
        instances=settings.instances,
        tier=settings.buffer_kind,
        credit_bytes=settings.ipcq_credit_size_bytes,
        slice_bytes=settings.slice_bytes,
        sips=list(sips),
    )
    return program, ranks


def lower(
    plan: Plan, machine: Machine, request: Request, settings: Settings, nbytes: int, sips: Sequence[int]
) -> Lowered:
    """`plan` as a program for arrays of `nbytes` bytes per rank; `sips` and errors as of `PlanAlgorithm.lower`."""
    program, ranks = as_program(plan, machine, settings, nbytes, request.dtype, request.op, sips)
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

    Raises FormatError, UnsupportedError (AHBM-U233 for a trace without buffers, AHBM-U113), BudgetError.
    """
    return PlanAlgorithm(name, path, hashlib.sha256(content).hexdigest(), runnable(path, reading))


def has_known_result(plan: Plan) -> bool:
    """Whether it computes what `ahbm.collectives` describes; in a send_recv plan every rank sends, not one."""
    kind = COLLECTIVES.get(plan.collective)
    return kind is not None and not kind.paired


def runnable(file: str | Path, reading: Reading) -> Plan:
    """The plan in `file`; raises UnsupportedError for one whose result cannot be computed."""
    plan = reading.read(file)
    if not plan.buffers:
        raise UnsupportedError(
            "AHBM-U233",
            f"the trace {file} names no buffers, so there is no data to run it on",
            hint="ahbm run FILE.et runs it for its time, ahbm check follows its messages",
        )
    if not has_known_result(plan):
        raise UnsupportedError(
            "AHBM-U113",
            f"{file}: what a {plan.collective} plan should compute is not known",
            hint="ahbm run FILE runs it for its time, ahbm check follows its chunks",
        )
    return plan


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
        case _:
            return whole
