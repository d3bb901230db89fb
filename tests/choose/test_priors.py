"""The prior's thresholds are found on calls of other machines, family by family."""

from __future__ import annotations

import math

from ahbm.choose.priors import Seen, fit, left_out
from ahbm.selectors.prior import FAMILIES, NEVER, Network, chosen_of

MESH, SWITCH = Network(several=True, far=True), Network(several=False, far=False)
KIB = 1 << 10


def calls(machine: str, network: Network, few: str, border: int, many: str) -> list[Seen]:
    """All_reduces of which `few` is the quickest up to `border` bytes, and `many` above."""
    names = ("all_pairs_allreduce", "recursive_doubling_allreduce", "bidirectional_ring_allreduce", "synth_greedy")
    found = []
    for power in range(10, 26):
        best = few if 1 << power <= border else many
        lost = {name: 0.0 if name == best else math.log(2) + power / 100 for name in names}
        found.append(Seen(machine, "all_reduce", 1 << power, 16, network, lost))
    return found


def test_families_end_where_they_do_and_begin_with_what_is_quickest() -> None:
    seen = calls("mesh", MESH, "recursive_doubling_allreduce", 64 * KIB, "synth_greedy")
    seen += calls("switch", SWITCH, "all_pairs_allreduce", 64 * KIB, "bidirectional_ring_allreduce")
    way = fit(seen)["all_reduce"]
    assert (way.far[0], way.few[0], way.aware[0]) == (
        "recursive_doubling_allreduce",
        "all_pairs_allreduce",
        "synth_greedy",
    )
    for call in seen:
        chosen = chosen_of(way, call.nbytes, call.ranks, call.network, call.lost.__contains__)
        assert call.lost[chosen or ""] == 0, (call.machine, call.nbytes)
    assert fit(seen)["broadcast"] == FAMILIES["broadcast"], "of what was not seen nothing is known"


def test_what_was_made_for_a_network_may_never_be_worth_it() -> None:
    seen = calls("mesh", MESH, "recursive_doubling_allreduce", 4 * KIB, "bidirectional_ring_allreduce")
    way = fit(seen)["all_reduce"]
    assert way.large == NEVER or way.aware[0] != "synth_greedy"


def test_a_machine_that_is_scored_is_not_learned_from() -> None:
    other = calls("other", SWITCH, "all_pairs_allreduce", 64 * KIB, "bidirectional_ring_allreduce")
    odd = calls("odd", SWITCH, "recursive_doubling_allreduce", 1 << 20, "synth_greedy")
    lost = {(call.machine, call.nbytes): (chosen, loss) for call, chosen, loss in left_out([*other, *odd])}
    assert lost["odd", 4 * KIB] == ("all_pairs_allreduce", odd[2].lost["all_pairs_allreduce"])
    assert lost["odd", 1 << 20][0] == "bidirectional_ring_allreduce"
    assert lost["other", 4 * KIB][0] == "recursive_doubling_allreduce"
