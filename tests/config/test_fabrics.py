"""Networks of switches of several tiers between nodes: times, folds, and flows that share a link."""

from __future__ import annotations

from pathlib import Path

import pytest

import ahbm
from ahbm.config.topology import load_machine

NODES = {
    "system.sips.topology": "nodes",
    "system.sips.link.latency_ns": 300,
    "system.sips.link.bandwidth_gbs": 400,
    "system.sips.nodes.switch_ns": 100,
    "system.sips.nodes.nic_latency_ns": 2000,
    "system.sips.nodes.nic_gbs": 50,
}


def fabric(count: int, size: int, routes: str = "", **keys: object) -> dict[str, object]:
    """Overrides of `npu_switch_8` for nodes around a fabric."""
    own = {f"system.sips.nodes.fabric.{key}": value for key, value in keys.items()}
    choose = {"system.sips.routes.choose": routes} if routes else {}
    return {**NODES, "system.sips.count": count, "system.sips.nodes.size": size, **own, **choose}


def run(
    overrides: dict[str, object], algorithm: str = "ring_allreduce", size: str = "64K", **more: object
) -> ahbm.Report:
    return ahbm.run("all_reduce", algorithm, "npu_switch_8", bytes_per_rank=size, overrides=overrides, **more)


@pytest.mark.parametrize("algorithm", ["ring_allreduce", "all_pairs_allreduce", "recursive_doubling_allreduce"])
def test_one_tier_of_nodes_of_one_is_a_switch(algorithm: str) -> None:
    one = fabric(8, 1, tiers=1, switch_ns=150)
    switch = {
        "system.sips.link.latency_ns": 2000,
        "system.sips.link.bandwidth_gbs": 50,
        "system.sips.switch.latency_ns": 150,
    }
    found, wanted = run(one, algorithm), run(switch, algorithm)
    assert found.latency_ns == wanted.latency_ns
    assert found.timeline_hash == wanted.timeline_hash
    assert found.right and wanted.right


@pytest.mark.parametrize(
    "keys",
    [
        {"tiers": 3, "nodes_per_leaf": 2, "nodes_per_pod": 4},
        {"nodes_per_leaf": 2, "oversubscription": 4},
        {"kind": "rails", "nodes_per_leaf": 4},
        {"kind": "rails", "tiers": 1},
        {"kind": "dragonfly", "nodes_per_leaf": 2, "routers": 2},
    ],
)
@pytest.mark.parametrize("routes", ["", "rails", "first"])
def test_folded_runs_take_the_times_of_whole_ones(keys: dict[str, object], routes: str) -> None:
    program = run(fabric(64, 4, routes, **keys), size="256K", data=False).program()
    assert program is not None
    folded, whole = (program.simulate(record=False, fold=fold) for fold in (True, False))
    assert (folded.hash, folded.latency_ps, folded.messages) == (whole.hash, whole.latency_ps, whole.messages)


def test_a_ring_over_pods_is_folded() -> None:
    program = run(fabric(512, 8, tiers=3, nodes_per_leaf=4, nodes_per_pod=16), size="1M", data=False).program()
    assert program is not None
    folded, whole = (program.simulate(record=False, fold=fold) for fold in (True, False))
    assert folded.hash == whole.hash
    assert 3 * folded.events < whole.events


def test_seeds_change_collisions_alone() -> None:
    seeds = [{**fabric(64, 4, nodes_per_leaf=4), "system.sips.routes.seed": seed} for seed in range(6)]
    found = [run(overrides, "all_pairs_allreduce") for overrides in seeds]
    assert len({report.latency_ns for report in found}) > 1
    least = run(fabric(64, 4, "rails", nodes_per_leaf=4), "all_pairs_allreduce")
    assert all(report.right for report in (*found, least))
    # One spine leaves nothing to choose.
    one = [{**fabric(64, 4, nodes_per_leaf=4, spines=1), "system.sips.routes.seed": seed} for seed in (0, 7)]
    assert len({run(overrides, "all_pairs_allreduce").timeline_hash for overrides in one}) == 1


def test_explain_names_flows_that_share_a_link() -> None:
    why = run(fabric(32, 4, nodes_per_leaf=2), "all_pairs_allreduce", "1M").explain()
    first = why.collisions[0]
    assert len(first.flows) > first.even and first.busy_ps > first.even_ps
    assert first.link.startswith(("leaf", "spine"))
    text = str(why)
    assert "flows that share a link although there are other ways as short:" in text
    assert first.link in text and "->" in text
    rails = run(fabric(32, 4, "rails", nodes_per_leaf=2), "ring_allreduce", "1M").explain()
    assert not rails.collisions
    assert why.to_json()["collisions"][0]["link"] == first.link


def test_the_hash_is_one_of_the_changes_that_are_tried() -> None:
    why = run(fabric(32, 4, nodes_per_leaf=2), "all_pairs_allreduce", "1M").explain()
    changed = why.what_if({"system.sips.routes.choose": "rails"})
    kept = [entry for entry in why.advise(None) if "system.sips.routes.choose" in entry.changes]
    assert kept and kept[0].latency_ps == changed.latency_ps


def test_striped_collectives_say_what_they_do_not_see() -> None:
    overrides = {**fabric(32, 4, nodes_per_leaf=2), "system.sips.nodes.striped": True}
    assert any("way of one interface for all" in note for note in run(overrides).notes)
    assert load_machine("npu_switch_8", overrides).has_fabric
    # Four interfaces carry what one did before, four times as fast.
    assert run(overrides, size="4M").latency_ns < run(fabric(32, 4, nodes_per_leaf=2), size="4M").latency_ns


@pytest.mark.parametrize("kind", ["clos", "rails"])
def test_rings_on_rails_are_folded(kind: str) -> None:
    """Reduce-scatter inside nodes, a ring on each rail, all-gather: nodes in equal places of pods are alike."""
    algorithm = str(Path(__file__).parents[1] / "support" / "hierarchical_allreduce.py")
    overrides = fabric(256, 8, "rails", kind=kind, tiers=3, nodes_per_leaf=2, nodes_per_pod=4)
    assert run(overrides, algorithm, "4K").right
    program = run(overrides, algorithm, "1M", data=False).program()
    assert program is not None
    folded, whole = (program.simulate(record=False, fold=fold) for fold in (True, False))
    assert folded.hash == whole.hash
    assert 3 * folded.events < whole.events
