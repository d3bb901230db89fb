"""Clusters of one kind: the middle of several, how far another one is, and few rows of one's own."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ahbm.calibrate import clusters, own, written
from ahbm.calibrate.calibration import Calibrated, calibrate
from ahbm.calibrate.tables import Row, Table
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.runs import bands

SIZES = [1 << at for at in range(10, 31, 3)]


def _cluster(host_us: float, sizes: list[int] = SIZES) -> Table:
    """All-reduces of 8 ranks on one host, at the rate of one link for all."""
    rows = tuple(Row(size, max(host_us, 10.0 + size * 1.75 / 480e3), at) for at, size in enumerate(sizes, 1))
    return Table(f"{host_us}.csv", "0" * 16, "all_reduce", 8, 1, "H100", rows)


def test_hosts_differ_more_than_wires() -> None:
    us = np.array([row.us for row in _cluster(20.0).rows])
    sizes = np.array(SIZES, np.float64)
    away = clusters.others(sizes, us, False)
    assert away[0] > 5 * away[-1] and (np.diff(away) < 2e-3).all()
    assert (clusters.others(sizes, us, True) > away).all()


def test_a_host_adds_to_a_time_and_bytes_take_what_is_in_proportion_to_them() -> None:
    sizes = np.array([1.0, 1000.0, 1e6])
    host, wire = clusters.Parts.of(sizes, np.array([10.0, 20.0, 1010.0]), False)
    assert host == pytest.approx([10.0, 10.0, 10.0])
    assert wire == pytest.approx([0.0, 1.0, 1000.0])


def test_between_nodes_longer_calls_have_longer_latencies() -> None:
    sizes = np.array([1.0, 1e6, 1e8, 1e9])
    us = np.array([10.0, 30.0, 1000.0, 9910.0])
    host, wire = clusters.Parts.of(sizes, us, True)
    assert host[0] == 10.0 and host[1] == pytest.approx(30.0 - wire[1]) and host[2] < 6 * host[0]
    assert (host + wire <= us * (1 + 1e-12)).all()


@pytest.mark.parametrize("several", [False, True])
def test_two_rows_tell_the_latency_and_the_rate_of_a_cluster(several: bool) -> None:
    sizes = np.array([float(1 << at) for at in range(6, 34, 2)])
    us = 30.0 + sizes / 1e5
    host, wire = clusters.Parts.of(sizes, us, several)
    true = us + host + 0.2 * wire
    found = clusters.own(sizes, us, several, [1, 13], true[[1, 13]] / us[[1, 13]])
    assert us * found.factor == pytest.approx(true, rel=0.1)
    assert (found.deviation < clusters.others(sizes, us, several) + 0.03).all()


def test_the_middle_is_between_clusters_and_the_same_in_any_order() -> None:
    one, other = _cluster(10.0), _cluster(40.0, SIZES[2:])
    middle = clusters.middle([one, other])
    assert [row.us for row in middle.rows][:3] == pytest.approx([20.0] * 3, rel=0.02)
    assert middle.rows[-1].us == pytest.approx(one.rows[-1].us)
    assert middle.rows == clusters.middle([other, one]).rows


def test_several_clusters_are_one_machine_between_them_whose_band_has_both() -> None:
    tables = [_cluster(12.0), _cluster(30.0)]
    found = calibrate(tables)
    emulator = written.emulator(found.tree)
    assert 13 < written.us(emulator, "all_reduce", 8, 1 << 10) < 28
    first = found.tree["calibration"]["bands"][0]
    us = written.us(emulator, "all_reduce", 8, 1 << 10)
    low, high = (us * (1 + first[key] / 100) for key in ("low_percent", "high_percent"))
    assert low < 12 < 30 < high
    assert len({(band["from_bytes"], band["ranks"]) for band in found.tree["calibration"]["bands"]}) == len(
        found.tree["calibration"]["bands"]
    )


@functools.cache
def _prior() -> Calibrated:
    return calibrate([_cluster(12.0)])


def test_rows_of_ones_own_move_the_prior_and_narrow_its_band(tmp_path: Path) -> None:
    prior = _prior()
    written.save(prior.tree, tmp_path / "prior.yaml")
    mine = _cluster(30.0, [1 << 12, 1 << 26])
    found = own.calibrated([mine], tmp_path / "prior.yaml")
    before, after = (written.emulator(tree) for tree in (prior.tree, found.tree))
    near, far = 1 << 12, 1 << 28
    assert written.us(after, "all_reduce", 8, near) == pytest.approx(30, rel=0.1)
    assert written.us(after, "all_reduce", 8, far) == pytest.approx(written.us(before, "all_reduce", 8, far), rel=0.1)
    width = {}
    for name, tree in (("before", prior.tree), ("after", found.tree)):
        band = next(each for each in tree["calibration"]["bands"] if each["from_bytes"] <= near <= each["to_bytes"])
        width[name] = band["high_percent"] - band["low_percent"]
    assert width["after"] < width["before"] / 2
    assert "# your cluster" in found.text()
    assert [each["rows"] for each in found.tree["calibration"]["sources"]] == [2, len(SIZES)]
    # A run says what other clusters take.
    written.save(found.tree, tmp_path / "mine.yaml")
    machine = load_machine(tmp_path / "mine.yaml")
    band = bands.band(machine, "all_reduce", "ring_allreduce", 8, near)
    assert band is not None and band.others is not None and band.others[0] < 0 < band.others[1]
    assert "clusters of its kind take" in str(bands.note_of(machine, "all_reduce", "ring_allreduce", 8, near))


def test_a_prior_says_nothing_of_other_collectives_and_ranks(tmp_path: Path) -> None:
    written.save(_prior().tree, tmp_path / "prior.yaml")
    mine = _cluster(30.0, SIZES[:2])
    for other in (replace(mine, collective="all_gather"), replace(mine, ranks=4)):
        with pytest.raises(ConfigError, match="was fitted to all_reduce of 8 ranks") as refused:
            own.calibrated([other], tmp_path / "prior.yaml")
        assert refused.value.code == "AHBM-C195"
    with pytest.raises(ConfigError, match="for one table"):
        own.calibrated([mine, mine], tmp_path / "prior.yaml")
