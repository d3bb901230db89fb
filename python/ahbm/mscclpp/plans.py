"""Execution plans: files, the algorithms that perform them, and what they are for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.load import load_bytes
from ahbm.config.reading import PLAIN
from ahbm.core.choice import DEFAULT, PLAN, Choice
from ahbm.errors import DistributedError, FormatError
from ahbm.mscclpp.refused import refuse
from ahbm.mscclpp.requests import CollectiveRequest
from ahbm.mscclpp.types import CollectiveBufferMode, CommResult, DataType, ReduceOp
from ahbm.source.plan import PlanAlgorithm, runnable

if TYPE_CHECKING:
    from ahbm.mscclpp.comm import Communicator
    from ahbm.mscclpp.executor import Executor

MOST = 2**64 - 1
"""No limit of a message's size."""
SPELLINGS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
}
"""MSCCL++'s names of collectives, and the emulator's."""


@dataclass(frozen=True)
class ExecutionPlanConstraint:
    """The ranks that a plan is for."""

    world_size: int
    n_ranks_per_node: int


class ExecutionPlan:
    """The plan in the file `path`.

    Raises OSError for a file that cannot be read, FormatError and UnsupportedError for what is wrong with it.
    """

    def __init__(self, path: str | Path, rank: int) -> None:
        content = load_bytes(path).decode()
        plan = runnable(path, PLAIN)
        self._take(content, PlanAlgorithm.of(_facts(content, path)["name"], plan, content, path), rank)

    @staticmethod
    def _of(text: str, algorithm: PlanAlgorithm, rank: int) -> ExecutionPlan:
        made = ExecutionPlan.__new__(ExecutionPlan)
        made._take(text, algorithm, rank)
        return made

    def _take(self, text: str, algorithm: PlanAlgorithm, rank: int) -> None:
        facts = _facts(text, algorithm.path)
        self.rank = rank
        self.algorithm = algorithm
        self.name: str = facts["name"]
        self.collective: str = facts["collective"]
        self.min_message_size = int(facts.get("min_message_size", 0))
        self.max_message_size = int(facts.get("max_message_size", MOST))

    def holds(self, nbytes: int) -> bool:
        """Whether a message of `nbytes` bytes is one that the plan is for."""
        return self.min_message_size <= nbytes <= self.max_message_size

    def expect(self, nbytes: int) -> None:
        """Raises DistributedError (AHBM-X131) unless the plan is for `nbytes` bytes."""
        if not self.holds(nbytes):
            raise DistributedError(
                "AHBM-X131",
                f"the plan {self.name} is for messages of {self.min_message_size} to {self.max_message_size} bytes, "
                f"not of {nbytes}",
            )


def _facts(text: str, path: str | Path) -> dict[str, Any]:
    facts = json.loads(text)
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        raise FormatError("AHBM-F101", f"{path} is no execution plan")
    return facts


class Algorithm:
    """A compiled program, or a native algorithm's stand-in; also what `ExecutionPlanHandle` was before."""

    def __init__(
        self,
        name: str,
        collective: str,
        *,
        identity: str = "",
        plan: ExecutionPlan | None = None,
        constraints: ExecutionPlanConstraint | None = None,
        tags: dict[str, int] | None = None,
        buffer_mode: CollectiveBufferMode = CollectiveBufferMode.Any,
        stands_in: str | None = None,
    ) -> None:
        self.name = name
        self.collective = collective
        self.id = identity
        """Differs where the program, its specification or its arguments differ."""
        self.plan = plan
        self.constraints = constraints
        self.tags = tags or {}
        self.buffer_mode = buffer_mode
        self._stands_in = stands_in
        self._range = (0, MOST) if plan is None else (plan.min_message_size, plan.max_message_size)

    @property
    def message_size_range(self) -> tuple[int, int]:
        """Bytes of the smallest and of the largest message."""
        return self._range

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Of a native algorithm. Raises DistributedError (AHBM-X131) for a compiled one, whose plan says it."""
        if self.plan is not None:
            raise DistributedError("AHBM-X131", f"the plan of {self.name} says its sizes")
        self._range = (int(min_message_size), int(max_message_size))

    def is_dsl_algorithm(self) -> bool:
        """Whether it was compiled from a program."""
        return self.plan is not None

    def is_native_algorithm(self) -> bool:
        """Whether it stands in for a kernel of MSCCL++."""
        return self.plan is None

    def reset(self) -> None:
        """Nothing is kept between calls."""

    def matches(self, request: CollectiveRequest, nbytes: int) -> bool:
        """Whether it is for such ranks, collective and buffers, and for `nbytes` bytes of the larger one."""
        limits = self.constraints
        return (
            self.collective == request.collective
            and (limits is None or limits.world_size == request.world_size)
            and (limits is None or limits.n_ranks_per_node == request.n_ranks_per_node)
            and self.buffer_mode in (CollectiveBufferMode.Any, request.buffer_mode())
            and self._range[0] <= nbytes <= self._range[1]
        )

    def choice(self, rule: str) -> Choice:
        """The algorithm as the emulator performs it."""
        if self.plan is not None:
            return Choice(rule, self.plan.algorithm)
        assert self._stands_in is not None
        return Choice(f"{rule}, stands in for {self.name}", self._stands_in)

    def execute(
        self,
        comm: Communicator,
        input_buffer: int,
        output_buffer: int,
        input_size: int,
        output_size: int,
        dtype: DataType,
        op: ReduceOp = ReduceOp.NOP,
        stream: int = 0,
        executor: Executor | None = None,
        nblocks: int = 0,
        nthreads_per_block: int = 0,
        symmetric_memory: bool = False,
        extras: dict[str, int] | None = None,
        accum_dtype: DataType | None = None,
    ) -> int:
        """Performs it on the memory at two addresses; returns when the data are there. Sizes are bytes.

        Raises DistributedError: AHBM-X130 for an address outside of every buffer, AHBM-X131 for sizes, an operator or a
        stream that do not fit, and as calls of `torch.distributed`.
        """
        from ahbm.mscclpp.executor import perform

        if self.plan is not None:
            if executor is None:
                raise DistributedError("AHBM-X131", f"{self.name}: executor is missing", hint="pass an Executor")
            self.plan.expect(output_size if self.collective == "allgather" else input_size)
        if accum_dtype not in (None, dtype):
            refuse("Algorithm.execute(accum_dtype=...)", "AHBM_ACCUMULATE=f32 accumulates in f32")
        perform(
            comm,
            self.choice(PLAN if self.plan is not None else DEFAULT),
            SPELLINGS.get(self.collective, self.collective),
            (input_buffer, input_size),
            (output_buffer, output_size),
            dtype,
            op,
            stream,
        )
        return int(CommResult.CommSuccess)

    @staticmethod
    def create_from_native_capsule(capsule: object) -> Algorithm:
        """Raises UnsupportedError (AHBM-U180)."""
        refuse("Algorithm.create_from_native_capsule")


ExecutionPlanHandle = Algorithm
