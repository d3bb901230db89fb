"""Pages and charts: self-contained, the same every time, drawn without errors in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import categories
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.runs.advice import SIMULATED
from ahbm.table.cases import Sweep
from ahbm.table.study import Contents, gather
from ahbm.views import answer, charts, colors, links, overview, page
from ahbm.views.page import Page, Section
from support import rings

ALGORITHMS = ("ring_allreduce", "tree_allreduce")
SWEEP = Sweep("all_reduce", 1024, 16384, 4, algorithms=ALGORITHMS, topology="npu_ring_8")
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def contents() -> Contents:
    return gather(SWEEP, ranks=(2, 4), numerics=True)


def test_a_page_needs_no_network_and_is_the_same_every_time(contents: Contents) -> None:
    html = overview.page(contents).html()
    assert html == overview.page(contents).html()
    assert "<script src" not in html
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(link|img|iframe)|url\(|https?:", outside)
    for name in ("bandwidth", "latency", "selection"):
        assert f'id="chart-{name}"' in html
    for report in contents.reports:
        assert f"{report.latency_ns / 1000:,.3f}" in html


def test_the_script_of_charts_is_made_once_for_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where the cache has not what was written, or cannot be written."""
    made: list[list[str]] = []

    def make(words: list[str], **_: object) -> SimpleNamespace:
        made.append(words)
        return SimpleNamespace(stdout=b"window.vegaEmbed = 1;")

    monkeypatch.setattr(page.subprocess, "run", make)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def script() -> str:
        page.bundle.cache_clear()
        return page.bundle().result()

    try:
        assert [script(), script()] == ["window.vegaEmbed = 1;"] * 2 and len(made) == 1
        page.cached().write_bytes(page.cached().read_bytes() + b"evil()")
        assert script() == "window.vegaEmbed = 1;" and len(made) == 2
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert [script(), script()] == ["window.vegaEmbed = 1;"] * 2 and len(made) == 4
    finally:
        page.bundle.cache_clear()


def test_every_series_is_drawn(contents: Contents) -> None:
    rows = charts.series(contents.reports, contents.peak_gbs)
    assert {row["series"] for row in rows} == {*ALGORITHMS, "bound", "peak"}
    assert len(rows) == 3 * len(ALGORITHMS) + 3 + 3
    best = {row["bytes"]: row["busbw"] for row in rows if row["series"] == "bound"}
    assert all(row["busbw"] <= best[row["bytes"]] for row in rows if row["series"] in ALGORITHMS)
    # Of an endless array, a ring of 8 moves 50 GB/s over two links per NPU.
    assert contents.peak_gbs == pytest.approx(100, rel=1e-3)
    assert max(best.values()) < contents.peak_gbs


def test_the_winner_is_the_fastest(contents: Contents) -> None:
    spec = charts.selection(contents.worlds, "who").to_dict()
    (cells,) = (
        [data for data in spec["datasets"].values()] if "datasets" in spec else [spec["layer"][0]["data"]["values"]]
    )
    assert len(cells) == 2 * 3
    for cell in cells:
        rivals = [r for r in contents.worlds if (r.ranks, r.bytes) == (cell["ranks"], cell["bytes"])]
        assert cell["algorithm"] == min(rivals, key=lambda r: r.latency_ns).algorithm
        assert len(rivals) == len(ALGORITHMS)


def test_reasons_are_drawn(contents: Contents) -> None:
    page = overview.page(contents)
    assert list(page.charts) == [
        *("bandwidth", "latency", "selection", "comparison", "breakdown", "path", "agents", "gantt", "sip-links"),
    ]
    for chart in page.charts.values():
        chart.chart.to_dict()  # Against the schema of charts, which pages leave out.
    for name, explanation in contents.explanations.items():
        assert sum(explanation.by_category.values()) == explanation.latency_ps
        report = next(r for r in reversed(contents.reports) if r.algorithm == name)
        assert explanation.latency_ps == pytest.approx(report.latency_ns * 1000)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["npu_mesh_4x4", "npu_torus_4x4x4", "npu_hypercube_16", "npu_switch_8"])
def test_every_link_has_a_place(topology: str) -> None:
    found = gather(Sweep("all_gather", 4096, 4096, topology=topology))
    (explanation,) = found.explanations.values()
    assert found.machine is not None
    chart = links.sip_links(found.machine, explanation)
    assert chart is not None
    spec = json.dumps(chart.to_dict())
    between = {link.name for link in explanation.links if "->" in link.name}
    assert between and between <= set(found.machine.links_between_sips())
    assert all(f'"{name}"' in spec for name in found.machine.links_between_sips())


def test_idle_and_dead_links_are_told_apart() -> None:
    dead = {"faults.links": [{"sip": 0, "from": 5, "to": 6, "dead": True}]}
    names = ("lrab_hierarchical_allreduce",)
    found = gather(Sweep("all_reduce", 1024, 1024, algorithms=names, device=True, overrides=dead))
    (explanation,) = found.explanations.values()
    assert found.machine is not None
    live = found.machine.links_between_cubes(0)
    assert len(live) == 48 - 2 and "sip0.cube5.ucie_E0" not in live
    assert not found.machine.links_between_cubes(found.machine.sips)
    chart = links.cube_links(found.machine, explanation)
    assert chart is not None
    spec = chart.to_dict()
    rows = spec["datasets"][spec["layer"][0]["data"]["name"]]
    rows = [row for row in rows if row["order"] == 0]
    assert sorted(row["link"].rstrip("0123456789") for row in rows) == sorted(name.rstrip("0") for name in live)
    used = [bool(row["messages"]) for row in rows]
    assert used == sorted(used) and len(set(used)) == 2


@pytest.mark.slow
def test_links_between_cubes(tmp_path: Path) -> None:
    found = gather(Sweep("all_reduce", 1024, 1024, device=True))
    page = overview.page(found)
    assert "cube-links" in page.charts
    page.write_charts(tmp_path)
    assert "cube5" in (tmp_path / "cube-links.svg").read_text()


def test_hostile_names_stay_text(contents: Contents) -> None:
    evil = "</script><script>alert(1)</script>"
    reports = [replace(report, algorithm=evil) for report in contents.reports]
    html = overview.page(replace(contents, reports=reports)).html()
    assert "<script>alert" not in html


@pytest.mark.slow
def test_charts_as_files(contents: Contents, tmp_path: Path) -> None:
    page = overview.page(contents)
    (svg, *_) = page.write_charts(tmp_path / "svg")
    assert svg.read_text().startswith("<svg")
    pngs = page.write_charts(tmp_path / "png", "png")
    assert [path.stem for path in pngs] == list(page.charts) and pngs[0].read_bytes().startswith(b"\x89PNG")
    for kind, folder in (("gif", tmp_path), ("svg", tmp_path / "svg" / "bandwidth.svg")):
        with pytest.raises(ConfigError) as caught:
            page.write_charts(folder, kind)
        assert caught.value.code == "AHBM-C161"


def test_command_line(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", "all_gather", "-t", "npu_ring_8", "-e", "4K", "-o", str(page)])
    assert done.exit_code == 0 and "<!doctype html>" in page.read_text()
    bad = CliRunner().invoke(app, ["report", "all_gather", "--ranks", "2,x", "-o", str(page)])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C162"


def browse(page: Path, theme: str, *options: str) -> tuple[str, str]:
    """The document after drawing, and what the console said."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,2000"]
    # Two browsers cannot share a profile, and tests run beside each other.
    command += [f"--user-data-dir={page.with_suffix('.profile')}", "--no-first-run", "--disable-background-networking"]
    command += ["--virtual-time-budget=30000", "--enable-logging=stderr", "--v=0", *options]
    done = subprocess.run([*command, f"{page.as_uri()}?theme={theme}"], capture_output=True, text=True, timeout=180)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_in_a_browser(contents: Contents, theme: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    page = overview.page(contents)
    page.write(path)
    dom, console = browse(path, theme, "--dump-dom")
    assert console == ""
    shown = [name for section in page.sections for name in section.charts]
    assert f'data-drawn="{len(shown)}"' in dom and "data-failed" not in dom
    assert f'data-theme="{theme}"' in dom
    widths = [float(width) for width in re.findall(r'<svg[^>]*class="marks"[^>]*width="([\d.]+)"', dom)]
    assert len(widths) == len(shown)
    # Two beside each other in a window of 1280 pixels, none of them tiny.
    assert all(250 < width < 1230 for width in widths) and 400 < widths[0] == widths[1] < 600


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_narrow_window(contents: Contents, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    overview.page(contents).write(path)
    dom, console = browse(path, "light", "--dump-dom", "--window-size=390,2000")
    assert console == ""
    widths = [float(width) for width in re.findall(r'<svg[^>]*class="marks"[^>]*width="([\d.]+)"', dom)]
    assert widths and all(250 < width < 480 for width in widths)


def test_a_notebook_shows_a_chart_without_network(contents: Contents) -> None:
    chart = overview.page(contents).charts["bandwidth"]
    svg = chart._repr_svg_()
    assert svg.startswith("<svg") and "busbw (GB/s)" in svg and "<script" not in svg
    assert set(re.findall(r"https?://[^\"' ]+", svg)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    # What IPython asks first would be altair's page, with scripts from the network.
    assert not hasattr(chart, "_repr_mimebundle_") and not hasattr(chart, "_repr_html_")
    assert chart.png().startswith(b"\x89PNG")


def test_only_tables_scroll_sideways(contents: Contents) -> None:
    html = re.sub(r"<script.*?</script>", "", overview.page(contents).html(), flags=re.DOTALL)
    assert html.count("<table>") == html.count('<div class="table">') > 2
    assert ".table { overflow-x: auto; }" in html and ".chart svg { display: block; max-width: 100%;" in html
    for name, chart in overview.page(contents).charts.items():
        assert chart.to_dict()["width"] == "container" or name.endswith("-links")


def test_charts_zoom_and_round_what_they_tell(contents: Contents) -> None:
    page = overview.page(contents)
    specs = {name: chart.to_dict() for name, chart in page.charts.items()}
    for name in ("bandwidth", "latency", "path", "gantt"):
        assert any(param.get("bind") == "scales" for param in specs[name]["params"])
    assert any(param.get("bind") == "legend" for param in specs["latency"]["params"])
    assert specs["bandwidth"]["usermeta"]["y"]["log"]["domain"][0] > 0
    tips = re.findall(r'"tooltip": (\[.*?\])', json.dumps(specs))
    fields = [field for tip in tips for field in json.loads(tip) if field["type"] == "quantitative"]
    assert fields and all(field["format"] in (".4g", ".1%") for field in fields)
    assert all(spec["title"] for spec in specs.values())


def test_the_answer_comes_first(contents: Contents) -> None:
    """Which is fastest, how far from the bound, why with a line, what to try: each from the data."""
    first, why, advice = overview.page(contents).headline
    best = min((r for r in contents.reports if r.bytes == 16384), key=lambda report: report.latency_ns)
    explanation = contents.explanations[best.algorithm]
    assert first.startswith(f"{best.algorithm} is the fastest of 2 at 16 KiB: {best.latency_ns / 1000:.4g} us, ")
    assert f"{best.percent_of_bound:.3g} % of the bound" in why
    category = next(iter(explanation.by_category))
    assert f"% of its critical path is {category}" in why and f"{best.algorithm}.py:" in why
    change = explanation.advice[0]
    assert change.latency_ps is not None and change.gain_ps > 0
    again = explanation.what_if(change.changes)
    percent = 100 * (again.latency_ps or 0) / explanation.latency_ps - 100
    assert advice.startswith(f"Try {change.what}: {percent:+.1f} %, ") and "(simulated again)" in advice
    assert answer.REMEDIES[category] in advice
    # All of the path is one line here, which says nothing about that line.
    assert len(explanation.steps) == 1 and "at no cost" not in advice
    html = overview.page(contents).html()
    assert html.index('id="answer"') < html.index("<nav") < html.index("<h2")
    for section in overview.page(contents).sections:
        assert f'href="#{section.key}"' in html and f'id="{section.key}"' in html


def test_the_answer_names_the_protocol_that_limits_a_link() -> None:
    explanation = ahbm.run("all_reduce", topology="dgx_b300", bytes_per_rank=1 << 30, data=False).explain()
    assert "at the bandwidth of protocol simple, " in answer.because(explanation)
    assert " GB/s)." in answer.because(explanation)
    other = ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1 << 20, data=False).explain()
    assert "protocol" not in answer.because(other)


def test_a_wrong_result_is_not_the_fastest(contents: Contents) -> None:
    wrong, right = (
        [replace(r, wrong=n, latency_ns=r.latency_ns * n) for r in contents.reports if r.algorithm == name]
        for n, name in zip((1, 100), ALGORITHMS, strict=True)
    )
    right = [replace(report, wrong=0) for report in right]
    told = answer.fastest([*wrong, *right])
    assert told.startswith(f"{ALGORITHMS[1]} takes") and told.endswith(f"take no part: {ALGORITHMS[0]}.")
    assert answer.of_sweep(wrong, ()) == [f"No result is right: {ALGORITHMS[0]}."]
    spec = charts.selection([*wrong, *right], "who").to_dict()
    (cells,) = spec["datasets"].values()
    assert {cell["algorithm"] for cell in cells} == {ALGORITHMS[1]}


def test_a_run_that_takes_no_time_has_no_charts(contents: Contents) -> None:
    alone = gather(replace(SWEEP, overrides={"system.sips.count": 1}))
    page = overview.page(alone)
    assert page.charts == {} and not any(section.charts or section.pictures for section in page.sections)
    assert page.headline[0] == f"At 16 KiB no time is taken by {', '.join(ALGORITHMS)}."
    quick = [replace(report, latency_ns=0.0) for report in contents.reports if report.algorithm == ALGORITHMS[0]]
    others = [report for report in contents.reports if report.algorithm == ALGORITHMS[1]]
    assert answer.fastest([*quick, *others]) == f"At 16 KiB no time is taken by {ALGORITHMS[0]}."


def test_of_several_lines_the_answer_names_the_one_that_gives_most() -> None:
    (report,) = gather(Sweep("all_reduce", 65536, 65536, device=True), explain=False).reports
    why = report.explain()
    told = answer.advice(why, report)
    line = max((a for a in why.advice if a.line and a.way == SIMULATED), key=lambda entry: entry.gain_ps)
    assert re.search(rf"{re.escape(line.line)} at no cost: -\d+.\d % \(simulated again\)\.$", told)


def test_a_sweep_of_one_size_shows_its_bound() -> None:
    found = gather(Sweep("all_gather", 4096, 4096, topology="npu_ring_8"), explain=False)
    chart = charts.latency(charts.series(found.reports, found.peak_gbs), "t").to_dict()
    points = next(layer for layer in chart["layer"] if layer["mark"]["type"] == "point")
    (picked,) = points["transform"]
    assert "bound" in picked["filter"]["oneOf"]


@pytest.mark.parametrize(
    ("found", "ticks"),
    [
        ([1024, 16384], [1 << n for n in range(10, 15)]),
        ([1000, 5000], [1024, 2048, 4096]),
        ([16384, 65536], [16384, 32768, 65536]),
        ([96, 100], [96, 100]),
        ([0], [0]),
        ([1, 1 << 33], [1 << n for n in range(0, 34, 4)]),
    ],
)
def test_sizes_have_ticks_that_can_be_read(found: list[int], ticks: list[int]) -> None:
    assert charts.sizes(found).to_dict()["axis"]["values"] == ticks


def test_every_category_has_a_remedy_and_a_colour() -> None:
    waits = {name for name in categories() if name.startswith(("waiting for ", "idle "))}
    assert {"message", "slot", "counter", "barrier", "link", "engine", "transfer"} == {
        name.removeprefix("waiting for ") for name in waits if name.startswith("waiting")
    }
    assert set(categories()) == set(colors.CATEGORIES) == set(answer.REMEDIES) | waits
    assert len(set(colors.CATEGORIES.values())) == len(colors.CATEGORIES)


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_broken_page_is_seen(tmp_path: Path) -> None:
    class Broken:
        def to_dict(self, validate: bool = True) -> dict[str, object]:
            return {"mark": "no such mark", "data": {"values": json.loads("[]")}, "encoding": {}}

    path = tmp_path / "broken.html"
    broken: Any = Broken()
    page = Page("broken", "", [Section("a", "a", charts=["x"])], {"x": broken})
    page.write(path)
    dom, console = browse(path, "light", "--dump-dom")
    assert "data-failed" in dom or console


def test_a_notebook_shows_a_page_in_a_frame_of_its_own() -> None:
    page = Page('<"t">', "", [Section("a", "A & B", columns=("x",), rows=[["1"]])], {})
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', page._repr_html_()
    )
    assert found is not None
    assert html.unescape(found[1]) == page.html()


def test_the_map_of_the_fastest_has_no_wrong_one(here: Path) -> None:
    names = rings.write(here, **rings.SPOILT, **rings.OPAQUE)
    sweep = Sweep("all_reduce", 1024, 1024, algorithms=(*names, "ring_allreduce"), topology="npu_ring_8")
    found = gather(sweep, ranks=(4,), explain=False)
    assert {report.algorithm for report in found.worlds} == {"ring_allreduce"}
    assert {cell.algorithm for cell in found.refused} == set(names)
