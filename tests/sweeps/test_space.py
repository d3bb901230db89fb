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
from ahbm.errors import AhbmError, UnsupportedError
from ahbm.sweeps.case import plan
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
