"""The machine that is printed is the one that was read, and what is printed is taken as a topology."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.config.topology import DEFAULT, ENV, NETWORKS, load_machine, name_of, names, read_for
from ahbm.core.spec import machine_name
from support.commands import run

SMALL = "system: {sips: {count: 4}}\n"


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV, raising=False)


@pytest.mark.parametrize("given", [DEFAULT, "npu_ring_8", "ring_1d", "switch", "mine.yaml", "./mine.yaml", None])
@pytest.mark.parametrize("beside", [False, True], ids=["", "topology.yaml"])
def test_a_printed_name_means_the_same_machine(given: str | None, beside: bool, here: Path) -> None:
    (here / "mine.yaml").write_text(SMALL)
    if beside:
        (here / "topology.yaml").write_text(SMALL.replace("4", "8"))
    for overrides in ({}, {"system.sips.link.latency_ns": 250, "system.sips.link.bandwidth_gbs": 12.5}):
        machine = load_machine(given, overrides)
        assert load_machine(machine_name(machine)).hash == machine.hash
        assert load_machine(read_for(given), overrides).hash == machine.hash


def test_the_default_has_a_name_and_a_file_its_path(here: Path) -> None:
    assert DEFAULT not in names() and name_of(load_machine()) == DEFAULT == read_for(None)
    (here / "topology.yaml").write_text(SMALL)
    assert name_of(load_machine()) == "topology.yaml" == read_for(None)
    assert name_of(load_machine(DEFAULT)) == DEFAULT and load_machine(DEFAULT).sips != load_machine().sips
    assert all(network not in names() for network in NETWORKS)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "variable", "nothing", "option"])
def test_tables_json_and_pages_name_what_was_read(source: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, given = DEFAULT, []
    if source == "file":
        (here / "topology.yaml").write_text(SMALL)
        wanted = "topology.yaml"
    elif source != "nothing":
        (here / "topology.yaml").write_text(SMALL)
        wanted = "npu_ring_8"
        monkeypatch.setenv(ENV, "npu_switch_8" if source == "option" else wanted)
        given = ["-t", wanted] if source == "option" else []
    asked = ["all_reduce", "--sizes", "1K", "-a", "ring_allreduce", "--no-data", *given]

    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, *asked], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    out = printed("bench")
    assert f"# topology {wanted} " in out and f" machine {wanted}\n" in out
    told = json.loads(printed("bench", "--json"))
    assert told["config"]["topology"] == told["results"][0]["machine"] == wanted
    assert printed("ladder").startswith(f"# all_reduce of f16, no data on {wanted} (")
    printed("report", "--no-explain", "-o", "page.html")
    assert f"<dd>{wanted}</dd>" in (here / "page.html").read_text()
    rows = ahbm.sweep("all_reduce", algorithms=["ring_allreduce"], sizes=["1K"], topologies=given[1:] or None)
    assert [row["machine"] for row in rows] == [wanted]


def test_a_machine_that_was_printed_is_taken_by_every_command(here: Path) -> None:
    name = "npu_ring_8, system.sips.count=4"
    report = ahbm.run("all_reduce", topology=name, bytes_per_rank=1024, data=False)
    assert (report.machine, report.ranks) == (name, 4)
    assert load_machine(name.replace(" ", "")).hash == load_machine(name).hash
    for command in (["run", "all_reduce", "--size", "1K"], ["bench", "all_reduce", "--sizes", "1K"], ["topology"]):
        code, out, err = run("ahbm", [*command, "-t", name], here)
        assert code == 0 and out, err
    code, out, _ = run("ahbm", ["run", "all_reduce", "--size", "1K", "-t", name, "--ranks", "6", "--json"], here)
    assert code != 0 or json.loads(out)["ranks"] == 6
