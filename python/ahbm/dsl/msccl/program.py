"""MSCCLang programs: recording, `Check()`, `XML()`."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any

from ahbm._core import MscclRecorder, Ref
from ahbm.dsl.msccl.chunks import Buffer, RankBuffers
from ahbm.dsl.msccl.collectives import Collective, _Known, contents
from ahbm.dsl.msccl.policies import ThreadblockPolicy
from ahbm.dsl.msccl.refusals import here, refuse
from ahbm.dsl.written import Written, lowering
from ahbm.errors import Finding, Site

CURRENT: ContextVar[MSCCLProgram | None] = ContextVar("ahbm_dsl_msccl_program", default=None)
"""The program whose statements are recorded."""

PROTOCOLS = ("Simple", "LL", "LL128")

MOST_SLOTS = 1 << 23
"""Slots of the larger buffers of all ranks."""


class MSCCLProgram(MscclRecorder):
    """A program: a context manager, inside of which statements are recorded.

    `topo` says which ranks have links (`num_nodes()`, `link(src, dst)`), `collective` what is computed. `instances`
    copies share the buffers; `interleaved_replication`: they alternate, else each has its copy of the whole.
    `dependence_nop`: what reductions of a thread block wait for is waited for before the first of them.

    Raises `ProgramError`: AHBM-A210 for parameters that do not fit, AHBM-A201 for a program inside another.
    """

    def __init__(
        self,
        name: str,
        topo: Any,
        collective: Collective,
        instances: int,
        protocol: str = "Simple",
        threadblock_policy: ThreadblockPolicy = ThreadblockPolicy.auto,
        interleaved_replication: bool = True,
        instr_fusion: bool = True,
        check_xml: bool = True,
        dependence_nop: bool = False,
    ) -> None:
        origin = here()
        if protocol not in PROTOCOLS:
            message = f"Given protocol: {protocol}. Must be either Simple, LL, LL128"
            refuse("AssertionError", "AHBM-A210", message, origin=origin)
        if not isinstance(instances, int) or isinstance(instances, bool) or not 0 < instances < 1 << 24:
            refuse("TypeError", "AHBM-A210", f"instances={instances!r}: a number from 1 on is needed", origin=origin)
        if not isinstance(threadblock_policy, ThreadblockPolicy):
            message = f"threadblock_policy={threadblock_policy!r}: a ThreadblockPolicy is needed"
            refuse("TypeError", "AHBM-A210", message, origin=origin)
        if not isinstance(collective, Collective):
            message = f"collective: {type(collective).__name__} is no subclass of Collective"
            refuse("AttributeError", "AHBM-A210", message, origin=origin)
        if not hasattr(topo, "num_nodes") or not hasattr(topo, "link"):
            message = f"topo: '{type(topo).__name__}' object has no num_nodes() and link()"
            refuse("AttributeError", "AHBM-A210", message, origin=origin)
        self.name = str(name)
        self.topo = topo
        self.collective = collective
        self.num_ranks: int = _ranks(topo, collective, origin)
        self.instances = instances
        self.protocol = protocol
        self.threadblock_policy = threadblock_policy
        self.interleaved_replication = interleaved_replication
        self.instr_fusion = instr_fusion
        self.check_xml = check_xml
        self.dependence_nop = dependence_nop
        self.quirks = lowering().quirks
        buffers = collective.init_buffers()
        if buffers is None or len(buffers) < self.num_ranks:
            message = f"the collective has buffers of {len(buffers or ())} ranks, the topology has {self.num_ranks}"
            refuse("IndexError", "AHBM-A210", message, origin=origin)
        mapping = _mapping(collective)
        self._begin(
            Buffer.input, Buffer.output, self.num_ranks, mapping, collective.chunk_factor, topo, collective, self.quirks
        )
        for rank, rows in enumerate(contents(buffers[: self.num_ranks], origin)):
            for key, kind, chunks, other in rows:
                self._buffer(rank, key, kind, chunks, other)
            self._starts(rank, self._length(rank, Buffer.input) or 0)

    def __enter__(self) -> MSCCLProgram:
        if CURRENT.get() is not None:
            refuse("RuntimeError", "AHBM-A201", "There is already a MSCCL Program in context", origin=here())
        CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if CURRENT.get() is not self:
            refuse("RuntimeError", "AHBM-A201", "This program is not currently in context", origin=here())
        CURRENT.set(None)

    @property
    def buffers(self) -> list[RankBuffers]:
        """Per rank, what is in the slots of its buffers at this moment."""
        return [RankBuffers(self, rank) for rank in range(self.num_ranks)]

    def check(self) -> bool | None:
        """Whether the chunks are where the collective promises, by what was said; prints where they are not."""
        return self.collective.check(self)

    def generate_xml(self, *, msccl_tools: str = "azure") -> str:
        """The program as MSCCL-IR.

        `msccl_tools="microsoft"` writes the header of the first compiler, which lacks what current executors want.
        Asked twice, it gives the same text. `ahbm.dsl.judgement.warn` checks the plan. Raises `ProgramError`
        (AHBM-A207, A208), `FormatError` (AHBM-F116 to F119), `BudgetError`.
        """
        if msccl_tools not in ("azure", "microsoft"):
            message = f"msccl_tools={msccl_tools!r}: 'azure' or 'microsoft' is needed"
            refuse("ValueError", "AHBM-A202", message, origin=here())
        collective = self.collective
        name = str(collective.name)
        if msccl_tools == "microsoft" and name == "reducescatter":
            name = "reduce_scatter"
        plan, text, notes = self._lower(
            name=self.name,
            goal=collective.goal if type(collective).__module__ == Collective.__module__ else "custom",
            root=collective.root,
            factor=collective.chunk_factor,
            in_place=bool(collective.inplace),
            protocol=self.protocol,
            instances=self.instances,
            interleaved=bool(self.interleaved_replication),
            fusion=bool(self.instr_fusion),
            manual=self.threadblock_policy is ThreadblockPolicy.manual,
            check=bool(self.check_xml),
            gathered=bool(self.dependence_nop),
            collective=name,
            sizes=msccl_tools == "azure",
        )
        found = tuple(Finding.from_json(note) for note in notes)
        lowering().tell(Written(self.name, "msccl", plan, text, found))
        return str(text)


def _ranks(topo: Any, collective: Collective, origin: str) -> int:
    """The ranks of the topology. Refuses those that the collective does not fit, before it makes their buffers."""
    ranks = topo.num_nodes()
    if not isinstance(ranks, int) or ranks < 1:
        refuse("TypeError", "AHBM-A210", f"topo: num_nodes() gave {ranks!r}, no number of ranks", origin=origin)
    if isinstance(collective, _Known) and ranks != collective.num_ranks:
        message = f"a collective of {collective.num_ranks} ranks on a topology of {ranks}"
        refuse("IndexError", "AHBM-A210", message, origin=origin)
    if collective.slots * ranks > MOST_SLOTS:
        message = f"{collective.slots} chunks at each of {ranks} ranks are more than {MOST_SLOTS}"
        refuse("ValueError", "AHBM-A210", message, origin=origin)
    return ranks


def _mapping(collective: Collective) -> str:
    method = type(collective).get_buffer_index
    if isinstance(collective, _Known) and method is _Known.get_buffer_index:
        return collective._mapping()
    return "same" if method is Collective.get_buffer_index else "asked"


def _current(origin: str) -> MSCCLProgram:
    program = CURRENT.get()
    if program is None:
        refuse("RuntimeError", "AHBM-A201", "No Program in context", origin=origin)
    return program


def XML(*, msccl_tools: str = "azure") -> None:
    """Prints the program of the context as `generate_xml` gives it."""
    print(_current(here()).generate_xml(msccl_tools=msccl_tools))


def Check() -> bool | None:
    """Checks the program of the context, by what was said.

    Prints what is wrong. Raises `ProgramError` (AHBM-A209) then, unless complaints are collected; with `quirks`, it
    returns False as upstream does.
    """
    origin = here()
    program = _current(origin)
    result = program.check()
    if result is not None and not result and not program.quirks:
        message = f"Check() of {program.name}: chunks are not where {program.collective.name} promises"
        hint = "the lines that were printed name them; with --quirks the answer is only returned"
        complaints = lowering().complaints
        if complaints is None:
            refuse("RuntimeError", "AHBM-A209", message, origin=origin, hint=hint)
        complaints.append((program.name, Finding("AHBM-A209", message, (Site("statement", origin),), hint)))
    return result


def Print() -> None:
    """Refused by name, as upstream's draws what it does not keep (AHBM-A211)."""
    refuse(
        "AttributeError",
        "AHBM-A211",
        "Print() is not served",
        origin=here(),
        hint="`ahbm explain` shows the steps of a plan",
    )


def create_scratch(rank: int, name: str) -> None:
    """Refused by name, as upstream's calls what does not exist (AHBM-A211)."""
    hint = f"a slice of scratch is made by the first copy to it: chunk(...).copy({rank!r}, {name!r})"
    refuse("AttributeError", "AHBM-A211", "create_scratch() is not served", origin=here(), hint=hint)


def print_chunk(program: MSCCLProgram, rank: int, buffer: object, index: int) -> None:
    """Prints what is in a slot."""
    print(program.buffers[rank][buffer][index])


__all__ = ["CURRENT", "XML", "Check", "MSCCLProgram", "Print", "Ref", "create_scratch", "print_chunk"]
