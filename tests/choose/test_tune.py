"""Tuning: the quickest of every range, files that say so by each library's rules, and what they lose."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.base import packaged
from ahbm.base.knobs import Knobs
from ahbm.base.rules import Query, Rule, Rules, Span, border
from ahbm.check import reference
from ahbm.choose import formats
from ahbm.choose.card import Card
from ahbm.choose.catalogue import Catalogue, configured
from ahbm.choose.evaluation import evaluate, judge
from ahbm.choose.files import save
from ahbm.choose.formats.format import Read
from ahbm.choose.names import NCCL, UCC
from ahbm.choose.oracle import Oracle
from ahbm.choose.tune import Given, Tuned, loses, tune
from ahbm.choose.turning import Turning
from ahbm.cli import app
from ahbm.config.reading import PLAIN
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError, DataError
from ahbm.source.plan import read as read_plan
from ahbm.sweeps import work
from ahbm.table.cases import Sweep
from ahbm.table.ladder import climb
from support import rings, tuners
from support.tuners import Called

NAMES = ["ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce", "synth:trees"]
SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20]
MACHINES = ("npu_ring_8", "npu_switch_8")


@pytest.fixture(scope="module")
def tuned() -> Tuned:
    machines = [load_machine(name) for name in MACHINES]
    return tune(Catalogue.of("all_reduce", NAMES), machines, SIZES, given=Given(channels=4))


@pytest.fixture(scope="module")
def saved(tuned: Tuned, tmp_path_factory: pytest.TempPathFactory) -> tuple[Card, Path]:
    folder = tmp_path_factory.mktemp("tuned")
    return save(tuned, folder), folder


@pytest.fixture(scope="module")
def alone() -> Tuned:
    return tune(Catalogue.of("all_reduce", NAMES), [load_machine("npu_ring_8")], SIZES)


def test_on_one_machine_the_choice_is_the_quickest_run_of_each_size(alone: Tuned) -> None:
    for size in SIZES:
        times = {}
        for name in NAMES[:3]:
            report = ahbm.run(algorithm=name, topology="npu_ring_8", bytes_per_rank=size, data=False)
            times[name] = report.latency_ns
        rule = alone.rules.choose(Query("all_reduce", size, 8))
        assert rule is not None
        mine = alone.table.times("npu_ring_8", size)
        assert {name: mine[name] / 1000 for name in times} == times
        assert rule.algorithm == min(mine, key=lambda name: mine[name])
    assert alone.regret.mean == 0.0
    assert alone.held_networks() == {"npu_ring_8": None}


def test_candidates_by_path_and_of_the_folder_are_found_from_everywhere(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = here / "algorithms"
    folder.mkdir()
    for name in ("own", "other"):
        text = (packaged.ALGORITHMS / "ring_allreduce.py").read_text(encoding="utf-8")
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    asked = ["tune", "all_reduce", "-a", "own", "-a", "./algorithms/other.py", "-t", "npu_ring_8", "--sizes", "1K"]
    assert CliRunner().invoke(app, [*asked, "-o", "tuned"]).exit_code == 0
    assert CliRunner().invoke(app, [*asked[:4], *asked[6:], "-o", "named"]).exit_code == 0
    assert CliRunner().invoke(app, ["tune", *asked[1:2], *asked[4:], "-o", "by_path"]).exit_code == 0
    assert (here / "by_path/msccl/npu_ring_8/all_reduce_0_algorithms_other.py.xml").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for made in ("tuned", "named", "by_path"):
        report = ahbm.run(topology="npu_ring_8", ccl=here / made / "ccl.yaml", bytes_per_rank=1024, data=False)
        assert report.algorithm in ("own", "./algorithms/other.py")


def test_a_wrong_choice_is_a_loss(alone: Tuned) -> None:
    """Planted: the slowest algorithm for all sizes."""
    times = alone.table.times("npu_ring_8", SIZES[-1])
    slowest = max(times, key=lambda name: times[name])
    worst = loses(alone.table, Rules((Rule("all_reduce", slowest),)))
    assert worst.worst[0].regret >= times[slowest] / min(times.values()) - 1
    assert worst.mean > alone.regret.mean


def test_held_back_sizes_and_networks_take_no_part_in_the_choice(tuned: Tuned) -> None:
    assert tuned.held is not None
    held = {point.nbytes for point in tuned.held.points()}
    assert held
    assert not held & {point.nbytes for point in tuned.table.points()}
    assert tuned.held_sizes is not None
    assert tuned.held_sizes.points == len(held) * len(MACHINES)
    networks = tuned.held_networks()
    assert set(networks) == set(MACHINES)
    assert all(found is not None and found.points == len(SIZES) for found in networks.values())


def test_rules_cover_every_size_and_begin_at_multiples_of_the_ranks(tuned: Tuned) -> None:
    reached = 0
    for rule in tuned.rules:
        assert rule.nbytes.least == reached
        assert reached % 8 == 0
        reached = -1 if rule.nbytes.most is None else rule.nbytes.most + 1
    assert reached == -1


@pytest.mark.parametrize(("below", "above", "ranks"), [(8, 16, 8), (1, 2, 8), (1000, 1001, 3), (1 << 30, 1 << 34, 24)])
def test_a_border_lies_between_its_sizes(below: int, above: int, ranks: int) -> None:
    found = border(below, above, ranks)
    assert below <= found < above
    between = range(below + 1, min(above, below + 4 * ranks) + 1)
    assert (found + 1) % ranks == 0 or not any(size % ranks == 0 for size in between)


@pytest.mark.parametrize(
    ("machine", "collective", "names", "synth"),
    [
        ("npu_ring_8", "all_reduce", ("ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce"), "trees"),
        ("npu_switch_8", "all_reduce", ("short", "ring_allreduce", "largest"), "ring"),
        ("npu_ring_8", "all_gather", ("ring_all_gather", "nccl_ring_all_gather", "pat_all_gather"), "swing"),
        ("npu_ring_8", "reduce_scatter", ("ring_reduce_scatter", "nccl_ring_reduce_scatter"), "ring"),
        ("dgx_h100", "all_reduce", ("nccl_ring_allreduce", "nvls_allreduce", "short"), "ring"),
    ],
)
def test_a_ladder_is_tuning_of_one_machine(
    machine: str, collective: str, names: tuple[str, ...], synth: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same times, candidates that are wrong or do not run, choices and ranges; where both follow contributions, on
    calibrated machines, the same rows."""
    rings.write(here, **rings.SPOILT)
    on, sizes = load_machine(machine), (1 << 10, 1 << 14, 1 << 17, 1 << 20)
    ladder = climb(Sweep(collective, 1, 1, algorithms=names, topology=on, listed=sizes), (synth,), store="rows")
    catalogue = Catalogue.of(collective, [*names, f"synth:{synth}"])
    tuned = tune(catalogue, [on], sizes, collective=collective)
    for rung in ladder.rungs:
        times = {name: round(1000 * report.latency_ns) for name, report in rung.reports.items()}
        assert times == tuned.table.times(machine, rung.nbytes)
        assert (rung.winner, times[rung.winner]) == tuned.table.best(machine, rung.nbytes)
        (point,) = [point for point in tuned.table.points() if point.nbytes == rung.nbytes]
        assert list(rung.wrong) == tuned.table.wrong_at(point)
    assert [(rule.algorithm, rule.nbytes) for rule in ladder.ranges()] == [
        (rule.algorithm, rule.nbytes) for rule in tuned.rules
    ]
    ran: list[object] = []
    real = work.row
    monkeypatch.setattr(work, "row", lambda case, places: ran.append(case) or real(case, places))
    assert Oracle(catalogue, on, sizes, collective=collective, store="rows").table().values == tuned.table.values
    assert len(ran) == (0 if on.bands is not None else len(tuned.table))


@pytest.mark.parametrize("name", ["nccl_tuner.csv", "ncclx_tuner.csv", "ncclx_tuner.json", "ucc.conf"])
def test_a_library_s_file_names_the_best_of_what_the_library_has(
    name: str, tuned: Tuned, saved: tuple[Card, Path]
) -> None:
    folder = saved[1]
    library = UCC if name == "ucc.conf" else NCCL
    text, format = (folder / name).read_text(), formats.read(folder / name).format
    for size in SIZES:
        chosen = tuners.READERS[format](text, Called("all_reduce", size, 8))
        assert chosen is not None
        total: dict[str, float] = {}
        for machine in MACHINES:
            times = tuned.table.times(machine, size)
            for theirs in (library.algorithms or {})["all_reduce"]:
                ours = library.ours("all_reduce", theirs, times)
                if ours is not None and theirs not in library.newer.get("all_reduce", ()):
                    total[theirs] = total.get(theirs, 0.0) + times[ours] / min(times.values())
        assert total[chosen[0]] == min(total.values())
        if library is NCCL:
            assert chosen[1:] == ("simple", 4)


def test_the_files_are_read_back_to_what_the_card_says(tuned: Tuned, saved: tuple[Card, Path]) -> None:
    found, folder = saved
    told = json.loads((folder / "card.json").read_text())
    for name in ("ccl.yaml", "nccl_tuner.csv", "ncclx_tuner.csv", "ncclx_tuner.json", "mscclpp_tuned.json", "ucc.conf"):
        again = judge(name, formats.read(folder / name), tuned.table)
        assert told["files"][name]["regret"]["mean"] == again.regret.mean
        assert f"| {name} | {again.regret.mean:.2%} |" in (folder / "card.md").read_text()
    assert found.evaluations["ccl.yaml"].regret == tuned.regret
    assert all(path.exists() for path in found.files)


PROTOCOLS = {"protocols.ll.step_ns": 600, "protocols.ll.max_gbs": 18, "protocols.simple.step_ns": 3200}


def test_on_a_machine_with_protocols_files_say_what_was_measured(tmp_path: Path) -> None:
    names, sizes = ["nccl_ring_allreduce", "double_binary_tree_allreduce", "synth:direct"], [1 << 7, 1 << 20]
    machine = load_machine("npu_switch_8", PROTOCOLS)
    found = save(tune(Catalogue.of("all_reduce", names), [machine], sizes, dtype="f32"), tmp_path)
    for name in ("ccl.yaml", "nccl_tuner.csv", "ncclx_tuner.csv", "nccl_sweep.csv"):
        own = {"ccl": tmp_path / name} if name == "ccl.yaml" else {}
        again = evaluate(tmp_path / name, [machine], sizes, algorithms=names, dtype="f32", **own)  # type: ignore[arg-type]
        if name != "nccl_sweep.csv":
            assert f"loses {again.regret.mean:.2%} on the average" in (tmp_path / name).read_text().replace("\n# ", " ")
            assert found.evaluations[name].regret == again.regret
    first, *rows = (tmp_path / "nccl_sweep.csv").read_text().splitlines()
    assert {row.split(",")[3] for row in rows} == {"ll", "simple"} and first.startswith("collective")
    for row in rows:
        _, nbytes, theirs, protocol, channels, *_, us = row.split(",")
        one = Rules((Rule("all_reduce", theirs, protocol=protocol, channels=int(channels)),))
        table = found.tuned.table.only(lambda point: point.nbytes == int(nbytes))  # noqa: B023
        (loss,) = judge("row", Read("nccl", NCCL, one), table).regret.worst
        assert f"{loss.ps / 1e6:.6f}" == us


def test_the_sweep_of_nccl_s_tuner_makes_the_choices_of_its_configuration(saved: tuple[Card, Path]) -> None:
    folder = saved[1]
    swept, written = (formats.read(folder / name).rules for name in ("nccl_sweep.csv", "nccl_tuner.csv"))
    for size in SIZES:
        query = Query("all_reduce", size, 8)
        first, second = swept.choose(query), written.choose(query)
        assert first is not None
        assert second is not None
        assert first.algorithm == second.algorithm


def test_the_written_ccl_yaml_runs_what_was_chosen(tuned: Tuned, saved: tuple[Card, Path]) -> None:
    for size in SIZES:
        rule = tuned.rules.choose(Query("all_reduce", size, 8))
        assert rule is not None
        report = ahbm.run(topology="npu_ring_8", ccl=saved[1] / "ccl.yaml", bytes_per_rank=size, data=False)
        assert report.algorithm == rule.algorithm


def test_what_nccl_cannot_run_is_a_plan_of_its_range_which_runs_right(saved: tuple[Card, Path]) -> None:
    found, folder = saved
    assert found.plans
    for name, rule in found.plans.items():
        plan = read_plan(str(folder / name), PLAIN)
        assert plan.sizes == (rule.nbytes.least, rule.nbytes.most)
        assert NCCL.theirs("all_reduce", rule.algorithm) is None
    first = next(iter(found.plans))
    report = ahbm.open(folder / first).run()
    assert not report.wrong
    for machine in {str(Path(name).parent) for name in found.plans}:
        assert found.evaluations[machine].regret.points


def test_the_folder_of_plans_is_read_to_the_ranges_in_its_files(saved: tuple[Card, Path]) -> None:
    """A second reading, of the attributes in the text; both ends are included, and 0 is no end."""
    found, root = saved
    draw = random.Random(3)
    for folder in {root / Path(name).parent for name in found.plans}:
        rules = formats.read(folder).rules
        ranges = {}
        for path in sorted(folder.glob("*.xml")):
            head = path.read_text().partition(">")[0]
            ranges[str(path)] = [int(re.search(f'{key}="([0-9]+)"', head)[1]) for key in ("minBytes", "maxBytes")]  # type: ignore[index]
        borders = [end + step for ends in ranges.values() for end in ends for step in (-1, 0, 1) if end + step > 0]
        for _ in range(10_000):
            size = draw.choice(borders) if draw.random() < 0.5 else draw.randrange(1, 1 << draw.randrange(1, 40))
            wanted = next((path for path, (least, most) in ranges.items() if least <= size <= (most or size)), None)
            rule = rules.choose(Query("all_reduce", size, 8))
            assert (None if rule is None else rule.algorithm) == wanted, size


def test_a_collective_that_a_library_does_not_have_is_said_to_have_no_file(tmp_path: Path) -> None:
    names = ["binomial_broadcast"]
    found = tune(Catalogue.of("broadcast", names), [load_machine("npu_ring_8")], [1024], collective="broadcast")
    told = save(found, tmp_path)
    assert set(told.missing) == {"nccl_tuner.csv", "ncclx_tuner.csv", "ncclx_tuner.json", "mscclpp_tuned.json"}
    assert not (tmp_path / "nccl_tuner.csv").exists()
    assert "nccl_tuner.csv was not written" in (tmp_path / "card.md").read_text()


def test_a_budget_leaves_out_sizes_or_is_too_small() -> None:
    catalogue, machines = Catalogue.of("all_reduce", NAMES[:2]), [load_machine("npu_ring_8")]
    found = tune(catalogue, machines, SIZES, budget=10)
    assert found.runs <= 10
    assert found.dropped
    assert {point.nbytes for point in found.table.points()} | set(found.dropped) == set(SIZES)
    with pytest.raises(ConfigError, match="AHBM-C146"):
        tune(catalogue, machines, SIZES, budget=1)


def test_where_nothing_runs_there_is_no_table() -> None:
    catalogue = Catalogue.of("all_reduce", ["synth:routed"])
    with pytest.raises(ConfigError, match="AHBM-C151"):
        tune(catalogue, [load_machine("npu_ring_8")], [1024])


def test_rules_are_for_their_numbers_of_ranks() -> None:
    machines = [load_machine("npu_ring_8"), load_machine("npu_mesh_4x4")]
    found = tune(Catalogue.of("all_reduce", NAMES[:2]), machines, [1024, 4096])
    assert {rule.ranks for rule in found.rules} == {Span(8, 8), Span(16, 16)}
    assert found.held_networks() == {"npu_ring_8": None, "npu_mesh_4x4": None}


def test_a_rule_whose_algorithm_nothing_stands_for_is_passed_over(tuned: Tuned, tmp_path: Path) -> None:
    file = tmp_path / "foreign.csv"
    lines = ["allreduce,0,65536,nvls,simple,4,1,8", "allreduce,0,32768,ring,simple,4,1,8"]
    file.write_text("\n".join(lines))
    found = evaluate(file, list(tuned.table.machines.values()), SIZES, algorithms=NAMES)
    assert found.without == ("nvls",)
    assert found.stands == {"ring": "ring_allreduce"}
    assert {point.nbytes for point in found.left} == set(SIZES[2:])
    assert found.regret.points == 4
    assert any("not judged" in line for line in found.lines())


def test_the_knobs_of_a_rule_are_in_its_time() -> None:
    machine = load_machine("npu_ring_8", {"pe.math.f16_per_ns": 64})
    table = Oracle(Catalogue.of("all_reduce", NAMES), [machine], [1 << 20]).table()
    lost, told = {}, {}
    for threads in (None, 512, 32):
        rules = Rules((Rule("all_reduce", "ring", threads=threads),))
        found = judge("rules", Read("a test's", NCCL, rules), table)
        lost[threads], told[threads] = found.regret.worst[0].ps, found.knobs
    assert lost[None] == lost[512] < lost[32]
    assert told == {None: (), 512: ("knobs: threads 512 in the time",), 32: ("knobs: threads 32 in the time",)}


def test_a_file_of_another_collective_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("allreduce,0,64,ring,simple,4,1,8\nallgather,0,64,ring,simple,4,1,8\n")
    for collective in (None, "broadcast"):
        with pytest.raises(ConfigError, match="AHBM-C146"):
            evaluate(file, [load_machine("npu_ring_8")], SIZES, collective=collective)


def test_the_same_tuning_writes_the_same_bytes(tuned: Tuned, saved: tuple[Card, Path], tmp_path: Path) -> None:
    again = save(tuned, tmp_path)
    for path in again.files:
        assert path.read_bytes() == (saved[1] / path.relative_to(tmp_path)).read_bytes(), path


def test_plans_of_an_earlier_tuning_are_removed(tuned: Tuned, tmp_path: Path) -> None:
    first = save(tuned, tmp_path)
    folder = tmp_path / next(iter(first.plans)).rpartition("/")[0]
    (folder / "all_reduce_77_old.xml").write_text("<algo/>")
    (folder / "mine.txt").write_text("stays")
    again = save(tuned, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["mine.txt", *(Path(name).name for name in again.plans if (tmp_path / name).parent == folder)]
    )


def called(arguments: list[str]) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["tune", *arguments])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_the_command_writes_and_evaluates(tmp_path: Path) -> None:
    small = ["-t", "npu_ring_8", "-a", "ring_allreduce", "-a", "tree_allreduce"]
    code, out = called(["all_reduce", *small, "--sizes", "1K,64K", "-o", str(tmp_path), "--channels", "8", "--json"])
    assert code == 0, out
    told = json.loads(out)
    assert told["choices"][0]["min_bytes"] == 0
    assert told["runs"] == 6
    assert told["regret"]["tuned"]["mean"] == 0
    assert str(tmp_path / "card.md") in told["written"]
    assert ",8,1,8,-1,-1" in (tmp_path / "nccl_tuner.csv").read_text()
    file = str(tmp_path / "nccl_tuner.csv")
    code, out = called(["--evaluate", file, *small, "--sizes", "1K,64K", "--json"])
    assert code == 0, out
    told = json.loads(out)
    assert told["format"] == "nccl"
    assert told["regret"]["mean"] == 0
    assert [finding["code"] for finding in told["findings"]] == ["AHBM-F196"]
    assert told["findings"][0]["sites"][0]["line"] == 1


def test_a_file_is_judged_against_all_that_its_machines_can_run(tmp_path: Path) -> None:
    machine = load_machine("npu_switch_8", {"system.sips.switch.reduces": True})
    catalogue = Catalogue.of("all_reduce", ["nvls_allreduce", "nccl_ring_allreduce"])
    save(tune(catalogue, [machine], [1 << 16, 1 << 17]), tmp_path)
    judged = evaluate(tmp_path / "nccl_tuner.csv", [machine], [1 << 16])
    assert judged.stands == {"nvls": "nvls_allreduce"} and not judged.without


NODES = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "system.sips.topology": "nodes", "system.sips.count": 8}
NODES |= {"system.sips.nodes.size": 4, "system.sips.nodes.reduces": True}
NODES |= {"protocols.ll.step_ns": 600, "protocols.ll.max_gbs": 18, "protocols.simple.step_ns": 3200}


def test_lines_of_nccl_are_what_nccl_can_run_on_the_nodes_of_the_machine(tmp_path: Path) -> None:
    machine = load_machine(None, NODES)
    names = ["nvls_tree_allreduce", "nccl_ring_allreduce"]
    found = tune(Catalogue.of("all_reduce", names), [machine], [1 << 12, 1 << 13])
    save(found, tmp_path)
    lines = [line for line in (tmp_path / "nccl_tuner.csv").read_text().splitlines() if line[0] != "#"]
    assert lines and all(line.endswith(",2,8,-1,-1") for line in lines)
    assert not any("nvls_tree,ll" in line for line in lines)
    rows = (tmp_path / "nccl_sweep.csv").read_text()
    assert "nvls_tree,simple" in rows and "nvls_tree,ll" not in rows and "ring,ll" in rows
    # On one computer, NCCL has no NVLS tree.
    one = Tuned(found.collective, found.dtype, found.table, None, found.rules, Given(nodes=1)).of(NCCL)
    assert {(rule.algorithm, rule.nodes) for rule in one} == {("ring", Span(1, 1))}


def test_the_next_rule_holds_where_nccl_cannot_run_one() -> None:
    names = ["nvls_tree_allreduce", "nccl_ring_allreduce"]
    table = Oracle(Catalogue.of("all_reduce", names), [load_machine(None, NODES)], [1 << 12]).table()
    ring = Rule("all_reduce", "ring", protocol="simple")
    for protocol, stands in ("ll", "nccl_ring_allreduce"), ("simple", "nvls_tree_allreduce"):
        rules = Rules((Rule("all_reduce", "nvls_tree", protocol=protocol), ring))
        judged = judge("rules", Read("a test's", NCCL, rules), table)
        assert set(judged.stands.values()) == {stands}


def test_the_configured_algorithms_are_those_that_one_of_the_machines_can_have() -> None:
    plain, reducing = (load_machine("npu_switch_8", {"system.sips.switch.reduces": given}) for given in (False, True))
    assert "nvls_allreduce" not in configured("all_reduce", [plain])
    assert "nvls_allreduce" in configured("all_reduce", [plain, reducing])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["all_reduce"],
        ["dance", "-o", "x"],
        ["barrier", "-o", "x"],
        ["all_reduce", "-o", "x", "--format", "nccl"],
        ["all_reduce", "-o", "x", "--sizes", "1K", "-b", "1K"],
        ["all_reduce", "-o", "x", "--protocol", "fast"],
        ["all_reduce", "-o", "x", "-t", "npu_ring_8", "--nodes", "3"],
        ["all_reduce", "-o", "x", "-t", "npu_ring_8", "--set", "defaults.n_slots=2,4"],
        ["--evaluate", "x.csv", "-o", "x"],
        ["--evaluate", "x.csv", "--channels", "4"],
        ["--evaluate", "nowhere.csv"],
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told = called(arguments)
    assert code
    assert "AHBM-C1" in told or "AHBM-F101" in told
    assert not list(tmp_path.iterdir())


def test_wrong_and_undecided_candidates_are_named_and_not_chosen(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = rings.write(here, **rings.SPOILT, **rings.OPAQUE)
    asked = ["tune", "all_reduce", "-t", "npu_ring_8", "--sizes", "1K,4K", *(f"-a{name}" for name in names)]
    done = CliRunner().invoke(app, [*asked, "-a", "ring_allreduce", "-o", "tuned"])
    assert done.exit_code == 8 and "| 8 | 0 | any size | ring_allreduce |" in done.stdout
    for name in names:
        assert f"- {name} gives wrong results, and was not chosen there: AHBM-V" in done.stdout
    done = CliRunner().invoke(app, [*asked, "-o", "none"])
    assert isinstance(done.exception, DataError) and done.exception.code == "AHBM-V417"
    assert all(name in done.exception.message for name in names) and not (here / "none").exists()
    rings.write(here, **rings.ROUNDABOUT)
    monkeypatch.setattr(reference, "memory_bytes", lambda: 1)
    asked = ["tune", "all_reduce", "-t", "npu_ring_8", "--sizes", "1K", "-a", "roundabout", "-a", "ring_allreduce"]
    done = CliRunner().invoke(app, [*asked, "-o", "open"])
    assert done.exit_code == 0 and "| 8 | 0 | any size | ring_allreduce |" in done.stdout
    assert "- roundabout was not chosen where it is not known whether its result is right: AHBM-U290" in done.stdout


def test_a_file_that_chooses_a_wrong_algorithm_is_told_so(here: Path) -> None:
    rings.write(here, short=rings.SPOILT["short"])
    text = "algorithms: {short: {module: short}}\ncollectives: {all_reduce: short}\n"
    (here / "own.yaml").write_text(text, encoding="utf-8")
    asked = ["tune", "--evaluate", "own.yaml", "-t", "npu_ring_8", "--sizes", "1K,4K", "-a", "short"]
    for candidates in (asked, [*asked, "-a", "ring_allreduce"]):
        done = CliRunner().invoke(app, candidates)
        assert done.exit_code == 8
        told = "2 points are given to an algorithm that is wrong there, from 1024 to 4096 B: not judged"
        assert told in done.stdout and "short gives wrong results: AHBM-V401" in done.stdout
        for claim in ("it decides no point", "left to ahbm", "no algorithm of the catalogue"):
            assert claim not in done.stdout


KNOBBED = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, protocol=None):
    return (n_elem, world_size, protocol)


def kernel(t_ptr, n_elem, world_size, protocol, sip_rank, kind, w, h, *, tl):
    if tl.program_id(axis=0) != 0:
        return
    own = tl.load(t_ptr, shape=(n_elem,), dtype="f16")
    acc = own
    for step in range(1, world_size - (protocol == "ll")):
        tl.send(dir=tl.peer(sip=(sip_rank + step) % world_size), src=own)
        acc = acc + tl.recv(dir=tl.peer(sip=(sip_rank - step) % world_size), shape=(n_elem,), dtype="f16")
    tl.store(t_ptr, acc)
"""


def test_a_knob_under_which_the_result_is_wrong_is_not_named(here: Path) -> None:
    (here / "algorithms").mkdir()
    (here / "algorithms/knobbed_ring.py").write_text(KNOBBED, encoding="utf-8")
    machine = load_machine("npu_switch_8", PROTOCOLS)
    table = Oracle(Catalogue.of("all_reduce", ["knobbed_ring"]), [machine], [1 << 12]).table()
    (point,) = table.points()
    (name,) = table.times(point.machine, point.nbytes)
    turning = Turning(table)
    assert turning.at(point, name, Knobs(protocol="simple")).ps is not None
    found = turning.at(point, name, Knobs(protocol="ll"))
    assert found.wrong and found.refused and found.ps is None
    rules = Rules((Rule("all_reduce", "ring", protocol="ll"),))
    judged = judge("rules", Read("a test's", NCCL, rules), table)
    assert judged.misled == (point,) and any("wrong result with protocol ll" in note for note in judged.knobs)
    lines = Tuned("all_reduce", "f16", table, None, Rules()).of(NCCL)
    assert {rule.protocol for rule in lines} == {"simple"}
