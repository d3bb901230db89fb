"""Fits: machines that the emulator measured come back, wrong rows move nothing, and files say what is known of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ahbm
from ahbm.calibrate import calibration, coefficients, constants, fit, keys, templates, written
from ahbm.calibrate.calibration import Calibrated, calibrate
from ahbm.calibrate.cleaning import cleaned
from ahbm.calibrate.laws import Law
from ahbm.calibrate.tables import Row, Table
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, ConfigError, TopologyError

SIZES = [1 << at for at in range(10, 31)]
PROTOCOLS: dict[str, Any] = {
    "ll": {"step_ns": 600.0, "max_gbs": 20.0},
    "simple": {"step_ns": 3200.0, "max_gbs": 370.0, "ramp_bytes": 1 << 20, "ramp_exponent": 0.6},
}


def machine(ranks: int = 8, **protocols: Any) -> dict[str, Any]:
    plain = Table("t", "0", "all_reduce", ranks, 1, "H100", (Row(8, 1.0, 1),))
    tree = templates.of([plain]).machine(ranks)
    return {**tree, "launch": {"overhead_ns": 6000.0}, "protocols": protocols or PROTOCOLS}


def table(tree: dict[str, Any], ranks: int = 8, sizes: Sequence[int] = SIZES, noise: float = 0.0) -> Table:
    emulator, drawn = written.emulator(written.sized(tree, ranks)), np.random.default_rng(0)
    rows = [
        Row(size, written.us(emulator, "all_reduce", ranks, size) * float(np.exp(drawn.normal(0, noise))), number)
        for number, size in enumerate(sizes, 1)
    ]
    return Table("emulated.csv", "0" * 16, "all_reduce", ranks, 1, "H100", tuple(rows))


def values(found: Calibrated) -> dict[str, float]:
    return {each.key: each.value for each in found.parameters}


@functools.cache
def fitted() -> Calibrated:
    """What a fit of noisy rows of `machine()` finds: it takes seconds."""
    return calibrate([table(machine(), noise=0.02)])


def law(measured: Table, notes: list[str]) -> Law:
    """That of a table, without what `calibrate` does to judge it."""
    tidy = cleaned(measured, notes)
    return fit.chosen(coefficients.rows([tidy], coefficients.known(templates.of([tidy]), [tidy])))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "machine.yaml"
    written.save(machine(), path)
    return path


@pytest.mark.slow
def test_a_machine_that_the_emulator_measured_comes_back(template: Path) -> None:
    found = calibrate([table(machine())], template)
    known = values(found)
    assert known["launch.overhead_ns"] == pytest.approx(6000, rel=0.01)
    assert known["protocols.ll.step_ns"] == pytest.approx(600, rel=0.01)
    assert known["protocols.simple.step_ns"] == pytest.approx(3200, rel=0.01)
    assert known["protocols.ll.max_gbs"] == pytest.approx(20, rel=0.01)
    assert known["protocols.simple.max_gbs"] == pytest.approx(370, rel=0.01)
    assert known["protocols.simple.ramp_bytes"] == pytest.approx(1 << 20, rel=0.01)
    assert known["protocols.simple.ramp_exponent"] == pytest.approx(0.6, rel=0.01)
    assert found.judged[0].mean < 1
    assert found.deviation_percent < 0.5


@pytest.mark.slow
def test_keys_of_a_template_come_back(template: Path, tmp_path: Path) -> None:
    # A ring of 8 does not tell the launch from 14 steps.
    free = ["protocols.ll.step_ns", "protocols.ll.max_gbs", "protocols.simple.max_gbs=10..450"]
    other = yaml.safe_load(template.read_text(encoding="utf-8"))
    other["protocols"]["ll"] |= {"step_ns": 1000.0, "max_gbs": 9.0}
    other["protocols"]["simple"] |= {"max_gbs": 200.0}
    written.save(other, tmp_path / "start.yaml")
    found = keys.calibrate([table(machine())], str(tmp_path / "start.yaml"), free)
    assert list(values(found).values()) == pytest.approx([600, 20, 370], rel=0.01)
    assert max(each.percent for each in found.judged[0].errors) < 1


@pytest.mark.slow
def test_several_tables_tell_the_launch_from_the_steps() -> None:
    few, more = (table(machine(), ranks, SIZES[::2]) for ranks in (4, 8))
    found = calibrate([few, more, replace(more, name="again.csv")])
    assert values(found)["launch.overhead_ns"] == pytest.approx(6000, rel=0.05)
    assert len(found.judged) == 3
    assert len([each for each in found.parameters if each.percent is not None]) <= 9


@pytest.mark.slow
@pytest.mark.parametrize(("at", "by"), [(3, 30.0), (17, 30.0), (10, 10.0)])
def test_one_wrong_row_moves_no_parameter(at: int, by: float) -> None:
    right = table(machine())
    rows = list(right.rows)
    rows[at] = replace(rows[at], us=by * rows[at].us)
    notes: list[str] = []
    found, wrong = law(right, []), law(replace(right, rows=tuple(rows)), notes)
    assert len(notes) == 1 and "cannot be" in notes[0]
    assert wrong.shape == found.shape
    for told, known in zip(wrong.protocols, found.protocols, strict=True):
        assert astuple(told) == pytest.approx(astuple(known), rel=0.05)


@pytest.mark.slow
def test_a_wrong_row_of_a_noisy_table_does_not_count() -> None:
    noisy = table(machine(), noise=0.02)
    rows = list(noisy.rows)
    rows[12] = replace(rows[12], us=30 * rows[12].us)
    found, wrong = fitted(), calibrate([replace(noisy, rows=tuple(rows))])
    assert values(wrong).keys() == values(found).keys()
    for each in found.parameters:
        sure = max(0.05, 2 * (each.percent or 0) / 100)
        assert values(wrong)[each.key] == pytest.approx(each.value, rel=sure), each.key
    (judged,) = wrong.judged
    assert len(judged.errors) == len(rows) - 1 and rows[12].bytes not in {error.bytes for error in judged.errors}
    assert wrong.tree["calibration"]["sources"][0]["rows"] == len(rows) - 1


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 20))
def test_the_rows_around_suggest_a_time(at: int) -> None:
    right = table(machine())
    rows = list(right.rows)
    rows[at] = replace(rows[at], us=30 * rows[at].us)
    row = cleaned(replace(right, rows=tuple(rows)), []).rows[at]
    # At a corner they cannot know.
    assert not row.measured and row.us == pytest.approx(right.rows[at].us, rel=0.2)


def test_a_slip_before_a_jump_is_taken_back() -> None:
    """NCCL's times jump where the library takes another protocol: there a row may be near the next one, and wrong."""
    times = [36.9, 37.5, 38.9, 119.9, 124.7, 131.3, 140.0, 150.0]
    right = Table(
        "t", "0", "all_reduce", 8, 1, "B300", tuple(Row(1 << (18 + at), us, at) for at, us in enumerate(times))
    )
    assert cleaned(right, []) == right
    rows = list(right.rows)
    rows[2] = replace(rows[2], us=389.0)
    notes: list[str] = []
    assert [row.us for row in cleaned(replace(right, rows=tuple(rows)), notes).rows] == times and len(notes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("by", [10.0, 0.1, 1000.0, 0.001])
@pytest.mark.parametrize("at", [0, 1, 12, 18, 19])
def test_a_slip_of_the_decimal_point_is_taken_back(at: int, by: float) -> None:
    right = table(machine(), noise=0.05)
    rows = list(right.rows)
    rows[at] = replace(rows[at], us=by * rows[at].us)
    notes: list[str] = []
    found = cleaned(replace(right, rows=tuple(rows)), notes).rows
    assert [row.us for row in found] == pytest.approx([row.us for row in right.rows], rel=1e-9)
    assert all(row.measured for row in found) and len(notes) == 1
    assert f"{rows[at].us:g} us" in notes[0] and "a slip of the decimal point" in notes[0]


@pytest.mark.parametrize(("at", "by"), [(0, 30.0), (0, 1 / 30), (-1, 30.0), (-1, 1 / 30), (1, 30.0), (-2, 30.0)])
def test_a_wrong_row_at_an_end_is_left_out_alone(at: int, by: float) -> None:
    rows = [Row(1 << n, 12.0 + (1 << n) / 1e4, n) for n in range(10, 30)]
    right = Table("t", "0", "all_reduce", 8, 1, "H100", tuple(rows))
    notes: list[str] = []
    assert cleaned(right, notes) == right and not notes
    rows[at] = replace(rows[at], us=by * rows[at].us)
    known = cleaned(replace(right, rows=tuple(rows)), notes)
    assert len(notes) == 1 and set(right.rows) - set(known.rows) == {right.rows[at]}


@pytest.mark.parametrize(("by", "counts"), [(1.9, False), (1.15, True)])
def test_a_first_call_that_warmed_up_does_not_count(by: float, counts: bool) -> None:
    rows = [Row(1 << n, 12.0 + (1 << n) / 1e4, n) for n in range(10, 30)]
    rows[0] = replace(rows[0], us=by * rows[0].us)
    notes: list[str] = []
    known = cleaned(Table("t", "0", "all_reduce", 8, 1, "H100", tuple(rows)), notes)
    assert known.rows[0].measured == counts and known.rows[1:] == tuple(rows[1:])
    assert [note.split(", and")[0] for note in notes] == (
        [] if counts else ["t:10: 22.9946 us at 1024 B is above the next time, as where a first call warms up"]
    )
    assert known.rows[0].us == pytest.approx(by * 12.1 if counts else 12.0, rel=0.05)


def among_nodes(most: int) -> dict[str, Any]:
    """A machine whose library has trees for small arrays and rings for large ones, as `calibrate` writes it."""
    heads = [Table("t", "0", "all_reduce", ranks, ranks // 2, "A100", (Row(8, 1.0, 1),)) for ranks in (4, 8)]
    tree, border, kappa = templates.of(heads).machine(most), 1 << 22, 4.0
    small, large = templates.AMONG_NODES["all_reduce"]
    numbers = {"ll": (1000.0, 0.8), "ll128": (7000.0, 4.0), "simple": (40_000.0, 9.0), "ring": (1000.0, 9.0)}
    tree["protocols"] = {
        name: {
            "step_ns": step,
            "nic_step_ns": kappa * step,
            "nic_gbs": gbs,
            "algorithms": [large if name == "ring" else small],
            **({"min_chunk_bytes": border} if name == "ring" else {"max_chunk_bytes": border - 1}),
        }
        for name, (step, gbs) in numbers.items()
    }
    tree["protocols"]["ll"] |= {"ramp_bytes": 100_000, "slice_bytes": written.SLICE}
    return tree | {"launch": {"overhead_ns": 1000 * constants.steps().launch}}


@pytest.mark.slow
def test_a_library_with_trees_and_rings_comes_back_from_few_nodes() -> None:
    sizes = [1 << at for at in range(6, 29, 3)]
    known = {ranks: table(among_nodes(ranks), ranks, sizes) for ranks in (4, 8, 32)}
    found = calibrate([replace(known[ranks], nodes=ranks // 2, accelerator="A100") for ranks in (4, 8)])
    assert len([each for each in found.parameters if each.percent is not None]) <= 9
    told = among_nodes(8)["protocols"]
    for name, said in found.tree["protocols"].items():
        for key in ("step_ns", "nic_step_ns", "nic_gbs", "ramp_bytes", "min_chunk_bytes", "max_chunk_bytes"):
            assert said.get(key, 0) == pytest.approx(told[name].get(key, 0), rel=0.01), (name, key)
    assert found.deviation_percent < 0.1
    # That of the ring's bandwidth counts for the protocol that it comes from.
    assert max(each.percent or 0 for each in found.parameters) < 1
    emulator = written.emulator(written.sized(found.tree, 32))
    off = [abs(written.us(emulator, "all_reduce", 32, row.bytes) / row.us - 1) for row in known[32].rows]
    assert max(off) < 0.01, off


@pytest.mark.slow
def test_a_single_node_and_two_of_them_are_fitted_together() -> None:
    heads = [Table("t", "0", "all_reduce", 4 * nodes, nodes, "A100", (Row(8, 1.0, 1),)) for nodes in (1, 2)]
    tree = templates.of(heads).machine(8) | {"launch": {"overhead_ns": 5000.0}}
    tree["protocols"] = {"simple": {"step_ns": 800.0, "nic_step_ns": 40_000.0, "max_gbs": 50.0}}
    sizes = [1 << at for at in range(8, 29, 2)]
    known = [replace(table(tree, 4 * nodes, sizes), nodes=nodes, accelerator="A100") for nodes in (1, 2)]
    found = calibrate(known)
    assert values(found)["protocols.simple.max_gbs"] == pytest.approx(50, rel=0.05)
    # The machine is nearer than its law, whose sums count latencies that bytes hide.
    for measured in known:
        emulator = written.emulator(written.sized(found.tree, measured.ranks))
        times = [written.us(emulator, "all_reduce", measured.ranks, row.bytes) for row in measured.rows]
        assert times == pytest.approx([row.us for row in measured.rows], rel=0.06)
    assert (found.deviation_percent > 10) == any("differ from its law" in note for note in found.notes)


@pytest.mark.slow
def test_errors_are_those_of_the_machine_and_not_those_of_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "ADDS_UP", float("inf"))  # else the law follows the machine
    rows = tuple(Row(1 << at, 13 + (1 << at) / 230e3, at) for at in range(8, 27))
    measured = Table("t", "0" * 16, "all_to_all", 8, 1, "H100", rows)
    template = templates.of([measured])
    pairs = {**template.tree, "library": {"all_to_all": ["pairwise_all_to_all"]}}
    found = calibrate([measured], replace(template, tree=pairs))
    emulator = written.emulator(found.tree)
    off = [100 * abs(written.us(emulator, "all_to_all", 8, row.bytes) / row.us - 1) for row in rows]
    assert "from NCCL's proportion of launch and steps" in found.text()
    assert max(off) > 2, "runs hide no latency behind bytes: another table is needed"
    assert [each.percent for each in found.judged[0].errors] == pytest.approx(off, abs=0.5)
    assert max(band["worst_percent"] for band in found.tree["calibration"]["bands"]) == pytest.approx(max(off), abs=0.5)


@pytest.mark.slow
def test_a_library_that_chooses_by_size_is_followed() -> None:
    tree = machine(
        ll={"step_ns": 600.0, "max_gbs": 50.0, "max_bytes": (1 << 20) - 1},
        simple={"step_ns": 9000.0, "max_gbs": 400.0, "min_bytes": 1 << 20},
    )
    found = law(table(tree), [])
    assert len(found.borders) == 1 and 1 << 19 < found.borders[0] <= 1 << 20
    predicted = [protocol.step_us for protocol in found.protocols]
    assert predicted[1] - predicted[0] == pytest.approx(8.4, rel=0.02)


@pytest.mark.slow
def test_the_file_is_a_machine_and_says_what_is_known(tmp_path: Path) -> None:
    found = fitted()
    written.save(found.tree, tmp_path / "machine.yaml")
    known = load_machine(tmp_path / "machine.yaml")
    assert known.bands is not None and known.bands[0][:3] == ("all_reduce", 8, 1024)
    inside = ahbm.run("all_reduce", topology=tmp_path / "machine.yaml", bytes_per_rank=3 << 20, data=False)
    assert inside.algorithm == "ring_allreduce" and inside.band is not None
    assert any("held-back" in note for note in inside.notes)
    assert ahbm.Report.from_json(inside.to_json()).band == inside.band
    beyond = ahbm.run("all_reduce", topology=tmp_path / "machine.yaml", bytes_per_rank=64, data=False)
    assert beyond.band is None and any("outside the calibrated range" in note for note in beyond.notes)
    other = ahbm.run(
        "all_reduce",
        topology=tmp_path / "machine.yaml",
        bytes_per_rank=3 << 20,
        data=False,
        algorithm="recursive_doubling_allreduce",
    )
    assert other.band is None
    assert any("calibrated with ring_allreduce: the error of recursive_doubling" in note for note in other.notes)
    changes = {"outside the calibrated range": "system.sips.count", "not the calibrated machine": "launch.overhead_ns"}
    for told, key in changes.items():
        changed = ahbm.run(
            "all_reduce",
            topology=tmp_path / "machine.yaml",
            bytes_per_rank=3 << 20,
            data=False,
            overrides={key: 16},
        )
        assert changed.band is None and any(told in note for note in changed.notes)


@pytest.mark.slow
def test_a_calibration_changes_no_time_and_no_hash(tmp_path: Path) -> None:
    found = fitted()
    plain = {key: value for key, value in found.tree.items() if key != "calibration"}
    assert written.emulator(plain).machine.hash == written.emulator(found.tree).machine.hash


@pytest.mark.parametrize(
    "change",
    [
        {"bands": [{"ranks": 8}]},
        {"bands": [{"collective": "all_reduce", "from_bytes": 2, "to_bytes": 1}]},
        {"covariance": [[1.0]]},
        {"made_by": "hand"},
        {"sources": [{"rows": -1}]},
    ],
)
def test_a_block_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TopologyError):
        written.emulator({**machine(), "calibration": change})


def test_a_topology_names_no_code() -> None:
    emulator = written.emulator({**machine(), "library": {"all_reduce": ["./evil.py"]}})
    with pytest.raises(ConfigError) as caught:
        written.us(emulator, "all_reduce", 8, 1024)
    assert caught.value.code == "AHBM-C194"


def test_what_cannot_be_fitted_says_so(template: Path) -> None:
    few = table(machine(), sizes=SIZES[:2])
    for tables, given in (([few], None), ([], None), ([few], "no_such_machine.yaml")):
        with pytest.raises(ConfigError) as caught:
            calibrate(tables, given)
        assert caught.value.code == "AHBM-C195"
    for free in (["launch"], ["launch.overhead_ns=5..1"], ["no such"], ["protocols.ll.step_ns"] * 10):
        with pytest.raises(ConfigError) as caught:
            keys.calibrate([table(machine())], str(template), free)
        assert caught.value.code == "AHBM-C195"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "AHBM-C195"),
        ("system:", "AHBM-C195"),
        ("system: {sips: 3}", "AHBM-T004"),
        ("a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]", "AHBM-T003"),
        ("- 1", "AHBM-T004"),
    ],
)
def test_templates_come_from_strangers(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "template.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(AhbmError) as caught:
        calibrate([table(machine(), sizes=SIZES[::4])], tmp_path / "template.yaml")
    assert caught.value.code == code


@pytest.mark.slow
def test_a_template_may_leave_everything_out(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(
        "system: {sips: {count: 8, topology: nodes, nodes: , link: }}\nsip: {cube_mesh: {w: 1, h: 1}}\n"
        "cube: {pe_layout: {corners: 1, pe_per_corner: 1}}\nprotocols: {ll: }\nlaunch:\n",
        encoding="utf-8",
    )
    found = calibrate([table(machine(), sizes=SIZES[::4])], tmp_path / "nodes.yaml")
    # Its links are slower than what was measured: the errors are those of the machine, and a note says why.
    assert found.judged[0].mean > 10
    assert any("differ from its law" in note for note in found.notes)


def test_tables_of_unlike_machines_are_refused() -> None:
    one = table(machine())
    with pytest.raises(ConfigError):
        calibrate([one, replace(one, accelerator="A100")])


@pytest.mark.slow
def test_the_result_is_json() -> None:
    found = calibrate([table(machine(), sizes=SIZES[::4])])
    data = json.loads(json.dumps(found.to_json()))
    assert data["free_parameters"] <= 9
    assert {"table", "mean_percent", "decades", "held_back"} <= data["tables"][0].keys()
    assert "mean" in found.text()
