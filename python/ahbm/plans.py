"""Plans: algorithms that are files of other projects instead of kernels (`algorithms.<name>.plan` in ccl.yaml,
`ahbm run FILE`).

A plan works on whole arrays: rank r's operand and result stand in the memory of SIP r, and are one memory where the
plan runs in place. `docs/imports.md` tells what is supported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ahbm._core import Machine, Plan, Program, convert_plan
from ahbm.collectives import COLLECTIVES, Request
from ahbm.config import SLOTS, UNBOUNDED
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.reading import PLAIN, Reading

if TYPE_CHECKING:
    from ahbm.config import Settings
    from ahbm.measure import Arguments
    from ahbm.report import Report
    from ahbm.verify import Case

Region = tuple[int, int, int]
"""Buffer, first byte, bytes."""

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


@dataclass(frozen=True)
class Options:
    """How the plan in a file runs; in ccl.yaml, keys beside `plan:`."""

    slots: int | None = SLOTS
    """Messages a queue holds; None for no bound."""
    protocol: str | None = None
    """"Simple", "LL" or "LL128" instead of the plan's own."""
    instances: int = 1
    """Parallel copies of the plan, each on its share of every chunk."""
    slice_bytes: int | None = None
    """Size of the largest message instead of the protocol's."""
    reading: Reading = PLAIN

    def over(self, settings: Settings) -> Settings:
        """`settings` with these options."""
        depth = UNBOUNDED if self.slots is None else self.slots
        return replace(
            settings,
            n_slots=depth,
            protocol=self.protocol,
            instances=self.instances,
            slice_bytes=self.slice_bytes,
            reading=self.reading,
        )

    def entry(self) -> dict[str, object]:
        """The keys of an entry of ccl.yaml."""
        found: dict[str, object] = {
            "n_slots": UNBOUNDED if self.slots is None else self.slots,
            "instances": self.instances,
            "protocol": self.protocol,
            "slice_bytes": self.slice_bytes,
        }
        return {key: value for key, value in found.items() if value is not None} | self.reading.entry()


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
    return PlanAlgorithm(name, path, hashlib.sha256(content).hexdigest(), _known(path, reading))


def prepare(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    **arguments: Unpack[Arguments],
) -> Case:
    """The plan in `file` on the SIPs of its ranks, as a case to measure, like `ahbm.measure.prepare`.

    Its root is the plan's. Raises ConfigError (AHBM-C146) without a size, UnsupportedError: AHBM-U233 for a trace
    without buffers, AHBM-U113 for a plan whose collective has no known result (both run for their time with
    `ahbm.timed.run`); and as `ahbm.measure.prepare`.
    """
    from ahbm import measure

    plan = _known(file, options.reading)
    if arguments.get("bytes_per_rank") is None:
        raise ConfigError("AHBM-C146", f"{file} runs at some size", hint="--size 1M")
    name = label(file)
    entry = {"plan": str(Path(file).absolute()), "world_size": plan.ranks} | options.entry()
    settings = {f"algorithms.{name}.{key}": value for key, value in entry.items()}
    arguments["overrides"] = {**(arguments.get("overrides") or {}), **settings}
    arguments["root"] = plan.root or 0
    return measure.prepare(plan.collective, name, topology, **arguments)


def run(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    *,
    data: bool = True,
    check: bool | str = False,
    **arguments: Unpack[Arguments],
) -> Report:
    """Runs the plan in `file` once and reports it: `prepare`, then `ahbm.measure.measure`. Raises what these raise."""
    from ahbm.measure import measure

    return measure(prepare(file, topology, options, **arguments), data=data, check=check)


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


def has_known_result(plan: Plan) -> bool:
    """Whether it computes what `ahbm.collectives` describes; in a send_recv plan every rank sends, not one."""
    kind = COLLECTIVES.get(plan.collective)
    return kind is not None and not kind.paired


def _known(file: str | Path, reading: Reading) -> Plan:
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


def label(file: str | Path) -> str:
    """Name of what is in a file: of `ring.xml`, `ring.et`, `ring.3.et` and `ring.3.json` it is `ring`."""
    return re.sub(r"((\.\d+)?\.(et|json)|\.xml)$", "", Path(file).name).replace(".", "_")


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
