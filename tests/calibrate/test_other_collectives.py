"""What machines that were fitted to all-reduce say of collectives that no table shows."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ahbm.calibrate import constants, tables, written
from ahbm.calibrate.calibration import Calibrated, calibrate
from ahbm.calibrate.laws import PLAIN, RAMPED, Law, ProtocolLaw, Rows, Shape
from ahbm.calibrate.library import GROUPED, PAIRWISE, Others, generation, without_protocol
from ahbm.calibrate.tables import Row, Table

SIZES = [1 << at for at in range(8, 33, 3)]


def _table(us: dict[int, float], accelerator: str = "B200", collective: str = "all_reduce", nodes: int = 1) -> Table:
    rows = tuple(Row(size, took, number) for number, (size, took) in enumerate(us.items(), 1))
    return Table("t.csv", "0" * 16, collective, 8 * nodes, nodes, accelerator, rows)


def _reduced(size: int, gbs: float) -> float:
    """An all-reduce of 8 ranks whose small sizes take 25 us."""
    return max(25.0 + size * 1.75 / 282e3 if size < 1 << 22 else 0.0, 30.0 + size * 1.75 / (1000 * gbs))


@functools.cache
def _fitted(gbs: float, accelerator: str = "B200", nodes: int = 1) -> Calibrated:
    return calibrate([_table({size: _reduced(size, gbs) for size in SIZES}, accelerator, nodes=nodes)])


def _gbs(found: Calibrated, collective: str, ranks: int = 8, size: int = 1 << 34) -> float:
    """Bandwidth of a large call by what each rank has to send."""
    us = written.us(written.emulator(found.tree), collective, ranks, size)
    return size * (ranks - 1) / ranks / (1000 * us)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_a_switch_that_reduces_helps_no_other_collective(collective: str) -> None:
    # An all-reduce has 840 GB/s by its switch. Rings reach three quarters of the link of 900, and groups not more.
    found = _gbs(_fitted(840.0), collective)
    assert 0.9 * 675 < found < 1.01 * 675


def test_rings_without_such_a_switch_keep_the_bandwidth_of_all_reduce() -> None:
    assert _gbs(_fitted(230.0, "A100"), "all_gather") == pytest.approx(230, rel=0.03)


def test_a_small_ring_that_goes_round_once_takes_less_than_an_all_reduce() -> None:
    emulator = written.emulator(_fitted(840.0).tree)
    reduced, gathered = (written.us(emulator, name, 8, 1 << 12) for name in ("all_reduce", "all_gather"))
    assert 0.5 < gathered / reduced < 0.9


def test_sends_in_a_group_wait_for_no_step() -> None:
    # Twice the bytes of a large call take twice the time, and not a ramp more.
    emulator = written.emulator(_fitted(840.0).tree)
    first, second = (written.us(emulator, "all_to_all", 8, size) for size in (1 << 24, 1 << 25))
    small = written.us(emulator, "all_to_all", 8, 1 << 12)
    assert second - first == pytest.approx(first - small, rel=0.01)


def _between_nodes(law: Law, nodes: int = 8, each: int = 4) -> dict[str, dict[str, Any]]:
    """Protocols of other collectives beside an all-reduce of such a law: steps and bytes alone."""
    ranks = nodes * each
    n = np.array([float(1 << at) for at in range(6, 32)])
    ones = np.ones(len(n))
    rows = Rows(n, ones, ranks * ones, ones, ones[None], 2 * ones[None], 0 * ones[None], 0 * ones[None])
    rows = replace(rows, us=law.us(rows))
    declared = {
        "system": {"sips": {"topology": "nodes", "nodes": {"nic_gbs": 12.5, "size": each}}},
        "launch": {"overhead_ns": 1000.0},
    }
    table = Table("t.csv", "0" * 16, "all_reduce", ranks, nodes, "A100", ())
    return Others(declared, law, table, rows).protocols(["all_gather", "all_to_all"])


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_a_small_ring_between_nodes_takes_what_their_trees_do(slower: float) -> None:
    nccl = constants.steps()
    tree = nccl.launch + 2 * (3 * nccl.inside + 3 * slower * nccl.tree)
    law = Law(Shape(((PLAIN,),)), 0.0, (ProtocolLaw(tree, 40.0),))
    found = _between_nodes(law)["ring_ll"]
    # A share passes all 8 links between nodes, and 23 others at the network's overhead.
    assert 1 + 31 * found["step_ns"] / 1000 == pytest.approx(6.6 + 23 * 1.0 + 8 * slower * nccl.ring, rel=0.01)


def test_rings_and_groups_have_the_bandwidth_that_rows_show_and_not_that_of_a_ramp() -> None:
    law = Law(Shape(((RAMPED,),)), 0.0, (ProtocolLaw(50.0, 45.0, 1 << 27, 0.5),))
    found = _between_nodes(law)
    shown = 45.0 / (1 + (1 / 16) ** 0.5)
    assert found["ring_simple"]["max_gbs"] == pytest.approx(shown, rel=1e-3)
    assert found["p2p"]["nic_gbs"] == pytest.approx(shown / 4, rel=1e-3)


def test_a_table_of_the_collective_has_its_say() -> None:
    measured = _table({size: 40 + size / 300e3 for size in SIZES}, collective="all_gather")
    found = calibrate([measured])
    assert {"ring_ll", "ring_simple"}.isdisjoint(found.tree["protocols"])
    us = written.us(written.emulator(found.tree), "all_gather", 8, 1 << 20)
    assert us == pytest.approx(40 + (1 << 20) / 300e3, rel=0.05)


def test_tables_of_several_collectives_tell_the_groups_of_others() -> None:
    reduced = _table({size: 30 + size * 1.75 / 230e3 for size in SIZES}, "A100")
    gathered = _table({size: 20 + size * 0.875 / 230e3 for size in SIZES}, "A100", "all_gather")
    found = calibrate([reduced, gathered])
    assert found.tree["protocols"]["p2p"]["algorithms"] == ["grouped_all_to_all"]
    assert "ring_reduce_scatter" in found.tree["protocols"]["ring_ll"]["algorithms"]
    assert "ring_all_gather" not in found.tree["protocols"]["ring_ll"]["algorithms"]


def test_the_all_reduce_that_was_fitted_stays() -> None:
    found = _fitted(840.0)
    alone = {**found.tree, "protocols": {k: v for k, v in found.tree["protocols"].items() if "algorithms" not in v}}
    both = [written.emulator(tree) for tree in (found.tree, alone)]
    for size in SIZES:
        mine, other = (written.us(emulator, "all_reduce", 8, size) for emulator in both)
        assert mine == other


def test_generations_are_those_of_accelerators() -> None:
    assert [generation(name) for name in ("H100-SXM5-80GB", "A100-SXM4-40GB", "B300", "MI300X", "unheard of")] == [
        "hopper",
        "ampere",
        "blackwell",
        None,
        None,
    ]
    assert tables.SPELLED["alltoall"] == "all_to_all"


def test_sends_in_a_group_need_a_protocol_or_a_table_of_theirs() -> None:
    reduced, exchanged = _table({}), _table({}, collective="all_to_all")
    for protocols, table, wanted in [
        ({}, reduced, PAIRWISE),
        ({"p2p": {}}, reduced, GROUPED),
        ({}, exchanged, GROUPED),
    ]:
        tree = {"library": {"all_to_all": [GROUPED]}, "protocols": protocols}
        without_protocol(tree, [table])
        assert tree["library"] == {"all_to_all": [wanted]}
