"""Messages between nodes of calibrated machines: one of a single GPU has the network interfaces that are its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm.config.topology import load_machine, names

NIC_GBS = {
    "a3mega_2_nodes": 25.0,
    "b200_2_nodes": 50.0,
    "dgx_a100_2_nodes": 25.0,
    "gb200_nvl72": 50.0,
    "h100_2_nodes": 50.0,
    "mi300x_2_nodes": 50.0,
    "p4de_2_nodes": 6.25,
    "p5_2_nodes": 50.0,
    "polaris": 12.5,
    "polaris_8_nodes": 12.5,
    "polaris_n_nodes": 12.5,
}
"""Of each packaged machine of several nodes, what its maker or operator states for one GPU, each way."""
GIB = 1 << 30


def test_the_table_names_every_packaged_machine_of_nodes() -> None:
    assert [name for name in names() if load_machine(name).topology == "nodes"] == sorted(NIC_GBS)


@pytest.mark.parametrize(("name", "gbs"), NIC_GBS.items())
@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 20, GIB])
def test_a_message_has_the_interface_of_its_sender(name: str, gbs: float, nbytes: int) -> None:
    size = load_machine(name).node_size

    def us(dst: int, **overrides: object) -> float:
        terms = {"topology": name, "bytes_per_rank": nbytes, "data": False, "overrides": overrides}
        return ahbm.run("send_recv", src=0, dst=dst, **terms).latency_ns / 1000

    assert us(size) >= nbytes / (1000 * gbs)
    # It is the interface that it waits for, and not another one.
    if nbytes == GIB:
        assert us(size) <= 1.5 * nbytes / (1000 * gbs)
        wider = us(size, **{"system.sips.nodes.nic_gbs": 2 * gbs})
        assert us(size) / 2.1 < wider < us(size) / 1.5
        assert us(1) < us(size)


@pytest.mark.parametrize(("name", "gbs"), NIC_GBS.items())
def test_all_to_all_is_bounded_by_the_interfaces_of_each_gpu(name: str, gbs: float) -> None:
    machine = load_machine(name)
    ranks, size = 2 * machine.node_size, machine.node_size
    nbytes = 1 << 20
    across = nbytes * size  # what a rank sends to the other node, of chunks of nbytes
    report = ahbm.run(
        "all_to_all", topology=name, bytes_per_rank=nbytes, data=False, overrides={"system.sips.count": ranks}
    )
    assert report.latency_ns >= across / ranks / gbs


@pytest.mark.parametrize("name", ["h100_2_nodes", "p5_2_nodes", "dgx_a100_2_nodes", "b200_2_nodes"])
def test_a_group_has_the_interfaces_of_its_ranks(name: str, tmp_path: Path) -> None:
    """All-reduces of pairs of nodes: of one pair, a ring has one interface; all pairs together have all."""
    gbs, nbytes = NIC_GBS[name], 1 << 28

    def step(pairs: int) -> float:
        groups = {str(pair): [pair, pair + 8] for pair in range(pairs)}
        for rank in range(16):
            attr = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": nbytes}]
            attr.append({"name": "pg_name", "stringVal": str(rank % 8)})
            node = {"id": 0, "name": "grad", "type": "COMM_COLL_NODE", "attr": attr}
            if rank % 8 >= pairs:
                node = {"id": 0, "name": "n", "type": "COMP_NODE", "durationMicros": 1}
            lines = ({"version": "0.0.4"}, node)
            (tmp_path / f"dp.{rank}.json").write_text("\n".join(json.dumps(each) for each in lines), "utf-8")
        (tmp_path / "groups.json").write_text(json.dumps(groups), "utf-8")
        opened = ahbm.open(str(tmp_path / "dp.0.json"), topology=name, groups=str(tmp_path / "groups.json"))
        return float(opened.run().latency_ns)

    alone = step(1)
    assert alone >= nbytes / gbs
    assert step(8) == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize("name", ["h100_2_nodes", "p5_2_nodes", "dgx_a100_2_nodes", "b200_2_nodes"])
def test_a_pipeline_has_the_interfaces_of_its_stages(name: str, tmp_path: Path) -> None:
    """Every rank of a node hands on to its counterpart: as long as one of them alone."""
    gbs, nbytes = NIC_GBS[name], 1 << 26

    def step(pairs: int) -> float:
        for rank in range(16):
            facts = {"comm_size": nbytes, "comm_src": rank % 8, "comm_dst": rank % 8 + 8, "comm_tag": 1}
            kind = "COMM_SEND_NODE" if rank < 8 else "COMM_RECV_NODE"
            attr = [{"name": key, "int64Val": value} for key, value in facts.items()]
            node = {"id": 0, "name": "n", "type": kind, "attr": attr}
            if rank % 8 >= pairs:
                node = {"id": 0, "name": "n", "type": "COMP_NODE", "durationMicros": 1}
            lines = ({"version": "0.0.4"}, node)
            (tmp_path / f"pp.{rank}.json").write_text("\n".join(json.dumps(each) for each in lines), "utf-8")
        return float(ahbm.open(str(tmp_path / "pp.0.json"), topology=name, kind="job").run().latency_ns)

    alone = step(1)
    assert alone >= nbytes / gbs
    assert step(8) == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize("name", NIC_GBS)
def test_collectives_of_whole_nodes_are_striped(name: str) -> None:
    """What was fitted stays: the ring of all ranks has what the interfaces of a node carry together."""
    size, nbytes = load_machine(name).node_size, 1 << 28
    overrides = {"system.sips.count": 2 * size, "protocol": "ring" if name == "polaris_n_nodes" else "simple"}
    report = ahbm.run("all_reduce", "ring_allreduce", name, bytes_per_rank=nbytes, data=False, overrides=overrides)
    assert report.busbw_gbs > 2 * NIC_GBS[name]
