"""Stores of benches, ladders, comparisons and pages: those of sweeps; what is in them is not run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.base.load import forget_files_read
from ahbm.cli import app
from ahbm.core.emulator import Emulator
from ahbm.table import cases, files, kept, made
from ahbm.table.cases import Refused, Sweep
from ahbm.table.ladder import climb
from ahbm.table.running import attempt
from ahbm.table.store import Store
from support import rings

pytestmark = pytest.mark.usefixtures("here")

RING = ("ring_allreduce",)
HERE = ["-t", "npu_ring_8", "--sizes", "1001,4K", "-a", "ring_allreduce", "-a", "tree_allreduce", "--store", "rows"]


class Simulated(list[str]):
    """What runs: cases, and programs that are made for them."""

    def since(self) -> list[str]:
        """What ran since the last time that this was asked."""
        found = list(self)
        self.clear()
        return found


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    found = Simulated()
    run, compile = cases.Case.run, Emulator.compile

    def counted(case: cases.Case, emulator: Emulator) -> Any:
        found.append(f"{case.algorithm} {case.nbytes}")
        return run(case, emulator)

    def compiled(emulator: Emulator, *given: Any, **how: Any) -> Any:
        found.append("a program")
        return compile(emulator, *given, **how)

    monkeypatch.setattr(cases.Case, "run", counted)
    monkeypatch.setattr(Emulator, "compile", compiled)
    return found


def cases_of(found: list[str]) -> list[str]:
    """The cases among what ran."""
    return [one for one in found if one != "a program"]


def invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, f"{done.exception!r}"


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "all_reduce", *HERE],
        ["bench", "all_reduce", *HERE, "-a", "ring_all_gather", "--json"],
        ["bench", "all_reduce", *HERE, "--json-lines", "--no-data", "--root", "3", "--check", "race"],
        ["bench", "all_reduce", "-t", "npu_ring_8", "-e", "1K", "--store", "rows"],
        ["bench", "-t", "dgx_h100", "--sizes", "1M", "--store", "rows"],
        ["ladder", "all_reduce", *HERE, "--synth", "ring"],
        ["ladder", "all_reduce", *HERE, "-a", "ring_all_gather", "--json"],
        ["compare", "all_reduce", *HERE],
        ["compare", "all_reduce", "-t", "npu_ring_8", "-t", "npu_switch_8", "--store", "rows", "--json"],
        pytest.param(
            ["report", "all_reduce", *HERE, "--no-explain", "--ranks", "2,4", "-o", "page.html"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["report", "all_reduce", *HERE, "-t", "npu_switch_8", "-o", "page.html", "--json"], marks=pytest.mark.slow
        ),
    ],
    ids=" ".join,
)
def test_a_second_call_simulates_nothing_and_prints_the_same(command: list[str], simulated: Simulated) -> None:
    if command[0] == "report":
        pytest.importorskip("altair")
    asked = [word for word in command if word not in ("--store", "rows")]
    plain = invoke(*asked)
    page = Path("page.html").read_bytes() if command[0] == "report" else b""
    simulated.since()
    first = invoke(*command)
    assert simulated.since() and first == plain
    again = invoke(*command)
    assert simulated.since() == [] and again == plain
    assert not page or Path("page.html").read_bytes() == page


@pytest.mark.slow
def test_the_page_of_a_ladder_and_reasons_run_what_they_explain(simulated: Simulated) -> None:
    pytest.importorskip("altair")
    asked = ["report", "all_reduce", "-t", "ring_1d", "--sizes", "256,1K", "-a", "ring_allreduce", "--store", "rows"]
    for command in (asked, [*asked, "--ladder"]):
        pages = []
        for explained in (2, 1):
            assert invoke(*command, "-o", "page.html")[0] == 0
            ran = cases_of(simulated.since())
            assert ran[-1] == "ring_allreduce 1024" and len(ran) <= explained
            pages.append(Path("page.html").read_bytes())
        assert pages[0] == pages[1]


def test_one_size_more_runs_one_size(simulated: Simulated) -> None:
    for sizes, new in (("1K,4K", 2), ("1K,4K,16K", 1), ("4K", 0)):
        sweep = Sweep("all_reduce", 1, 1, algorithms=RING, topology="npu_ring_8", listed=sizes_of(sizes))
        assert len(list(attempt([sweep], store="rows"))) == len(sizes_of(sizes))
        assert len(cases_of(simulated.since())) == new, sizes


def sizes_of(text: str) -> tuple[int, ...]:
    return tuple(1024 * int(size.removesuffix("K")) for size in text.split(","))


def test_what_is_interrupted_goes_on(simulated: Simulated) -> None:
    sweep = Sweep("all_reduce", 1024, 1 << 16, algorithms=RING, topology="npu_ring_8")
    cells = attempt([sweep], store="rows")
    assert isinstance(cells, Iterator) and len(list(islice(cells, 3))) == 3
    cells.close()  # type: ignore[attr-defined]
    simulated.since()
    assert len(list(attempt([sweep], store="rows"))) == 7
    assert cases_of(simulated.since()) == [f"ring_allreduce {1024 << at}" for at in range(3, 7)]


def test_a_changed_machine_kernel_knob_or_build_makes_new_rows(
    here: Path, simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = rings.write(here, mine={})

    def new(**how: Any) -> int:
        terms: dict[str, Any] = {"algorithms": (name,), "topology": "npu_ring_8", "listed": (1024,), **how}
        list(attempt([Sweep("all_reduce", 1, 1, **terms)], store="rows"))
        return len(cases_of(simulated.since()))

    assert new() == 1 and new() == 0
    latency = {"system.sips.link.latency_ns": 7}
    for how in ({"topology": "npu_switch_8"}, {"overrides": latency}, {"overrides": {"n_slots": 2}}, {"dtype": "f32"}):
        assert new(**how) == 1 and new(**how) == 0, how
    for how in ({"op": "max"}, {"data": False}, {"check": "race"}, {"device": True}):
        assert new(**how) == 1 and new(**how) == 0, how
    file = here / "algorithms" / "mine.py"
    file.write_text(file.read_text() + "\n# changed\n")
    forget_files_read()
    assert new() == 1 and new() == 0
    for module in (files, kept, made):
        monkeypatch.setattr(module, "build", lambda: "0.0.0+other")
    assert new() == 1 and new() == 0


def test_a_report_of_a_store_is_the_report(here: Path) -> None:
    names = rings.write(here, **rings.SPOILT)
    wrong: dict[str, Any] = {"algorithms": (*names, *RING), "topology": "npu_ring_8", "listed": (1000, 4096)}
    sweeps = [
        Sweep("all_reduce", 1, 1, **wrong),
        Sweep("all_reduce", 1, 1, check=True, **wrong),
        Sweep("all_reduce", 1, 1, check="all", data=None, **wrong),
        Sweep("broadcast", 100, 1000, factor=3, root=2, topology="npu_ring_8"),
        Sweep("barrier", 1, 1, topology="npu_ring_8", op="max"),
        Sweep("all_reduce", 1 << 20, 1 << 20, topology="dgx_h100"),
        Sweep("all_reduce", 1024, 1024, topology="dgx_h100", overrides={"system.sips.count": 4}),
        Sweep("all_reduce", 1024, 1024, algorithms=RING, topology="npu_ring_8", device=True, dtype="f32"),
    ]
    for sweep in sweeps:
        plain, first, again = (list(attempt([sweep], store=store)) for store in (None, "rows", "rows"))
        told = [[cell.to_json() for cell in cells] for cells in (plain, first, again)]
        assert told[0] == told[1] == told[2], sweep
        assert [str(cell) for cell in plain if not isinstance(cell, Refused)] == [
            str(cell) for cell in again if not isinstance(cell, Refused)
        ]
        errors = [[str(cell.error) for cell in cells if isinstance(cell, Refused)] for cells in (plain, again)]
        assert errors[0] == errors[1]
    assert any(isinstance(cell, Refused) for cell in attempt(sweeps[1:2], store="rows"))


def test_what_a_report_tells_of_how_it_was_asked_is_of_this_time() -> None:
    """Equal machines and terms without effect have one row, and each call is told its own."""
    terms: dict[str, Any] = {"algorithms": RING, "listed": (1024,)}
    ways = [{"topology": "npu_ring_8"}, {"topology": "npu_ring_8", "overrides": {"system.sips.count": 8}}]
    ways += [{**ways[0], "root": 3}, {**ways[0], "listed": (1025,)}]
    for way in ways * 2:
        sweep = Sweep("all_reduce", 1, 1, **{**terms, **way})
        (plain,), (found,) = attempt([sweep]), attempt([sweep], store="rows")
        assert found.to_json() == plain.to_json(), way
    assert len(set(Store("rows").read(("key",)).column("key"))) == 1


def test_the_store_is_that_of_sweeps(simulated: Simulated) -> None:
    sweep = Sweep("all_reduce", 1, 1, algorithms=RING, topology="npu_ring_8", listed=(1024, 4096))
    cells = list(attempt([sweep], store="rows"))
    simulated.since()
    asked: dict[str, Any] = {"algorithms": "ring_allreduce", "topologies": "npu_ring_8", "sizes": [1024, 4096]}
    table = ahbm.sweep("all_reduce", **asked, store="rows")
    assert simulated.since() == [] and table.csv() == ahbm.sweep("all_reduce", **asked).csv()
    assert table.column("latency_ns") == [cell.latency_ns for cell in cells if not isinstance(cell, Refused)]
    ahbm.sweep("all_reduce", **asked, store="swept")
    assert Store("rows").rows().columns == Store("swept").rows().columns
    # A row of a sweep says less than a report: its case runs again, and then no more.
    for count in (2, 0):
        simulated.since()
        assert [cell.to_json() for cell in attempt([sweep], store="swept")] == [cell.to_json() for cell in cells]
        assert len(cases_of(simulated.since())) == count
    Store("rows").compact()
    assert [cell.to_json() for cell in attempt([sweep], store="rows")] == [cell.to_json() for cell in cells]


def test_processes_and_ladders_fill_the_same_store(simulated: Simulated) -> None:
    names = ("ring_allreduce", "tree_allreduce")
    sweep = Sweep("all_reduce", 1, 1, algorithms=names, topology="npu_ring_8", listed=(1024, 4096))
    list(attempt([sweep], jobs=2, store="rows"))
    simulated.since()
    assert climb(sweep, store="rows").to_json() == climb(sweep).to_json()
    assert len(cases_of(simulated.since())) == 4


def test_a_row_that_is_none_is_refused() -> None:
    sweep = Sweep("all_reduce", 1, 1, algorithms=RING, topology="npu_ring_8", listed=(1024,))
    list(attempt([sweep], store="rows"))
    (part,) = Path("rows/parts").iterdir()
    table = parquet.read_table(part)
    (cell,) = table.column("cell").to_pylist()
    for text in ("{", "3", '{"asked": 1}', json.dumps({**json.loads(cell), "report": {}})):
        place = table.column_names.index("cell")
        parquet.write_table(table.set_column(place, "cell", [[text]]), part)
        if text == '{"asked": 1}':
            continue
        with pytest.raises(ahbm.AhbmError, match="AHBM-C186"):
            list(attempt([sweep], store="rows"))
