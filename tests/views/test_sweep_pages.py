"""Pages of sweeps: what each option asks for, in units, with what is told apart by colour."""

from __future__ import annotations

from typing import Any

import pytest

import ahbm
from ahbm.sweeps import answers
from ahbm.views import sweeps

GOALS = ["time", "system.sips.link.bandwidth_gbs"]


@pytest.fixture(scope="module")
def table() -> ahbm.Table:
    return ahbm.sweep(
        "all_reduce",
        ["ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce"],
        ["npu_ring_8", "npu_switch_8"],
        sizes=["1K", "16K", "256K"],
        overrides={"system.sips.link.bandwidth_gbs": [50, 200]},
        data=False,
    )


def layers(chart: Any) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict()
    return spec


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for data in spec["datasets"].values() for row in data]


def test_each_option_draws_what_it_prints(table: ahbm.Table) -> None:
    keys = {
        what: [s.key for s in sweeps.page(table, what, GOALS, "t").sections]
        for what in ("", "best", "pareto", "sensitivity")
    }
    assert keys == {
        "": ["curves", "effects", "values", "best"],
        "best": ["fastest", "best"],
        "pareto": ["front", "table"],
        "sensitivity": ["effects", "values"],
    }


def test_a_table_draws_itself(table: ahbm.Table) -> None:
    pytest.importorskip("vl_convert")
    panels = table.plot().to_dict()
    assert len(panels["facet"]["sort"]) == 4 and len(rows(panels)) == len(table)
    assert "facet" not in table[:3].plot().to_dict()
    assert table.plot("best").svg().startswith("<svg")
    front = table.plot("pareto", *GOALS).to_dict()
    assert front["layer"] and table.plot("sensitivity").to_dict()["layer"]
    for what, goals in (("nosuch", ()), ("best", ("time",))):
        with pytest.raises(ahbm.AhbmError, match="AHBM-C129"):
            table.plot(what, *goals)
    with pytest.raises(ahbm.AhbmError, match="AHBM-C187"):
        table.plot("pareto", "time")


def test_a_front_for_each_thing_computed_on_axes_with_units(table: ahbm.Table) -> None:
    spec = layers(sweeps.front(table, GOALS))
    encoding = spec["layer"][0]["encoding"]
    assert encoding["x"]["title"] == "time (us)" and encoding["y"]["title"] == GOALS[1]
    assert encoding["x"]["scale"]["type"] == encoding["y"]["scale"]["type"] == "log"
    assert len(encoding["color"]["scale"]["domain"]) == 3 and encoding["color"]["legend"]["orient"] == "bottom"
    wanted = {(row["latency_ns"] / 1000, row[GOALS[1]]) for row in table.take(answers.pareto(table, GOALS))}
    assert wanted <= {(row["x"], row["y"]) for row in rows(spec)}


def test_curves_have_every_case_once(table: ahbm.Table) -> None:
    spec = layers(sweeps.curves(table))
    found = {(row["machine"], row["algorithm"], row["bytes"], row["us"]) for row in rows(spec)}
    assert len(found) == len(table) and len({machine for machine, *_ in found}) == 4
    (param,) = [param for param in spec["params"] if param["name"] == "machine"]
    assert len(param["bind"]["options"]) == 4


def test_what_matters_says_its_values(table: ahbm.Table) -> None:
    found = answers.sensitivity(table)
    spec = layers(sweeps.effects(found))
    shown = {(row["key"], row["value"], row["share"]) for row in rows(spec) if "key" in row}
    assert shown == {(effect.key, value, share) for effect in found for value, share in effect.values}
    assert {row["is"] for row in rows(spec) if "is" in row} == {"quicker", "slower"}
    page = sweeps.page(table, "sensitivity", [], "t")
    assert any("matters most" in sentence for sentence in page.headline)


def test_the_time_comes_first_in_a_table(table: ahbm.Table) -> None:
    section = sweeps.page(table, "best", [], "t").sections[-1]
    assert section.columns[0] == "time (us)" and len(section.rows) == 3
