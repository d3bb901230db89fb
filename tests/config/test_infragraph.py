"""InfraGraph documents, and topologies that its package translates, as machines, and machines as documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ahbm
from ahbm.config.graph_network import Lacking, network
from ahbm.config.infragraph import graph_of
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, ConfigError, TopologyError

package = pytest.importorskip("infragraph")
from infragraph.blueprints.devices.amd.mi300x import MI300X  # noqa: E402
from infragraph.blueprints.devices.generic.generic_switch import Switch  # noqa: E402
from infragraph.blueprints.devices.generic.server import Server  # noqa: E402
from infragraph.blueprints.devices.ironwood_rack import IronwoodRack  # noqa: E402
from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX  # noqa: E402
from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric  # noqa: E402
from infragraph.blueprints.fabrics.single_tier_fabric import SingleTierFabric  # noqa: E402

ALL = Lacking(450.0, 300.0, 100.0, 50.0, 2000.0, 500.0)
BASE = """\
base: npu_switch_8
system: {sips: {topology: nodes, link: {latency_ns: 300, bandwidth_gbs: 400}, nodes: {nic_gbs: 50}}}
"""


def written(folder: Path, what: Any, name: str = "graph.json") -> Path:
    path = folder / name
    path.write_text(what.serialize(encoding="json" if name.endswith("json") else "yaml"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("device", "xpus", "relays"),
    [
        (lambda: NvidiaDGX("dgx1"), 8, 0),
        (lambda: NvidiaDGX("dgx_a100"), 8, 1),
        (lambda: NvidiaDGX("dgx_h100"), 8, 1),
        (lambda: NvidiaDGX("dgx_gb200"), 4, 1),
        (MI300X, 8, 0),
        (IronwoodRack, 64, 0),
        (lambda: Server(2), 4, 1),
    ],
)
def test_blueprints_of_devices_are_read(tmp_path: Path, device: Any, xpus: int, relays: int) -> None:
    path = written(tmp_path, device(), "device.yaml")
    found = network(graph_of(path.read_text(encoding="utf-8"), path), ALL)
    assert (found.count, len(found.relays), found.missing) == (xpus, relays, [])
    machine = load_machine(path, {"base": "npu_switch_8"})
    assert machine.sips == xpus
    assert machine.assumed[-1] == "memory, engines and protocols are those of npu_switch_8"
    report = ahbm.run(
        "all_reduce", "ring_allreduce", str(path), bytes_per_rank="4K", overrides={"base": "npu_switch_8"}
    )
    assert report.right
    assert any("assumed of the machine" in note for note in report.notes)


def test_what_a_graph_states_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, IronwoodRack(), "device.yaml")
    found = network(graph_of(path.read_text(encoding="utf-8"), path), ALL)
    assert {edge["bandwidth_gbs"] for edge in found.edges} == {1400 / 8}
    assert len(found.edges) == 64 * 3


def test_fabrics_of_hosts_are_read(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")
    overrides = {"base": str(tmp_path / "base.yaml")}
    single = load_machine(written(tmp_path, SingleTierFabric(NvidiaDGX("dgx_a100"), 4), "single.json"), overrides)
    assert (single.sips, single.node_size) == (32, 8)
    path = written(tmp_path, ClosFatTreeFabric(Switch(16), NvidiaDGX("dgx_h100"), 2, []), "clos.json")
    clos = load_machine(path, overrides)
    assert (clos.sips, clos.node_size) == (128, 8)
    names = set(clos.links_between_sips())
    assert {"sip0->tier_0.0", "tier_0.0->tier_1.7", "sip0->dgx_h100.0.nvsws"} <= names
    assert ahbm.run("all_reduce", "ring_allreduce", str(path), bytes_per_rank="64K", overrides=overrides).right


def test_what_nothing_says_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, SingleTierFabric(NvidiaDGX("dgx_a100"), 2))
    with pytest.raises(TopologyError) as none:
        load_machine(path)
    assert none.value.findings[0].code == "AHBM-T106" and "--set base=" in f"{none.value}"
    with pytest.raises(TopologyError) as lacking:
        load_machine(path, {"base": "npu_switch_8"})
    assert lacking.value.findings[0].code == "AHBM-T106"
    assert "system.sips.nodes.nic_latency_ns" in f"{lacking.value}"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"instances": [{"name": "h", "device": "none", "count": 1}]}, "AHBM-T104"),
        ({"devices": [{"name": "d", "components": [{"name": "xpu", "count": 2**31, "choice": "xpu"}]}]}, "AHBM-T105"),
        ({"devices": [{"name": "d", "components": [{"name": "d", "count": 2, "choice": "device"}]}]}, "AHBM-T104"),
        ({"devices": [{"name": "d", "components": [{"name": "cpu", "count": 1, "choice": "cpu"}]}]}, "AHBM-T104"),
        ({"edges": [{"ep1": {"instance": "q[0]", "component": "xpu"}, "ep2": {}, "scheme": "ring"}]}, "AHBM-T104"),
        ({"devices": 3}, "AHBM-T104"),
    ],
)
def test_bad_documents_are_refused(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    own = {
        "name": "d",
        "components": [{"name": "xpu", "count": 2, "choice": "xpu", "xpu": {}}],
        "links": [],
        "edges": [],
    }
    document: dict[str, Any] = {"name": "x", "devices": [own], "instances": [{"name": "h", "device": "d", "count": 1}]}
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**document, **change}), encoding="utf-8")
    with pytest.raises(TopologyError) as refused:
        load_machine(path, {"base": "npu_switch_8"})
    assert refused.value.findings[0].code == code


def test_many_ends_are_counted_before_they_are_made(tmp_path: Path) -> None:
    part = {"name": "xpu", "count": 5000, "choice": "xpu", "xpu": {}}
    every = {"ep1": {"component": "xpu"}, "ep2": {"component": "xpu[:]"}, "scheme": "many2many", "link": "l"}
    device = {"name": "d", "components": [part], "links": [{"name": "l"}], "edges": [every]}
    document = {"name": "x", "devices": [device], "instances": [{"name": "h", "device": "d", "count": 1}]}
    path = tmp_path / "many.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(TopologyError) as refused:
        load_machine(path, {"base": "npu_switch_8"})
    assert refused.value.findings[0].code == "AHBM-T105"


@pytest.mark.parametrize(
    "overrides",
    [
        {"system.sips.topology": "switch", "system.sips.switch.latency_ns": 120},
        {"system.sips.topology": "ring_1d"},
        {"system.sips.topology": "torus_2d", "system.sips.count": 16},
        {
            "system.sips.topology": "nodes",
            "system.sips.count": 32,
            "system.sips.link.latency_ns": 300,
            "system.sips.nodes.size": 4,
            "system.sips.nodes.switch_ns": 100,
            "system.sips.nodes.nic_latency_ns": 700,
            "system.sips.nodes.spine_ns": 40,
            "system.sips.nodes.fabric.nodes_per_leaf": 2,
        },
    ],
)
def test_what_is_written_is_read_as_the_same_machine(tmp_path: Path, overrides: dict[str, object]) -> None:
    from ahbm.config.graph_written import text_of_graph

    machine = load_machine("npu_switch_8", overrides)
    for ending in ("json", "yaml"):
        path = tmp_path / f"graph.{ending}"
        path.write_text(text_of_graph(machine, "mine", ending == "json"), encoding="utf-8")
        again = load_machine(path, {"base": "npu_switch_8"})
        assert again.sips == machine.sips
        ends = [sorted((a, b, gbs, ps) for a, b, _, _, gbs, ps in found.sip_edges()) for found in (machine, again)]
        assert ends[0] == ends[1] or machine.topology == "switch"
        for algorithm in ("ring_allreduce", "all_pairs_allreduce"):
            reports = [
                ahbm.run("all_reduce", algorithm, on, bytes_per_rank="16K", overrides=given)
                for on, given in (("npu_switch_8", overrides), (str(path), {"base": "npu_switch_8"}))
            ]
            if "torus_2d" not in overrides.values() and "ring_1d" not in overrides.values():
                assert reports[0].timeline_hash == reports[1].timeline_hash


LSTOPO = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0">
  <object type="Package" os_index="0">
   <info name="CPUVendor" value="GenuineIntel"/>
   <info name="CPUModel" value="Intel(R) Xeon(R) Platinum 8480C"/>
   <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-07]">
{devices}
   </object>
  </object>
 </object>
</topology>
"""
PCI = """\
    <object type="Bridge" bridge_type="1-1" depth="1" bridge_pci="0000:[0{at}-0{at}]" pci_type="0604 [8086:352a] 04">
     <object type="PCIDev" pci_busid="0000:0{at}:00.0" pci_type="{kind}" pci_link_speed="31.507692">
      <info name="PCIDevice" value="{name}"/>
     </object>
    </object>"""


def test_topologies_of_lstopo_come_in_by_the_translator_of_the_package(tmp_path: Path) -> None:
    gpu = {"kind": "0302 [10de:2330] [10de:16c1] a1", "name": "GH100 [H100 SXM5 80GB]"}
    cards = [PCI.format(at=at, **gpu) for at in range(1, 5)]
    cards.append(PCI.format(at=5, kind="0207 [15b3:1021] [15b3:0041] 00", name="MT2910 Family [ConnectX-7]"))
    path = tmp_path / "host.xml"
    path.write_text(LSTOPO.format(devices="\n".join(cards)), encoding="utf-8")
    with pytest.raises(TopologyError, match=r"(?s)AHBM-T106 .*a topology of lstopo in XML, .*base="):
        load_machine(path)
    machine = load_machine(path, {"base": "npu_switch_8"})
    assert machine.sips == 4
    assert ahbm.run("all_reduce", "ring_allreduce", machine, bytes_per_rank=4096).right
    path.write_text(LSTOPO.format(devices=cards[-1]).replace('hwloc2.dtd">', 'a" [<!ENTITY b "c">]>'), encoding="utf-8")
    with pytest.raises(TopologyError, match=r"AHBM-T104.*\n?.*entities"):
        load_machine(path, {"base": "npu_switch_8"})
    path.write_text(LSTOPO.format(devices=cards[-1]), encoding="utf-8")
    with pytest.raises(TopologyError) as refused:
        load_machine(path, {"base": "npu_switch_8"})
    assert refused.value.findings[0].code in ("AHBM-T104", "AHBM-T106")


def test_a_base_may_be_given_to_any_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("system: {sips: {count: 4}}\n", encoding="utf-8")
    assert load_machine(path, {"base": "npu_switch_8"}).topology == "switch"
    path.write_text("base: npu_ring_8\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        load_machine(path, {"base": "npu_switch_8"})


def test_a_graph_written_as_a_file_has_what_was_changed(tmp_path: Path) -> None:
    from ahbm.config.topology import text_for

    path = written(tmp_path, Server(2), "device.yaml")
    changed = {"base": "npu_switch_8", "pe.dispatch_ns": 3, "system.sips.edges.0.bandwidth_gbs": 7}
    machine = load_machine(path, changed)
    own = tmp_path / "own.yaml"
    own.write_text(text_for(machine) or "", encoding="utf-8")
    assert load_machine(own).hash == machine.hash
    assert load_machine(own).assumed == machine.assumed


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1 << 32), value=st.sampled_from([None, -1, 0, 3, 1 << 40, "", "x[0:9]", "h[0]", [], {}, [[]]])
)
def test_strange_documents_are_refused_or_read(tmp_path: Path, seed: int, value: object) -> None:
    document = json.loads(SingleTierFabric(Server(1), 2).serialize(encoding="json"))
    at, key = None, None
    here: Any = document
    while isinstance(here, (dict, list)) and here:
        keys = sorted(here) if isinstance(here, dict) else list(range(len(here)))
        at, key = here, keys[seed % len(keys)]
        seed //= 7
        here = here[key]
    assert at is not None
    at[key] = value
    path = tmp_path / "strange.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        load_machine(path, {"base": "npu_switch_8"})
    except AhbmError as refused:
        assert refused.findings
