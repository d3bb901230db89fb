"""Logs with several tables in one, OSU's logs, and tables beside machines and each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.calibrate.beside import is_table, measured, predicted
from ahbm.calibrate.tables import Table, read
from ahbm.errors import ConfigError, FormatError
from support.commands import run

SIZES = (1024, 4096, 65536, 1 << 20)
RANKS = "".join(f"#  Rank  {at} Group 0 Pid  {at} on host device  {at} [0x0{at}] NVIDIA H100\n" for at in range(8))
HEAD = (
    "# nThread 1 nGpus 8 minBytes 1024\n" + RANKS + "#       size         count      type   redop    root     time   "
    "algbw   busbw #wrong     time   algbw   busbw #wrong\n"
)
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n"


def rows(op: str, factor: float, kind: str = "float", root: int = -1, sizes: tuple[int, ...] = SIZES) -> str:
    lines = []
    for size in sizes:
        way = f"{(20 + size / 1e4) * factor:.2f} 1.00 1.75 0"
        lines.append(f"{size} {size // 4} {kind} {op} {root} {way} {way}\n")
    return "".join(lines)


def log(folder: Path, text: str, name: str = "test.log") -> Path:
    (folder / name).write_text(text)
    return folder / name


def times(table: Table) -> list[float]:
    return [row.us for row in table.rows]


def test_every_operator_and_type_of_one_run_is_joined(tmp_path: Path) -> None:
    """-o all and -d all: of each size the quickest time counts, whatever the order of the tables."""
    own = [rows("sum", 1.0), rows("prod", 1.1), rows("max", 0.9), rows("sum", 1.2, "half")]
    for order in (own, own[::-1]):
        table = read(log(tmp_path, "./all_reduce_perf -o all\n" + HEAD + "".join(order) + TAIL))
        assert times(table) == [round((20 + size / 1e4) * 0.9, 2) for size in SIZES]
        assert any("4 tables" in note for note in table.notes)


def test_runs_one_after_the_other(tmp_path: Path) -> None:
    """Errors stand between them, and the second one has further sizes."""
    text = "./all_reduce_perf\n" + HEAD + rows("sum", 1.0) + TAIL + "host: error: connection reset 4096\n"
    text += "./all_reduce_perf\n" + HEAD + rows("sum", 2.0, sizes=(512, *SIZES)) + TAIL
    table = read(log(tmp_path, text))
    assert [row.bytes for row in table.rows] == [512, *SIZES] and times(table)[1] == 20.1


def test_one_collective_of_several_is_asked_for(tmp_path: Path) -> None:
    text = "./all_reduce_perf\n" + HEAD + rows("sum", 1.0) + TAIL + "./all_gather_perf\n" + HEAD + rows("none", 3.0)
    file = log(tmp_path, text + TAIL)
    with pytest.raises(FormatError, match="AHBM-F212") as caught:
        read(file)
    assert "--collective" in str(caught.value)
    for name, factor in (("all_reduce", 1.0), ("all_gather", 3.0)):
        table = read(file, collective=name)
        assert table.collective == name and times(table)[0] == round(20.1024 * factor, 2)
        assert table.ranks == 8


def test_sizes_of_one_table_still_grow(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="sizes grow"):
        read(log(tmp_path, "./all_reduce_perf\n" + HEAD + rows("sum", 1.0) + rows("sum", 1.0, sizes=SIZES[1:])))


@pytest.mark.parametrize("sizes", [SIZES, SIZES[:1]])
def test_cycles_of_all_sizes_under_one_header(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """-N: of each size the quickest time counts."""
    cycles = "".join(rows("sum", factor, sizes=sizes) for factor in (1.1, 0.9, 1.0))
    table = read(log(tmp_path, "./all_reduce_perf\n" + HEAD + cycles + TAIL))
    assert times(table) == [round((20 + size / 1e4) * 0.9, 2) for size in sizes]
    assert any("3 tables" in note for note in table.notes)


def osu(what: str = "MPI-CUDA Allreduce", columns: str = "Avg Latency(us)", before: str = "") -> str:
    more = "  9.00  30.00  100" if "Min" in columns else ""
    lines = ["", f"# OSU {what} Latency Test v7.3", "# Datatype: MPI_CHAR.", f"# Size       {columns}"]
    lines += [f"{size:<10}{20 + size / 1e4:>18.2f}{more}" for size in SIZES[:2]]
    lines += ["[node:mpi_rank_0][dreg_register] [Performance Impact Warning]: Entries are being evicted 8196"]
    lines += [f"{size:<10}{20 + size / 1e4:>18.2f}{more}" for size in SIZES[2:]]
    return "".join(f"{before}{line}\n" for line in lines)


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:", "0: ", "[0] "])
@pytest.mark.parametrize(
    "columns", ["Avg Latency(us)", "Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"]
)
def test_logs_of_osu(tmp_path: Path, before: str, columns: str) -> None:
    table = read(log(tmp_path, osu(columns=columns, before=before)), ranks=8)
    assert (table.collective, [row.bytes for row in table.rows]) == ("all_reduce", list(SIZES))
    assert times(table)[0] == 20.1 and any("mean of the ranks" in note for note in table.notes)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("    Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)", "{0}  99.00  50.00  {1:.2f}  22.08"),
        (
            "  Overall(us)  Compute(us)  Coll. Init(us)  MPI_Test(us)  MPI_Wait(us)  Pure Comm.(us)  Overlap(%)",
            "{0}  99.00  50.00  0.20  1.00  3.00  {1:.2f}  0.00",
        ),
    ],
)
def test_collectives_of_osu_that_do_not_block(tmp_path: Path, columns: str, row: str) -> None:
    """The communication alone counts, not what it took beside a computation."""
    head = (
        "# OSU MPI Non-blocking Allreduce Latency Test v5.6.3\n# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n"
    )
    lines = [row.format(size, 20 + size / 1e4) for size in SIZES]
    table = read(log(tmp_path, f"{head}\n# Size {columns}\n" + "\n".join(lines) + "\n"), ranks=8)
    assert table.collective == "all_reduce" and times(table) == [round(20 + size / 1e4, 2) for size in SIZES]
    assert any("the communication alone" in note for note in table.notes)


def test_osu_counts_the_share_of_a_rank(tmp_path: Path) -> None:
    for what, collective, factor in (
        ("MPI Allgather", "all_gather", 8),
        ("NCCL Alltoall", "all_to_all", 8),
        ("MPI Reduce_scatter", "reduce_scatter", 1),
        ("MPI Broadcast", "broadcast", 1),
    ):
        table = read(log(tmp_path, osu(what)), ranks=8)
        assert (table.collective, table.rows[0].bytes) == (collective, factor * SIZES[0])


def test_benchmarks_of_osu_that_are_no_collectives_are_named(tmp_path: Path) -> None:
    for text in ("# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1   1.5\n", osu("MPI Barrier")):
        with pytest.raises(FormatError, match="AHBM-F210"):
            read(log(tmp_path, text), ranks=8)
    with pytest.raises(FormatError, match="--ranks"):
        read(log(tmp_path, osu()))


def test_a_table_beside_a_machine_and_beside_another(tmp_path: Path) -> None:
    one = log(tmp_path, "./all_reduce_perf\n" + HEAD + rows("sum", 1.0), "one.log")
    two = log(tmp_path, "./all_reduce_perf\n" + HEAD + rows("sum", 2.0), "two.log")
    assert is_table(one) and not is_table(tmp_path / "none.log")
    assert [round(row.factor, 2) for row in measured(read(one), read(two)).rows] == [2.0] * 4
    beside = predicted(read(one), "npu_switch_8", {})
    assert [row.bytes for row in beside.rows] == list(SIZES) and all(row.by for row in beside.rows)
    # A machine of another size gets the table's ranks.
    assert len(predicted(read(one), "npu_ring_8", {}).rows) == 4
    with pytest.raises(ConfigError, match="AHBM-C146"):
        measured(read(one), read(log(tmp_path, osu("MPI Allgather")), ranks=8))


def test_compare_takes_logs(tmp_path: Path) -> None:
    log(tmp_path, "./all_reduce_perf\n" + HEAD + rows("sum", 1.0), "one.log")
    log(tmp_path, osu(), "osu.log")
    code, out, err = run("ahbm", ["compare", "one.log", "-t", "npu_switch_8"], tmp_path)
    assert code == 0 and "apart:" in out and "1048576" in out, err
    code, out, err = run("ahbm", ["compare", "one.log", "one.log", "--json"], tmp_path)
    assert code == 0 and all(abs(row["factor"] - 1) < 1e-9 for row in json.loads(out)["rows"]), err
    assert run("ahbm", ["compare", "osu.log", "-t", "npu_switch_8", "--ranks", "8"], tmp_path)[0] == 0
    assert run("ahbm", ["compare", "one.log", "-t", "npu_switch_8", "-a", "ring_allreduce"], tmp_path)[0] != 0
