"""Tuning on calibrated machines: no line names a protocol for sizes where the machine's numbers of it say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.base.knobs import Knobs
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.names import NCCL
from ahbm.choose.oracle import Oracle
from ahbm.choose.regret import Point
from ahbm.choose.tune import Given, tune
from ahbm.choose.turning import Turning
from ahbm.config.protocols import permits
from ahbm.config.topology import load_machine

NAMES = ("nccl_ring_allreduce", "double_binary_tree_allreduce")
SIZES = [64, 4096, 1 << 17, 1 << 22]
FAR = 1 << 40


@pytest.mark.parametrize("name", ["p5", "azure_nd_h100", "dgx_b300", "mi300x", "azure_nd_a100"])
def test_lines_name_protocols_where_they_were_fitted(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    rules = tune(Catalogue.of("all_reduce", NAMES), [machine], SIZES, given=Given(channels=4)).of(NCCL).rules
    assert rules
    for rule in rules:
        assert rule.protocol is not None
        for size in (rule.nbytes.least, FAR if rule.nbytes.most is None else rule.nbytes.most):
            assert permits(machine, rule.protocol, size, 8), rule
    # Where one ends, the next begins, as far as any may be named.
    for size in SIZES:
        assert any(rule.nbytes.least <= size <= (rule.nbytes.most or FAR) for rule in rules), size


def test_a_refused_pair_has_no_time_of_its_own() -> None:
    machine = load_machine("p5")
    table = Oracle(Catalogue.of("all_reduce", NAMES), [machine], [1 << 26]).table()
    turning, (point,) = Turning(table), table.points()
    assert isinstance(point, Point)
    assert turning.at(point, NAMES[0], Knobs(protocol="ll")).refused
    assert turning.at(point, NAMES[0], Knobs(protocol="ll128")).refused
    assert not turning.at(point, NAMES[0], Knobs(protocol="simple")).refused
    assert turning.protocols(point, NAMES[0]) == ["simple"]
