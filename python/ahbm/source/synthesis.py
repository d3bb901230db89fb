"""Schedules computed from a machine, measured against what no schedule can beat, and run on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine, Memory, Plan, Program, Schedule
from ahbm.base import html
from ahbm.base.arguments import checked, whole
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import COMBINE, element
from ahbm.base.request import Request
from ahbm.base.sizes import parse_size
from ahbm.base.words import NOT_TIGHTEST
from ahbm.config.protocols import CallCosts, usable
from ahbm.config.reading import MSCCLPP
from ahbm.config.settings import Queues
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.source.algorithm import Lowered
from ahbm.source.plan import UNBOUNDED, PlanOptions, lower

REDUCTIONS = ("sum", "prod", "min", "max", "avg")
"""Operators of synthesized reductions."""

METHODS = ("auto", *Schedule.methods())
"""Ways to find a schedule; `auto` takes the quickest schedule of them all."""

SYNTHESIZED = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all",
)
"""Collectives that can be synthesized."""

QUEUES = Queues("hbm", UNBOUNDED, None, 16)
"""Queues that hold every message, with credits as everywhere."""

WHOLE = 2**63 - 1
"""Size of a slice that no message exceeds: a schedule has cut its messages itself."""


@dataclass(frozen=True)
class Executed:
    """A synthesized schedule, run on the emulator."""

    time_ps: int
    """Simulated time."""
    messages: int
    wrong: int | None
    """Elements that differ from NumPy's answer; None when no data was run."""
    protocol: str = ""
    """The protocol of the machine's library that was quickest; "" where one is for all runs, or none."""


@dataclass(frozen=True)
class Synthesis:
    """A schedule, its bound and its costs.

    GB/s is 1e9 B/s. Times are those of the emulator's model: a link is busy for a chunk's bytes, and the chunk arrives
    one latency later.
    """

    collective: str
    machine: Machine
    schedule: Schedule
    dtype: str
    op: str
    root: int
    share_bytes: int
    ranks: tuple[int, ...]
    """The NPUs that take part, by rank; the others relay."""

    @property
    def time_us(self) -> float:
        """Completion time."""
        return self.schedule.time_ps / 1e6

    @property
    def bound_us(self) -> float:
        """Time no schedule can beat."""
        return self.schedule.bound_ps / 1e6

    @cached_property
    def engines_bound(self) -> tuple[float, str] | None:
        """Time in us that the DMA channels and ports of the NPUs' PEs need, and which of them, where that is more than
        the bound: the program cannot run in the schedule's time then. None where the links alone limit."""
        root, group = self.ranks[self.root], list(self.ranks)
        found = self.machine.least_by_io(self.collective, group, self.share_bytes, root, root)
        if self.machine.dma_channels is not None:
            of = self.program.least_by_engines(self.collective, group, self.share_bytes, root, root, False)
            found = max(found, of) if found and of else found or of
        return None if found is None or found[0] <= self.schedule.bound_ps else (found[0] / 1e6, found[1])

    @property
    def percent_of_bound(self) -> float:
        """100 for a schedule that cannot be improved."""
        return 100 * self.schedule.bound_ps / self.schedule.time_ps

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-serialisable data; `tight_cut` says what makes the bound."""
        parts, gbs, links, shares = self.schedule.cut
        engines = self.engines_bound
        return {
            "collective": self.collective,
            "topology": self.machine.topology,
            "npus": self.machine.sips,
            "ranks": list(self.ranks),
            "method": self.schedule.method,
            "bytes": self.nbytes,
            "share_bytes": self.share_bytes,
            "chunks": len(self.schedule.chunk_bytes),
            "transfers": len(self.schedule),
            "rounds": self.schedule.rounds,
            "rounds_bound": self.schedule.rounds_bound,
            "time_us": self.time_us,
            "bound_us": self.bound_us,
            "percent_of_bound": self.percent_of_bound,
            "bound_is_tightest": self.schedule.bound_is_tightest,
            "synthesis_ms": self.schedule.synthesis_ms,
            "bound_ms": self.schedule.bound_ms,
            "tight_cut": {"parts": parts, "bandwidth_gbs": gbs, "links": links, "shares": shares},
            **({} if engines is None else {"engines_bound_us": engines[0], "engines_limited_by": engines[1]}),
        }

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        return html.facts(title, [(name, value) for name, value in (line.split(None, 1) for line in lines)])

    def __str__(self) -> str:
        found = self.schedule
        rounds = "" if found.rounds_bound is None else f" (bound {found.rounds_bound})"
        parts, gbs, links, shares = found.cut
        if len(parts) == 1:
            cut = f"{len(parts[0])} of {self.machine.sips} NPUs against the others"
        else:
            cut = f"partition into {len(parts)} parts"
        doubt = "" if found.bound_is_tightest else f", {NOT_TIGHTEST}"
        engines = []
        if self.engines_bound is not None:
            least, by = self.engines_bound
            engines = [f"  on PEs      {least:,.3f} us at least: {by}"]
        npus = str(self.machine.sips)
        if len(self.ranks) < self.machine.sips:
            npus = f"{len(self.ranks)} of {npus}"
        return "\n".join(
            [
                f"{self.collective} by {found.method} on {self.machine.topology}, {npus} NPUs",
                f"  rounds      {found.rounds}{rounds}, {len(found.chunk_bytes)} chunks of a share of "
                f"{self.share_bytes} B, {len(found)} transfers",
                f"  time        {self.time_us:,.3f} us",
                f"  bound       {self.bound_us:,.3f} us, {self.percent_of_bound:.2f} % reached",
                f"  tight cut   {cut}: {shares} shares over {links} links, {gbs:g} GB/s{doubt}",
                *engines,
                f"  synthesis   {found.synthesis_ms:.2f} ms, bound {found.bound_ms:.2f} ms",
            ]
        )

    @property
    def nbytes(self) -> int:
        """Size of an NPU's whole buffer."""
        return self.request.nbytes

    @cached_property
    def plan(self) -> Plan:
        """The schedule as a plan: a thread block per end of a link, which keeps the order of sending.

        Ranks of the plan are the NPUs that take part, then those that relay (`Schedule.places`). Raises
        UnsupportedError (AHBM-U293) where a plan has no numbers for the sizes of the chunks.
        """
        return self.schedule.plan()

    def even(self, path: str | Path | None = None) -> Synthesis:
        """The same schedule for the greatest size, up to this one, whose chunks are all equal.

        The file at `path` should hold the result: its plan has no more chunks than the schedule, and is good for every
        multiple. Chunks of an execution plan (.json) are multiples of 16 B. Raises UnsupportedError (AHBM-U291 for a
        path of no format, U293 for chunks of less).
        """
        schedule = self.schedule.even(path)
        return replace(self, schedule=schedule, share_bytes=sum(schedule.chunk_bytes))

    def save(self, path: str | Path) -> list[Path]:
        """Writes the plan as MSCCL-IR (.xml), an MSCCL++ execution plan (.json) or Chakra traces (.et).

        Returns the files. Raises UnsupportedError (AHBM-U291, U292) for what the format cannot express, U293 for a plan
        with NPUs that only relay, FormatError (AHBM-F102) for a file that cannot be written.
        """
        if COLLECTIVES[self.collective].reduces and self.op != "sum" and Path(path).suffix == MSCCLPP:
            raise UnsupportedError(
                "AHBM-U292",
                f"an execution plan adds, it has no {self.op}",
                hint="as .xml or .et a plan leaves the operator to the run",
            )
        return self.plan.save(path, nbytes=self.nbytes)

    @cached_property
    def request(self) -> Request:
        """The call that the schedule is made for."""
        count = self.share_bytes // element(self.dtype).storage.itemsize
        return Request(self.collective, self.ranks, count, self.dtype, self.op, self.root)

    @cached_property
    def _lowered(self) -> Lowered:
        how = PlanOptions(slice_bytes=WHOLE)
        return lower(self.plan, self.machine, self.request, QUEUES, how, self.schedule.places())

    @property
    def program(self) -> Program:
        """The program that a call of the plan runs, with queues that hold every message, whole. Raises as `plan`."""
        return self._lowered.program

    @property
    def matches(self) -> bool:
        """True when the program takes the schedule's time where PEs and memories cost nothing: there is a DMA channel
        for each end of a link, at a switch one PE."""
        if self.machine.topology == "switch":
            return self.machine.pes == self.schedule.ends
        channels = self.machine.dma_channels
        return channels is None or self.schedule.ends <= max(self.machine.pes, channels)

    @property
    def mismatch(self) -> str:
        """Why the program may take more than the schedule; empty where it `matches`."""
        if self.matches:
            return ""
        if self.machine.topology == "switch":
            return f"an NPU keeps its order of sending with one PE and has {self.machine.pes}: --set {self.to_match}"
        has = self.machine.pes * (self.machine.dma_channels or 1)
        needs = f"an NPU needs {self.schedule.ends} DMA channels to keep all its links busy and has {has}"
        return f"{needs}: --set {self.to_match}"

    @property
    def to_match(self) -> str:
        """The setting with which the program takes the schedule's time, as `--set` takes it."""
        if self.machine.topology == "switch":
            return f"cube.pe_layout.pe_per_corner={self.schedule.ends}"
        return "pe.dma.channels=per_link"

    def run(self, *, data: bool = True, seed: int = 0) -> Executed:
        """Runs the schedule on the emulator, with `data` on random integers and compared with NumPy.

        It is a call of the machine's library, with a launch and with the quickest protocol for its size. Raises
        ConfigError (AHBM-C129, and C188 for a size that no protocol is used for), and BudgetError and InterruptedRun
        like every simulation.
        """
        seed = whole("seed", seed, 0, 2**64 - 1)
        protocol, program = self._with_protocol()
        timeline = program.simulate(record=data)
        wrong = None
        if data:
            inputs = self._inputs(seed)
            arrays = [values.copy() for values in inputs]
            Memory(program).run(timeline, arrays, self._lowered.operands, self._lowered.results)
            wrong = self._wrong(inputs, arrays)
        return Executed(timeline.latency_ps, timeline.messages, wrong, protocol)

    def _with_protocol(self) -> tuple[str, Program]:
        """The protocol that is quickest for the size, "" for none to choose, and the program on the machine with it."""
        known = usable(self.machine, self.nbytes, len(self.ranks))
        # Those that name algorithms go with these alone.
        names = [each.name for each in ([each for each in known if not each.algorithms] or known)]
        priced = [(name, self.machine.with_costs(CallCosts(name, self.nbytes))) for name in names]
        found = [(name, self.program.on(machine)) for name, machine in priced]
        if len(found) < 2:
            return found[0] if found else ("", self.program)
        return min(found, key=lambda each: each[1].simulate(record=False).latency_ps)

    def _inputs(self, seed: int) -> list[NDArray[Any]]:
        random = np.random.default_rng(seed)
        # Sums and products of so few small integers are exact in every dtype, whatever the order.
        high = 2 if self.op == "prod" else max(2, min(8, 64 // len(self.ranks)))
        return [self.request.element.encode(random.integers(0, high, self.request.size)) for _ in self.ranks]

    def _wrong(self, inputs: list[NDArray[Any]], arrays: list[NDArray[Any]]) -> int:
        """Elements of the ranks' arrays that differ from what NumPy makes of their inputs."""
        request, kind, wrong = self.request, self.request.element, 0
        combined: NDArray[Any] | None = None
        if request.kind.reduces:
            # Two arrays at a time: there may be many ranks.
            combined = reduce(lambda one, other: COMBINE[self.op].reduce([one, other]), map(kind.decode, inputs))
            if self.op == "avg":
                combined = combined / len(inputs) if kind.is_float else combined // len(inputs)
            combined = kind.encode(combined)
        for rank, array in enumerate(arrays):
            where = request.part(rank)
            if combined is None:
                runs = request.expected(rank)
                parts = [inputs[whose][at : at + stop - start] for start, stop, ((whose, at),) in runs]
                wanted = np.concatenate(parts or [inputs[rank][:0]])
            else:
                wanted = combined[where]
            wrong += int(np.count_nonzero(array[where] != wanted))
        return wrong


@checked
def synthesize(
    collective: str,
    *,
    topology: str | Path | Machine | None = None,
    overrides: Mapping[str, object] | None = None,
    size: int | str | None = None,
    chunk_bytes: int | None = None,
    chunks: int = 1,
    dtype: str = "f16",
    op: str = "sum",
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    members: Sequence[int] = (),
) -> Synthesis:
    """A schedule of `collective` for the network between a machine's SIPs, each taken as one NPU.

    Give `size` (of an NPU's whole buffer, all shares: bytes, or a text such as "64K") or `chunk_bytes` (a share is
    `chunks` of them). A share is the whole buffer of all_reduce, broadcast and reduce and one NPU's part of it
    otherwise; it is cut into `chunks`, except by trees, which choose for themselves. `method` is one of `METHODS`.
    `members` are the NPUs that take part, by rank (`root` is a rank among them), and the others relay; without any, all
    take part. The same arguments give the same schedule.

    Raises UnsupportedError (AHBM-U402 to U408) for networks and requests that cannot be synthesized, ConfigError
    (AHBM-C150) unless exactly one of `size` and `chunk_bytes` is given and is positive, and for numbers out of their
    ranges, C125 for a size that is no whole number of elements per share, C123 for an operator that is not in
    `REDUCTIONS`, UnsupportedError (AHBM-U203) for an average of what is no reduction.
    """
    machine = load_machine(topology, overrides)
    ranks = tuple(members) or tuple(range(machine.sips))
    itemsize = element(dtype).storage.itemsize
    size = parse_size(size) if isinstance(size, str) else size
    if (size is None) == (chunk_bytes is None) or (size or chunk_bytes or 0) <= 0:
        raise ConfigError("AHBM-C150", "give a positive size of the buffer, or of a chunk", hint="--size 64M")
    if op not in REDUCTIONS:
        raise ConfigError("AHBM-C123", f"no reduction {op!r} is synthesized", hint=f"one of {', '.join(REDUCTIONS)}")
    if op == "avg" and collective in COLLECTIVES and not COLLECTIVES[collective].reduces:
        raise UnsupportedError(
            "AHBM-U203", f"{collective} has no average", hint="avg is for all_reduce, reduce_scatter and reduce"
        )
    if size is not None:
        shares = COLLECTIVES[collective].chunks(len(ranks)) if collective in COLLECTIVES else 1
        share = size // shares
    else:
        assert chunk_bytes is not None
        shares, share = 1, chunk_bytes * chunks
    numbers = [("chunks", chunks, 1, 32), ("seed", seed, 0, 64), ("root", root, 0, 32), ("share", share, 0, 48)]
    for name, value, least, bits in [*numbers, *(("member", npu, 0, 32) for npu in members)]:
        if not least <= value < 1 << bits:
            raise ConfigError("AHBM-C150", f"{name} {value} is not in {least} ... 2^{bits} - 1")
    if share % itemsize or (size is not None and size % shares) or share == 0:
        raise ConfigError(
            "AHBM-C125",
            f"{size or chunk_bytes} bytes are no whole number of {dtype} elements in each of {shares} shares",
            hint=f"a multiple of {shares * itemsize}",
        )
    schedule = Schedule(
        machine,
        collective,
        share_bytes=share,
        chunks=chunks,
        element_bytes=itemsize,
        root=root,
        method=method,
        seed=seed,
        members=list(members),
    )
    return Synthesis(collective, machine, schedule, dtype, op, root, share, ranks)
