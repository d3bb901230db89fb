"""NCCL's cost model against times that were worked out by hand from its source, and the laws of its shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import ahbm
from ahbm.base import packaged
from ahbm.errors import ConfigError
from ahbm.selectors.nccl_model import PROTOCOLS, NcclModel
from ahbm.selectors.protocol import UNKNOWN, Call, CostTable

BUS = 360.0


def model(**constants: Any) -> NcclModel:
    return NcclModel({"bus_gbs": BUS, **constants})


def call(nbytes: int, ranks: int = 8, nodes: int = 1, collective: str = "all_reduce") -> Call:
    return Call(collective, nbytes, ranks, nodes)


@pytest.mark.parametrize(
    ("algorithm", "protocol", "asked", "us"),
    [
        # ring, Simple, 8 ranks: 8.4 + 14 steps of 3.4; 360 * 8/14 GB/s.
        ("ring", "simple", call(1 << 20), 8.4 + 14 * 3.4 + (1 << 20) / (1000 * 360 * 8 / 14)),
        # ring, LL: at most 141 GB/s, and half of 360.
        ("ring", "ll", call(1 << 20), 6.6 + 14 * 0.6 + (1 << 20) / (1000 * 141 * 8 / 14)),
        # ring, LL128: min(0.92 * 360, 16 * 36.7).
        ("ring", "ll128", call(1 << 20), 14 + 14 * 1.9 + (1 << 20) / (1000 * 331.2 * 8 / 14)),
        # all_gather: 7 steps.
        ("ring", "simple", call(1 << 20, collective="all_gather"), 8.4 + 7 * 3.4 + (1 << 20) / (1000 * 360 * 8 / 7)),
        # tree, Simple, one node: 0.92 * 360 / 2, corrected by 0.5 at 2^14 * 64 B; 2 * 7 steps of 4.0.
        ("tree", "simple", call(1 << 20), 8.4 + 14 * 4.0 + (1 << 20) / (1000 * 331.2 / 2 * 0.5)),
        # tree, LL: 331.2 / 3.8 < 141; corrected by 0.5 at 2^14.
        ("tree", "ll", call(1 << 20), 6.8 + 14 * 0.6 + (1 << 20) / (1000 * 331.2 / 3.8 / 2 * 0.5)),
        # 4 nodes of 8: 62 steps, 6 of them between nodes; steps inside take at least the overhead of 3 us.
        ("ring", "simple", call(1 << 10, 32, 4), 8.4 + 56 * 3.4 + 6 * 14 + (1 << 10) / (1000 * 360 * 32 / 62)),
        # ... from 64 B for each of 16 channels and 32 ranks on, latency is 1.4 times as long.
        ("ring", "simple", call(1 << 15, 32, 4), 1.4 * (8.4 + 56 * 3.4 + 6 * 14) + (1 << 15) / (1000 * 360 * 32 / 62)),
        # LL steps inside of nodes take at least 1 us; processors of Intel carry 20.4 GB/s.
        ("ring", "ll", call(1 << 10, 32, 4), 6.6 + 56 * 1.0 + 6 * 2.7 + (1 << 10) / (1000 * 20.4 * 32 / 62)),
        # ... and 39 on 2 nodes.
        ("ring", "ll", call(1 << 10, 16, 2), 6.6 + 28 * 1.0 + 2 * 2.7 + (1 << 10) / (1000 * 39 * 16 / 30)),
        # One rank on each of 3 nodes: steps as those of a tree, 0.92 * 360.
        ("ring", "ll128", call(1 << 10, 3, 3), 14 + 4 * 8.5 + (1 << 10) / (1000 * 331.2 * 3 / 4)),
        ("ring", "ll", call(1 << 10, 3, 3), 6.6 + 4 * 5.0 + (1 << 10) / (1000 * 20.4 * 3 / 4)),
        # A broadcast passes along a ring once.
        ("ring", "simple", call(1 << 10, 3, 3, "broadcast"), 8.4 + 14 + (1 << 10) / (1000 * 360)),
        # LL steps of a tree inside of nodes are as short as in one node.
        ("tree", "ll", call(1 << 6, 32, 4), 6.8 + 2 * (7 * 0.6 + 2 * 5.0) + (1 << 6) / (1000 * 20.4 / 2)),
        # ... on 3 nodes, the bandwidth is that on 4: 16 * 29 GB/s are more than 0.92 * 360 * 120/128.
        ("tree", "ll128", call(1 << 6, 3, 3), 14 + 2 * 8.5 + (1 << 6) / (1000 * 331.2 * 120 / 128 / 2)),
        # tree over 4 nodes: 2 * (7 inside + 2 between), 16 * 36 GB/s are more than 331.2; 0.9 at 2^4.
        ("tree", "simple", call(1 << 10, 32, 4), 8.4 + 2 * (7 * 4.0 + 2 * 14) + (1 << 10) / (1000 * 331.2 / 2 * 0.9)),
        # in the switch: 360 * 0.85 * 15/16 * 2 are more than 360.
        ("nvls", "simple", call(1 << 20), 25 + (1 << 20) / (1000 * 360 * 8 / 14)),
        # ... on 2 nodes.
        ("nvls", "simple", call(1 << 20, 16, 2), 25 + 18 + (1 << 20) / (1000 * 360 * 16 / 30)),
        # all_gather in the switch: 7/8 come from others.
        (
            "nvls",
            "simple",
            call(1 << 20, collective="all_gather"),
            25 + (1 << 20) / (1000 * 360 * 0.85 * 15 / 16 * 7 / 8),
        ),
        # trees of 4 switches: 360 are less than 16 * 45.5 and 573.75; 2 * 2 steps between nodes.
        ("nvls_tree", "simple", call(1 << 20, 32, 4), 25 + 4 * 20.9 + (1 << 20) / (1000 * 360 * 32 / 62)),
        # ... of 2, which 573.75 inside of nodes bound: 720 are between them, and 16 * 57.7.
        ("nvls_tree", "simple", call(1 << 20, 16, 2), 25 + 2 * 20.9 + (1 << 20) / (1000 * 573.75 * 16 / 30)),
        # CollNet direct on 4 nodes of 8, 16 channels: 0.85 * 360 / 0.75, half of it; 7 others of 0.4 us, twice.
        (
            "collnet_direct",
            "simple",
            call(1 << 20, 32, 4),
            2 * (3.7 + 7 * 0.4) + 31 + (1 << 20) / (1000 * 0.85 * 360 / 0.75 / 2),
        ),
        # ... of one rank each: no other inside, the network of a tree, and 1/16 of an interface.
        (
            "collnet_direct",
            "simple",
            call(1 << 20, 4, 4),
            14 + (1 << 20) / (1000 * 0.85 * 360 / (1 / 16 + 15 / 32) / 2),
        ),
        # CollNet chain: 7 steps up and down.
        ("collnet_chain", "simple", call(1 << 20, 32, 4), 14 * 2.8 + 30 + (1 << 20) / (1000 * 360 / 2)),
        # PAT on 16 nodes of one: 4 steps, and 2.8 for every rank.
        (
            "pat",
            "simple",
            call(1 << 20, 16, 16, "all_gather"),
            8 + 4 * 14 / 3.5 + 16 * 2.8 + (1 << 20) / (1000 * 360 * 0.75),
        ),
    ],
)
def test_times_worked_out_by_hand(algorithm: str, protocol: str, asked: Call, us: float) -> None:
    assert model().time_us(algorithm, protocol, asked) == pytest.approx(us, rel=1e-12)


def test_small_calls_get_fewer_channels_and_threads() -> None:
    made = model()
    # 16 channels of 512 threads of 64 B are 512 KiB.
    assert made.size("ring", "simple", call(1 << 19)) == (16, 512)
    assert made.size("ring", "simple", call((1 << 19) - 1)) == (15, 512)
    assert made.size("ring", "simple", call(64 * 512)) == (1, 512)
    assert made.size("ring", "simple", call(64 * 512 - 1)) == (1, 256)
    assert made.size("ring", "simple", call(1)) == (1, 96)
    # LL of a ring: 8 B for every rank.
    assert made.size("ring", "ll", call(16 * 512 * 8 * 8)) == (16, 512)
    assert made.size("ring", "ll", call(16 * 512 * 8 * 8 - 1)) == (15, 512)
    # Trees have all threads, and NVLS all channels.
    assert made.size("tree", "simple", call(1)) == made.size("pat", "simple", call(1)) == (1, 640)
    assert made.size("nvls", "simple", call(1)) == made.size("nvls_tree", "simple", call(1, 32, 4)) == (16, 640)


def test_processors_of_amd_are_slower_between_nodes() -> None:
    us = 6.6 + 28 * 2.0 + 2 * 2.7 + (1 << 10) / (1000 * 22.5 * 16 / 30)
    assert model(processor="amd").time_us("ring", "ll", call(1 << 10, 16, 2)) == pytest.approx(us, rel=1e-12)


def test_nccl_s_own_algorithms_are_taken_before_what_stands_for_them() -> None:
    own = ("nccl_ring_allreduce", "double_binary_tree_allreduce")
    others = ("bidirectional_ring_allreduce", "ring_allreduce", "tree_allreduce")
    for size in (1 << 8, 1 << 28):
        table = CostTable((*others, *own), [UNKNOWN] * 5)
        chosen = model().get_coll_info(call(size), table)
        assert chosen is not None and chosen.name in own
        assert table.us[:3] == [UNKNOWN] * 3 and max(table.us[3:]) < UNKNOWN
        # A ring that cannot run is no candidate.
        table = CostTable((*others, *own), [UNKNOWN] * 5)
        table.mask(own[0], "refused")
        model().get_coll_info(call(size), table)
        assert table.us[0] == table.us[1] < UNKNOWN == table.us[2]
        # Of one's own list, nothing else stands for anything.
        table = CostTable(others, [UNKNOWN] * 3)
        assert model(algorithms={own[0]: "ring"}).get_coll_info(call(size), table) is None


def test_what_nccl_does_not_do_has_no_time() -> None:
    made = model()
    for protocol in PROTOCOLS:
        assert made.time_us("tree", protocol, call(1024, collective="all_gather")) == UNKNOWN
        assert made.time_us("ring", protocol, call(1024, ranks=1)) == UNKNOWN
    assert made.time_us("nvls", "ll", call(1024)) == UNKNOWN
    assert made.time_us("nvls_tree", "simple", call(1024)) == UNKNOWN
    assert made.time_us("nvls_tree", "simple", call(1024, 32, 4, "all_gather")) == UNKNOWN
    assert made.time_us("pat", "simple", call(1024, 16, 2, "all_gather")) == UNKNOWN
    for name in ("collnet_direct", "collnet_chain"):
        assert made.time_us(name, "simple", call(1024)) == UNKNOWN
        assert made.time_us(name, "ll", call(1024, 32, 4)) == UNKNOWN
        assert made.time_us(name, "simple", call(1024, 32, 4, "all_gather")) == UNKNOWN
    assert made.time_us("pat", "simple", call(1024, 16, 16)) == UNKNOWN
    assert model(generation="ampere").time_us("nvls", "simple", call(1024)) == UNKNOWN


def test_the_protocol_goes_from_ll_over_ll128_to_simple() -> None:
    table = CostTable(("ring_allreduce", "swing"), [UNKNOWN, UNKNOWN])
    order = [model().get_coll_info(call(1 << power), table.copy()) for power in range(3, 31)]
    protocols = [chosen.protocol for chosen in order if chosen is not None]
    assert list(dict.fromkeys(protocols)) == list(PROTOCOLS) and len(protocols) == len(order)
    assert model().get_coll_info(call(8), CostTable(("swing",), [UNKNOWN])) is None


def test_constants_of_ones_own_file(tmp_path: Path) -> None:
    text = packaged.NCCL_MODEL.read_text(encoding="utf-8")
    constants = yaml.safe_load(text)
    constants |= {"bus_gbs": BUS, "base_us": {"tree": {"simple": 0.0}, "ring": {"simple": 100.0}}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(constants), encoding="utf-8")
    chosen = NcclModel(path).get_coll_info(call(64), CostTable(("ring_allreduce", "tree_allreduce"), [UNKNOWN] * 2))
    assert chosen is not None and chosen.name == "tree_allreduce"
    assert NcclModel(path).fingerprint != model().fingerprint
    path.write_text("base_us: {ring: {simple: fast}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="AHBM-C181 the constants of NCCL's model do not fit"):
        NcclModel(path)


@pytest.mark.parametrize(("size", "percent"), [(1 << 10, 73), (1 << 17, 70), (1 << 20, 35), (1 << 23, 0)])
def test_what_the_model_loses_where_a_switch_reduces(size: int, percent: int) -> None:
    """The figures of docs/selectors.md."""
    algorithms = {"nccl_ring_allreduce": "ring", "double_binary_tree_allreduce": "tree", "nvls_allreduce": "nvls"}
    machine = {
        "system.sips.switch.reduces": True,
        "system.sips.link.bandwidth_gbs": 360,
        "launch.overhead_ns": 8000,
    }

    def run(algorithm: str | None = None) -> ahbm.Report:
        selector = None if algorithm else NcclModel({"algorithms": algorithms})
        return ahbm.run(
            "all_reduce", algorithm, "npu_switch_8", selector=selector, size=size, overrides=machine, data=False
        )

    chosen, best = run(), min((run(name) for name in algorithms), key=lambda report: report.latency_ns)
    assert round(100 * (chosen.latency_ns / best.latency_ns - 1)) == percent
    assert best.algorithm == "nvls_allreduce"
    assert chosen.algorithm == ("nvls_allreduce" if size > 1 << 20 else "nccl_ring_allreduce")
