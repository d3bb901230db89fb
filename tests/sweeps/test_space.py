"""Spaces: what they combine, what they draw, and what they refuse, with its line; the schema says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import ahbm
from ahbm.base import packaged
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, UnsupportedError
from ahbm.sweeps.case import plan
from ahbm.sweeps.sample import Range
from ahbm.sweeps.space import KEYS, Space, space_schema
from ahbm.table.processes import Places

pytestmark = pytest.mark.usefixtures("here")

GBS = "system.sips.link.bandwidth_gbs"
GOOD: dict[str, Any] = {
    "collectives": ["all_reduce", "all_gather"],
    "algorithms": "ring_allreduce",
    "topologies": ["npu_ring_8"],
    "overrides": {GBS: [50, 100]},
    "sizes": ["1K", 4096],
    "dtypes": ["f16", "f32"],
    "ops": "sum",
    "roots": 0,
    "seeds": [0, 1],
    "jobs": "step",
    "ccl": "ccl.yaml",
    "data": False,
    "check": "race",
    "cost": {"dollars": "links * 20"},
    "ranges": {"system.sips.link.latency_ns": [10, 400]},
    "random": 3,
    "sobol": 0,
    "sample_seed": 7,
    "cases": [{"sizes": "1K"}],
}
BAD: dict[str, list[Any]] = {
    "collectives": [3, [], None],
    "algorithms": [3, []],
    "topologies": [3, [None]],
    "overrides": [[], {GBS: None}, 3],
    "sizes": [0, "1X", [], 2.5, True],
    "dtypes": [3],
    "ops": [3],
    "roots": [-1, "x"],
    "seeds": [-1, 1.5],
    "jobs": [3],
    "ccl": [3, ""],
    "data": ["yes", 1],
    "check": [3],
    "cost": [[], {"dollars": 3}, "links"],
    "ranges": [[], {GBS: 3}, {GBS: [1, 2, 3]}, {GBS: {"from": 1}}],
    "random": [-1, "x"],
    "sobol": [1.5],
    "sample_seed": [-1],
    "cases": [3, [3], [{"size": "1K"}]],
}


def written(content: Any) -> Path:
    path = Path("space.yaml")
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_the_schema_is_what_the_reader_checks() -> None:
    schema = packaged.SCHEMAS / "sweep.schema.json"
    assert schema.read_text(encoding="utf-8") == space_schema()
    valid = jsonschema.Draft202012Validator(json.loads(space_schema())).is_valid
    assert set(GOOD) == set(BAD) == set(KEYS)
    for key, value in GOOD.items():
        assert valid({key: value}) and KEYS[key](value) is None, key
    for key, values in BAD.items():
        for value in values:
            assert KEYS[key](value) is not None, (key, value)
            # What a text means, a schema does not say.
            assert not valid({key: value}) or value == "1X", (key, value)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_with_its_line(key: str, value: Any) -> None:
    path = written({"data": False, key: value} if key != "data" else {"sizes": 64, "data": value})
    with pytest.raises(ahbm.AhbmError, match=r"AHBM-C185 [\s\S]*space\.yaml:[12]"):
        Space.of(path)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"algoritms": "x"}, "AHBM-C185"),
        ({"dtypes": "f13"}, "AHBM-C143"),
        ({"collectives": "all_reduc"}, "AHBM-C105"),
        ({"overrides": {"nosuch.key": 1}}, "AHBM-C107"),
        ({"ranges": {GBS: [1, 2]}}, "AHBM-C185"),
        ({"random": 3}, "AHBM-C185"),
        ({"ranges": {GBS: [2, 1]}, "random": 1}, "AHBM-C185"),
        ({"ranges": {GBS: {"from": 0, "to": 1, "log": True}}, "random": 1}, "AHBM-C185"),
        ({"ranges": {GBS: [1, 2]}, "random": 1, "sobol": 1}, "AHBM-C185"),
        ({"cases": [{"dtypes": "f13"}]}, "AHBM-C143"),
    ],
)
def test_what_does_not_go_together_is_refused_alike_from_files_and_mappings(content: Any, code: str) -> None:
    for given in (written(content), content):
        with pytest.raises(AhbmError) as caught:
            Space.of(given)
        assert caught.value.code == code
        assert given is content or "space.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ahbm.AhbmError, match=r"AHBM-C185 nowhere\.yaml cannot be read"):
        Space.of("nowhere.yaml")


def cases(**space: Any) -> list[Any]:
    made = Space(**{"data": False, "algorithms": "ring_allreduce", **space})
    found = list(plan(made, Places()))
    assert [case.at for case in found] == list(range(len(found)))
    assert len(found) == made.count
    return found


def test_lists_are_combined_each_with_each_in_order() -> None:
    found = cases(
        topologies=["npu_ring_8", "npu_switch_8"],
        overrides={GBS: [50, 100]},
        sizes=["1K", "64K"],
        dtypes=["f16", "f32"],
    )
    seen = [(c.sweep.machine.split(",")[0], c.sweep.varied[GBS], c.sweep.dtype, c.nbytes) for c in found]
    assert seen == sorted(seen, key=lambda s: (s[0] != "npu_ring_8", s[1], s[2], s[3])) and len(set(seen)) == 16


def test_sizes_are_what_the_collective_can_divide() -> None:
    assert {case.nbytes for case in cases(topologies="npu_ring_8", collectives="all_gather", sizes=[1000])} == {992}


@pytest.mark.slow
def test_points_of_ranges_are_drawn_once_and_stay_in_them() -> None:
    ranges = {
        GBS: {"from": 1, "to": 1000, "log": True},
        "system.sips.link.latency_ns": [1.5, 2.5],
        "sizes": ["1K", "1M"],
    }
    for how in ("random", "sobol"):
        one, two = (cases(ranges=ranges, topologies="npu_ring_8", sample_seed=seed, **{how: 40}) for seed in (1, 2))
        again = cases(ranges=ranges, topologies="npu_ring_8", sample_seed=1, **{how: 40})
        assert [c.key for c in one] == [c.key for c in again] != [c.key for c in two]
        gbs = [case.sweep.varied[GBS] for case in one]
        assert all(isinstance(value, int) and 1 <= value <= 1000 for value in gbs)
        # Evenly spread logarithms: half of the numbers are below the middle, 31.6.
        assert 12 <= sum(value < 31.6 for value in gbs) <= 28
        assert all(1024 <= case.nbytes <= 1 << 20 for case in one) and len({case.nbytes for case in one}) > 30


def test_a_sobol_sequence_fills_every_half_of_the_halves() -> None:
    found = cases(ranges={GBS: {"from": 0.0, "to": 1.0}, "sizes": [1, 2]}, topologies="npu_ring_8", sobol=16)
    shares = sorted(float(str(case.sweep.varied[GBS])) for case in found)
    assert [int(share * 16) for share in shares] == list(range(16))


def test_a_missing_scipy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats.qmc", None)
    with pytest.raises(UnsupportedError, match=r"AHBM-U145 scipy is not installed[\s\S]*ahbm\[sweep\]"):
        cases(ranges={GBS: [1, 2]}, sobol=4)


def test_cases_of_their_own_replace_the_axes_that_they_name() -> None:
    found = cases(
        topologies="npu_ring_8",
        sizes="1K",
        overrides={GBS: 50},
        cases=[{"sizes": ["2K", "4K"]}, {"overrides": {GBS: 70}}, {"dtypes": "f32", "topologies": "npu_switch_8"}],
    )
    assert [case.nbytes for case in found] == [2048, 4096, 1024, 1024]
    assert [case.sweep.varied.get(GBS) for case in found] == [50, 50, 70, 50]
    assert found[3].sweep.dtype == "f32" and "npu_switch_8" in found[3].sweep.machine


def test_keys_are_what_runs_not_what_it_is_called(tmp_path: Path) -> None:
    def key(**space: Any) -> str:
        return str(cases(sizes="1K", **space)[0].key)

    base = key(topologies="npu_ring_8")
    assert base == key(topologies="npu_ring_8", overrides={"system.sips.count": 8})
    others = [
        key(topologies="npu_switch_8"),
        key(topologies="npu_ring_8", overrides={"n_slots": 8}),
        key(topologies="npu_ring_8", algorithms="tree_allreduce"),
        key(topologies="npu_ring_8", dtypes="f32"),
        key(topologies="npu_ring_8", ops="max"),
        key(topologies="npu_ring_8", data=True),
        key(topologies="npu_ring_8", check="race"),
        key(topologies="npu_ring_8", algorithms=None),
    ]
    assert len({base, *others}) == len(others) + 1
    # Without data a seed means nothing, and of an all_reduce no root does.
    assert base == key(topologies="npu_ring_8", seeds=4, roots=3)
    assert key(topologies="npu_ring_8", data=True) != key(topologies="npu_ring_8", data=True, seeds=4)


def test_the_key_of_a_module_is_its_content() -> None:
    source = (packaged.ALGORITHMS / "ring_allreduce.py").read_text(encoding="utf-8")
    found = []
    for text in (source, source + "\n# changed\n", source):
        Path("mine.py").write_text(text, encoding="utf-8")
        from ahbm.base.load import forget_files_read

        forget_files_read()
        found.append(cases(topologies="npu_ring_8", algorithms="./mine.py", sizes="1K")[0].key)
    assert found[0] == found[2] != found[1]


def test_columns_of_overrides_have_one_type() -> None:
    space = Space(overrides={GBS: [1, 2.5], "system.sips.topology": ["ring_1d", "switch"], "n_slots": [2, 4]})
    assert space.kinds == {GBS: "double", "system.sips.topology": "string", "n_slots": "int64"}


def test_every_axis_is_a_loop_within_the_one_before_it() -> None:
    """Written out: collectives, topologies, overrides (the last key the quickest), types, operators, roots, algorithms,
    sizes, seeds."""
    ns = "system.sips.link.latency_ns"
    topologies, algorithms = ("npu_switch_8", "npu_ring_8"), ("tree_allreduce", "ring_allreduce")
    found = cases(
        collectives=["broadcast", "all_reduce"],
        topologies=list(topologies),
        overrides={ns: (9, 3), GBS: [100, 50], "n_slots": 4},
        dtypes=["f32", "f16"],
        ops=["max", "sum"],
        roots=range(1, 3),
        algorithms=list(algorithms),
        sizes=["2K", 512],
        seeds=[5, 2],
        data=True,
    )
    wanted = [
        (collective, topology, latency, gbs, 4, dtype, op, root, algorithm, nbytes, seed)
        for collective in ("broadcast", "all_reduce")
        for topology in topologies
        for latency in (9, 3)
        for gbs in (100, 50)
        for dtype in ("f32", "f16")
        for op in ("max", "sum")
        for root in (1, 2)
        for algorithm in algorithms
        for nbytes in (512, 2048)
        for seed in (5, 2)
    ]

    def facts(case: Any) -> tuple[object, ...]:
        s = case.sweep
        named = (s.overrides[ns], s.overrides[GBS], s.overrides["n_slots"])
        return (s.collective, s.topology, *named, s.dtype, s.op, s.root, case.algorithm, case.nbytes, case.seed)

    assert [facts(case) for case in found] == wanted
    assert {tuple(case.sweep.varied) for case in found} == {(ns, GBS)}
    keys = [case.key for case in found]
    # Operators of a broadcast and roots of an all_reduce mean nothing.
    assert len(set(keys)) == len(keys) // 2


def test_points_of_ranges_are_the_innermost_machines() -> None:
    found = cases(
        topologies=["npu_switch_8", "npu_ring_8"],
        overrides={"n_slots": [2, 4]},
        ranges={GBS: [50, 60], "sizes": [4096, 8192]},
        random=3,
        sizes=[64, 128],
    )
    drawn = [(case.sweep.overrides[GBS], case.nbytes) for case in found[:3]]
    assert len(set(drawn)) == 3
    assert all(isinstance(gbs, int) and 50 <= gbs <= 60 and 4096 <= size <= 8192 for gbs, size in drawn)
    for number, case in enumerate(found):
        topology, slots = ("npu_switch_8", "npu_ring_8")[number // 6], (2, 4)[number // 3 % 2]
        assert (case.sweep.topology, case.sweep.overrides["n_slots"]) == (topology, slots)
        assert (case.sweep.overrides[GBS], case.nbytes) == drawn[number % 3]
        assert list(case.sweep.varied) == ["n_slots", GBS] and "sizes" not in case.sweep.overrides


def test_what_is_not_said_is_as_the_page_says() -> None:
    space = Space()
    assert space.to_json() == {} and space.measured == ("all_reduce",) and space.bytes == (1024, 32 << 10, 1 << 20)
    found = list(plan(Space(topologies="npu_ring_8"), Places()))
    facts = [(c.algorithm, c.nbytes, c.seed, c.sweep.dtype, c.sweep.op, c.sweep.root) for c in found]
    assert facts == [(None, size, 0, "f16", "sum", 0) for size in (1024, 32 << 10, 1 << 20)]
    assert all(case.sweep.data is True and case.sweep.check is False and case.sweep.ccl is None for case in found)
    said = Space("all_gather", "ring_all_gather", Path("mine.yaml"), sizes=["1K"], data=False, random=0)
    assert said.to_json() == {
        "collectives": "all_gather",
        "algorithms": "ring_all_gather",
        "topologies": "mine.yaml",
        "sizes": ["1K"],
        "data": False,
    }
    assert Space(algorithms=None, overrides={}, ranges=None).count == 3 and space.sample_seed == 0
    for given, told in (({"ranges": {GBS: [1, 2]}}, "ranges without random"), ({"sobol": 3}, "sobol without ranges")):
        with pytest.raises(ahbm.AhbmError, match=told):
            Space(**given)  # type: ignore[arg-type]


def test_jobs_stand_behind_collectives_and_alone_where_none_is_named() -> None:
    names = ["ring_allreduce", "tree_allreduce"]
    alone = cases(jobs=["b", "a"], topologies=["npu_switch_8", "npu_ring_8"], algorithms=names)
    assert [(case.sweep.job, case.sweep.topology, case.algorithm) for case in alone] == [
        (job, topology, name) for job in ("b", "a") for topology in ("npu_switch_8", "npu_ring_8") for name in names
    ]
    assert {case.nbytes for case in alone} == {0} and Space(jobs=()).measured == ("all_reduce",)
    both = cases(collectives="all_reduce", jobs="a", topologies="npu_ring_8", sizes=[64, 128], seeds=[1, 2])
    assert [(case.sweep.job, case.nbytes) for case in both] == [(None, n) for n in (64, 64, 128, 128)] + [("a", 0)]


def test_what_differs_somewhere_is_a_column_and_nothing_else() -> None:
    space = {"overrides": {GBS: 50, "n_slots": 4}, "topologies": "npu_ring_8"}
    assert Space(**space).varied == ()
    own = [{"overrides": {GBS: 50}}, {"overrides": {GBS: 70}}, {"sizes": 64}]
    assert Space(**space, cases=own).varied == (GBS,) and Space(**space, cases=own[:1]).varied == ()
    drawn = Space(ranges={"n_slots": [2, 8], "sizes": [64, 128]}, random=2, overrides={GBS: [1, 2]})
    assert drawn.varied == (GBS, "n_slots") and drawn.kinds == {GBS: "int64", "n_slots": "int64"}
    shares = Space(ranges={"n_slots": [2, 8.5]}, random=2, cases=[{"overrides": {GBS: ["50", 60]}}])
    assert shares.kinds == {GBS: "string", "n_slots": "double"}
    (laid,) = Space(**space, cases=own[1:2]).spaces()
    assert laid.overrides == {GBS: 70, "n_slots": 4} and laid.cases == ()


def test_numbers_at_their_bounds() -> None:
    for name, good, bad in (
        ("roots", (-(2**31), 2**63 - 1), (-(2**31) - 1, 2**63, True, 1.5)),
        ("seeds", (0, 2**63 - 1), (2**63, False, "1")),
        ("sample_seed", (0, 2**63 - 1), (-1, 2**63, True)),
        ("random", (), (-1, 2**63, True, "x")),
        ("sizes", (1, "1", "64K"), (True, 2.5, "1X")),
        ("dtypes", ("f16",), (3, "", "f\x0016")),
        ("ops", ("max",), (3, "")),
        ("collectives", ("all_gather",), (3, "")),
    ):
        for value in good:
            assert getattr(Space(**{name: [value] if name != "sample_seed" else value}), name) in ([value], value)
        for value in bad:
            with pytest.raises(AhbmError, match=r"AHBM-C1(29|47) "):
                Space(**{name: [value] if name not in ("sample_seed", "random") else value})


def test_algorithms_are_names_or_functions_each_once() -> None:
    def mine(*_: object, tl: object) -> None: ...

    def own(name: str) -> Any:
        return ahbm.algorithm(mine, name=name, kernel_args=lambda ranks, count, **how: (count,))

    for none in (None, [], [None]):
        assert Space(algorithms=none).named() == ((None,), {})
    named, given = Space(algorithms=["ring_allreduce", own("own")]).named()
    assert named == ("ring_allreduce", "own") and list(given) == ["own"]
    for twice in (["x", "x"], ["ring_allreduce", None], [None, None], [own("x"), "x"]):
        with pytest.raises(ahbm.AhbmError, match="AHBM-C129"):
            Space(algorithms=twice).named()
    assert "own" in Space(algorithms=own("own")).to_json()["algorithms"]
    machine = Space(topologies=load_machine("npu_ring_8")).to_json()["topologies"]
    assert machine.startswith("machine ") and len(machine) == 24


def test_both_ends_of_a_range_are_drawn_and_integers_are_equally_likely() -> None:
    shares = [number / 600 for number in range(600)]
    one = Range.of("key", [1, 3])
    found = [one.at(share) for share in shares]
    assert [found.count(number) for number in (1, 2, 3)] == [200] * 3
    assert Range.of("key", [5, 5]).at(0.999) == 5 and Range.of("key", [0, 1.0]).at(0.25) == 0.25
    grown = Range.of("sizes", ["1K", "4K"])
    assert (grown.least, grown.most, grown.log) == (1024, 4096, True) and grown.at(0.0) == 1024
    assert abs(grown.at(0.5) - 2048) <= 1 and grown.at(0.99999) == 4096
    slow = Range.of("key", {"from": 1.0, "to": 100, "log": True})
    assert (slow.at(0.0), slow.at(0.5)) == (1.0, 10.0)
