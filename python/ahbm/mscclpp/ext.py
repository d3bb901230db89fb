"""Collections of algorithms and their selectors: `mscclpp.ext`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from ahbm.errors import ConfigError
from ahbm.mscclpp.memory import RawGpuBuffer
from ahbm.mscclpp.plans import Algorithm
from ahbm.mscclpp.registry import chosen
from ahbm.mscclpp.requests import CollectiveRequest

__all__ = ["AlgorithmCollection", "AlgorithmCollectionBuilder"]

AlgorithmSelector = Callable[[Mapping[str, Mapping[str, Algorithm]], CollectiveRequest], "Algorithm | None"]
NATIVE = {
    "default_allreduce_allpair_packet": "recursive_doubling_allreduce",
    "default_allreduce_packet": "recursive_doubling_allreduce",
    "default_allreduce_nvls_packet": "recursive_doubling_allreduce",
    "default_allreduce_nvls_zero_copy": "tree_allreduce",
    "default_allreduce_nvls_warp_pipeline": "tree_allreduce",
    "default_allreduce_nvls_block_pipeline": "tree_allreduce",
    "default_allreduce_fullmesh": "ring_allreduce",
    "default_allreduce_rsag": "ring_allreduce",
    "default_allreduce_rsag_pipeline": "ring_allreduce",
    "default_allreduce_rsag_zero_copy": "ring_allreduce",
    "default_allgather_fullmesh": "ring_all_gather",
    "default_allgather_fullmesh2": "ring_all_gather",
}
"""MSCCL++'s own kernels, and the packaged algorithm that stands in for each: its result, not its time."""


class AlgorithmCollection:
    """Algorithms by collective and name, and the selectors among them."""

    def __init__(self) -> None:
        self._algorithms: dict[str, dict[str, Algorithm]] = {}
        self.selectors: tuple[AlgorithmSelector | None, AlgorithmSelector | None] = (None, None)

    def __iter__(self) -> Iterator[Algorithm]:
        return (algorithm for named in self._algorithms.values() for algorithm in named.values())

    def get_by_collective(self, collective: str) -> list[Algorithm]:
        """The algorithms of `collective`, in the order of registration."""
        return list(self._algorithms.get(collective, {}).values())

    def register_algorithm(self, collective: str, algo_name: str, algorithm: Algorithm) -> None:
        """Adds an algorithm; one of the same name is replaced."""
        self._algorithms.setdefault(collective, {})[algo_name] = chosen(algorithm)

    def ask(self, which: int, request: CollectiveRequest) -> Algorithm | None:
        """The answer of the selector (0) or of the fallback selector (1)."""
        selector = self.selectors[which]
        found = None if selector is None else selector(self._algorithms, request)
        return None if found is None else chosen(found)


class AlgorithmCollectionBuilder:
    """Builds the collection of this process. Every call of the class gives the same builder."""

    _instance: AlgorithmCollectionBuilder | None = None
    _lock = threading.Lock()
    _added: dict[str, Algorithm]
    _selector: AlgorithmSelector | None
    _fallback: AlgorithmSelector | None

    def __new__(cls) -> AlgorithmCollectionBuilder:
        """The builder."""
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._added, cls._instance._selector, cls._instance._fallback = {}, None, None
            return cls._instance

    @classmethod
    def reset(cls) -> None:
        """Forgets the builder: the next one is empty."""
        with cls._lock:
            cls._instance = None

    def add_algorithm_builder(self, algorithm: Algorithm) -> None:
        """Adds a compiled algorithm; one that is known already is not added again. Raises ConfigError (AHBM-C180)."""
        if not isinstance(algorithm, Algorithm):
            raise ConfigError("AHBM-C180", f"{algorithm!r} is no algorithm that mscclpp.compile has made")
        self._added.setdefault(algorithm.id or algorithm.name, algorithm)

    def set_algorithm_selector(self, selector: AlgorithmSelector | None) -> None:
        """`selector(algorithms[collective][name], request)` chooses for every call, or answers None."""
        self._selector = selector

    def set_fallback_algorithm_selector(self, selector: AlgorithmSelector | None) -> None:
        """Is asked where the selector answers None."""
        self._fallback = selector

    def build(self) -> AlgorithmCollection:
        """What has been added so far."""
        made = AlgorithmCollection()
        for algorithm in self._added.values():
            made.register_algorithm(algorithm.collective, algorithm.name, algorithm)
        made.selectors = (self._selector, self._fallback)
        return made

    def build_default_algorithms(
        self, scratch_buffer: int | RawGpuBuffer, scratch_buffer_size: int, rank: int
    ) -> AlgorithmCollection:
        """Stand-ins for MSCCL++'s own kernels under their names; reports say so. They take no scratch memory."""
        made = AlgorithmCollection()
        for name, ours in NATIVE.items():
            made.register_algorithm(name.split("_")[1], name, Algorithm(name, name.split("_")[1], stands_in=ours))
        return made
