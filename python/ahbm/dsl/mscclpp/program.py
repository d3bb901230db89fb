"""A program: what it is for, its statements, and its plan."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from ahbm._core import MscclppProgram
from ahbm.dsl import judgement
from ahbm.dsl.mscclpp.channel import *  # noqa: F403 (this module exports them too)
from ahbm.dsl.mscclpp.channel import __all__ as _channel
from ahbm.dsl.mscclpp.collectives import *  # noqa: F403
from ahbm.dsl.mscclpp.collectives import Collective
from ahbm.dsl.mscclpp.collectives import __all__ as _collectives
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.globals import PROGRAM
from ahbm.dsl.mscclpp.internal.numbers import exact
from ahbm.dsl.mscclpp.internal.types import BufferType
from ahbm.dsl.mscclpp.rank import Semaphore
from ahbm.dsl.mscclpp.utils import AlgoSpec, ReplicationPolicy
from ahbm.dsl.written import Lowering, Written, lowering
from ahbm.errors import AhbmError, Finding

__all__ = ["AlgoSpec", "CollectiveProgram", "MSCCLPPProgram", "ReplicationPolicy", "Semaphore"]
__all__ += _channel
__all__ += _collectives

_earlier: tuple[Lowering, MscclppProgram] | None = None
"""The program before under the same lowering: with `quirks` its barriers are counted on."""


class CollectiveProgram:
    """An algorithm for a collective; a context manager, inside of which its statements are recorded.

    Sizes are bytes. Raises `ProgramError` (AHBM-A101, AHBM-A103, AHBM-A106).
    """

    def __init__(
        self,
        name: str,
        collective: Collective,
        num_ranks: int,
        instances: int = 1,
        protocol: str = "Simple",
        instr_fusion: bool = True,
        auto_sync: bool = True,
        replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved,
        reuse_resources: bool = False,
        num_threads_per_block: int = 1024,
        use_double_scratch_buffer: bool = False,
        buffer_alignment: int = 16,
        min_message_size: int = 0,
        max_message_size: int = 2**64 - 1,
    ) -> None:
        global _earlier
        if replication_policy is not ReplicationPolicy.interleaved:
            raise fault("TypeError", "AHBM-A103", f"{replication_policy}: instances are interleaved, nothing else")
        if not isinstance(collective, Collective):
            message = f"a program needs a collective of mscclpp.language.collectives, not {collective!r}"
            raise fault("TypeError", "AHBM-A103", message)
        buffers = collective.init_buffers()
        if len(buffers) != num_ranks:
            message = f"the program has {num_ranks} ranks, its collective has {len(buffers)}"
            raise fault("ValueError", "AHBM-A103", message)
        if protocol not in ("Simple", "LL"):
            raise fault("AssertionError", "AHBM-A103", f'protocol "{protocol}": it must be "Simple" or "LL"')
        sizes = [(rank[BufferType.input].size, rank[BufferType.output].size) for rank in buffers]
        how = lowering()
        earlier = _earlier[1] if how.quirks and _earlier is not None and _earlier[0] is how else None
        self.name = name
        self.collective = collective
        self.num_ranks = num_ranks
        self.instances = instances
        self.protocol = protocol
        self.recorder = MscclppProgram(
            name,
            collective.name,
            [(_small("the input's chunks", given, 0), _small("the output's", made, 0)) for given, made in sizes],
            in_place=bool(collective.inplace),
            instances=_small("instances", instances, 1),
            protocol=protocol,
            instr_fusion=bool(instr_fusion),
            auto_sync=bool(auto_sync),
            reuse_resources=bool(reuse_resources),
            num_threads_per_block=_large("num_threads_per_block", num_threads_per_block),
            use_double_scratch_buffer=bool(use_double_scratch_buffer),
            buffer_alignment=_small("buffer_alignment", buffer_alignment, 1),
            min_message_size=_large("min_message_size", min_message_size),
            max_message_size=_large("max_message_size", max_message_size),
            quirks=how.quirks,
            earlier=earlier,
        )
        if how.quirks:
            _earlier = (how, self.recorder)

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> CollectiveProgram:
        """The program that `spec` describes."""
        return cls(
            spec.name,
            spec.collective,
            spec.world_size,
            instances=spec.instances,
            protocol=spec.protocol,
            instr_fusion=spec.instr_fusion,
            auto_sync=spec.auto_sync,
            replication_policy=spec.replication_policy,
            reuse_resources=spec.reuse_resources,
            num_threads_per_block=spec.num_threads_per_block,
            use_double_scratch_buffer=spec.use_double_scratch_buffer,
            buffer_alignment=spec.buffer_alignment,
            min_message_size=spec.min_message_size,
            max_message_size=spec.max_message_size,
        )

    def __enter__(self) -> CollectiveProgram:
        open_one = PROGRAM.get()
        if open_one is not None:
            message = f"program {self.name!r} begins inside of program {open_one.name!r}"
            raise fault("RuntimeError", "AHBM-A101", message)
        PROGRAM.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        PROGRAM.set(None)
        self.recorder.close()

    def older(self, name: str, now: str) -> None:
        """Notes that the author used an older name."""
        self.recorder.older(name, now)

    def validate_signal_wait_pairing(self) -> None:
        """Whether every signal has a wait. Raises `ProgramError` (AHBM-A104, a RuntimeError)."""
        self.recorder.count_signals()

    def post_process_operations(self) -> None:
        """Checks signals and waits, as `to_json` does; the program stays as it is. Raises as `to_json`."""
        self.validate_signal_wait_pairing()

    def to_json(self, indent: int | str | None = 2, **kwargs: Any) -> str:
        """The plan as text; `kwargs` are those of `json.dumps`. Every call says the same.

        `ahbm.dsl.judgement.warn` checks the plan. Raises `ProgramError` (AHBM-A103, AHBM-A104), and, for a program
        that is collected, what is wrong with its plan.
        """
        text, notes = self.recorder.text()
        if indent != 2 or kwargs or not text.isascii():
            text = json.dumps(json.loads(text), indent=indent, **kwargs)
        how = lowering()
        try:
            plan = self.recorder.plan()
        except AhbmError as error:
            if how.written is not None:
                raise
            judgement.warn_of(self.name, error)
        else:
            how.tell(Written(self.name, "mscclpp", plan, text, tuple(map(Finding.from_json, notes))))
        return text


def _small(what: str, value: object, least: int) -> int:
    number = exact(value)
    if not least <= number <= 1 << 24:
        raise fault("ValueError", "AHBM-A103", f"{what} is {number}: it must be between {least} and 2**24")
    return number


def _large(what: str, value: object) -> int:
    number = exact(value)
    if number < 0:
        raise fault("ValueError", "AHBM-A103", f"{what} is {number}: it must fit 64 bits")
    return number


class MSCCLPPProgram(CollectiveProgram):
    """The older name of `CollectiveProgram`."""

    def __init__(self, name: str, collective: Collective, num_ranks: int, *instances: Any, **rest: Any) -> None:
        if instances:
            message = "a program with chunk references: MSCCL++ up to v0.7.0, which is not served"
            hint = "since v0.8.0 statements are calls of Rank and of channels"
            raise fault("TypeError", "AHBM-A106", message, hint)
        super().__init__(name, collective, num_ranks, **rest)
        self.older("MSCCLPPProgram", "CollectiveProgram")
