"""Tuner files of NCCL on machines that were fitted to measurements: lines help beyond the band, or there are none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ahbm.choose import formats
from ahbm.choose.card import ALONE
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.evaluation import evaluate
from ahbm.choose.files import save
from ahbm.choose.formats import nccl_sweep
from ahbm.choose.formats.nccl_sweep import Measured
from ahbm.choose.measured import Forced, read
from ahbm.choose.names import NCCL
from ahbm.choose.oracle import Oracle
from ahbm.choose.tune import Given, Tuned, tune
from ahbm.cli import app
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.selectors.nccl_model import NcclModel
from ahbm.selectors.protocol import Call
from support import tuners
from support.tuners import Called

NAMES = ("nccl_ring_allreduce", "double_binary_tree_allreduce", "nvls_allreduce")
SIZES = [4096, 1 << 17, 1 << 22, 1 << 26]
FILES = ("nccl_tuner.csv", "ncclx_tuner.csv", "ncclx_tuner.json")


def tuned_on(*names: str, measured: list[str] | None = None, given: Given | None = None) -> Tuned:
    machines = [load_machine(name) for name in names]
    return tune(Catalogue.of("all_reduce", NAMES), machines, SIZES, given=given, measured=read(measured or ()))


def table(path: Path, times: dict[int, float]) -> str:
    """A table of 8 ranks on one node, as nccl-tests measures it."""
    rows = [f"{size},float,{us},1,1," for size, us in times.items()]
    head = ["# nodes: 1", "# ranks: 8", "# op: all_reduce", "bytes,dtype,time_us,algbw_gbs,busbw_gbs,time_in_place_us"]
    path.write_text("\n".join([*head, *rows]) + "\n")
    return str(path)


ITSELF = {1 << 10: 16.0, 1 << 16: 18.0, 1 << 20: 32.0, 1 << 22: 60.0, 1 << 24: 120.0, 1 << 26: 400.0, 1 << 28: 1400.0}


@pytest.mark.parametrize("name", ["p5", "azure_nd_h100", "dgx_b300", "mi300x", "azure_nd_a100", "h100_2_nodes"])
def test_where_nothing_was_measured_to_help_no_line_is_written(name: str, tmp_path: Path) -> None:
    found = tuned_on(name, given=Given(channels=4))
    card = save(found, tmp_path)
    assert not found.of(NCCL)
    assert any(ALONE in line for line in card.lines())
    for file in FILES:
        again = evaluate(tmp_path / file, list(found.table.machines.values()), SIZES, collective="all_reduce")
        assert not again.read.rules and len(again.left) == len(SIZES) and not again.verdicts
    assert "leave NCCL alone" in (tmp_path / FILES[0]).read_text().replace("\n# ", " ")


def test_the_sweep_has_what_the_accelerator_has_and_times_of_its_own_model(tmp_path: Path) -> None:
    found = tuned_on("p5")
    save(found, tmp_path)
    rows = list(nccl_sweep.rows((tmp_path / "nccl_sweep.csv").read_text(), "sweep"))
    pairs = {(row.algorithm, row.protocol) for row in rows}
    assert {("nvls", "simple"), ("ring", "ll128"), ("tree", "ll128")} < pairs
    model = NcclModel.of(load_machine("p5"))
    assert model is not None
    for size in SIZES:
        call = Call("all_reduce", size, 8, 1)
        times = {(row.algorithm, row.protocol): row.latency_us for row in rows if row.nbytes == size}
        own = model.own("all_reduce", size, 8, 1)
        assert own is not None and times[own] == min(times.values())
        for (algorithm, protocol), us in times.items():
            ratio = model.time_us(algorithm, protocol, call) / model.time_us(*own, call)
            assert us / times[own] == pytest.approx(ratio, rel=1e-5)
    assert ("nvls", "simple") not in {each[:2] for each in _candidates("azure_nd_a100")}


def _candidates(name: str) -> list[tuple[str, str]]:
    found = tuned_on(name)
    return [(choice.name, str(choice.protocol)) for choice in found.timed(NCCL, found.table.points()[0])]


def measured(tmp_path: Path, forced: dict[int, float]) -> list[str]:
    return [table(tmp_path / "itself.csv", ITSELF), f"ring/simple={table(tmp_path / 'ring.csv', forced)}"]


def test_a_line_helps_beyond_the_band_and_the_others_are_what_nccl_takes_by_itself(tmp_path: Path) -> None:
    # Quicker by a half at 4 MiB, within the band at 64 MiB, slower elsewhere.
    files = measured(tmp_path, {1 << 16: 60.0, 1 << 20: 64.0, 1 << 22: 40.0, 1 << 24: 240.0, 1 << 26: 395.0})
    found = tuned_on("p5", measured=files)
    card = save(found, tmp_path)
    model = NcclModel.of(load_machine("p5"))
    assert model is not None
    text, draw = (tmp_path / FILES[0]).read_text(), random.Random(5)
    (line,) = [rule for rule in found.of(NCCL) if (rule.algorithm, rule.protocol) == ("ring", "simple")]
    assert line.nbytes.most is not None and 1 << 22 in line.nbytes and line.channels is None
    for _ in range(400):
        size = draw.randrange(1, 1 << draw.randrange(1, 39)) // 8 * 8 + 8
        chosen = tuners.READERS["nccl"](text, Called("all_reduce", size, 8))
        own = ("ring", "simple") if size in line.nbytes else model.own("all_reduce", size, 8, 1)
        assert chosen is not None and chosen[:2] == own, size
        assert chosen[2] == 0, "NCCL's own number of channels"
    for file in FILES:
        again = evaluate(
            tmp_path / file,
            list(found.table.machines.values()),
            SIZES,
            measured=read(files),
        )
        assert again.verdicts == card.evaluations[file].verdicts
        assert [point.nbytes for point, _, verdict in again.verdicts if verdict.helps] == [1 << 22]
        assert not any(verdict.harms for _, _, verdict in again.verdicts)
        assert again.regret.mean == 0


def test_a_file_that_harms_is_told_so_by_measurements_and_by_the_model(tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text("allreduce,0,131071,tree,simple,16,1,8\nallreduce,131072,18446744073709551615,ring,simple,16,1,8\n")
    judged = evaluate(file, [load_machine("p5")], SIZES, algorithms=NAMES)
    by = {point.nbytes: verdict for point, _, verdict in judged.verdicts}
    assert all(verdict.harms and verdict.measured is None for verdict in by.values())
    assert by[4096].us / by[4096].own_us > 3
    files = measured(tmp_path, {1 << 16: 17.0, 1 << 20: 30.0, 1 << 22: 40.0, 1 << 24: 240.0, 1 << 26: 800.0})
    judged = evaluate(file, [load_machine("p5")], SIZES, algorithms=NAMES, measured=read(files))
    by = {point.nbytes: verdict for point, _, verdict in judged.verdicts}
    assert by[1 << 22].helps and by[1 << 22].measured == Forced("ring", "simple")
    assert by[1 << 26].harms and by[1 << 26].us == pytest.approx(800.0)
    assert by[4096].harms and by[4096].own_us == pytest.approx(17.0, rel=0.05)
    told = "\n".join(judged.lines())
    assert "beside NCCL by itself: worse at 2 of 4 points, better beyond the band at 2; 3 were measured" in told
    assert "it would lose" in told


def test_of_measured_channels_the_quickest_are_written(tmp_path: Path) -> None:
    rows = [
        Measured("all_reduce", size, "ring", "simple", channels, 8, us)
        for size in ITSELF
        for channels, us in ((4, ITSELF[size]), (8, ITSELF[size] / 2), (16, ITSELF[size] * 2))
    ]
    sweep = tmp_path / "sweep.csv"
    sweep.write_text(nccl_sweep.text(rows))
    files = [table(tmp_path / "itself.csv", ITSELF), str(sweep)]
    rules = tuned_on("p5", measured=files).of(NCCL)
    assert {(rule.algorithm, rule.protocol, rule.channels) for rule in rules} == {("ring", "simple", 8)}
    rules = tuned_on("p5", measured=files, given=Given(channels=16)).of(NCCL)
    assert not rules


@pytest.mark.parametrize("given", ["ring/fast={}", "nvls/ll={}", "dance/ll={}", "ring={}"])
def test_what_nccl_does_not_have_was_not_measured(given: str, tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", ITSELF)
    with pytest.raises(ConfigError, match="AHBM-C146"):
        read([given.format(path)])
    for files in ([path, path], [f"ring/simple={path}"]):
        with pytest.raises(ConfigError, match="AHBM-C146"):
            read(files)


def test_measurements_of_other_calls_are_refused(tmp_path: Path) -> None:
    path, catalogue = table(tmp_path / "t.csv", ITSELF), Catalogue.of("all_reduce", NAMES[:1])
    for name in ("npu_ring_8", "h100_2_nodes"):
        with pytest.raises(ConfigError, match="AHBM-C146"):
            tune(catalogue, [load_machine(name)], SIZES[:2], measured=read([path]))
    with pytest.raises(ConfigError, match="AHBM-C146"):
        tune(catalogue, [load_machine("p5")], SIZES[:2], measured=read([path]), given=Given(nodes=2))
    with pytest.raises(ConfigError, match="AHBM-C146"):
        tuned_on("p5", "azure_nd_h100", measured=[path])


def test_the_command_takes_measurements(tmp_path: Path) -> None:
    files = measured(tmp_path, {1 << 20: 16.0, 1 << 22: 30.0, 1 << 24: 60.0})
    options = [f"--measured={file}" for file in files]
    small = ["-t", "p5", "-a", "nccl_ring_allreduce", "--sizes", "4M,8M"]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["tune", "all_reduce", *small, *options, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "better beyond the band at 2; 2 were measured" in done.stdout
    done = CliRunner().invoke(app, ["tune", "--evaluate", str(out / FILES[0]), *small, *options])
    assert "worse at 0 of 2 points, better beyond the band at 2" in done.stdout


def test_forced_ll_is_told_beyond_what_nccl_takes_itself(tmp_path: Path) -> None:
    file = tmp_path / "ll.csv"
    for most, warned in (((1 << 20) + (1 << 18), False), (16 << 20, True)):
        file.write_text(f"allreduce,0,{most},ring,ll,0,1,8\n")
        assert ("AHBM-F197" in [finding.code for finding in formats.read(file).findings]) == warned


def test_wrong_rows_of_the_oracle_do_not_reach_nccl_s_lines() -> None:
    """What stands for NCCL's algorithms here need not run: NVLS needs a switch that reduces, which the machine leaves
    out."""
    found = Oracle(Catalogue.of("all_reduce", NAMES), [load_machine("p5")], [4096]).table()
    assert "nvls_allreduce" in found.refused
    assert ("nvls", "simple") in _candidates("p5")
