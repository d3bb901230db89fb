"""Plans as algorithms: `ahbm run FILE`, `algorithms.<name>.plan` and `dist.all_reduce`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
import ahbm.distributed as dist
from ahbm.cli import app
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, BudgetError, ConfigError, FormatError, UnsupportedError
from ahbm.runs import plans
from support.plans import FOUR, TOPOLOGY, all_gather, all_to_all, document, recursive_doubling, ring, step


@pytest.fixture
def ring_file(tmp_path: Path) -> Path:
    path = tmp_path / "ring.xml"
    path.write_text(ring(4))
    return path


@pytest.mark.parametrize(
    "text", [ring(4), ring(4, "LL"), all_gather(4, inplace=0), all_gather(4, inplace=1), all_to_all(4)]
)
@pytest.mark.parametrize("options", [plans.Options(), plans.Options(slots=None), plans.Options(instances=3)])
def test_results_are_right(tmp_path: Path, text: str, options: plans.Options) -> None:
    path = tmp_path / "plan.xml"
    path.write_text(text)
    report = plans.run(path, TOPOLOGY, options, bytes_per_rank=4096, overrides=FOUR)
    assert report.wrong == 0
    assert report.ranks == 4
    assert report.bytes == 4096
    assert report.messages > 0


def test_large_chunks_travel_in_slices(ring_file: Path) -> None:
    whole = plans.run(ring_file, TOPOLOGY, bytes_per_rank=4 << 21, overrides=FOUR, data=False)
    sliced = plans.run(ring_file, TOPOLOGY, bytes_per_rank=4 << 22, overrides=FOUR, data=False)
    assert sliced.messages == 2 * whole.messages


def test_protocols_cost_wire_time(ring_file: Path) -> None:
    def latency(protocol: str) -> float:
        return plans.run(
            ring_file, TOPOLOGY, plans.Options(protocol=protocol), bytes_per_rank=64 << 10, overrides=FOUR
        ).latency_ns

    assert latency("Simple") < latency("LL128") < latency("LL")


def through_a_switch(ranks: int) -> str:
    """An execution plan: every rank reduces its chunk through the switch and broadcasts it, between two meetings."""
    ids = list(range(ranks - 1))
    met = [{"name": name, "channel_ids": ids, "channel_type": "memory"} for name in ("signal", "wait")]

    def gpu(rank: int) -> dict[str, object]:
        everywhere = [{"switch_channel_id": 0, "index": rank, "size": 1}]
        work = {"name": "glres", "src_buff": everywhere, "dst_buff": everywhere, "reduce_op": "sum"}
        lists = [{"channel_type": "memory", "channel_ids": ids}, {"channel_type": "switch", "channel_ids": [0]}]
        block = {"id": 0, "ops": [*met, {**work, "channel_type": "switch"}, *met], "channels": lists}
        group = {"size": ranks, "ranks": list(range(ranks))}
        channels = [
            {"channel_type": "memory", "connected_to": [peer for peer in range(ranks) if peer != rank]},
            {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]},
        ]
        chunks = {"input_chunks": ranks, "output_chunks": ranks, "scratch_chunks": 0}
        return {"id": rank, **chunks, "threadblocks": [block], "channels": channels}

    plan = {"name": "nvls", "collective": "allreduce", "protocol": "Simple", "inplace": True, "reuse_resources": False}
    return json.dumps(plan | {"gpus": [gpu(rank) for rank in range(ranks)]})


@pytest.mark.slow
@pytest.mark.parametrize("model", ["analytic", "cut_through", "flit"])
@pytest.mark.parametrize("nbytes", [8 << 10, 1 << 20])
def test_a_switch_that_reduces_takes_one_trip(tmp_path: Path, model: str, nbytes: int) -> None:
    """No run beats the bound, and the time does not grow with the ranks."""
    path = tmp_path / "nvls.json"

    def run(ranks: int, reduces: bool) -> ahbm.Report:
        path.write_text(through_a_switch(ranks))
        overrides = {"system.network_model": model, "system.sips.count": str(ranks)}
        overrides["system.sips.switch.reduces"] = str(reduces).lower()
        return plans.run(path, "npu_switch_8", bytes_per_rank=nbytes, overrides=overrides, check="all")

    times = {}
    for ranks, reduces in [(2, True), (8, True), (8, False)]:
        report = run(ranks, reduces)
        assert report.wrong == 0 and report.findings == ()
        assert report.bound_ns is not None and report.bound_ns <= report.latency_ns
        times[ranks, reduces] = report.latency_ns
    # A link from the switch brings the sums of all but the own rank: half of everything, or seven eighths.
    assert times[8, True] < 1.3 * times[2, True]
    if nbytes == 1 << 20 and model != "analytic":
        assert times[8, True] < 0.7 * times[8, False]


@pytest.mark.parametrize("model", ["analytic", "cut_through", "flit"])
@pytest.mark.parametrize(("ranks", "nbytes"), [(2, 4096), (4, 8 << 10), (8, 1 << 20)])
@pytest.mark.parametrize(("protocol", "wire"), [("Simple", 1.0), ("LL", 2.0), ("LL128", 128 / 120)])
def test_the_ring_takes_its_closed_form_time(
    tmp_path: Path, model: str, ranks: int, nbytes: int, protocol: str, wire: float
) -> None:
    """2(n - 1) rounds of one chunk each, alpha 500 ns and 50 GB/s; the chunk fits a slice."""
    path = tmp_path / "ring.xml"
    path.write_text(ring(ranks))
    overrides = {"system.sips.count": ranks, "system.network_model": model}
    report = plans.run(
        path, TOPOLOGY, plans.Options(protocol=protocol), bytes_per_rank=nbytes, overrides=overrides, data=False
    )
    chunk = nbytes / ranks
    slices = math.ceil(chunk / (32 << 10)) if protocol == "LL" else 1
    if slices == 1:
        # Wire bytes are whole bytes, times whole picoseconds.
        expected = 2 * (ranks - 1) * (500 + wire * chunk / 50)
        assert report.latency_ns == pytest.approx(expected, abs=2 * ranks * 0.021)
    else:
        assert report.messages == slices * 2 * ranks * (ranks - 1)


@pytest.mark.parametrize("model", ["analytic", "cut_through", "flit"])
@pytest.mark.parametrize("nbytes", [8 << 10, 64 << 10])
def test_exchanges_take_their_closed_form_times(tmp_path: Path, model: str, nbytes: int) -> None:
    """Recursive doubling on a hypercube: log2 n exchanges of everything. Direct all-gather on a full network: one
    latency, and the parts one after another where all thread blocks share a DMA channel."""

    def latency(text: str, network: str, pes: int, channels: int | str = 1) -> float:
        path = tmp_path / "plan.xml"
        path.write_text(text)
        overrides = {
            "system.sips.topology": network,
            "system.network_model": model,
            "cube.pe_layout.pe_per_corner": pes,
            "pe.dma.channels": channels,
        }
        report = plans.run(path, TOPOLOGY, bytes_per_rank=nbytes, overrides=overrides)
        assert report.wrong == 0
        return report.latency_ns

    assert latency(recursive_doubling(8), "hypercube", 1) == pytest.approx(3 * (500 + nbytes / 50), abs=1e-6)
    direct = all_gather(8, inplace=1)
    for pes, channels in ((8, 1), (1, 7), (1, "per_link")):
        assert latency(direct, "fully_connected", pes, channels) == pytest.approx(500 + nbytes / 8 / 50, abs=1e-6)
    assert latency(direct, "fully_connected", 1) == pytest.approx(500 + 7 * nbytes / 8 / 50, abs=1e-6)


def test_a_plan_serves_all_reduce(ring_file: Path, tmp_path: Path) -> None:
    (tmp_path / "ccl.yaml").write_text("defaults:\n  algorithm: bought\nalgorithms:\n  bought:\n    plan: ring.xml\n")

    def worker() -> list[float]:
        dist.init_process_group(backend="ahbm")
        tensor = np.full(64, dist.get_rank() + 1, np.float32)
        dist.all_reduce(tensor)
        return [float(x) for x in tensor]

    results = ahbm.spawn(worker, topology=TOPOLOGY, ccl=tmp_path / "ccl.yaml", overrides=FOUR)
    assert results == [[10.0] * 64] * 4


def test_what_does_not_fit_is_refused(ring_file: Path) -> None:
    entry = {"algorithms.x.plan": str(ring_file)}
    with pytest.raises(ConfigError, match="a plan for 4 ranks, not 8") as wrong_ranks:
        ahbm.run("all_reduce", "x", TOPOLOGY, bytes_per_rank=4096, overrides=entry)
    assert wrong_ranks.value.code == "AHBM-C117"
    with pytest.raises(ConfigError) as other:
        ahbm.run("all_gather", "x", TOPOLOGY, bytes_per_rank=4096, overrides={**entry, **FOUR})
    assert other.value.code == "AHBM-C115"
    with pytest.raises(FormatError, match="nearest sizes") as size:
        plans.run(ring_file, TOPOLOGY, bytes_per_rank=4090, overrides=FOUR)
    assert size.value.code == "AHBM-F127"
    with pytest.raises(UnsupportedError) as bits:
        plans.run(ring_file, TOPOLOGY, bytes_per_rank=4096, overrides=FOUR, op="band", dtype="i32")
    assert bits.value.code == "AHBM-U203"
    with pytest.raises(ConfigError, match="a module and a plan"):
        Emulator.load(TOPOLOGY, overrides={**entry, "algorithms.x.module": "y.py"})
    with pytest.raises(ConfigError, match="are for plans"):
        Emulator.load(TOPOLOGY, overrides={"algorithms.x.module": "y.py", "algorithms.x.instances": 2})


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [6, 4, 7, 5]])
def test_a_process_group_runs_a_plan(ring_file: Path, ranks: list[int]) -> None:
    emulator = Emulator.load(TOPOLOGY, overrides={"algorithms.x.plan": str(ring_file)})
    buffers = [np.full(16, rank, np.float32) for rank in ranks]
    outcome = emulator.perform(requested("all_reduce", buffers, ranks=tuple(ranks)), buffers, "x")
    assert all((buffer == sum(ranks)).all() for buffer in buffers)
    assert outcome.program is not None
    places = [outcome.program.place(agent) for agent in range(outcome.program.agents)]
    assert {int(place.split()[1]) for place in places} == set(ranks)


def test_a_custom_plan_has_no_known_result(tmp_path: Path) -> None:
    path = tmp_path / "custom.xml"
    path.write_text(ring(4).replace("allreduce", "custom"))
    with pytest.raises(UnsupportedError) as refused:
        plans.run(path, TOPOLOGY, bytes_per_rank=4096, overrides=FOUR)
    assert refused.value.code == "AHBM-U113"


def test_a_custom_plan_runs_for_its_time(ring_file: Path) -> None:
    """The time of the same plan with a known result, its options among them."""
    custom = ring_file.with_name("custom.xml")
    custom.write_text(ring(4).replace("allreduce", "custom").replace('inplace="1"', 'inplace="0"'))
    machine = ["--size", "64K", "-t", TOPOLOGY, "--set", "system.sips.count=4", "--json"]
    for more in ([], ["--slots", "inf"], ["--protocol", "LL"], ["--instances", "2"]):
        found = [
            json.loads(CliRunner().invoke(app, ["run", str(path), *machine, *more], catch_exceptions=False).stdout)
            for path in (ring_file, custom)
        ]
        assert found[0]["latency_ns"] == found[1]["latency_ns"]
        assert found[1]["reason"] == "what a custom plan computes is not compared"
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(app, ["run", str(custom), *machine, "--check", "all"], catch_exceptions=False)
    assert refused.value.code == "AHBM-C146"


def test_limits_of_the_reader(ring_file: Path) -> None:
    def run(*limits: str) -> dict[str, object]:
        more = [text for limit in limits for text in ("--limit", limit)]
        machine = ["--size", "64K", "-t", TOPOLOGY, "--set", "system.sips.count=4", "--json"]
        result = CliRunner().invoke(app, ["run", str(ring_file), *machine, *more], catch_exceptions=False)
        found: dict[str, object] = json.loads(result.stdout)
        return found

    assert run("steps=100", "ops=1000")["wrong"] == 0
    for limit in ("steps=5", "ops=5"):
        with pytest.raises(BudgetError) as refused:
            run(limit)
        assert refused.value.hint is not None and refused.value.hint.startswith(f"--limit {limit[:-1]}")
    entry = {"algorithms.x.plan": str(ring_file), **FOUR}
    with pytest.raises(BudgetError):
        ahbm.run("all_reduce", "x", TOPOLOGY, bytes_per_rank=4096, overrides={**entry, "algorithms.x.limits.steps": 5})
    with pytest.raises(ConfigError, match="numbers for some of file_bytes"):
        Emulator.load(TOPOLOGY, overrides={**entry, "algorithms.x.limits.stairs": 5})


def test_sizes_beyond_this_computer_run_for_their_time(ring_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = 32 << 30
    report = plans.run(ring_file, TOPOLOGY, bytes_per_rank=nbytes, overrides=FOUR, data=False)
    assert (report.bytes, report.wrong) == (nbytes, None)
    with pytest.raises(ConfigError) as absurd:
        plans.run(ring_file, TOPOLOGY, bytes_per_rank=1 << 63, overrides=FOUR, data=False)
    assert absurd.value.code == "AHBM-C125"
    monkeypatch.setattr("os.sysconf", lambda _: 1 << 8)
    assert plans.run(ring_file, TOPOLOGY, bytes_per_rank=2 << 10, overrides=FOUR).wrong == 0
    with pytest.raises(BudgetError) as refused:
        plans.run(ring_file, TOPOLOGY, bytes_per_rank=4 << 10, overrides=FOUR)
    assert refused.value.code == "AHBM-B301"


def test_the_command_takes_options_after_the_file(ring_file: Path) -> None:
    arguments = [str(ring_file), "--size", "64K", "-t", TOPOLOGY, "--set", "system.sips.count=4", "--json"]
    results = {
        name: CliRunner().invoke(app, ["run", *arguments, *more], catch_exceptions=False)
        for name, more in {"two": [], "all": ["--slots", "inf"], "twice": ["--instances", "2"]}.items()
    }
    reports = {name: json.loads(result.stdout) for name, result in results.items()}
    assert all(report["wrong"] == 0 for report in reports.values())
    assert reports["twice"]["messages"] == 2 * reports["two"]["messages"]


def test_one_slot_deadlocks_and_says_where(ring_file: Path) -> None:
    with pytest.raises(ahbm.errors.DeadlockError) as stuck:
        plans.run(ring_file, TOPOLOGY, plans.Options(slots=1), bytes_per_rank=4096, overrides=FOUR)
    assert any("ring.xml:" in site.origin for site in stuck.value.sites)


def test_an_execution_plan_follows_the_executor_on_demand(tmp_path: Path) -> None:
    """Two ranks exchange packets and take the larger ones; the executor adds whatever the plan says."""
    gpus = []
    for rank in range(2):
        source, landing = ({"type": space, "index": 0, "size": 1} for space in "is")
        put = {"name": "ppkt", "channel_type": "memory", "src_buff": [source]}
        take = {"name": "repkt", "src_buff": [source, landing], "dst_buff": [{**source, "type": "o"}]}
        operations = [{**put, "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}]}, {**take, "reduce_op": "max"}]
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]
        chunks = {f"{kind}_chunks": 1 for kind in ("input", "output", "scratch")}
        remote = {"rank": 1 - rank, "type": "s", "access_channel_types": ["memory"]}
        block = {"id": 0, "ops": operations, "channels": [], "remote_buffer_refs": refs}
        empty: dict[str, list[object]] = {"channels": [], "semaphores": []}
        gpus.append({"id": rank, **chunks, "threadblocks": [block], "remote_buffers": [remote], **empty})
    head = {"name": "t", "collective": "allreduce", "protocol": "LL", "inplace": False}
    path = tmp_path / "larger.json"
    path.write_text(json.dumps({**head, "gpus": gpus}))
    machine = ["run", str(path), "--size", "64K", "-t", TOPOLOGY, "--set", "system.sips.count=2", "--json"]
    for arguments, code in (
        (["--op", "max"], None),
        (["--op", "sum", "--quirks"], None),
        (["--op", "sum"], "AHBM-U212"),
        (["--op", "max", "--quirks"], "AHBM-U212"),
        (["--op", "max", "--instances", "2"], "AHBM-U212"),
        (["--op", "max", "--slots", "2"], "AHBM-C146"),
    ):
        result = CliRunner().invoke(app, [*machine, *arguments])
        if code is None:
            assert json.loads(result.stdout)["wrong"] == 0
        else:
            assert isinstance(result.exception, AhbmError)
            assert result.exception.code == code


def test_plan_options_need_a_plan() -> None:
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(app, ["run", "all_reduce", "--slots", "2"], catch_exceptions=False)
    assert refused.value.code == "AHBM-C146"


def test_plans_in_which_every_rank_sends_run_for_their_time(tmp_path: Path) -> None:
    gpus = [
        f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="0">'
        f'<tb id="0" send="{(rank + 1) % 3}" recv="{(rank - 1) % 3}" chan="0">'
        f"{step(0, 's', 'i:0', 'i:0')}{step(1, 'r', 'o:0', 'o:0')}</tb></gpu>"
        for rank in range(3)
    ]
    file = tmp_path / "shift.xml"
    file.write_text(document(3, 1, "sendrecv", gpus, inplace=0))
    machine = ["-t", TOPOLOGY, "--set", "system.sips.count=3", "--size", "4K"]
    done = CliRunner().invoke(app, ["run", str(file), *machine, "--json"])
    assert "wrong" not in json.loads(done.stdout), done.stdout
    checked = CliRunner().invoke(app, ["run", str(file), *machine, "--check", "race"])
    assert isinstance(checked.exception, ConfigError)
    with pytest.raises(UnsupportedError, match="AHBM-U113"):
        plans.run(file, TOPOLOGY, bytes_per_rank=4096, overrides={"system.sips.count": 3})
    with pytest.raises(UnsupportedError, match="AHBM-U113"):
        ahbm.run("send_recv", "shift", TOPOLOGY, overrides={"algorithms.shift.plan": str(file)})
