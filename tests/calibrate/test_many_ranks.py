"""Fits to more ranks than every row is run on, and what the library's constants say where rows of few ranks do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ahbm.calibrate import constants, templates, written
from ahbm.calibrate.fit import AMONG_NODES, FEW_STARTS, fits
from ahbm.calibrate.laws import Law, ProtocolLaw, Rows
from ahbm.calibrate.tables import Row, Table

RANKS = 72
SIZES = [146, 1000, 5000, 77_777, 1 << 20]


def test_chunks_of_one_size_take_as_long_as_those_that_differ_by_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Table("t", "0", "all_reduce", RANKS, RANKS // 4, "A100", (Row(8, 1.0, 1),))
    template = templates.of([head])

    def found() -> np.ndarray:
        return np.array(written.coefficients(template, "all_reduce", RANKS, SIZES))

    even = found()
    monkeypatch.setattr(written, "VERIFIED", RANKS)
    exact = found()
    assert even[:, [0, 2, 3]] == pytest.approx(exact[:, [0, 2, 3]])
    assert even[:, 1] == pytest.approx(exact[:, 1], rel=0.02)


def test_arrays_of_few_ranks_are_as_they_are_and_shares_are_even_anyway() -> None:
    assert written.even("all_reduce", 8, 1001) == 1001
    assert written.even("all_reduce", RANKS, 1001) == 1008
    assert written.even("all_gather", RANKS, 1002) == 1002


def _rows(nodes: np.ndarray, n: np.ndarray) -> Rows:
    """Rows of two ranks on each node that a tree and a ring could have taken."""
    tree, ring = 2 * np.log2(nodes), 2 * (nodes - 1)
    crossings = np.array([tree, tree, tree, ring])
    steps = crossings + np.array([2 + 0 * nodes] * 3 + [2 * nodes])
    volume, one = np.full((4, len(n)), 2.0), np.ones(len(n))
    return Rows(n, one, 2 * nodes, one, steps, volume, np.zeros((4, len(n))), crossings)


def test_what_no_row_tells_of_a_step_between_nodes_is_what_the_library_says() -> None:
    n = np.array([float(1 << at) for at in range(3, 22, 2)])
    shape = AMONG_NODES[2]
    nccl = constants.steps()
    between = nccl.tree / nccl.inside
    protocols = ProtocolLaw(nccl.inside, 1.0), ProtocolLaw(8.0, 9.0), ProtocolLaw(nccl.inside, 9.0)
    rows = _rows(np.full(len(n), 2.0), n)
    rows = replace(rows, us=Law(shape, 0.0, protocols, (), between, 1 << 40).us(rows))
    found = fits(shape, rows, np.ones((1, len(n))), FEW_STARTS)[0]
    assert found is not None
    assert found[1].us(rows) == pytest.approx(rows.us, rel=0.02)
    assert found[1].nic_steps == pytest.approx(between, rel=0.2)
    assert found[1].protocols[0].step_us == pytest.approx(nccl.inside, rel=0.2)
