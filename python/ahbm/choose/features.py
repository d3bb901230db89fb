"""What is known of a call by an algorithm on a machine before anything has run: records of numbers with units.

Rust reads them off the machine and the program (`ahbm_views::features`); nothing is simulated. The estimates among them
follow the alpha-beta model, latency plus bytes / bandwidth per message (R. Hockney, The communication challenge for
MPP, Parallel Computing 20, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from ahbm._core import AlgorithmFeatures, Limit, Machine, MachineFeatures
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.base.request import Request
from ahbm.choose.catalogue import Catalogue
from ahbm.config.ccl import CclConfig
from ahbm.core.compiled import Refusal
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings
from ahbm.errors import AhbmError, InterruptedRun

OF_MACHINES: dict[str, str] = {
    "ranks": "SIPs",
    "cubes": "cubes",
    "pes": "PEs",
    "links": "links",
    "least_degree": "links",
    "most_degree": "links",
    "diameter": "links",
    "bisection_links": "links",
    "bisection_gbs": "GB/s",
    "dimensions": "SIPs",
    "latency_ns": "ns",
    "bandwidth_gbs": "GB/s",
}
"""The fields of `MachineFeatures`, each with its unit."""
OF_DEMANDS: dict[str, str] = {
    "nbytes": "B",
    "ranks": "ranks",
    "bound_ns": "ns",
    "bound_latency_ns": "ns",
    "bound_bandwidth_ns": "ns",
}
"""The fields of `Demand`, each with its unit."""
INPUTS = (
    "log2_bytes",
    "log2_ranks",
    "log2_latency_bytes",
    "least_degree",
    "diameter",
    "bisection_links",
    "dimensions",
)
"""The numbers of a call on a machine that a tree learns from, see `Features.inputs`."""
VECTOR = (
    "floor",
    "path",
    "link",
    "rounds",
    "latency",
    "bandwidth",
    "depth",
    "busiest",
    "cut",
    "log2_chunks",
    "log2_branches",
)
"""The numbers of an algorithm at a call that a regression learns from, see `Features.vector`."""


@dataclass(frozen=True)
class Demand:
    """A call, and the least time that any algorithm could take for it."""

    nbytes: int
    """Of one rank's array."""
    ranks: int
    bound_ns: float
    """The larger of the two below; where no bound is known, the median latency of a link."""
    bound_latency_ns: float
    """Of the longest way."""
    bound_bandwidth_ns: float
    """Of the tight cut; 0 where no bound is known."""


@dataclass(frozen=True)
class Features:
    """A call on a machine, and, where one is asked about, what the program of an algorithm does for it there."""

    machine: MachineFeatures
    demand: Demand
    program: AlgorithmFeatures | None = None

    def inputs(self) -> tuple[float, ...]:
        """`INPUTS`: binary logarithms of the call's bytes, its ranks, and its bytes by those that a link carries in
        its latency (medians of the links); fewest links of a SIP; diameter and bisection in links; number of
        dimensions."""
        machine, demand = self.machine, self.demand
        return (
            _log(demand.nbytes),
            _log(demand.ranks),
            _log(demand.nbytes) - _log(machine.latency_ns[1]) - _log(machine.bandwidth_gbs[1]),
            machine.least_degree,
            machine.diameter,
            machine.bisection_links,
            len(machine.dimensions),
        )

    @property
    def floor_ns(self) -> float:
        """Least time of the program by its longest chain, its busiest link and the bound of the call."""
        if self.program is None:
            return self.demand.bound_ns
        return max(self.program.path_ns, self.program.link_ns, self.demand.bound_ns)

    def vector(self) -> tuple[float, ...]:
        """`VECTOR`, of a program: logarithms of `floor_ns` by the bound, and by the floor of the program's `path_ns`,
        `link_ns`, `rounds_ns`; of the bound's latency and bandwidth terms, of the depth's latencies and of the busiest
        rank's bytes over one link; bytes over the cut by those of one rank; chunks and branches of a rank.
        """
        program, demand, floor = self.program, self.demand, self.floor_ns
        assert program is not None, "there is no program"
        latency, bandwidth = self.machine.latency_ns[1], self.machine.bandwidth_gbs[1]
        return (
            _log(floor) - _log(demand.bound_ns),
            _log(program.path_ns) - _log(floor),
            _log(program.link_ns) - _log(floor),
            _log(program.rounds_ns) - _log(floor),
            _log(demand.bound_latency_ns) - _log(floor),
            _log(demand.bound_bandwidth_ns) - _log(floor),
            _log(program.dependency_depth * latency) - _log(floor),
            _log(program.busiest_bytes / bandwidth) - _log(floor),
            program.cut_bytes / max(demand.nbytes, 1),
            _log(program.chunk_count / max(program.ranks, 1)),
            _log(program.branch_factor),
        )


class Describer:
    """Reads the features of calls by the algorithms of a catalogue; keeps what it has compiled for machines of one
    shape."""

    def __init__(self, catalogue: Catalogue, collective: str = "all_reduce", dtype: str = "f16") -> None:
        self._catalogue, self._collective, self._dtype = catalogue, collective, dtype
        self._ccl = CclConfig.load(catalogue.ccl, catalogue.overrides)
        self._lowerings = Lowerings()
        self._latest: tuple[Machine, Emulator, MachineFeatures, Limit | None] | None = None

    @checked
    def demand(self, machine: Machine, nbytes: int) -> Features:
        """The features of a call of `nbytes` bytes of one rank's array, without an algorithm."""
        _, found, limit = self._on(machine)
        if limit is None:
            latency, bandwidth = 1000 * found.latency_ns[1], 0.0
        else:
            share = nbytes // (1 if self._whole else found.ranks)
            latency, bandwidth = limit.terms(share)
        bound = max(latency, bandwidth)
        return Features(found, Demand(nbytes, found.ranks, bound / 1000, latency / 1000, bandwidth / 1000))

    @checked
    def describe(self, machine: Machine, nbytes: int, name: str) -> Features | Refusal:
        """The features of the algorithm `name` of the catalogue at a call of `nbytes` bytes of one rank's array; why it
        does not run. Nothing is simulated, unless the machine's library has several protocols: then the quickest of
        them is. Raises InterruptedRun."""
        entry = self._catalogue.entry(name)
        emulator, found, limit = self._on(machine)
        chunks = COLLECTIVES[self._collective].chunks(found.ranks)
        count = nbytes // element(self._dtype).storage.itemsize // chunks
        try:
            request = Request(self._collective, range(found.ranks), count, self._dtype)
            program = emulator.compile(request, entry.given or entry.name).program
            read = None if program is None else program.features(limit)
        except InterruptedRun:
            raise
        except AhbmError as error:
            return Refusal(error.findings)
        finally:
            emulator.forget_programs()
        return Features(found, self.demand(machine, nbytes).demand, read)

    @property
    def _whole(self) -> bool:
        """Whether a rank's array has no shares: then the bound is that of the whole."""
        return COLLECTIVES[self._collective].chunks(2) == 1

    def _on(self, machine: Machine) -> tuple[Emulator, MachineFeatures, Limit | None]:
        if self._latest is None or self._latest[0] is not machine:
            first = Emulator(machine, self._ccl, self._lowerings) if self._latest is None else self._latest[1]
            emulator = first if self._latest is None else first.on(machine)
            limit = emulator.limits.limit(self._collective, machine.sips)
            self._latest = machine, emulator, machine.features(), limit
        return self._latest[1:]


def _log(value: float) -> float:
    """Binary logarithm; of what is less than 2^-20, -20."""
    return log2(value) if value > 2**-20 else -20.0
