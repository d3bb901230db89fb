"""Synthesized schedules as plans: right as files, as quick as they say once read again, and usable from ccl.yaml."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
import ahbm.distributed as dist
from ahbm.base.collectives import COLLECTIVES
from ahbm.cli import app
from ahbm.config.ccl import CclConfig
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.runs import plans
from ahbm.runs.verdict import CheckOptions, check_file
from ahbm.source.synth import WHOLE
from ahbm.source.synthesis import SYNTHESIZED, Synthesis, synthesize

LINKS = {"cube.pe_layout.pe_per_corner": 12}
"""A PE, and so a DMA engine, for each end of a link."""
NETWORKS: dict[str, dict[str, object]] = {
    "npu_ring_8": LINKS | {"system.sips.count": 5},
    "npu_mesh_4x4": LINKS | {"system.sips.count": 6, "system.sips.w": 3, "system.sips.h": 2},
    "npu_torus_4x4": LINKS | {"system.sips.count": 9, "system.sips.w": 3, "system.sips.h": 3},
    "npu_hypercube_16": LINKS | {"system.sips.count": 8},
    "npu_switch_8": {"system.sips.count": 6},
}
"""At a switch, all that an NPU sends shares one port, and so one DMA engine."""
GATHERED = {"all_gather", "reduce_scatter"}
SUMMED = GATHERED | {"all_reduce"}
ROOTED = {"broadcast", "reduce"}
DOES = {
    "greedy": SUMMED | ROOTED,
    "trees": {"all_reduce"},
    "arborescences": GATHERED | ROOTED,
    "routed": {"all_to_all", "scatter", "gather"},
    "ring": SUMMED | ROOTED,
    "one_way_ring": SUMMED | ROOTED,
    "dimensions": SUMMED,
    "halving_doubling": SUMMED,
    "swing": SUMMED,
    "direct": set(SYNTHESIZED),
    "binomial": {"all_reduce", *ROOTED},
    "double_binary": {"all_reduce", *ROOTED},
}


def does(method: str, collective: str, network: str) -> bool:
    """Whether a method applies, as docs/synthesis.md has it."""
    if (method == "halving_doubling" and collective != "all_reduce") or method == "swing":
        return collective in DOES[method] and network == "npu_hypercube_16"
    return collective in DOES[method] and (method != "dimensions" or network != "npu_switch_8")


EVERY = [(method, collective, network) for network in NETWORKS for method in DOES for collective in SYNTHESIZED]
DONE = [case for case in EVERY if does(*case)]


def found(collective: str, network: str, method: str, **arguments: Any) -> Synthesis:
    return synthesize(
        collective,
        topology=network,
        overrides=NETWORKS[network],
        method=method,
        dtype="f32",
        **({"chunk_bytes": 1440, "chunks": 2} | arguments),
    )


def time_of(path: Path, network: str, even: Synthesis) -> int:
    """What the emulator takes for the plan in a file, in ps; its data must be right."""
    sliced = None if path.suffix == ".json" else WHOLE
    report = plans.run(
        path,
        network,
        plans.Options(slots=None, slice_bytes=sliced),
        bytes_per_rank=even.nbytes,
        dtype="f32",
        overrides=NETWORKS[network],
    )
    assert report.wrong == 0
    return round(report.latency_ns * 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "collective", "network"), DONE)
def test_a_file_is_right_and_as_quick_as_the_schedule(
    method: str, collective: str, network: str, tmp_path: Path
) -> None:
    even = found(collective, network, method, chunk_bytes=1 << 13).even(tmp_path / "plan.json")
    (path,) = even.save(tmp_path / "plan.xml")
    for slots in (1, None):
        checked = check_file(path, CheckOptions(slots=slots))
        assert (checked.verdict, checked.collective) == ("correct", collective), str(checked)
    for suffix in (".xml", ".et", ".json"):
        even.save(tmp_path / f"plan{suffix}")
        assert time_of(tmp_path / f"plan{suffix}", network, even) == even.schedule.time_ps, suffix


def test_a_method_that_does_not_apply_says_so() -> None:
    for method, collective, network in EVERY:
        if not does(method, collective, network):
            with pytest.raises(UnsupportedError, match="AHBM-U406"):
                found(collective, network, method)


@pytest.mark.parametrize("network", ["npu_mesh_4x4", "npu_ring_8"])
@pytest.mark.parametrize("collective", SYNTHESIZED)
def test_unequal_chunks_and_other_roots(collective: str, network: str) -> None:
    exact = found(collective, network, "auto", chunk_bytes=1444, chunks=3, root=2)
    ran = exact.run()
    assert (ran.time_ps, ran.wrong) == (exact.schedule.time_ps, 0)
    assert len(set(exact.even().schedule.chunk_bytes)) == 1
    assert 0 <= exact.nbytes - exact.even().nbytes < 4 * 6 * 6 * len(exact.schedule.chunk_bytes)


def test_chunks_larger_than_any_slice_stay_whole(tmp_path: Path) -> None:
    even = found("all_gather", "npu_mesh_4x4", "greedy", chunk_bytes=100 << 20, chunks=1).even()
    (path,) = even.save(tmp_path / "plan.xml")
    machine = NETWORKS["npu_mesh_4x4"] | {"defaults.buffer_kind": "hbm"}
    whole, sliced = (
        plans.run(
            path,
            "npu_mesh_4x4",
            plans.Options(slots=None, slice_bytes=most),
            bytes_per_rank=even.nbytes,
            dtype="f32",
            overrides=machine,
            data=False,
        )
        for most in (WHOLE, None)
    )
    assert round(whole.latency_ns * 1000) == even.schedule.time_ps
    assert sliced.messages == 50 * whole.messages and sliced.latency_ns != whole.latency_ns


def test_the_order_of_sending_and_of_adding_survives(tmp_path: Path) -> None:
    even = found("all_reduce", "npu_mesh_4x4", "trees", chunk_bytes=1 << 20, chunks=1).even()
    (first,) = even.save(tmp_path / "plan.xml")
    (second,) = even.save(tmp_path / "again.xml")
    assert first.read_bytes() == second.read_bytes()
    overrides = NETWORKS["npu_mesh_4x4"]
    hashes = {
        plans.run(first, "npu_mesh_4x4", bytes_per_rank=even.nbytes, dtype="f32", overrides=overrides).timeline_hash
        for _ in range(2)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("suffix", [".json", ".et"])
def test_the_other_formats(suffix: str, tmp_path: Path) -> None:
    even = found("all_reduce", "npu_mesh_4x4", "trees", chunk_bytes=1440, chunks=1).even()
    files = even.save(tmp_path / f"plan{suffix}")
    path = files[0] if suffix == ".json" else tmp_path / f"plan{suffix}"
    assert len(files) == (1 if suffix == ".json" else 6)
    checked = check_file(path, CheckOptions(slots=2))
    assert (checked.verdict, checked.collective) == ("correct", "all_reduce"), str(checked)


def test_what_a_file_cannot_say(tmp_path: Path) -> None:
    rooted = found("broadcast", "npu_ring_8", "greedy", root=3)
    with pytest.raises(UnsupportedError, match="AHBM-U292"):
        rooted.save(tmp_path / "plan.xml")
    for refused in (rooted.save, rooted.even):
        with pytest.raises(UnsupportedError, match="AHBM-U291"):
            refused(tmp_path / "plan.txt")
    with pytest.raises(UnsupportedError, match="AHBM-U293"):
        found("all_gather", "npu_mesh_4x4", "greedy", chunk_bytes=8).even(tmp_path / "plan.json")
    for op in ("max", "avg"):
        with pytest.raises(UnsupportedError, match=f"AHBM-U292.*no {op}"):
            found("all_reduce", "npu_mesh_4x4", "ring", op=op).save(tmp_path / "plan.json")
    assert not list(tmp_path.iterdir())


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    command = ["synth", "all_reduce", "-t", "npu_mesh_4x4", "--set", "cube.pe_layout.pe_per_corner=8"]
    done = CliRunner().invoke(app, [*command, "--size", "1000000", "-o", str(path), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["files"] == [str(path)] and 0 < result["bytes"] <= 1000000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "op"), [("xml", "max"), ("xml", "avg"), ("json", "sum"), ("et", "min"), ("et", "avg")]
)
@pytest.mark.parametrize("network", ["npu_mesh_4x4", "npu_switch_8"])
def test_the_command_that_is_told_takes_the_time_that_is_told(network: str, kind: str, op: str, tmp_path: Path) -> None:
    command = ["synth", "all_reduce", "-t", network, "--size", "1000000", "-d", "f32", "--op", op]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / f"plan.{kind}")])
    assert done.exit_code == 0, done.output
    told = dict(line.strip().split("  ", 1) for line in done.stdout.splitlines()[1:])
    run = shlex.split(told["takes this"])
    assert run[0] == "ahbm"
    report = json.loads(CliRunner().invoke(app, [*run[1:], "--json"]).stdout)
    assert (report["wrong"], report["op"], report["dtype"]) == (0, op, "f32")
    assert f"{report['latency_ns'] / 1000:,.3f} us" == told["time"].strip()


def configured(synth: str, **more: object) -> Emulator:
    Path("ccl.yaml").write_text(f"algorithms:\n  made: {{synth: {synth}}}\ncollectives:\n  all_reduce: made\n")
    return Emulator.load("npu_mesh_4x4", None, NETWORKS["npu_mesh_4x4"] | more)


def test_ccl_yaml_runs_a_synthesized_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    emulator = configured("{method: trees, seed: 3}")
    report = ahbm.run("all_reduce", bytes_per_rank=1 << 16, dtype="f32", emulator=emulator)
    arguments: dict[str, Any] = {"topology": emulator.machine, "size": 1 << 16, "dtype": "f32", "seed": 3}
    wanted = synthesize("all_reduce", method="trees", **arguments)
    assert (report.algorithm, report.wrong) == ("made", 0)
    assert round(report.latency_ns * 1000) == wanted.schedule.time_ps
    again = ahbm.run("all_reduce", bytes_per_rank=1 << 16, dtype="f32", emulator=emulator)
    assert again == report
    buffers = [np.full(8, rank, np.float32) for rank in range(6)]
    configured("{}").perform(requested("broadcast", buffers, root=4), buffers, "made")
    assert all((buffer == 4).all() for buffer in buffers)


@pytest.mark.parametrize("more", [{"n_slots": 2, "slice_bytes": 1 << 15}, {"n_slots": 1}])
@pytest.mark.parametrize("network", ["npu_mesh_4x4", "npu_ring_8"])
def test_auto_is_the_quickest_with_the_queues_that_it_has(network: str, more: dict[str, int], tmp_path: Path) -> None:
    def latency(method: str) -> float:
        path = tmp_path / f"{method}.yaml"
        path.write_text(json.dumps({"algorithms": {"made": {"synth": {"method": method}, **more}}}))
        emulator = Emulator.load(network, path, NETWORKS[network])
        return ahbm.run("all_reduce", "made", bytes_per_rank=6 << 17, emulator=emulator, data=False).latency_ns

    methods = ("greedy", "trees", "ring", "one_way_ring", "direct")
    taken = {method: latency(method) for method in methods}
    # Of two slots and small slices, small chunks wait.
    assert latency("auto") <= min(taken.values()) < max(taken.values())


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "u16", "i64"])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "reduce"])
def test_an_average_is_the_sum_divided(
    collective: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    emulator = configured("{}")
    asked: dict[str, Any] = {"bytes_per_rank": 6 << 8, "dtype": dtype, "emulator": emulator}
    reports = [ahbm.run(collective, "made", op=op, **asked) for op in ("sum", "avg")]
    assert [report.wrong for report in reports] == [0, 0]
    # Dividing takes no time where memory and math take none.
    assert reports[0].latency_ns == reports[1].latency_ns


def test_an_average_of_integers_is_what_kernels_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    emulator = configured("{}")
    averages = []
    for algorithm in ("made", "ring_allreduce"):
        # Sums on both sides of zero that 6 does not divide.
        buffers = [np.arange(-18, 18, dtype=np.int32) + rank // 5 for rank in range(6)]
        emulator.perform(requested("all_reduce", buffers, op="avg"), buffers, algorithm)
        averages.append(np.stack(buffers))
    assert (averages[0] == averages[1]).all()
    with pytest.raises(UnsupportedError, match="AHBM-U203"):
        ahbm.run("all_gather", "made", op="avg", bytes_per_rank=6 << 8, dtype="f32", emulator=emulator)


@pytest.mark.parametrize("network", ["npu_mesh_4x4", "npu_switch_8"])
@pytest.mark.parametrize("collective", SYNTHESIZED)
def test_a_process_group_of_any_ranks(
    collective: str, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    group, share = (5, 0, 3), 600
    Path("ccl.yaml").write_text("algorithms:\n  made: {synth: {}}\n")
    emulator = Emulator.load(network, None, NETWORKS[network])
    shares = COLLECTIVES[collective].chunks(len(group))
    begun = [np.arange(share * shares, dtype=np.float32) + 1000 * rank for rank in group]
    buffers = [buffer.copy() for buffer in begun]
    outcome = emulator.perform(requested(collective, buffers, ranks=group, root=1), buffers, "made")
    parts = np.stack(begun).reshape(3, shares, share)
    wanted = {
        "all_reduce": (slice(None), parts.sum(0)),
        "broadcast": (slice(None), parts[1]),
        "reduce": (1, parts.sum(0)),
        "all_gather": (slice(None), parts[range(3), range(3)] if shares == 3 else None),
        "gather": (1, parts[range(3), range(3)] if shares == 3 else None),
        "reduce_scatter": (None, parts.sum(0)),
        "scatter": (None, parts[1]),
        "all_to_all": (slice(None), parts.transpose(1, 0, 2)),
    }
    where, result = wanted[collective]
    ended = np.stack(buffers).reshape(3, shares, share)
    if where is None:
        assert (ended[range(3), range(3)] == result).all()
    else:
        assert (ended[where] == result).all()
    alone = synthesize(collective, topology=emulator.machine, size=begun[0].nbytes, dtype="f32", root=1, members=group)
    assert outcome.latency_ps == alone.schedule.time_ps


def test_a_synthesized_algorithm_behind_a_new_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ccl.yaml").write_text("algorithms:\n  made: {synth: {}}\ncollectives:\n  all_reduce: made\n")

    def worker(rank: int) -> list[float]:
        dist.init_process_group(backend="ahbm")
        group = dist.new_group([4, 1, 2])
        tensor = np.full(6, rank, np.float32)
        if rank in (4, 1, 2):
            dist.all_reduce(tensor, group=group)
        dist.all_reduce(tensor)
        return list(tensor)

    for values in ahbm.spawn(worker, topology="npu_mesh_4x4", overrides=NETWORKS["npu_mesh_4x4"]):
        assert values == [3 * 7 + 0 + 3 + 5] * 6


def test_ccl_yaml_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for bad in ("{chunks: 0}", "{speed: 3}", "trees"):
        with pytest.raises(ConfigError, match=r"(?s)AHBM-C103.*ccl\.yaml:2"):
            configured(bad)
    with pytest.raises(ConfigError, match="AHBM-C115"):
        ahbm.run("barrier", "made", emulator=configured("{}"))
    with pytest.raises(UnsupportedError, match="AHBM-U406"):
        ahbm.run("all_reduce", emulator=configured("{method: magic}"), bytes_per_rank=64)
    with pytest.raises(ConfigError, match="a module and a synth"):
        CclConfig.load(overrides={"algorithms.ring_allreduce.synth.seed": 1})


@pytest.mark.parametrize("options", [{"method": "ring"}, {"method": "greedy"}, {"method": "direct"}, {"chunks": 4}])
def test_an_array_too_small_for_a_method_gets_another_with_a_note(options: dict[str, object]) -> None:
    settings = {f"algorithms.small.synth.{key}": value for key, value in options.items()}
    report = ahbm.run(algorithm="small", topology="npu_ring_8", bytes_per_rank=2, overrides=settings)
    assert report.wrong == 0 and "small is synthesized by trees: " in report.notes[0]
    assert not ahbm.run(algorithm="small", topology="npu_ring_8", bytes_per_rank=4096, overrides=settings).notes


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 12, 1 << 20])
@pytest.mark.parametrize("overrides", [{}, {"protocol": "simple"}], ids=["quickest", "named"])
def test_a_schedule_is_a_call_of_the_machines_library(size: int, overrides: dict[str, object], tmp_path: Path) -> None:
    made = synthesize("all_reduce", topology="p5", overrides=overrides, size=size).even(tmp_path / "s.xml")
    made.save(tmp_path / "s.xml")
    ran = made.run()
    opened = ahbm.open(
        tmp_path / "s.xml", topology="p5", overrides=overrides, bytes_per_rank=size, slots=-1, slice_bytes=WHOLE
    )
    report = opened.run(data=False)
    assert (ran.time_ps / 1000, ran.wrong) == (report.latency_ns, 0)
    assert report.notes[0].split(",")[0] == f"protocol {ran.protocol}"
    assert ran.protocol == overrides.get("protocol", ran.protocol)
