"""Machines as files of other tools describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ahbm
from ahbm.base import foreign
from ahbm.config.others import read
from ahbm.config.topology import assumed, load_machine
from ahbm.errors import TopologyError
from ahbm.job.astra_machine import machine as of_dimensions
from support.commands import run

NODE = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\n" + "".join(
    f"GPU{at}\t" + "\t".join(" X " if at == other else "NV18" for other in range(4)) + "\tPXB\t0-63\n"
    for at in range(4)
)
CUBE = """        GPU0  GPU1  GPU2  GPU3  CPU Affinity
GPU0     X    NV2   NV1   SYS   0-19
GPU1    NV2    X    SYS   NV1   0-19
GPU2    NV1   SYS    X    PIX   20-39
GPU3    SYS   NV1   PIX    X    20-39
"""
RINGS = """<graphs version="1">
  <graph id="0" pattern="4" nchannels="2" speedintra="12" speedinter="6" typeintra="SYS" typeinter="PIX">
    <channel>{net}<gpu dev="0"/><gpu dev="1"/><gpu dev="2"/><gpu dev="3"/>{net}</channel>
    <channel>{net}<gpu dev="0"/><gpu dev="3"/><gpu dev="2"/><gpu dev="1"/>{net}</channel>
  </graph>{more}
</graphs>
"""
NVLS = '<graph id="3" pattern="5" nchannels="1" speedintra="20"><channel><gpu dev="0"/></channel></graph>'
CLUSTER = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><cluster id="c" radical="0-2,8" bw="125MBps" lat="50us"{more}/></platform>
"""
HOSTS = """<platform version="4.1"><zone id="z" routing="Full">
  <host id="a" speed="1Gf"/><host id="b" speed="1Gf"/><host id="c" speed="1Gf"/>
  <link id="la" bandwidth="8Gbps" latency="1us"/><link id="lb" bandwidth="1GiBps" latency="2us"/>
  <link id="lc" bandwidth="1GBps" latency="3us"/>
  <route src="a" dst="b"><link_ctn id="la"/><link_ctn id="lb"/></route>
  <route src="a" dst="c"><link_ctn id="la"/><link_ctn id="lc"/></route>
  <route src="b" dst="c"><link_ctn id="lb"/><link_ctn id="lc"/></route>
</zone></platform>
"""
TACOS = (
    "NPUs Count,3\nLinks Count,3\nChunks Count,3\nChunk Size,1024,B\n"
    "SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks\n0,1,500,50,0,2\n1,2,500,50,1,0\n2,0,400,50,2,1\n"
)
TACCL = {"name": "mine_1MB", "gpus_per_node": 8, "nics_per_node": 8, "alpha": 0.5, "remote_alpha": 2.0}
TACCL |= {"remote_beta": 100, "node_betas_list": [8]}


def machine(folder: Path, text: str, name: str = "machine.txt", **keys: object) -> ahbm.Machine:
    (folder / name).write_text(text)
    return load_machine(folder / name, keys)


def links(of: ahbm.Machine) -> str:
    return "\n".join(of.links_between_sips())


def test_gpus_behind_a_switch(tmp_path: Path) -> None:
    """A GPU has no 18 links to each of three others: the matrix is that of a switch. Links of its own are no switch."""
    found = machine(tmp_path, NODE)
    assert (found.topology, found.sips) == ("switch", 4) and "450" in found.describe()
    assert "switch" in " ".join(assumed(found)) and "interfaces" in " ".join(assumed(found))
    own = machine(tmp_path, NODE.replace("NV18", "NV6"))
    assert own.topology == "fully_connected" and "150" in own.describe()
    assert "900" in machine(tmp_path, "NVIDIA B200\n" + NODE).describe()


def test_links_of_other_widths_and_bridges(tmp_path: Path) -> None:
    found = machine(tmp_path, CUBE)
    assert (found.topology, found.sips) == ("custom", 4)
    # Four pairs by NVLink; one bridge under two GPUs, one above all.
    assert found.describe().count("custom") == 1 and len(found.links_between_sips()) >= 8
    assert ahbm.run("all_reduce", topology=found, bytes_per_rank=1024).wrong == 0
    assert "machine" in repr(found).lower()


def test_several_nodes_need_what_the_matrix_does_not_say(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="AHBM-T106") as caught:
        machine(tmp_path, NODE, **{"system.sips.count": 8})
    assert "nic_gbs" in str(caught.value)
    found = machine(tmp_path, NODE, **{"system.sips.count": 8, "system.sips.nodes.nic_gbs": 40})
    assert (found.topology, found.sips, found.node_size) == ("nodes", 8, 4)
    with pytest.raises(TopologyError, match="no whole number of such nodes"):
        machine(tmp_path, NODE, **{"system.sips.count": 6})


def test_rings_of_nccl(tmp_path: Path) -> None:
    found = machine(tmp_path, RINGS.format(net="", more=""))
    assert (found.topology, found.sips) == ("custom", 4) and len(found.links_between_sips()) == 8
    assert "latency" in " ".join(found.assumed)
    behind = machine(tmp_path, RINGS.format(net="", more=NVLS))
    assert behind.topology == "switch" and "24" in behind.describe()
    nodes = machine(tmp_path, RINGS.format(net='<net dev="0"/>', more=""), **{"system.sips.count": 8})
    assert nodes.topology == "nodes" and "channels of 6 GB/s" in " ".join(nodes.assumed)
    one = machine(tmp_path, RINGS.format(net='<net dev="0"/>', more=""))
    assert one.sips == 4 and "one node" in " ".join(one.assumed)
    with pytest.raises(TopologyError, match="do not leave the node"):
        machine(tmp_path, RINGS.format(net="", more=""), **{"system.sips.count": 8})


def test_platforms_of_simgrid(tmp_path: Path) -> None:
    cluster = machine(tmp_path, CLUSTER.format(more=""))
    assert (cluster.topology, cluster.sips) == ("switch", 4) and "0.125" in cluster.describe()
    backbone = machine(tmp_path, CLUSTER.format(more=' bb_bw="1GBps" bb_lat="5us"'))
    assert "5000 ns" in " ".join(backbone.assumed)
    torus = machine(tmp_path, CLUSTER.format(more=' topology="TORUS" topo_parameters="2,2"'))
    assert torus.topology == "torus_2d"
    hosts = machine(tmp_path, HOSTS)
    assert (hosts.topology, hosts.sips) == ("custom", 3)
    assert ahbm.run("all_reduce", topology=hosts, bytes_per_rank=1200).wrong == 0
    for more, what in (
        (' topology="VIVALDI"', "VIVALDI"),
        (' topology="FAT_TREE"', "topo_parameters"),
        (' topology="FAT_TREE" topo_parameters="2;2,3;1,2;1,1"', "6 hosts"),
        (' topology="FAT_TREE" topo_parameters="2;2,2;2,2;1,1"', "several links"),
        (' topology="FAT_TREE" topo_parameters="4;2,2;1,2;1,1"', "a fat tree of 4"),
        (' topology="DRAGONFLY" topo_parameters="4,1;1,1;1,1;1"', "4 groups"),
        (' topology="DRAGONFLY" topo_parameters="4"', "dragonfly"),
        (' bb_lat="x"', "no time"),
    ):
        with pytest.raises(TopologyError, match="AHBM-T104") as caught:
            machine(tmp_path, CLUSTER.format(more=more))
        assert what in str(caught.value)


def tree(levels: str, hosts: int, kind: str = "FAT_TREE") -> str:
    text = CLUSTER.format(more=f' topology="{kind}" topo_parameters="{levels}"')
    return text.replace("0-2,8", f"0-{hosts - 1}")


def latency_ns(on: ahbm.Machine, end: int) -> float:
    """A message of a byte from SIP 0 to another, over links of 50 us."""
    return ahbm.run("send_recv", topology=on, bytes_per_rank=2, src=0, dst=end, data=False).latency_ns


def test_trees_and_dragonflies_of_simgrid(tmp_path: Path) -> None:
    """Every link takes 50 us: hosts of a leaf are two links apart, those of others four and six."""
    flat = machine(tmp_path, tree("1;6;1;1", 6))
    assert (flat.topology, flat.sips, flat.has_fabric) == ("nodes", 6, True)
    two = machine(tmp_path, tree("2;4,4;1,2;1,2", 16))
    assert [round(latency_ns(two, end) / 50_000) for end in (3, 4, 15)] == [2, 4, 4]
    # 4 leaves, of which each has two cables to either spine, both ways.
    assert len([name for name in links(two).splitlines() if "leaf" in name and "spine" in name]) == 2 * 4 * 2 * 2
    three = machine(tmp_path, tree("3;2,2,2;1,2,3;1,1,1", 8))
    assert [round(latency_ns(three, end) / 50_000) for end in (1, 2, 4)] == [2, 4, 6]
    assert "core5" in links(three) and "core6" not in links(three)
    fly = machine(tmp_path, tree("2,4;2,2;2,1;2", 16, "DRAGONFLY"))
    assert (fly.topology, fly.sips) == ("custom", 16)
    # The other host of the router, one of its chassis, one of the other chassis, and two of the other group.
    assert [round(latency_ns(fly, end) / 50_000) for end in (1, 2, 4, 8, 14)] == [2, 3, 3, 4, 6]
    for found in (flat, two, three, fly):
        assert ahbm.run("all_reduce", "ring_allreduce", topology=found, bytes_per_rank=1024).wrong == 0


def test_networks_of_astra_sim_are_those_of_its_command(tmp_path: Path) -> None:
    """One dimension is a network of its own; several are edges, as `ahbm astra` has them."""
    ring = machine(tmp_path, "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n", "net.yml")
    assert ring.topology == "ring_1d" and "53.687" in ring.describe()
    text = "topology: [Ring, FullyConnected]\nnpus_count: [4, 2]\nbandwidth: [50.0, 25.0]\nlatency: [500.0, 100.0]\n"
    both = machine(tmp_path, text, "net.yml")
    assert (both.topology, both.sips) == ("custom", 8) and len(both.links_between_sips()) == 24
    switched = machine(tmp_path, text.replace("FullyConnected", "Switch"), "net.yml")
    of_its_command = of_dimensions([("Ring", 4, 50.0, 500.0), ("Switch", 2, 25.0, 100.0)], "net.yml")
    assert switched.links_between_sips() == of_its_command.links_between_sips()
    with pytest.raises(TopologyError, match="AHBM-T104"):
        machine(tmp_path, text.replace("[50.0, 25.0]", "[50.0]"), "net.yml")


def test_topologies_of_synthesizers(tmp_path: Path) -> None:
    switch = machine(tmp_path, json.dumps(TACCL), "taccl.json")
    assert switch.topology == "switch" and f"{2**20 / 8 / 1000:.6g}"[:5] in switch.describe()
    nodes = machine(tmp_path, json.dumps(TACCL), "taccl.json", **{"system.sips.count": 16})
    assert (nodes.topology, nodes.node_size) == ("nodes", 8)
    mesh = machine(tmp_path, json.dumps(TACCL | {"node_betas_list": [23, 46]}), "taccl.json")
    assert (mesh.sips, len(mesh.links_between_sips())) == (8, 32)
    pair = {"gpus_per_node": 2, "alpha": 1, "links": [[0, 1], [0, 0]], "betas": [[0, 10], [10, 0]], "invbws": []}
    one_way = machine(tmp_path, json.dumps({"name": "x", **pair, "links": [[0, 1], [2, 0]]}), "taccl.json")
    assert len(one_way.links_between_sips()) == 2
    teccl = machine(tmp_path, json.dumps({"TopologyParams": {"name": "NDv2", "chassis": 2}}), "teccl.json")
    assert (teccl.sips, len(teccl.links_between_sips())) == (16, 66)
    with pytest.raises(TopologyError, match="AHBM-T104"):
        machine(tmp_path, json.dumps({"TopologyParams": {"name": "Mine"}}), "teccl.json")
    tacos = machine(tmp_path, TACOS, "ring.csv")
    assert (tacos.sips, len(tacos.links_between_sips())) == (3, 3)


def test_another_base_has_everything_else(tmp_path: Path) -> None:
    """What was calibrated for another network does not hold, and a note says so."""
    plain, real = machine(tmp_path, NODE), machine(tmp_path, NODE, base="dgx_h100")
    assert plain.launch_ps == 0 < real.launch_ps and real.bands is None
    assert any("calibration of dgx_h100 does not hold" in note for note in real.assumed)
    # A report names it so that it can be read again.
    again = load_machine(real.origin)
    assert again.hash == real.hash
    for base in ("nowhere", str(tmp_path / "machine.txt")):
        with pytest.raises(TopologyError):
            machine(tmp_path, NODE, base=base)


def test_what_was_assumed_is_told_with_every_run(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(NODE)
    code, out, err = run("ahbm", ["run", "all_reduce", "-t", "topo.txt", "--size", "1K"], tmp_path)
    assert code == 0 and "note: assumed of the machine: the matrix of nvidia-smi topo -m" in out, err
    code, out, err = run("ahbm", ["bench", "all_reduce", "-t", "topo.txt", "-b", "1K", "-e", "1K"], tmp_path)
    assert code == 0 and "assumed of the machine: the matrix" in out, err


def test_a_machine_of_its_own_is_the_same(tmp_path: Path) -> None:
    """-o writes a topology.yaml that needs the other tool's file no more."""
    (tmp_path / "topo.txt").write_text(NODE)
    arguments = ["topology", "topo.txt", "--set", "system.sips.link.latency_ns=300", "-o", "mine.yaml"]
    code, out, err = run("ahbm", arguments, tmp_path)
    assert code == 0, out + err
    theirs = load_machine(tmp_path / "topo.txt", {"system.sips.link.latency_ns": 300})
    (tmp_path / "topo.txt").unlink()
    mine = load_machine(tmp_path / "mine.yaml")
    assert mine.hash == theirs.hash and mine.assumed == theirs.assumed


def test_broken_files_are_refused_by_code(tmp_path: Path) -> None:
    for text in (
        NODE.replace("\nGPU3", "\nGPX3"),
        NODE.replace("NV18\t X ", "NV17\t X "),
        RINGS.format(net="", more="")[:200],
        RINGS.format(net="", more="").replace('pattern="4"', 'pattern="1"'),
        RINGS.format(net="", more="").replace('speedintra="12"', 'speedintra="-1"'),
        CLUSTER.format(more="").replace("0-2,8", "0-99999999"),
        HOSTS.replace('src="a" dst="b"', 'src="a" dst="x"'),
        '<!DOCTYPE platform [<!ENTITY a "aa">]><platform>&a;</platform>',
        TACOS.replace("0,1,500", "0,7,500"),
        json.dumps(TACCL | {"alpha": -1}),
        json.dumps(TACCL | {"gpus_per_node": True}),
        "topology: [Ring]\nnpus_count: [999999]\nbandwidth: [1]\nlatency: [1]\n",
    ):
        with pytest.raises(TopologyError, match=r"AHBM-T10[45]"):
            machine(tmp_path, text)


@given(st.sampled_from([NODE, CUBE, RINGS, CLUSTER, HOSTS, TACOS, json.dumps(TACCL)]), st.data())
def test_changed_bytes_are_a_machine_or_a_typed_error(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    new = data.draw(st.text('0123456789<>/"{}[],:.eNVXGPU \n-', max_size=6))
    changed = text[:at] + new + text[at + data.draw(st.integers(0, 6)) :]
    found = foreign.of_text(changed)
    if found in foreign.OTHERS and found is not None:
        try:
            read(changed, "x", found, {})
        except TopologyError as error:
            assert error.code in ("AHBM-T104", "AHBM-T106")
        except ahbm.AhbmError as error:  # YAML that is none
            assert found == foreign.ASTRA_NETWORK, error


def test_hosts_behind_routers(tmp_path: Path) -> None:
    """Of routing Floyd and Dijkstra, routes are single links, and ways the shortest ones."""
    routes = "".join(
        f'<link id="l{at}" bandwidth="{at + 1}GBps" latency="1us"/>'
        f'<route src="h{at}" dst="r{at % 2}"><link_ctn id="l{at}"/></route>'
        for at in range(4)
    )
    text = '<platform version="4.1"><zone id="z" routing="Floyd">' + "".join(f'<host id="h{at}"/>' for at in range(4))
    text += '<router id="r0"/><router id="r1"/><link id="up" bandwidth="9GBps" latency="2us"/>' + routes
    text += '<route src="r0" dst="r1"><link_ctn id="up"/></route></zone></platform>'
    found = machine(tmp_path, text)
    assert (found.sips, found.topology) == (4, "custom")
    report = ahbm.run("all_reduce", "ring_allreduce", found, bytes_per_rank=4096)
    assert report.right and report.latency_ns > 2 * 3 * (1000 + 2000 + 1000)


def test_switches_of_one_of_several_dimensions(tmp_path: Path) -> None:
    """Ring of 2, switches of 3, ring of 2: a switch joins the NPUs that differ in the second dimension alone."""
    text = "topology: [Ring, Switch, Ring]\nnpus_count: [2, 3, 2]\nbandwidth: [50, 25, 10]\nlatency: [100, 500, 900]\n"
    found = machine(tmp_path, text, "net.yml")
    assert (found.sips, found.topology) == (12, "custom")
    described = read(text, "net.yml", foreign.ASTRA_NETWORK, {})
    assert described.sips["relays"] == 4
    joined: dict[int, list[int]] = {}
    for link in described.sips["edges"]:
        if link["to"] >= 12:
            joined.setdefault(link["to"] - 12, []).append(link["from"])
            assert link["latency_ns"] == 500
    of_switches = {at: sorted(npus) for at, npus in joined.items()}
    assert of_switches == {0: [0, 2, 4], 1: [1, 3, 5], 2: [6, 8, 10], 3: [7, 9, 11]}
    assert ahbm.run("all_reduce", "ring_allreduce", found, bytes_per_rank=4096 * 3).right
