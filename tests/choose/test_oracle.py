"""The oracle: every time is that of a run, whatever is shared between runs, and nothing is lost or run twice."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ahbm
from ahbm.base.request import Request
from ahbm.check import reference
from ahbm.check.reference import inputs
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.oracle import COLUMNS, Oracle, OracleTable
from ahbm.choose.regret import Loss, Point, Regret
from ahbm.config.topology import load_machine
from ahbm.core.lowerings import Lowerings
from ahbm.errors import ConfigError, DataError
from ahbm.runs import measure
from ahbm.sweeps import work
from ahbm.table.processes import Places
from support import rings

LINK = "system.sips.link"
ALGORITHMS = ["ring_allreduce", "all_pairs_allreduce", "lrab_hierarchical_allreduce", "synth:trees", "synth:swing"]


def machine(name: str, latency: int = 500, bandwidth: int = 50, **more: object) -> ahbm.Machine:
    return load_machine(name, {f"{LINK}.latency_ns": latency, f"{LINK}.bandwidth_gbs": bandwidth, **more})


@pytest.fixture(scope="module")
def table() -> OracleTable:
    machines = [machine("npu_torus_4x4", 100, 50), machine("npu_torus_4x4", 900, 200), machine("npu_switch_8")]
    return Oracle(Catalogue.of("all_reduce", ALGORITHMS), machines, [256, 1 << 14, 1 << 20, 1 << 25]).table()


@pytest.mark.slow
def test_every_time_is_that_of_a_run(table: OracleTable) -> None:
    # A program is made for the first machine of a shape, and runs on the others.
    rows = [row for row in table if row["code"] is None]
    for at in np.random.default_rng(3).choice(len(rows), 14, replace=False):
        row = rows[at]
        report = ahbm.run(
            "all_reduce",
            row["algorithm"],
            table.machines[row["machine"]],
            bytes_per_rank=row["bytes"],
            overrides=table.catalogue.overrides,
            data=False,
        )
        assert (report.latency_ns, report.bound_ns, report.ranks) == (row["time_ns"], row["bound_ns"], row["ranks"])
        assert table.times(row["machine"], row["bytes"])[row["algorithm"]] == round(1000 * report.latency_ns)


def test_machines_that_differ_in_more_than_times_share_nothing() -> None:
    # The queues of 1 MiB fit the larger TCM alone: the smaller one has them in the slower HBM.
    slow = {"ipcq.tiers.hbm.bandwidth_gbs": 10}
    machines = [machine("npu_ring_8", **slow), machine("npu_ring_8", **slow, **{"pe.tcm.mb": 1})]
    catalogue = Catalogue.of("all_reduce", ["recursive_doubling_allreduce"])
    for order in (machines, machines[::-1]):
        found = Oracle(catalogue, order, [1 << 20]).table()
        for row in found:
            alone = Oracle(catalogue, found.machines[row["machine"]], [1 << 20]).table()
            assert row["time_ns"] == alone[0]["time_ns"]
        assert len({row["time_ns"] for row in found}) == 2


def test_rows_stand_in_order_and_refusals_are_rows(table: OracleTable) -> None:
    assert table.columns == COLUMNS and len(table) == 3 * 4 * 5
    names = [entry.name for entry in table.catalogue]
    keys = [(row["machine"], row["bytes"], row["algorithm"]) for row in table]
    assert keys == [
        (one, size, name) for one in table.machines for size in (256, 1 << 14, 1 << 20, 1 << 25) for name in names
    ]
    refused = {(row["algorithm"], row["code"]) for row in table if row["time_ns"] is None}
    assert refused == {("lrab_hierarchical_allreduce", "AHBM-C116"), ("synth_swing", "AHBM-U406")}
    assert all(row["message"] and row["ranks"] == 8 and row["bound_ns"] for row in table if row["code"])
    assert table.runs == len(table) - 8
    assert [point.nbytes for point in table.points()] == [256, 1 << 14, 1 << 20, 1 << 25] * 3


def test_the_best_is_the_least_and_the_first_among_equals(table: OracleTable) -> None:
    for point in table.points():
        name, ps = table.best(point.machine, point.nbytes)
        times = table.times(point.machine, point.nbytes)
        assert ps == min(times.values()) and name == next(one for one in times if times[one] == ps)


def test_a_store_is_resumed_and_nothing_runs_twice(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "tree_allreduce", "synth:swing"])
    machines = [machine("npu_ring_8"), machine("npu_switch_8")]
    first = Oracle(catalogue, machines, [1024, 4096], store=here / "store").table()
    ran: list[str] = []
    real = work.row
    monkeypatch.setattr(work, "row", lambda case, places: ran.append(str(case.algorithm)) or real(case, places))
    again = Oracle(catalogue, machines, [1024, 4096], store=here / "store").table()
    assert again.values == first.values and ran == []
    more = Oracle(catalogue, machines, [1024, 4096, 8192], store=here / "store").table()
    assert len(ran) == 6 and more.only(lambda point: point.nbytes < 8192).values == first.values


def test_any_executor_gives_the_same_table() -> None:
    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "synth:trees"])
    here = Oracle(catalogue, "npu_ring_8", [1024, 1 << 16]).table()
    with ThreadPoolExecutor(2) as executor:
        assert Oracle(catalogue, "npu_ring_8", [1024, 1 << 16], executor=executor).table().values == here.values


def test_another_collective_and_type() -> None:
    found = Oracle(Catalogue.of("all_gather"), "npu_ring_8", [1000], collective="all_gather", dtype="f32").table()
    # Eight shares of whole elements.
    assert {row["bytes"] for row in found} == {992} and found.dtype == "f32"
    report = ahbm.run("all_gather", "ring_all_gather", "npu_ring_8", bytes_per_rank=992, dtype="f32", data=False)
    assert found.times("npu_ring_8", 992)["ring_all_gather"] == round(1000 * report.latency_ns)


def test_regret_is_counted_by_hand(table: OracleTable) -> None:
    best = table.regret(lambda point: table.best(point.machine, point.nbytes)[0])
    assert (best.mean, best.p95, best.within_1_percent, best.refusals) == (0, 0, 1, 0)

    def losses(name: str) -> list[float]:
        found = []
        for point in table.points():
            times = table.times(point.machine, point.nbytes)
            found.append(times.get(name, max(times.values())) / min(times.values()) - 1)
        return found

    for name in (entry.name for entry in table.catalogue):
        regret, wanted = table.regret(lambda point, name=name: name), losses(name)
        assert regret.mean == pytest.approx(np.mean(wanted)) and regret.p95 == sorted(wanted)[11]
        assert regret.worst[0].regret == max(wanted) and regret.points == 12
        assert regret.within_1_percent == sum(loss <= 0.01 for loss in wanted) / 12
    assert table.regret(lambda point: "synth_swing").refusals == 4
    assert json.loads(json.dumps(regret.to_json()))["worst"][0]["best"] == regret.worst[0].best
    assert "12 points" in str(regret)


def test_95_in_100_points_lose_no_more() -> None:
    point = Point("m", "ring_1d", 2, 8, "all_reduce", "f16")
    losses = [Loss(point, "a", 1000 + number, "b", 1000) for number in range(100)]
    assert Regret.of(losses).p95 == pytest.approx(0.094)
    assert (Regret.of([]).mean, Regret.of([]).points) == (0, 0)


def test_unknown_points_and_choices_are_refused(table: OracleTable) -> None:
    with pytest.raises(ConfigError, match="no 77 bytes"):
        table.times("npu_switch_8", 77)
    with pytest.raises(ConfigError) as told:
        table.regret(lambda point: "ring")
    assert told.value.code == "AHBM-C180"
    nothing = Oracle(Catalogue.of("all_reduce", ["synth:swing"]), "npu_switch_8", [256]).table()
    assert nothing.points() == [] and nothing.regret(lambda point: "synth_swing").points == 0
    with pytest.raises(ConfigError) as told:
        nothing.best("npu_switch_8", 256)
    assert told.value.code == "AHBM-C151"


def test_lowerings_are_let_go() -> None:
    emulator = ahbm.Emulator(machine("npu_ring_8"), ahbm.Emulator.load().ccl, Lowerings(most_ops=1))
    first = emulator.compile(Request("all_reduce", range(8), 512), "ring_allreduce").latency_ps
    emulator.compile(Request("all_reduce", range(8), 1024), "ring_allreduce")
    emulator.forget_programs()
    assert emulator.compile(Request("all_reduce", range(8), 512), "ring_allreduce").latency_ps == first


def test_algorithms_are_read_once_for_all_machines() -> None:
    places = Places()
    space = ahbm.Space("all_reduce", "ring_allreduce", [machine("npu_ring_8"), machine("npu_ring_8", 70)], data=False)
    from ahbm.sweeps.case import plan

    emulators = {id(places.emulator(case.sweep).algorithm("ring_allreduce")) for case in plan(space, places)}
    assert len(emulators) == 1


def test_results_that_contributions_do_not_decide_are_decided_by_numbers(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = rings.write(here, **rings.SPOILT, **rings.OPAQUE, **rings.ROUNDABOUT)
    moved: list[bool] = []
    monkeypatch.setattr(measure, "inputs", lambda *given: moved.append(True) or inputs(*given))
    found = Oracle(Catalogue.of("all_reduce", [*names, "ring_allreduce"]), "npu_ring_8", [1024], dtype="f32").table()
    codes_of = {row["algorithm"]: row["code"] for row in found}
    assert codes_of.pop("exponential") == "AHBM-V301" and set(found.wrong) == {*rings.SPOILT, *rings.OPAQUE}
    assert {name: codes_of[name] for name in rings.SPOILT} == dict.fromkeys(rings.SPOILT, "AHBM-V401")
    assert set(found.times("npu_ring_8", 1024)) == {*rings.ROUNDABOUT, "ring_allreduce"}
    # Two of them could not be decided without; the others move no data.
    assert len(moved) == 2


def test_what_remains_undecided_is_set_aside_by_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = rings.write(here, **rings.ROUNDABOUT)
    monkeypatch.setattr(reference, "memory_bytes", lambda: 1)
    found = Oracle(Catalogue.of("all_reduce", [*names, "ring_allreduce"]), "npu_ring_8", [1024]).table()
    assert found.best("npu_ring_8", 1024)[0] == "ring_allreduce"
    assert not found.wrong and not found.refused and set(found.undecided) == {"roundabout"}
    assert found.undecided["roundabout"].startswith("AHBM-U290") and "AHBM-B301" in found.undecided["roundabout"]


def test_where_every_result_is_wrong_all_are_named(here: Path) -> None:
    names = rings.write(here, **rings.SPOILT)
    with pytest.raises(DataError, match=r"AHBM-V417.* wrong at 1024 bytes on npu_ring_8 \(short, largest, doubled\)"):
        Oracle(Catalogue.of("all_reduce", names), "npu_ring_8", [1024]).table().best("npu_ring_8", 1024)
    some = Oracle(Catalogue.of("all_reduce", ["short", "synth:routed"]), "npu_ring_8", [1024]).table()
    with pytest.raises(DataError, match=r"none gives a right result .* \(short; synth_routed did not run\)"):
        some.best("npu_ring_8", 1024)
