"""What is known of algorithms before a network is measured: those that were made for the network for large messages on
networks of several dimensions, few steps for small ones, rings for the rest.

The prior of figure 8 of J. Yoo et al., IEEE Micro 45(2), 2025, doi:10.1109/MM.2025.3547363, as families of algorithms;
where one family ends and what is first in it was found on other networks (`ahbm.choose.priors`), and `WAYS` is what
those of the split `machines` say. `docs/select-env.md` has where the oracle of networks that were left out differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ahbm._core import Machine
from ahbm.config.protocols import permits
from ahbm.config.topology import load_machine
from ahbm.core.choice import SELECTOR, Choice
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable

NEAR = ("switch", "fully_connected", "nodes")
"""Networks on which a switch or a link joins any two."""
NEVER = 1 << 62
"""Bytes that no call has."""


class Network(NamedTuple):
    """What a prior tells networks by."""

    several: bool
    """Several dimensions, or several nodes."""
    far: bool
    """Messages between some ranks pass others."""

    @staticmethod
    def of(machine: Machine, nodes: int) -> Network:
        """That of a machine's ranks on so many nodes."""
        several = nodes > 1 or len(machine.features().dimensions) > 1
        return Network(several, machine.topology not in NEAR)


@dataclass(frozen=True)
class Way:
    """How calls of one collective are told apart, and what they take, the best first."""

    few: tuple[str, ...]
    """Of few steps, where a switch or a link joins any two."""
    far: tuple[str, ...]
    """The same, where messages between some pass others."""
    rings: tuple[str, ...]
    around: tuple[str, ...]
    """Rings where messages between some ranks pass others."""
    aware: tuple[str, ...]
    """Made for the network."""
    small: int = 16 << 10
    """Bytes of one rank's array up to which few steps are taken."""
    share: int = 0
    """Bytes of a rank's share up to which they are taken too, where nothing was made for the network: a ring takes as
    many steps as there are ranks."""
    large: int = 256 << 10
    """Bytes above which what was made for the network is taken, on networks of several dimensions."""

    def family(self, nbytes: int, ranks: int, network: Network, *, aware: bool) -> str:
        """The family that a call takes first: `few`, `far`, `rings`, `around` or `aware`, of which some may not run.
        aware: whether any of `aware` does."""
        made = network.several and nbytes > self.large
        if nbytes <= self.small or (nbytes // max(ranks, 1) <= self.share and not (made and aware)):
            return "far" if network.far else "few"
        return "aware" if made else "around" if network.far else "rings"

    def order(self, family: str) -> tuple[str, ...]:
        """What calls of a family take, the best first, with what stands for it where none of that runs."""
        own: tuple[str, ...] = getattr(self, family)
        rest = (*self.around, *self.far) if family in ("far", "around") else (*self.rings, *self.few)
        return (*own, *rest)


def _way(few: tuple[str, ...], rings: tuple[str, ...], aware: tuple[str, ...] = ()) -> Way:
    return Way(few, few, rings, rings, aware)


FAMILIES: Mapping[str, Way] = {
    "all_reduce": _way(
        (
            "recursive_doubling_allreduce",
            "synth_halving_doubling",
            "tree_allreduce",
            "double_binary_tree_allreduce",
            "all_pairs_allreduce",
        ),
        ("bidirectional_ring_allreduce", "ring_allreduce", "synth_ring", "nccl_ring_allreduce"),
        ("synth_trees", "synth_greedy", "synth_swing"),
    ),
    "all_gather": _way(
        ("pat_all_gather", "synth_direct"),
        ("ring_all_gather", "synth_ring", "nccl_ring_all_gather"),
        ("synth_greedy",),
    ),
    "reduce_scatter": _way(
        ("pat_reduce_scatter", "synth_direct"),
        ("ring_reduce_scatter", "synth_ring", "nccl_ring_reduce_scatter"),
        ("synth_greedy",),
    ),
    "broadcast": _way(("binomial_broadcast",), ("ring_broadcast",), ("synth_greedy",)),
    "reduce": _way(("binomial_reduce",), ("ring_reduce",)),
    "all_to_all": _way(
        ("synth_direct", "pairwise_all_to_all"),
        ("synth_direct", "pairwise_all_to_all"),
        ("synth_greedy", "synth_direct"),
    ),
}
"""The families of each collective, with the publication's thresholds."""
_DIRECT = ("synth_direct", "pat_all_gather"), ("synth_direct", "pat_reduce_scatter")
WAYS: Mapping[str, Way] = {
    "all_reduce": replace(
        FAMILIES["all_reduce"],
        few=(
            "all_pairs_allreduce",
            "recursive_doubling_allreduce",
            "synth_halving_doubling",
            "double_binary_tree_allreduce",
            "tree_allreduce",
        ),
        far=(
            "recursive_doubling_allreduce",
            "all_pairs_allreduce",
            "synth_halving_doubling",
            "tree_allreduce",
            "double_binary_tree_allreduce",
        ),
        rings=("nccl_ring_allreduce", "bidirectional_ring_allreduce", "synth_ring", "ring_allreduce"),
        aware=("synth_swing", "synth_trees", "synth_greedy"),
        small=4 << 10,
        share=64 << 10,
        large=16 << 10,
    ),
    "all_gather": replace(
        FAMILIES["all_gather"],
        few=_DIRECT[0],
        far=_DIRECT[0],
        rings=("nccl_ring_all_gather", "ring_all_gather", "synth_ring"),
        small=4 << 10,
        share=1 << 20,
        large=0,
    ),
    "reduce_scatter": replace(
        FAMILIES["reduce_scatter"],
        few=_DIRECT[1],
        far=_DIRECT[1],
        rings=("nccl_ring_reduce_scatter", "ring_reduce_scatter", "synth_ring"),
        small=4 << 10,
        share=1 << 20,
        large=0,
    ),
    "broadcast": replace(FAMILIES["broadcast"], small=4 << 10, share=64 << 10, large=NEVER),
    "reduce": replace(FAMILIES["reduce"], small=4 << 10, share=64 << 10, large=0),
    "all_to_all": replace(FAMILIES["all_to_all"], aware=("synth_direct", "synth_greedy"), small=4 << 10, large=0),
}
"""What `python -m ahbm.choose.priors` finds on the training side of the split `machines`."""


class Prior(BaseSelector):
    """Chooses by size and network alone. What it has nothing for is left to ccl.yaml."""

    name = "prior"
    pure = True

    def __init__(self, small: int | None = None, large: int | None = None) -> None:
        """small: bytes up to which few steps are taken, with LL where the machine's library has it on one node. large:
        bytes above which topology-aware algorithms are taken, on networks of several dimensions. None: those of
        `WAYS`."""
        self._ways = {
            name: replace(way, small=way.small if small is None else small, large=way.large if large is None else large)
            for name, way in WAYS.items()
        }
        self._network = Network(False, False)
        self._machine: Machine | None = None
        """Where LL may be named."""

    @classmethod
    def of(cls, ways: Mapping[str, Way]) -> Prior:
        """One that tells calls apart in other ways."""
        found = cls()
        found._ways = dict(ways)
        return found

    @property
    def fingerprint(self) -> str:
        """Digest of the thresholds and of the orders."""
        return digest(repr(sorted(self._ways.items())))

    def init(self, comm: Comm) -> None:
        """See `Selector`."""
        machine = comm.emulator.machine if comm.emulator is not None else load_machine()
        self._network = Network.of(machine, comm.nodes)
        has_ll = comm.nodes <= 1 and any(protocol.name == "ll" for protocol in machine.protocols)
        self._machine = machine if has_ll else None

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`."""
        way = self._ways.get(call.collective)
        chosen = None if way is None else chosen_of(way, call.nbytes, call.ranks, self._network, table.allows)
        if chosen is None or way is None:
            return None
        named = self._machine is not None and chosen in way.few
        ll = named and self._machine is not None and permits(self._machine, "ll", call.nbytes, call.ranks)
        return Choice(SELECTOR, chosen, protocol="ll" if ll else None)


def chosen_of(way: Way, nbytes: int, ranks: int, network: Network, runs: Callable[[str], bool]) -> str | None:
    """What a call takes in a way, of what runs."""
    family = way.family(nbytes, ranks, network, aware=any(map(runs, way.aware)))
    return next(filter(runs, way.order(family)), None)
