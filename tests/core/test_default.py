"""What all_reduce runs where nobody names an algorithm: the quickest of the configured list."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm import DPPolicy
from ahbm.base.request import Request
from ahbm.choice import configured
from ahbm.choice.configured import COMPARED_PES
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.core.compiled import Compiled, Cost
from ahbm.core.emulator import Emulator
from ahbm.source.algorithm import Algorithm
from support.choosing import compiled

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
MACHINES: dict[str, tuple[str | None, dict[str, object]]] = {
    "default": (None, SMALL),
    "reference_torus": ("reference_torus", SMALL),
    "mesh": ("mesh_2d_no_wrap", {"system.sips.count": 4, **SMALL}),
    "ring of NPUs": ("npu_ring_8", {}),
    "hypercube of NPUs": ("npu_hypercube_16", {}),
    "switch of NPUs": ("npu_switch_8", {}),
}
SIZES = [256, 4096, 65_536, 1 << 20, 16 << 20]
REFERENCE = "lrab_hierarchical_allreduce"


def emulator(name: str) -> Emulator:
    topology, overrides = MACHINES[name]
    return Emulator(load_machine(topology, overrides), CclConfig.packaged())


def of(machine: Emulator, nbytes: int, *, placed: bool) -> Request:
    placement = DPPolicy(cube="row_wise") if placed else None
    tiles = machine.machine.cubes if placed else 1
    return Request("all_reduce", range(machine.world_size), nbytes // 2, "f16", "sum", placement=placement, tiles=tiles)


@pytest.mark.parametrize("name", MACHINES)
def test_the_default_is_the_quickest(name: str) -> None:
    machine = emulator(name)
    for placed in (False, True) if machine.machine.cubes > 1 else (False,):
        for nbytes in SIZES:
            request = of(machine, nbytes, placed=placed)
            costs = [machine.cost(request, algorithm) for algorithm in CclConfig.packaged().defaults]
            times = {cost.algorithm: cost.ps for cost in costs if isinstance(cost, Cost)}
            chosen = compiled(machine, request)
            assert chosen.latency_ps == times[chosen.algorithm] == min(times.values())
            assert len(times) == (6 if machine.machine.topology in ("ring_1d", "torus_2d", "mesh_2d_no_wrap") else 5)
            assert f"{chosen.algorithm} runs: the quickest of {len(times)}" in chosen.notes[0]


def test_size_decides() -> None:
    machine = emulator("default")
    names = {compiled(machine, of(machine, nbytes, placed=True)).algorithm for nbytes in SIZES}
    assert len(names) > 1
    assert "bidirectional_ring_allreduce" in names


def test_one_of_a_list_of_one_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Emulator(load_machine(None, SMALL), CclConfig.load(overrides={"algorithm": "tree_allreduce"}))
    monkeypatch.setattr(Emulator, "cost", None)
    found = compiled(machine, of(machine, 4096, placed=False))
    assert (found.algorithm, found.notes) == ("tree_allreduce", ())


def test_large_machines_take_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Emulator(load_machine("npu_ring_8", {"system.sips.count": COMPARED_PES + 1}), CclConfig.packaged())
    monkeypatch.setattr(Emulator, "cost", None)
    monkeypatch.setattr(configured, "RIVAL_PES", COMPARED_PES)
    found = compiled(machine, of(machine, 256, placed=False))
    assert found.algorithm == REFERENCE
    note = f"{REFERENCE} runs: of 6 the first, as none are compared among more than {COMPARED_PES} PEs"
    assert found.notes == (note,)


def test_larger_machines_compare_what_is_simulated_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring takes many steps: it is not simulated, and what is in its place is not slower than the first."""
    machine = Emulator(load_machine("npu_switch_8", {"system.sips.count": 2 * COMPARED_PES}), CclConfig.packaged())
    request = of(machine, 4096, placed=False)
    found = compiled(machine, request)
    assert (found.algorithm, found.notes) == (
        "recursive_doubling_allreduce",
        ("recursive_doubling_allreduce runs: the quickest of 3 that were simulated",),
    )
    monkeypatch.setattr(configured, "FEW_EVENTS", 1)
    alone = Emulator(machine.machine, CclConfig.packaged())
    first = compiled(alone, request)
    assert first.notes == (
        f"{first.algorithm} runs: of 5 the first, as no other is simulated with few calls and events",
    )
    assert found.latency_ps < first.latency_ps


def test_what_one_algorithm_refuses_another_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A module without `op` only sums; `-v` says why it does not run."""
    module = tmp_path / "only_sums.py"
    module.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return ()\n\n\n"
        "def kernel(t_ptr, sip_rank, kind, w, h, *, tl):\n    return\n",
        encoding="utf-8",
    )
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text(
        "algorithms: {only_sums: {module: ./only_sums.py}}\ndefaults: {algorithm: [only_sums, tree_allreduce]}\n",
        encoding="utf-8",
    )
    machine = Emulator(load_machine("npu_ring_8"), CclConfig.load(ccl))
    with caplog.at_level(logging.INFO, "ahbm"):
        chosen = compiled(machine, Request("all_reduce", range(8), 64, "f16", "max"))
    assert chosen.algorithm == "tree_allreduce"
    assert any("only_sums does not do" in record.getMessage() for record in caplog.records)


def test_the_list_is_told_as_what_it_is() -> None:
    assert CclConfig.packaged().described("all_reduce").startswith(f"the quickest of {REFERENCE}, ")
    assert CclConfig.load(overrides={"algorithm": "tree_allreduce"}).described("all_reduce") == "tree_allreduce"


def test_many_ranks_get_an_algorithm_of_few_steps() -> None:
    sips = {"system.sips.count": 8192}
    report = ahbm.run(topology="npu_hypercube_16", overrides=sips, bytes_per_rank=1 << 16, data=False)
    assert report.algorithm == "recursive_doubling_allreduce"
    assert report.notes == ("recursive_doubling_allreduce runs: the quickest of 2 that were simulated",)


@pytest.mark.slow
def test_a_program_that_no_memory_holds_is_refused() -> None:
    sips = {"system.sips.count": 1 << 16}
    with pytest.raises(ahbm.errors.BudgetError) as caught:
        ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", overrides=sips, bytes_per_rank=1 << 20, data=False)
    assert caught.value.code == "AHBM-B126"
    assert "65536 places" in str(caught.value)


def test_an_algorithm_is_measured_against_the_budget_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = Emulator.load("npu_hypercube_16", None, {"system.sips.count": 2048})
    lowered: list[str] = []
    lower = Emulator._lower

    def counted(self: Emulator, request: Request, algorithm: Algorithm, *others: Any) -> Compiled:
        lowered.append(algorithm.name)
        return lower(self, request, algorithm, *others)

    monkeypatch.setattr(Emulator, "_lower", counted)
    monkeypatch.setattr("ahbm.choice.configured.MODERATE_OPS", 1 << 18)
    request = Request("all_reduce", range(2048), 64)
    found = [compiled(emulator, request) for _ in range(2)]
    assert found[0].program is found[1].program and found[0].algorithm == "recursive_doubling_allreduce"
    assert len(lowered) == len(set(lowered)) > 1
