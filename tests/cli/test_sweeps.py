"""Sweeps on the command line: sizes, several machines, cells that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
import ahbm.distributed as dist
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.ranks.setup import Setup
from support import plans, rings
from support.commands import run

QUICK = ["bench", "all_reduce", "-a", "ring_allreduce", "--no-data"]
FAILING = [*QUICK, "-a", "tree_allreduce", "-t", "npu_ring_8", "--set", "buffer_kind=tcm", "--sizes", "1K,64M"]


def rows(arguments: list[str], folder: Path) -> list[dict[str, Any]]:
    code, out, err = run("ahbm", [*arguments, "--json"], folder)
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)["results"]
    return found


def test_sizes_are_a_list_or_a_sweep(tmp_path: Path) -> None:
    assert [row["size"] for row in rows([*QUICK, "--sizes", "64K,1KiB,1e4"], tmp_path)] == [1024, 10000, 65536]
    for wrong in (["--sizes", "1K", "-b", "1K"], ["--sizes", "1K", "-i", "4"], ["--sizes", "1K,"], ["--sizes", ""]):
        assert run("ahbm", [*QUICK, *wrong], tmp_path)[0] == 3
    code, _, err = run("ahbm", [*QUICK, "-e", "1000", "-b", "1K"], tmp_path)
    assert code == 3 and "the first size, 1024 bytes, is larger than the last, 1000 bytes" in err


def test_several_machines_are_rows_with_their_names(tmp_path: Path) -> None:
    found = rows([*QUICK, "--sizes", "1K", "-t", "npu_ring_8", "-t", "npu_switch_8"], tmp_path)
    assert [row["machine"] for row in found] == ["npu_ring_8", "npu_switch_8"]
    assert len({row["report"]["machine_hash"] for row in found}) == 2
    lists = ["--ranks", "2,4", "--set", "system.sips.link.latency_ns=100,200", "--set", "cube.pe_layout.corners=[NW]"]
    several = rows([*QUICK, "--sizes", "1K", "-t", "npu_ring_8", *lists[:4]], tmp_path)
    assert [row["report"]["ranks"] for row in several] == [2, 2, 4, 4]
    assert len({row["report"]["timeline_hash"] for row in several}) == 4
    text = run("ahbm", [*QUICK, "--sizes", "1K", "-t", "npu_ring_8", "-t", "npu_switch_8"], tmp_path)[1]
    assert "machine npu_ring_8" in text and "machine npu_switch_8" in text


CELLS = ["run", "all_reduce", "--no-data", "--size", "64M", "-a", "ring_allreduce", "-a", "tree_allreduce"]


def test_a_run_of_several_is_a_row_of_each(tmp_path: Path) -> None:
    several = [*CELLS, "-t", "npu_ring_8", "-t", "npu_switch_8"]
    code, out, err = run("ahbm", several, tmp_path)
    assert code == 0, err
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    heads = [line for line in out.splitlines() if line.startswith("# algorithm ")]
    assert len(rows) == len(heads) == 4 and all(row[0] == str(64 << 20) for row in rows)
    assert [head.rsplit(" ", 1)[1] for head in heads] == ["npu_ring_8"] * 2 + ["npu_switch_8"] * 2
    lines = run("ahbm", [*several, "--json"], tmp_path)[1].splitlines()
    alone = [
        json.loads(run("ahbm", [*CELLS[:5], "-a", name, "-t", machine, "--json"], tmp_path)[1])
        for machine in ("npu_ring_8", "npu_switch_8")
        for name in ("ring_allreduce", "tree_allreduce")
    ]
    assert [json.loads(line) for line in lines] == alone


def test_a_run_that_fails_is_a_row_among_the_others(tmp_path: Path) -> None:
    several = [*CELLS[:7], "-t", "npu_ring_8", "--set", "buffer_kind=tcm,hbm"]
    code, out, err = run("ahbm", several, tmp_path)
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert code == 6 and "AHBM-L108" in err and [row[5] == "L108" for row in rows] == [True, False]
    assert out.index("# set buffer_kind=tcm") < out.index("# set buffer_kind=hbm")
    code, out, _ = run("ahbm", [*several, "--json"], tmp_path)
    failed, ran = map(json.loads, out.splitlines())
    assert code == 6 and failed["error"]["findings"][0]["code"] == "AHBM-L108" and ran["latency_ns"] > 0
    # What does not exist is told before anything runs.
    code, out, err = run("ahbm", [*CELLS, "-t", "npu_ring_8", "-t", "npu_ring_9"], tmp_path)
    assert code == 4 and not out and "AHBM-T101" in err
    code, out, err = run("ahbm", [*CELLS, "--trace", "t.json"], tmp_path)
    assert code == 3 and not out and "AHBM-C146" in err


def test_a_plan_runs_on_several_machines(tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(plans.ring(8), encoding="utf-8")
    terms = ["run", "ring.xml", "--size", "64K", "-t", "npu_ring_8", "-t", "npu_switch_8", "--json"]
    code, out, err = run("ahbm", terms, tmp_path)
    assert code == 0, err
    assert [json.loads(line)["machine"] for line in out.splitlines()] == ["npu_ring_8", "npu_switch_8"]


@pytest.mark.parametrize("command", ["explain", "numerics", "ladder", "explore", "check", "probe"])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["-t", "npu_ring_8", "-t", "npu_switch_8"], "-t"),
        (["--set", "pe.dispatch_ns=1,2"], "--set pe.dispatch_ns"),
    ],
)
def test_commands_of_one_machine_say_so(command: str, given: list[str], named: str, tmp_path: Path) -> None:
    target = {"probe": [], "check": ["-a", "ring_allreduce"]}.get(command, ["all_reduce"])
    code, out, err = run("ahbm", [command, *target, *given], tmp_path)
    assert code == 3 and f"AHBM-C146 {named}: several values are several machines" in err and not out


@pytest.mark.parametrize("network", ["ring_1d", "torus_2d", "hypercube", "switch"])
def test_ranks_are_sips_in_the_shape_of_the_network(network: str, tmp_path: Path) -> None:
    (row,) = rows([*QUICK, "--sizes", "1K", "-t", network, "--ranks", "8"], tmp_path)
    assert row["report"]["ranks"] == 8 and row["report"]["topology"] == network


def test_ranks_that_a_network_cannot_have(tmp_path: Path) -> None:
    code, _, err = run("ahbm", ["run", "all_reduce", "-t", "hypercube", "--ranks", "6"], tmp_path)
    assert code == 4 and "use 4 or 8" in err
    both = ["--ranks", "4", "--set", "system.sips.count=4"]
    assert "both given" in run("ahbm", ["topology", *both], tmp_path)[2]
    assert run("ahbm", ["run", "all_reduce", "--ranks", "0"], tmp_path)[0] == 3


def test_a_cell_that_fails_says_its_code_and_the_rest_goes_on(tmp_path: Path) -> None:
    code, text, err = run("ahbm", FAILING, tmp_path)
    table = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [(row[0], row[-1]) for row in table if len(row) < 11] == [("67108864", "L108")] * 2
    assert len(table) == 4 and code == 6 and "AHBM-L108" in err and "# AHBM-L108 : ring_allreduce at 67108864 B" in text
    code, out, err = run("ahbm", [*FAILING, "--json"], tmp_path)
    found = json.loads(out)["results"]
    assert code == 6 and ["error" in row for row in found] == [False, True] * 2
    assert json.loads(err)["findings"][0]["code"] == found[1]["error"]["findings"][0]["code"] == "AHBM-L108"
    code, out, err = run("ahbm", [*FAILING, "--json-lines"], tmp_path)
    assert code == 6 and [json.loads(line) for line in out.splitlines()] == found
    assert json.loads(err)["exit_code"] == 6


def test_a_page_has_what_ran_and_says_what_did_not(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    code, out, err = run("ahbm", ["report", *FAILING[1:], "--ranks", "2,64", "-o", "page.html"], tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert code == 6 and "wrote page.html" in out and "AHBM-L108" in err
    assert "What did not run" in page and "AHBM-L108" in page and "tree_allreduce" in page


def test_what_a_sweep_printed_is_compared_without_the_cells_that_failed(tmp_path: Path) -> None:
    for name, form in (("a.json", "--json"), ("b.json", "--json-lines")):
        (tmp_path / name).write_text(run("ahbm", [*FAILING, form], tmp_path)[1], encoding="utf-8")
    code, out, _ = run("ahbm", ["compare", "a.json", "b.json", "--json"], tmp_path)
    assert code == 0 and [row["verdict"] for row in json.loads(out)] == ["same", "same"]
    machines = [*QUICK, "--sizes", "1K", "-t", "npu_ring_8", "-t", "ring_1d", "--ranks", "8", "--json-lines"]
    (tmp_path / "c.json").write_text(run("ahbm", machines, tmp_path)[1], encoding="utf-8")
    out = run("ahbm", ["compare", "c.json", "c.json", "--json"], tmp_path)[1]
    assert [row["name"].split(" on ")[1].split(", ")[0] for row in json.loads(out)] == ["npu_ring_8", "default"]


def test_a_network_in_the_environment_is_a_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    count = {"system.sips.count": 4}
    wanted = ahbm.run("all_reduce", "ring_allreduce", "torus_2d", bytes_per_rank="1K", overrides=count)
    monkeypatch.setenv("AHBM_TOPOLOGY", "torus_2d")
    found = ahbm.run("all_reduce", "ring_allreduce", bytes_per_rank="1K", overrides=count)
    assert (found.machine, found.machine_hash) == (wanted.machine, wanted.machine_hash)

    def worker() -> int:
        dist.init_process_group()
        dist.barrier()
        return dist.get_world_size()

    assert Setup(overrides=count).emulator().machine.hash == int(wanted.machine_hash, 16)
    assert ahbm.spawn(worker, overrides=count) == [4] * 4


def test_topology_takes_t_and_draws_svg_only(tmp_path: Path) -> None:
    code, out, _ = run("ahbm", ["topology", "-t", "npu_ring_8"], tmp_path)
    assert code == 0 and out == run("ahbm", ["topology", "npu_ring_8"], tmp_path)[1]
    facts = json.loads(run("ahbm", ["topology", "npu_ring_8", "--json"], tmp_path)[1])
    assert (facts["machine"], facts["sips"], len(facts["links_between_sips"])) == ("npu_ring_8", 8, 16)
    code, _, err = run("ahbm", ["topology", "--svg", "t.png"], tmp_path)
    assert code == 3 and "SVG" in err and "t.svg" in err and not list(tmp_path.iterdir())
    assert run("ahbm", ["topology", "npu_ring_8", "-t", "npu_ring_8"], tmp_path)[0] == 3


RING = ["all_reduce", "-a", "ring_allreduce"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        ["run", *RING],
        ["bench", *RING, "--sizes", "1K"],
        ["explain", *RING],
        ["explore", *RING, "--seeds", "1"],
        ["check", *RING[1:], "-b", "1K"],
        ["numerics", *RING, "--seeds", "1"],
        ["ladder", *RING, "--sizes", "1K"],
        ["compare", *RING, "-a", "tree_allreduce", "--sizes", "1K"],
        ["features", "ring_allreduce"],
        ["features", *RING],
        ["tune", *RING, "--sizes", "1K", "-o", "tuned"],
    ],
    ids=lambda asked: " ".join(asked[:2]),
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_number_of_ranks_that_does_not_hold_is_told(here: Path, asked: list[str], form: list[str]) -> None:
    note = "2 ranks on 4 SIPs: the configured world_size comes before --ranks (system.sips.count)"
    done = CliRunner().invoke(app, [*asked, *form, "--ranks", "4", "--set", "world_size=2"])
    assert note in done.stdout, done.output


def test_a_number_of_ranks_that_holds_is_not_told(tmp_path: Path) -> None:
    asked = ["bench", "all_reduce", "-a", "ring_allreduce", "--sizes", "1K", "--no-data"]
    for silent in (["--ranks", "4"], ["--set", "world_size=2"], ["--ranks", "2", "--set", "world_size=2"]):
        assert "comes before" not in run("ahbm", [*asked, *silent], tmp_path)[1]


SHORT = '''
"""A ring that leaves its last step out."""


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem, world_size, op, dtype)


def kernel(p, n, w, op, dtype, sip_rank, kind, tw, th, *, tl):
    acc = cur = tl.load(p, shape=(n,), dtype=dtype)
    for _ in range(w - 2):
        tl.send(dir="global_E", src=cur)
        cur = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
        acc = tl.combine(acc, cur, op)
    tl.store(p, acc)
'''


def test_a_wrong_result_is_nobody_s_quickest(tmp_path: Path) -> None:
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "short.py").write_text(SHORT, encoding="utf-8")
    space = "algorithms: [short, ring_allreduce]\ntopologies: npu_ring_8\nsizes: [1K]\n"
    (tmp_path / "space.yaml").write_text(space, encoding="utf-8")
    asked = ["all_reduce", "-a", "short", "-a", "ring_allreduce", "-t", "npu_ring_8", "--sizes", "1K,4K"]
    code, out, _ = run("ahbm", ["tune", *asked, "-o", "tuned"], tmp_path)
    assert code == 8 and "| 8 | 0 | any size | ring_allreduce |" in out and "short gives wrong results" in out
    assert "short" not in (tmp_path / "tuned" / "ccl.yaml").read_text()
    code, out, _ = run("ahbm", ["tune", "--evaluate", "tuned/ccl.yaml", *asked], tmp_path)
    assert code == 8 and "short gives wrong results: AHBM-V401" in out
    code, out, _ = run("ahbm", ["ladder", *asked], tmp_path)
    assert code == 8 and "# from 0 B to any size: ring_allreduce" in out
    code, out, _ = run("ahbm", ["compare", *asked], tmp_path)
    assert code == 8 and out.count("   wrong  ") == out.count("(wrong: before)") == 2
    code, out, _ = run("ahbm", ["report", *asked, "--ranks", "4,8", "--no-explain", "-o", "page.html"], tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert code == 8 and "ring_allreduce takes" in page and "Wrong results take no part: short." in page
    code, out, _ = run("ahbm", ["sweep", "space.yaml", "-o", "rows"], tmp_path)
    assert (code, out) == (8, "2 cases in rows: 0 were there, 2 are new, 1 of them wrong\n")
    for question in (["--best"], ["--pareto", "time,links"]):
        code, out, err = run("ahbm", ["sweep", "show", "rows", *question, "--json"], tmp_path)
        assert [row["algorithm"] for row in json.loads(out)] == ["ring_allreduce"]
        assert err == "note: wrong results take no part: short\n"


def test_what_a_check_cannot_decide_is_told(tmp_path: Path) -> None:
    one = "tl.full((1, 1), 1.0, dtype)"
    kernel = SHORT + f'    tl.composite(op="gemm", a=tl.ref(p, (n, 1), dtype), b={one}, out_ptr=p)\n'
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "odd.py").write_text(kernel.replace("w - 2", "w - 1"), encoding="utf-8")
    asked = ["all_reduce", "-a", "odd", "-t", "npu_ring_8", "--check", "result"]
    code, out, _ = run("ahbm", ["bench", *asked, "--sizes", "1K", "--no-data"], tmp_path)
    assert code == 10 and "# AHBM-U290 not decided" in out
    for more in ([], ["--jobs", "2"]):
        code, out, _ = run("ahbm", ["explore", *asked, "-b", "1K", "--seeds", "2", *more], tmp_path)
        assert code == 10 and "AHBM-U290 not decided" in out and out.endswith("0 of 2 seeds fail\n")
    code, out, _ = run("ahbm", ["explore", *asked, "-b", "1K", "--seeds", "2", "--json"], tmp_path)
    assert code == 10 and [finding["code"] for finding in json.loads(out)["undecided"]] == ["AHBM-U290"]


@pytest.mark.parametrize(
    "asked",
    [
        *(
            [name]
            for name in ("run", "bench", "explain", "explore", "check", "inspect", "ladder", "numerics", "compare")
        ),
        ["report", "--no-explain"],
        ["tune", "-o", "tuned"],
        ["synth", "--size", "1M"],
    ],
    ids=lambda asked: asked[0],
)
def test_a_kernel_in_place_of_a_collective_is_told_by_every_command(here: Path, asked: list[str]) -> None:
    rings.write(here, **rings.SPOILT)
    done = CliRunner().invoke(app, [asked[0], "algorithms/short.py", *asked[1:]])
    assert isinstance(done.exception, ConfigError) and done.exception.code == "AHBM-C144", done.output
    assert "-a algorithms/short.py" in str(done.exception.hint)
