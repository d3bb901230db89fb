"""Synthesized schedules as plans: right as files, as quick as they say once read again, and usable from ccl.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
from ahbm import plans
from ahbm.check import Settings, check_file
from ahbm.cli import app
from ahbm.config import WHOLE, CclConfig
from ahbm.emulator import Emulator
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.synthesis import SYNTHESIZED, Synthesis, synthesize

LINKS = {"cube.pe_layout.pe_per_corner": 12}
"""A PE, and so a DMA engine, for each end of a link."""
NETWORKS: dict[str, dict[str, object]] = {
    "npu_ring_8": {"system.sips.count": 5},
    "npu_mesh_4x4": {"system.sips.count": 6, "system.sips.w": 3, "system.sips.h": 2},
    "npu_torus_4x4": {"system.sips.count": 9, "system.sips.w": 3, "system.sips.h": 3},
    "npu_hypercube_16": {"system.sips.count": 8},
}
METHODS = ("greedy", "trees", "arborescences", "routed", "ring", "dimensions", "halving_doubling", "direct", "binomial")


def found(collective: str, network: str, method: str, **arguments: int) -> Synthesis:
    try:
        return synthesize(
            collective,
            topology=network,
            overrides=LINKS | NETWORKS[network],
            method=method,
            dtype="f32",
            **({"chunk_bytes": 1440, "chunks": 2} | arguments),
        )
    except UnsupportedError as error:
        if error.code != "AHBM-U406":
            raise
        pytest.skip(error.message)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("collective", SYNTHESIZED)
def test_a_file_is_right_and_as_quick_as_the_schedule(
    collective: str, method: str, network: str, tmp_path: Path
) -> None:
    even = found(collective, network, method).even()
    (path,) = even.save(tmp_path / "plan.xml")
    for slots in (1, None):
        checked = check_file(path, Settings(slots=slots))
        assert (checked.verdict, checked.collective) == ("correct", collective), str(checked)
    report = plans.run(
        path,
        network,
        plans.Options(slots=None, slice_bytes=WHOLE),
        bytes_per_rank=even.nbytes,
        dtype="f32",
        overrides=LINKS | NETWORKS[network],
    )
    assert report.wrong == 0
    assert round(report.latency_ns * 1000) == even.schedule.time_ps


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
    machine = LINKS | NETWORKS["npu_mesh_4x4"] | {"defaults.buffer_kind": "hbm"}
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
    overrides = LINKS | NETWORKS["npu_mesh_4x4"]
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
    checked = check_file(path, Settings(slots=2))
    assert (checked.verdict, checked.collective) == ("correct", "all_reduce"), str(checked)


def test_what_a_file_cannot_say(tmp_path: Path) -> None:
    rooted = found("broadcast", "npu_ring_8", "greedy", root=3)
    with pytest.raises(UnsupportedError, match="AHBM-U292"):
        rooted.save(tmp_path / "plan.xml")
    with pytest.raises(UnsupportedError, match="AHBM-U291"):
        rooted.save(tmp_path / "plan.txt")
    assert not list(tmp_path.iterdir())


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    command = ["synth", "all_reduce", "-t", "npu_mesh_4x4", "--set", "cube.pe_layout.pe_per_corner=8"]
    done = CliRunner().invoke(app, [*command, "--size", "1000000", "-o", str(path), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["files"] == [str(path)] and 0 < result["bytes"] <= 1000000
    run = ["run", str(path), "-t", "npu_mesh_4x4", "--set", "cube.pe_layout.pe_per_corner=8", "--json"]
    run += ["--size", str(result["bytes"]), "--slots", "inf", "--slice", "inf"]
    report = json.loads(CliRunner().invoke(app, run).stdout)
    assert report["wrong"] == 0
    assert round(report["latency_ns"] * 1000) == round(result["time_us"] * 1e6)


def configured(synth: str, **more: object) -> Emulator:
    Path("ccl.yaml").write_text(f"algorithms:\n  made: {{synth: {synth}}}\ncollectives:\n  all_reduce: made\n")
    return Emulator.load("npu_mesh_4x4", None, LINKS | NETWORKS["npu_mesh_4x4"] | more)


def test_ccl_yaml_runs_a_synthesized_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    emulator = configured("{method: trees, seed: 3}")
    report = ahbm.run("all_reduce", bytes_per_rank=1 << 16, dtype="f32", emulator=emulator)
    arguments = {"topology": emulator.machine, "size": 1 << 16, "dtype": "f32", "seed": 3}
    wanted = synthesize("all_reduce", method="trees", **arguments)  # type: ignore[arg-type]
    assert (report.algorithm, report.wrong) == ("made", 0)
    assert round(report.latency_ns * 1000) == wanted.schedule.time_ps
    again = ahbm.run("all_reduce", bytes_per_rank=1 << 16, dtype="f32", emulator=emulator)
    assert again == report
    buffers = [np.full(8, rank, np.float32) for rank in range(6)]
    configured("{}").collective("broadcast", buffers, algorithm="made", root=4)
    assert all((buffer == 4).all() for buffer in buffers)


def test_ccl_yaml_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for bad in ("{chunks: 0}", "{speed: 3}", "trees"):
        with pytest.raises(ConfigError, match=r"(?s)AHBM-C103.*ccl\.yaml:2"):
            configured(bad)
    with pytest.raises(ConfigError, match="AHBM-C115"):
        ahbm.run("barrier", "made", emulator=configured("{}"))
    with pytest.raises(UnsupportedError, match="AHBM-U406"):
        ahbm.run("all_reduce", emulator=configured("{method: magic}"), bytes_per_rank=64)
    buffers = [np.zeros(8, np.float32) for _ in range(3)]
    with pytest.raises(UnsupportedError, match="AHBM-U114"):
        configured("{}").collective("all_reduce", buffers, ranks=[0, 1, 2], algorithm="made")
    with pytest.raises(ConfigError, match="a module and a synth"):
        CclConfig.load(overrides={"algorithms.ring_allreduce.synth.seed": 1})
