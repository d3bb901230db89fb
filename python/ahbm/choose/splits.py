"""Fixed, versioned splits: what a selector may learn from, and what it is scored on.

A split of a name and a version never changes. A change of it, of the catalogue or of the machines is a new version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path

from ahbm._core import Machine
from ahbm.base.request import Request
from ahbm.base.yaml_source import did_you_mean
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.episodes import AnyJob, Every, Job
from ahbm.choose.oracle import Oracle
from ahbm.choose.outcomes import Live, Outcomes, Recorded
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.job.transformer import Transformer

VERSION = 1
NETWORKS = ("npu_ring_8", "npu_switch_8", "npu_fully_connected_8", "npu_hypercube_16", "npu_mesh_4x4", "npu_torus_4x4")
"""Of the machines that splits have in common, each with every pair of `LATENCIES_NS` and `BANDWIDTHS_GBS`."""
LATENCIES_NS = (100, 500, 2500)
BANDWIDTHS_GBS = (25, 100, 400)
HELD_OUT = ((100, 100), (500, 400), (2500, 25))
"""The pairs of which `parameters` is scored: each latency and each bandwidth once."""
SIZES = tuple(1 << power for power in range(8, 28))
"""256 B to 128 MiB."""
EVEN, ODD = SIZES[::2], SIZES[1::2]
"""Even and odd powers of two."""
ALGORITHMS = (
    "ring_allreduce",
    "bidirectional_ring_allreduce",
    "all_pairs_allreduce",
    "recursive_doubling_allreduce",
    "tree_allreduce",
    "synth:greedy",
    "synth:trees",
    "synth:ring",
    "synth:halving_doubling",
    "synth:swing",
    "synth:direct",
    "synth:double_binary",
)
"""Of all_reduce, in every split."""
CCL = {"defaults.buffer_kind": "hbm"}
"""Queues that hold messages of any size."""
LEAVES, OF_A_LEAF = 4, 4
"""Of the switch of two levels: a spine, leaves below it, ranks below each leaf."""
LATENCY, BANDWIDTH = "system.sips.link.latency_ns", "system.sips.link.bandwidth_gbs"


@dataclass(frozen=True)
class Part:
    """One side of a split."""

    machines: tuple[Machine, ...]
    sizes: tuple[int, ...] = ()
    """Of all_reduce, in bytes; none where the calls are those of jobs."""
    jobs: tuple[AnyJob, ...] = ()

    def outcomes(self, catalogue: Catalogue, store: str | Path | None = None, jobs: int | None = None) -> Outcomes:
        """What the catalogue takes on this side: tables of an oracle, or what is simulated for the calls of jobs.

        store, jobs: as of `ahbm.sweep`. Raises as `Oracle`.
        """
        if self.jobs:
            return Live(catalogue, self.machines)
        tables = []
        for ranks in dict.fromkeys(map(ranks_of, self.machines)):
            machines = [machine for machine in self.machines if ranks_of(machine) == ranks]
            # Switches are SIPs without a rank.
            world = {} if ranks is None else {"defaults.world_size": ranks}
            entries = Catalogue(list(catalogue), catalogue.ccl, catalogue.overrides | world)
            tables.append(Oracle(entries, machines, self.sizes, store=store, jobs=jobs).table())
        return Recorded(tables)


@dataclass(frozen=True)
class Split:
    """What is learned from, and what is scored."""

    name: str
    train: Part
    test: Part
    offered: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"all_reduce": ALGORITHMS})
    """What is chosen from, by collective."""
    version: int = VERSION

    @property
    def id(self) -> str:
        """Name and version, for example "networks-1"."""
        return f"{self.name}-{self.version}"

    @cached_property
    def catalogue(self) -> Catalogue:
        """What is chosen from, the same on both sides."""
        parts = [Catalogue.of(collective, names, overrides=CCL) for collective, names in self.offered.items()]
        return reduce(add, parts)

    def small(self, machines: int = 2, sizes: int = 4) -> Split:
        """The first machines and some sizes of both sides, for a quick look; its scores are not those of the split."""

        def cut(part: Part) -> Part:
            step = max(len(part.sizes) // sizes, 1)
            return Part(part.machines[:machines], part.sizes[::step], part.jobs[:1])

        return replace(self, name=f"{self.name}-small", train=cut(self.train), test=cut(self.test))


def points(part: Part, outcomes: Outcomes) -> Iterator[tuple[str, Request]]:
    """The machines of a part with their calls, each once, in order."""
    for machine in outcomes.machines:
        asked = [one.request for job in part.jobs for one in job.calls(outcomes, machine)]
        if not part.jobs:
            asked = outcomes.requests(machine)
        for request in dict.fromkeys(asked):
            yield machine, request


OF_JOBS = {
    "all_gather": ("ring_all_gather", "synth:greedy", "synth:ring", "synth:direct"),
    "reduce_scatter": ("ring_reduce_scatter", "synth:greedy", "synth:ring", "synth:direct"),
    "all_to_all": ("pairwise_all_to_all", "synth:greedy", "synth:direct"),
}
"""Of the other collectives of jobs."""
LIBRARIES = ("nccl_ring_allreduce", "double_binary_tree_allreduce")
"""All_reduces of GPU libraries, besides `ALGORITHMS`."""
OF_MACHINES = {
    "all_gather": ("ring_all_gather", "nccl_ring_all_gather", "pat_all_gather", "synth:greedy", "synth:direct"),
    "reduce_scatter": (
        "ring_reduce_scatter",
        "nccl_ring_reduce_scatter",
        "pat_reduce_scatter",
        "synth:greedy",
        "synth:direct",
    ),
    "all_to_all": ("pairwise_all_to_all", "synth:direct"),
    "broadcast": ("binomial_broadcast", "ring_broadcast", "synth:greedy"),
    "reduce": ("binomial_reduce", "ring_reduce"),
}
"""Of the other collectives of `machines`."""
OF_MANY = {
    "all_reduce": (*(name for name in ALGORITHMS if ":" not in name), *LIBRARIES),
    **{collective: tuple(name for name in names if ":" not in name) for collective, names in OF_MACHINES.items()},
}
"""Of `scale`: a synthesizer takes longer for 256 ranks than all that runs."""
TRAIN_JOBS = (
    Transformer(layers=4, hidden=512, sequence=256, dp=16, micro_batches=2, bucket_bytes=1 << 20),
    Transformer(layers=4, hidden=1024, sequence=256, tp=4, dp=4, micro_batches=2),
    Transformer(layers=2, hidden=512, sequence=128, dp=16, micro_batches=2, zero=3),
    Transformer(layers=4, hidden=1024, sequence=256, tp=2, pp=2, dp=4, micro_batches=4),
)
TEST_JOBS = (
    Transformer(layers=3, hidden=768, sequence=512, dp=16, micro_batches=2, bucket_bytes=4 << 20),
    Transformer(layers=2, hidden=2048, sequence=128, tp=8, dp=2, micro_batches=2, sequence_parallel=True),
    Transformer(layers=2, hidden=768, sequence=256, dp=16, ep=8, experts=8, micro_batches=2, zero=1),
)
LARGE_JOB = Transformer(layers=2, hidden=2048, sequence=256, tp=8, dp=16, micro_batches=2, zero=1)
"""Of 128 ranks, on all machines of `scale`."""


def ranks_of(machine: Machine) -> int | None:
    """The ranks of a machine that has SIPs without a rank; None where every SIP is one."""
    return LEAVES * OF_A_LEAF if machine.topology == "custom" else None


def two_levels(leaves: int = LEAVES, ranks: int = OF_A_LEAF) -> dict[str, object]:
    """Overrides that make a machine a switch of two levels: ranks, then the leaves, then the spine, all of them SIPs.

    A link to the spine is like that of a rank: it carries a quarter of what the ranks of its leaf send together.
    """
    count = leaves * ranks
    edges: list[dict[str, object]] = [{"from": rank, "to": count + rank // ranks} for rank in range(count)]
    edges += [{"from": count + leaf, "to": count + leaves} for leaf in range(leaves)]
    return {
        "system.sips.topology": "custom",
        "system.sips.count": count + leaves + 1,
        "system.sips.edges": edges,
        "sip.io.transit_ns": 100,
    }


def _sized(name: str, pairs: Sequence[tuple[int, int]], more: dict[str, object] | None = None) -> list[Machine]:
    return [
        load_machine(name, {**(more or {}), LATENCY: latency, BANDWIDTH: bandwidth}) for latency, bandwidth in pairs
    ]


def _all(pairs: Sequence[tuple[int, int]]) -> tuple[Machine, ...]:
    return tuple(machine for name in NETWORKS for machine in _sized(name, pairs))


_PAIRS = [(latency, bandwidth) for latency in LATENCIES_NS for bandwidth in BANDWIDTHS_GBS]
_SEEN = [pair for pair in _PAIRS if pair not in HELD_OUT]


def _sizes() -> Split:
    return Split("sizes", Part(_all(_PAIRS), EVEN), Part(_all(_PAIRS), ODD))


def _parameters() -> Split:
    return Split("parameters", Part(_all(_SEEN), SIZES), Part(_all(HELD_OUT), SIZES))


def _networks() -> Split:
    mesh: dict[str, object] = {"system.sips.topology": "mesh_3d"}
    mesh |= {"system.sips.w": 4, "system.sips.h": 2, "system.sips.d": 2}
    slow: dict[str, object] = {"faults.links": [{"from": 0, "to": 1, "slowdown": 4}]}
    held = [
        *_sized("npu_mesh_4x4", HELD_OUT, mesh),
        *_sized("npu_switch_8", HELD_OUT, two_levels()),
        *_sized("npu_torus_4x4", HELD_OUT, slow),
    ]
    return Split("networks", Part(_all(_PAIRS), SIZES), Part(tuple(held), SIZES))


def _jobs() -> Split:
    machines = (
        *_sized("npu_torus_4x4", HELD_OUT[:2]),
        *_sized("npu_hypercube_16", HELD_OUT[:2]),
    )
    train, test = (tuple(Job(one) for one in jobs) for jobs in (TRAIN_JOBS, TEST_JOBS))
    offered = {"all_reduce": ALGORITHMS, **OF_JOBS}
    return Split("jobs", Part(machines, jobs=train), Part(machines, jobs=test), offered)


def _machines() -> Split:
    calls = ("all_reduce", *OF_MACHINES)
    learned = [
        load_machine(name) for name in ("dgx_a100_2_nodes", "dgx_h100", "mi300x", "npu_mesh_4x4", "npu_torus_4x4")
    ]
    held = [
        load_machine("p5"),
        load_machine("h100_2_nodes"),
        load_machine("npu_mesh_8x8"),
    ]
    return Split(
        "machines",
        Part(tuple(learned), jobs=(Every(calls, SIZES[2::4]),)),
        Part(tuple(held), jobs=(Every(calls, SIZES[4:17:6], 4),)),
        {"all_reduce": (*ALGORITHMS, *LIBRARIES), **OF_MACHINES},
    )


def _scale() -> Split:
    few = ("dgx_a100_2_nodes", "h100_2_nodes", "polaris_8_nodes", "npu_mesh_8x8", "npu_torus_4x4x4")
    many = [
        _of_ranks("h100_2_nodes", 128),
        _of_ranks("polaris_n_nodes", 256),
        _of_ranks("npu_mesh_8x8", 256, w=16, h=16),
        _of_ranks("npu_torus_4x4x4", 256, w=8, h=8, d=4),
    ]
    return Split(
        "scale",
        Part(tuple(load_machine(name) for name in few), jobs=(Every(tuple(OF_MANY), SIZES[2::4]),)),
        Part(tuple(many), jobs=(Every(tuple(OF_MANY), SIZES[4:17:6]), Job(LARGE_JOB))),
        OF_MANY,
    )


def _of_ranks(name: str, ranks: int, **sides: int) -> Machine:
    return load_machine(name, {"system.sips.count": ranks, **{f"system.sips.{side}": n for side, n in sides.items()}})


SPLITS: dict[str, Callable[[], Split]] = {
    "sizes": _sizes,
    "parameters": _parameters,
    "networks": _networks,
    "jobs": _jobs,
    "machines": _machines,
    "scale": _scale,
}
"""`sizes`: odd powers of two are held out. `parameters`: three of nine pairs of latency and bandwidth. `networks`: a
mesh of three dimensions, a switch of two levels and a torus with a slow link. `jobs`: other training jobs. `machines`:
calibrated machines and a mesh of 64 ranks, with all collectives, that were not learned. `scale`: two clusters, a mesh
and a torus of 128 to 256 ranks, with all collectives and a job, where those of 16 to 64 were learned."""


def split_of(name: str) -> Split:
    """A split by its name, with or without its version. Raises ConfigError (AHBM-C129) where there is none."""
    plain = name.removesuffix(f"-{VERSION}")
    if plain not in SPLITS:
        raise ConfigError("AHBM-C129", f"there is no split {name!r}", hint=did_you_mean(name, SPLITS))
    return SPLITS[plain]()
