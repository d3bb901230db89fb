"""The protocol between selectors and those who ask them, in the shape of version 6 of NCCL's tuner plugin.

Source: `ext-tuner/` of NVIDIA/nccl at 5067397c: `init`, `getCollInfo` over a table of costs in microseconds, in which
-1 masks an entry and the core takes the smallest that is not masked, `getChunkSize`, `finalize`. `observe` is AHBM's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ahbm.base.quickest import quickest
from ahbm.base.request import Request
from ahbm.core.choice import Choice

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

MASKED = -1.0
"""The cost of an algorithm that may not be chosen."""
UNKNOWN = math.inf
"""The cost of one that may, of which nobody has an estimate."""


@dataclass(frozen=True)
class Call:
    """One call of a group, in values that are equal on all of its ranks."""

    collective: str
    nbytes: int
    """Bytes of one rank's array, as `ahbm run --size`; of an all_to_all, those of its longest chunk for every rank."""
    ranks: int
    nodes: int = 1
    """Nodes of the machine among which the ranks are; 1 where its network has none."""
    dtype: str = "f16"
    op: str = "sum"
    root: int = 0
    """Group rank."""
    group: str = ""
    """Name of the process group; empty outside of one."""
    number: int = 0
    """The calls of the group before this one: 0 for the first."""
    request: Request | None = field(default=None, compare=False, repr=False)
    """The call as the emulator performs it; None where there is no emulator."""

    @staticmethod
    def of(request: Request, nodes: int, group: str = "", number: int = 0) -> Call:
        """The call that `request` is, of ranks among so many nodes."""
        return Call(
            request.collective,
            request.nbytes,
            request.world_size,
            nodes,
            request.dtype,
            request.op if request.reduces else "",
            request.root if request.kind.rooted else 0,
            group,
            number,
            request,
        )


@dataclass(slots=True)
class CostTable:
    """The algorithms that could perform a call, with their estimated costs. A selector may write into `us`."""

    algorithms: tuple[str, ...]
    us: list[float]
    """Estimated microseconds of each: `MASKED` where it may not be chosen, `UNKNOWN` where nobody has an estimate."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By name, why an algorithm is masked."""

    def best(self) -> str | None:
        """The name with the smallest estimate, the first among equals; None where all are masked or unknown."""
        costs = zip(self.algorithms, self.us, strict=True)
        return quickest({name: us for name, us in costs if 0 <= us < UNKNOWN})

    def cost(self, name: str) -> float:
        """The estimate of an algorithm; `MASKED` for one that the table does not have."""
        return self.us[self.algorithms.index(name)] if name in self.algorithms else MASKED

    def allows(self, name: str) -> bool:
        """Whether an algorithm may be chosen."""
        return self.cost(name) >= 0

    def mask(self, name: str, reason: str) -> None:
        """Forbids an algorithm of the table."""
        self.us[self.algorithms.index(name)] = MASKED
        self.reasons[name] = reason

    def copy(self) -> CostTable:
        """One to write into."""
        return CostTable(self.algorithms, self.us[:], dict(self.reasons))


@dataclass(frozen=True)
class Comm:
    """What a selector knows of the group that it chooses for, equal on all ranks."""

    ranks: int
    nodes: int = 1
    group: str = ""
    emulator: Emulator | None = field(default=None, repr=False)
    """The machine and the configuration; None where a selector is used without."""


@runtime_checkable
class Selector(Protocol):
    """Chooses for the calls of one group, on one rank. It must choose alike on every rank: from values that are equal
    on all of them, and nothing else. `BaseSelector` has the parts that few selectors need."""

    def init(self, comm: Comm) -> None:
        """Before the first call of a group."""

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | str | None:
        """The choice for a call, or its name where no knob is chosen. None takes the smallest cost that this call wrote
        into `table`, and leaves the call to ccl.yaml where it wrote none."""

    def get_chunk_size(self, call: Call, choice: Choice) -> int | None:
        """Longest piece in bytes that is sent at once; None leaves it open. Asked for where `choice` has none."""

    def observe(self, call: Call, choice: Choice, time_ns: float) -> None:
        """The simulated time that an earlier call took, alone; before the group's next call."""

    def finalize(self) -> None:
        """After the last call of a group."""


class BaseSelector:
    """A selector that leaves every call to ccl.yaml: a subclass says what it does otherwise."""

    name = ""
    """What reports call it; its class where this is empty."""
    pure = False
    """Whether it is known to choose from the call and from what `fingerprint` digests, and from nothing else."""

    @property
    def fingerprint(self) -> str:
        """Digest of its tables and constants."""
        return ""

    def init(self, comm: Comm) -> None:
        """See `Selector`."""

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | str | None:
        """See `Selector`."""
        return None

    def get_chunk_size(self, call: Call, choice: Choice) -> int | None:
        """See `Selector`."""
        return None

    def observe(self, call: Call, choice: Choice, time_ns: float) -> None:
        """See `Selector`."""

    def finalize(self) -> None:
        """See `Selector`."""


Function = Callable[[Mapping[str, "Algorithm"], Request], "str | Algorithm | Choice | None"]
"""A plain function as a selector: of the configured algorithms of a request's collective, by name, the one to perform
it by, or its name. None leaves the choice to ccl.yaml."""
AnySelector = Selector | Function | str | Path | None
"""What is taken for a selector: one, a function, the name of one that comes with AHBM, or the file of one."""
