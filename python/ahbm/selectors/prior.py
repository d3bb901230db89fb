"""What is known of algorithms before anything is measured: those that were made for the network for large messages on
networks of several dimensions, few steps for small ones.

The prior of figure 8 of J. Yoo et al., IEEE Micro 45(2), 2025, doi:10.1109/MM.2025.3547363, as thresholds on a call and
its network. `docs/select-env.md` has where the oracle differs.
"""

from __future__ import annotations

from ahbm._core import Machine
from ahbm.config.protocols import permits
from ahbm.config.topology import load_machine
from ahbm.core.choice import SELECTOR, Choice
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable

SMALL, LARGE = 16 << 10, 16 << 10
"""Bytes of one rank's array up to which latency decides, and above which the network does: the publication has 256 KiB
for the second, the oracle finds it from 16 KiB on."""
SHARES = {"broadcast": 256 << 10, "reduce": 256 << 10}
"""Bytes of a rank's share up to which latency decides too, where they are not `SMALL`: a ring takes as many steps as
there are ranks."""
FEW_STEPS = {
    "all_reduce": ("recursive_doubling_allreduce", "synth_halving_doubling", "tree_allreduce"),
    "all_gather": ("pat_all_gather", "synth_direct"),
    "reduce_scatter": ("pat_reduce_scatter", "synth_direct"),
    "broadcast": ("binomial_broadcast",),
    "reduce": ("binomial_reduce",),
    "all_to_all": ("synth_direct", "pairwise_all_to_all"),
}
"""By collective, what takes few steps, the best first."""
RINGS = {
    "all_reduce": ("bidirectional_ring_allreduce", "ring_allreduce", "synth_ring", "nccl_ring_allreduce"),
    "all_gather": ("ring_all_gather", "synth_ring", "nccl_ring_all_gather"),
    "reduce_scatter": ("ring_reduce_scatter", "synth_ring", "nccl_ring_reduce_scatter"),
    "broadcast": ("ring_broadcast",),
    "reduce": ("ring_reduce",),
    "all_to_all": ("synth_direct", "pairwise_all_to_all"),
}
TOPOLOGY_AWARE = {
    "all_reduce": ("synth_trees", "synth_greedy", "synth_swing"),
    "all_gather": ("synth_greedy",),
    "reduce_scatter": ("synth_greedy",),
    "all_to_all": ("synth_direct",),
}
"""By collective, schedules that were made for the network."""


class Prior(BaseSelector):
    """Chooses by size and network alone. What it has nothing for is left to ccl.yaml."""

    name = "prior"
    pure = True

    def __init__(self, small: int = SMALL, large: int = LARGE) -> None:
        """small: bytes up to which few steps are taken, with LL where the machine's library has it on one node. large:
        bytes above which topology-aware algorithms are taken, on networks of several dimensions."""
        self._small, self._large = small, large
        self._several = False
        self._machine: Machine | None = None
        """Where LL may be named."""

    @property
    def fingerprint(self) -> str:
        """Digest of the thresholds."""
        return digest(f"{self._small} {self._large}")

    def init(self, comm: Comm) -> None:
        """See `Selector`."""
        machine = comm.emulator.machine if comm.emulator is not None else load_machine()
        nodes = comm.nodes > 1
        self._several = nodes or len(machine.features().dimensions) > 1
        has_ll = not nodes and any(protocol.name == "ll" for protocol in machine.protocols)
        self._machine = machine if has_ll else None

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`."""
        few, rings = FEW_STEPS.get(call.collective, ()), RINGS.get(call.collective, ())
        aware = TOPOLOGY_AWARE.get(call.collective, ()) if self._several and call.nbytes > self._large else ()
        latency = call.nbytes // max(call.ranks, 1) <= SHARES.get(call.collective, self._small)
        if call.nbytes <= self._small or (latency and self._first(aware, table) is None):
            chosen = self._first((*few, *rings), table)
            named = self._machine is not None and permits(self._machine, "ll", call.nbytes, call.ranks)
            protocol = "ll" if named else None
            return None if chosen is None else Choice(SELECTOR, chosen, protocol=protocol)
        chosen = self._first((*aware, *rings, *few), table)
        return None if chosen is None else Choice(SELECTOR, chosen)

    @staticmethod
    def _first(names: tuple[str, ...], table: CostTable) -> str | None:
        return next((name for name in names if table.allows(name)), None)
