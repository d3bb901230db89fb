"""The calls of an episode: drawn from a mix, or those of a training job in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ahbm._core import Workload
from ahbm.base.arguments import checked, refused, whole
from ahbm.choose.observation import Asked
from ahbm.choose.outcomes import Outcomes, request_of
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.job.preparation import request_of as request_of_job
from ahbm.job.reading import AS_IT_IS, How, read
from ahbm.job.transformer import Transformer

LARGEST = 1 << 40
"""Bytes of the largest call of a mix."""


@dataclass(frozen=True)
class Mix:
    """Calls of all ranks that come in any order, each as likely as the others."""

    sizes: Sequence[int]
    """Bytes of one rank's array, rounded down to whole elements of every rank."""
    collective: str = "all_reduce"
    dtype: str = "f16"

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C129) for no sizes, and for one that is none."""
        if not isinstance(self.sizes, Sequence) or not self.sizes:
            raise refused("sizes", "a list of bytes", self.sizes)
        for size in self.sizes:
            whole("sizes", size, 1, LARGEST)

    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """The calls that are drawn from."""
        ranks = outcomes.emulator(machine).world_size
        return [Asked(request_of(self.collective, size, ranks, self.dtype)) for size in self.sizes]


@dataclass(frozen=True)
class Known:
    """The calls that an oracle's tables have of a machine, in any order, each as likely as the others."""

    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """The calls that are drawn from. Raises ConfigError (AHBM-C129) for outcomes without tables."""
        found = [Asked(request) for request in outcomes.requests(machine)]
        if not found:
            hint = "give a mix or jobs where all is simulated"
            raise ConfigError("AHBM-C129", f"no calls are known of {machine}", hint=hint)
        return found


class AnyJob(ABC):
    """Calls in an order of their own."""

    @abstractmethod
    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """The calls on a machine."""


@dataclass(frozen=True)
class Every(AnyJob):
    """Every size of every collective among all ranks of a machine, several times over."""

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    """Bytes of one rank's array."""
    times: int = 1

    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """See `AnyJob`."""
        ranks = outcomes.emulator(machine).world_size
        once = [Asked(request_of(name, size, ranks, "f16")) for size in self.sizes for name in self.collectives]
        return once * self.times


class Job(AnyJob):
    """The collectives of a training job, in the order of the job, on the SIPs of their ranks."""

    @checked
    def __init__(self, source: str | Path | Workload | Transformer, *, how: How = AS_IT_IS) -> None:
        """source: the path of a trace, a job, or the numbers of a transformer. Messages between two ranks, and calls
        of one rank or of no bytes, are left out: there is nothing to choose.

        Raises what reading it raises, and ConfigError (AHBM-C129) for a job without a collective.
        """
        if isinstance(source, Transformer):
            workload = source.workload()
        else:
            workload = source if isinstance(source, Workload) else read(source, how)
        self.name = workload.name
        self.ranks = workload.ranks
        # What the job says of its calls does not depend on the machine.
        features = workload.features(load_machine("npu_ring_8")).calls
        self.asked: list[Asked] = []
        """The calls in the order of the job."""
        for call, own in zip(workload.calls, features, strict=False):
            request = request_of_job(call, how)
            if request.world_size > 1 and request.nbytes and not request.kind.paired:
                self.asked.append(Asked(request, own.pipelined, own.fused, own.overlap_capable))
        if not self.asked:
            raise ConfigError("AHBM-C129", f"the job {self.name} has no collective to choose an algorithm for")

    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """The calls. Raises ConfigError (AHBM-C120) for a machine with fewer SIPs than the job has ranks."""
        sips = outcomes.machine(machine).sips
        if self.ranks > sips:
            what = f"{self.name} has {self.ranks} ranks, {machine} has {sips} SIPs"
            raise ConfigError("AHBM-C120", what, hint="choose larger machines")
        return self.asked

    def __len__(self) -> int:
        return len(self.asked)

    def __repr__(self) -> str:
        return f"<Job {self.name} of {len(self)} calls, {self.ranks} ranks>"
