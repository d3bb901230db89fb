"""`--collective_algorithm`: algorithm graphs for the calls of a job, by collective and number of ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm._core import read_plan
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.job.astra import AstraFiles, simulate
from ahbm.job.astra_machine import read_setup, replay
from ahbm.job.graphs import Graph, overrides_of
from ahbm.job.open import open_
from support.astra_files import write
from support.commands import run
from support.sized_graphs import Npu, ring
from support.sized_graphs import write as write_graph

WHOLE = 1 << 20


def job(folder: Path, ranks: int = 4) -> str:
    """A step with an all_reduce of 1 MiB."""
    npus = []
    for _ in range(ranks):
        npu = Npu()
        npu.add("COMM_COLL_NODE", "gradients", [npu.comp([], 5)], comm_type=0, comm_size=WHOLE)
        npus.append(npu)
    return write_graph(folder / "step", npus)


def ring_graph(folder: Path, ranks: int = 4, name: str = "round") -> str:
    return write_graph(folder / name, ring(ranks, adds=True, copies=True, size=WHOLE // ranks))


def test_calls_of_as_many_ranks_run_the_graph(tmp_path: Path) -> None:
    step, graph = job(tmp_path), ring_graph(tmp_path)
    on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    for text in (graph, f"all_reduce={graph}"):
        report = open_(step, collective_algorithm=(text,), **on).run()
        (call,) = report.calls
        assert call.algorithm == "round" and call.latency_ns == open_(graph, **on).run().latency_ns
    code, out, _ = run(
        "ahbm", ["run", step, "-t", "npu_ring_8", "--ranks", "4", "--collective_algorithm", graph], tmp_path
    )
    assert code == 0 and "round (ccl.yaml)" in out


def test_what_performs_no_call_is_told(tmp_path: Path) -> None:
    step, other = job(tmp_path), ring_graph(tmp_path, 8, "eight")
    on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    notes = open_(step, collective_algorithm=(other,), **on).run().performed.notes
    assert f"{other} performs no call: the job has no all_reduce of 8 ranks" in notes


def test_graphs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    graph = ring_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"AHBM-C146.*no collective all_redcue"):
        Graph.of(f"all_redcue={graph}")
    with pytest.raises(ConfigError, match=r"AHBM-C146.*two graphs for all_reduce of 4 ranks"):
        overrides_of([graph, ring_graph(tmp_path, name="other")])
    ahbm.convert(graph, tmp_path / "plan.xml")
    with pytest.raises(ConfigError, match=r"AHBM-C115.*performs all_reduce, not all_gather"):
        Graph.of(f"all_gather={tmp_path / 'plan.xml'}")
    with pytest.raises(ConfigError, match=r"AHBM-C146.*collective-algorithm"):
        open_("all_reduce", collective_algorithm=(graph,))


def files(folder: Path, *graphs: str) -> AstraFiles:
    names = {"workload": "job", "system": "system.json", "network": "network.yml", "memory": "memory.json"}
    return AstraFiles(**{name: folder / file for name, file in names.items()}, graphs=graphs)


@pytest.mark.parametrize("form", ["json", "xml", "et"])
def test_astra_runs_the_graph_in_both_modes(form: str, tmp_path: Path) -> None:
    write(tmp_path, size=WHOLE)
    graph = ring_graph(tmp_path)
    if form != "json":
        ahbm.convert(graph, tmp_path / f"plan.{form}")
        graph = str(tmp_path / f"plan{'.0' * (form == 'et')}.{form}")
    named = {"all-reduce-implementation-custom": [str(tmp_path / "system_graph")]}
    ahbm.convert(ring_graph(tmp_path, name="source"), tmp_path / "system_graph.et")
    flag = simulate(files(tmp_path, f"all_reduce={graph}" if form == "json" else graph))
    ours = replay(files(tmp_path, graph), read_setup(files(tmp_path, graph)))
    system = json.loads((tmp_path / "system.json").read_text())
    (tmp_path / "system.json").write_text(json.dumps(system | named))
    assert flag.ranks[0].cycles == simulate(files(tmp_path)).ranks[0].cycles
    assert ours.latency_ns == replay(files(tmp_path), read_setup(files(tmp_path))).latency_ns


def test_astra_takes_one_graph_of_a_kind(tmp_path: Path) -> None:
    write(tmp_path, size=WHOLE)
    both = (ring_graph(tmp_path), ring_graph(tmp_path, 8, "eight"))
    with pytest.raises(ConfigError, match=r"AHBM-C190.*one graph for all calls of all_reduce"):
        simulate(files(tmp_path, *both))


def test_a_mesh_is_a_machine_here_and_unknown_there(tmp_path: Path) -> None:
    write(tmp_path, ranks=4, size=WHOLE)
    for shape, links in (("[Mesh, Mesh]", 8), ("[Mesh, Ring]", 8)):
        text = f"topology: {shape}\nnpus_count: [2, 2]\nbandwidth: [50.0, 50.0]\nlatency: [500.0, 500.0]\n"
        (tmp_path / "network.yml").write_text(text)
        report = replay(files(tmp_path), read_setup(files(tmp_path)))
        assert report.emulator.machine.features().links == links
        with pytest.raises(ConfigError, match=r'AHBM-C190.*"Mesh"'):
            simulate(files(tmp_path))
    (tmp_path / "network.yml").write_text("topology: [Mesh]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n")
    line = replay(files(tmp_path), read_setup(files(tmp_path)))
    assert line.emulator.machine.features().links == 6
    assert read_plan(ring_graph(tmp_path)).ranks == 4 and load_machine("npu_ring_8").sips == 8
