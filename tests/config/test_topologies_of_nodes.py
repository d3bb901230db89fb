"""NCCL's and RCCL's topologies in XML, and the matrices of rocm-smi: figures are those of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import ahbm
from ahbm.config.topology import load_machine
from ahbm.errors import TopologyError

SWITCH = ("0000:80:00.0", "0x068000")


def bus(at: int) -> str:
    return f"0000:{64 + at:02X}:00.0"


def gpu(at: int, links: list[tuple[str, int, str]], kind: str = "nvlink", more: str = 'sm="90"') -> str:
    inside = "".join(
        f'<{kind} target="{target.lower()}" count="{count}" tclass="{tclass}"/>' for target, count, tclass in links
    )
    return (
        f'<pci busid="{bus(at)}" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">'
        f'<gpu dev="{at}" {more} rank="{at}" gdr="1">{inside}</gpu></pci>'
    )


def system(gpus: list[str], nets: int = 0) -> str:
    """Half of the GPUs below the bridge of each of two processors, as `ncclTopoGetXmlFromSys` writes."""
    half = len(gpus) // 2
    net = '<nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>'
    halves = "".join(
        f'<cpu numaid="{at}" arch="x86_64"><pci busid="0000:0{at}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" '
        f'link_width="16">{"".join(part)}</pci></cpu>'
        for at, part in enumerate((gpus[:half], gpus[half:]))
    )
    return f'<system version="1">{halves}{net * nets}</system>'


def machine(folder: Path, text: str, **keys: object) -> ahbm.Machine:
    (folder / "node.xml").write_text(text)
    return load_machine(folder / "node.xml", {key.replace("__", "."): value for key, value in keys.items()})


def stated(found: ahbm.Machine, key: str) -> str:
    return dict(found.parameters)[key]


def test_gpus_behind_nvlinks_switches(tmp_path: Path) -> None:
    links = [(SWITCH[0], 10, SWITCH[1]), ("0000:81:00.0", 8, SWITCH[1])]
    text = system([gpu(at, links) for at in range(8)], nets=4)
    found = machine(tmp_path, text)
    assert (found.sips, found.topology) == (8, "switch")
    assert stated(found, "system.sips.link.bandwidth_gbs") == "450.0GB/s"
    assert any("interfaces (4) are left out" in note for note in found.assumed)
    several = machine(tmp_path, text, system__sips__count=16)
    assert (several.sips, several.topology) == (16, "nodes")
    assert stated(several, "system.sips.nodes.nic_gbs") == "25.0GB/s"  # four of 50 GB/s for eight GPUs
    blackwell = machine(tmp_path, text.replace('sm="90"', 'sm="100"'))
    assert stated(blackwell, "system.sips.link.bandwidth_gbs") == "900.0GB/s"
    assert ahbm.run("all_reduce", "ring_allreduce", found, bytes_per_rank=4096).right


def test_gpus_that_are_joined_to_each_other(tmp_path: Path) -> None:
    def mesh(kind: str, more: str) -> str:
        others = [[(bus(to), 4, "0x030200") for to in range(4) if to != at] for at in range(4)]
        return system([gpu(at, others[at], kind, more) for at in range(4)])

    found = machine(tmp_path, mesh("nvlink", 'sm="80"'))
    assert (found.topology, stated(found, "system.sips.link.bandwidth_gbs")) == ("fully_connected", "100.0GB/s")
    amd = machine(tmp_path, mesh("xgmi", 'sm="94" gcn="gfx942"'))
    assert stated(amd, "system.sips.link.bandwidth_gbs") == "256.0GB/s"
    assert any("a link of xGMI carries 64 GB/s" in note for note in amd.assumed)
    with pytest.raises(TopologyError, match="AHBM-T104 4 links lead from GPU 0 to GPU 1, and 3 back"):
        machine(tmp_path, mesh("nvlink", 'sm="80"').replace('count="4"', 'count="3"', 4).replace('"3"', '"4"', 1))


def test_the_tree_of_pcie_has_the_speeds_that_the_file_states(tmp_path: Path) -> None:
    """A GPU of 8 lanes of generation 4 has 12 GB/s, a bridge of 16 lanes of generation 5 has 48, processors 24."""
    found = machine(tmp_path, system([gpu(at, []) for at in range(4)]))
    assert (found.sips, found.topology) == (4, "custom")
    edges = sorted({stated(found, f"system.sips.edges.{at}.bandwidth_gbs") for at in range(7)})
    assert edges == ["12.0GB/s", "24.0GB/s", "48.0GB/s"]
    assert ahbm.run("all_reduce", "ring_allreduce", found, bytes_per_rank=4096).right
    pairs = {0: 1, 1: 0, 2: 3, 3: 2}
    bridged = system([gpu(at, [(bus(pairs[at]), 4, "0x030200")]) for at in range(4)])
    assert stated(machine(tmp_path, bridged), "system.sips.edges.0.bandwidth_gbs") == "100.0GB/s"


def test_a_file_without_gpus_says_which_one_has_them(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="AHBM-T104 0 GPUs") as caught:
        machine(tmp_path, system([]))
    assert "NCCL_TOPO_DUMP_FILE" in str(caught.value)
    with pytest.raises(TopologyError, match="two GPUs have one number"):
        machine(tmp_path, system([gpu(0, []), gpu(0, [])]))
    with pytest.raises(TopologyError, match="AHBM-T104"):
        machine(tmp_path, '<!DOCTYPE a [<!ENTITY b "c">]>' + system([gpu(at, []) for at in range(2)]))


def test_files_that_no_node_has_are_refused_at_once(tmp_path: Path) -> None:
    deep = "<pci>" * 20_000 + gpu(0, []) + gpu(1, []) + "</pci>" * 20_000
    for text in (deep, "".join(gpu(at, [(SWITCH[0], 1, SWITCH[1])]) for at in range(10_000))):
        with pytest.raises(TopologyError, match="AHBM-T104"):
            machine(tmp_path, f'<system version="1"><cpu>{text}</cpu></system>')


def matrix(title: str, cells: list[list[str]]) -> str:
    names = [f"GPU{at}" for at in range(len(cells))]
    rows = [f"{name}   " + "   ".join(row) for name, row in zip(names, cells, strict=True)]
    return f"======= {title} =======\n       " + "   ".join(names) + "\n" + "\n".join(rows) + "\n\n"


def rocm(count: int, ways: dict[tuple[int, int], str]) -> str:
    def cells(of: dict[str, str]) -> list[list[str]]:
        return [
            ["0" if a == b else of[ways.get((min(a, b), max(a, b)), "XGMI")] for b in range(count)]
            for a in range(count)
        ]

    text = "== ROCm System Management Interface ==\n"
    text += matrix("Hops between two GPUs", cells({"XGMI": "1", "PCIE": "2", "FAR": "2"}))
    return text + matrix("Link Type between two GPUs", cells({"XGMI": "XGMI", "PCIE": "PCIE", "FAR": "XGMI"}))


def test_the_matrices_of_rocm_smi(tmp_path: Path) -> None:
    found = machine(tmp_path, rocm(4, {}))
    assert (found.sips, found.topology) == (4, "fully_connected")
    assert stated(found, "system.sips.link.bandwidth_gbs") == "64.0GB/s"
    mixed = machine(tmp_path, rocm(4, {(0, 3): "FAR", (1, 2): "PCIE"}))
    assert (mixed.sips, mixed.topology) == (4, "custom")
    assert ahbm.run("all_reduce", "ring_allreduce", mixed, bytes_per_rank=4096).right
    with pytest.raises(TopologyError, match="is not whole"):
        machine(tmp_path, rocm(4, {}).rpartition("GPU3")[0])


def test_keys_of_a_network_of_astra_sim_that_are_not_read_are_named(tmp_path: Path) -> None:
    text = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\nnon_recursive_topo: [ 1 ]\n"
    assert any("not read: non_recursive_topo" in note for note in machine(tmp_path, text).assumed)
