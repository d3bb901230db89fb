"""Logs as they come: encodings, marks of launchers, rows that are cut, columns of checks, and other programs' logs."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from ahbm.base import foreign
from ahbm.calibrate.beside import is_table
from ahbm.calibrate.tables import Table, read
from ahbm.errors import FormatError
from support.commands import run

SIZES = (1024, 65536, 1 << 20)
RANKS = "".join(f"#  Rank  {at} Group  0 Pid  {at} on host device  {at} [0x0{at}] NVIDIA H100\n" for at in range(4))
START = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 4 minBytes 1024\n"
COLUMNS = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"


def us(nbytes: int) -> float:
    return round(20 + nbytes / 1e4, 2)


def row(nbytes: int, root: int = -1, wrong: int = 0) -> str:
    way = f"{us(nbytes):.2f} {nbytes / us(nbytes) / 1e3:.2f} 9.00 {wrong}"
    return f"{nbytes:>12} {nbytes // 4} float sum {root} {way} {way}\n"


TEXT = START + RANKS + COLUMNS + "".join(map(row, SIZES)) + "# Out of bounds values : 0 OK\n"


def file(folder: Path, content: str | bytes, name: str = "a.log") -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def figures(table: Table) -> list[tuple[int, float]]:
    return [(row.bytes, row.us) for row in table.rows]


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace("\n", "\r\n").encode("utf-16"),
        b"\xef\xbb\xbf" + TEXT.encode(),
        b"# l\xe4uft\n" + TEXT.encode(),
        gzip.compress(TEXT.encode()),
        "".join(json.dumps({"log": f"{line}\n", "stream": "stdout"}) + "\n" for line in TEXT.splitlines()).encode(),
        "".join(f"\x1b[36m{line}\x1b[0m\n" for line in TEXT.splitlines()).encode(),
        TEXT.replace("       65536", "node-0:20:21 [0] NCCL INFO Connected all trees        65536").encode(),
        TEXT.replace(" 0\n", " 0 node-0:20:21 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]\n").encode(),
        *(
            "".join(f"{mark}{line}\n" for line in TEXT.splitlines()).encode()
            for mark in ("Mon Nov 11 10:22:33 2024[1,0]<stdout>:", "Nov 11 10:22:33 node-0 step[42]: ")
        ),
    ],
)
def test_a_log_is_read_as_it_was_kept(tmp_path: Path, content: bytes) -> None:
    """By PowerShell, by a logger that packs, among lines in another encoding, behind a date and a rank."""
    table = read(file(tmp_path, content))
    assert is_table(tmp_path / "a.log")
    assert (table.collective, table.ranks) == ("all_reduce", 4)
    assert figures(table) == [(size, us(size)) for size in SIZES]


def test_the_columns_of_rccl_tests_csv_stand_in_any_order(tmp_path: Path) -> None:
    rows = [f"0,AllReduce,4,1,{size},float,sum,{way},{us(size)},1,1,0" for size in SIZES for way in (0, 1)]
    text = "numCycle,Collective,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
    log = file(tmp_path, text + "\n".join(rows) + "\n", "a.csv")
    assert is_table(log) and read(log).ranks == 4
    assert figures(read(log)) == [(size, us(size)) for size in SIZES]


def test_an_unpacked_log_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="more than 4194304 bytes"):
        read(file(tmp_path, gzip.compress(b"#" * (1 << 23))))


@pytest.mark.parametrize("columns", range(6, 13))
def test_a_row_that_is_cut_has_no_figures(tmp_path: Path, columns: int) -> None:
    """The root of a row whose last column is not there is no time."""
    whole = START + RANKS + COLUMNS + row(1024, 3) + row(65536, 3)
    cut = " ".join(row(1 << 20, 3).split()[:columns])
    table = read(file(tmp_path, whole + cut))
    # After nine columns the first of both ways is whole.
    assert figures(table) == [(size, us(size)) for size in (SIZES if columns == 9 else SIZES[:2])]
    assert columns == 9 or any("ends in the middle of this row" in note for note in table.notes)
    if columns != 9:
        with pytest.raises(FormatError, match="AHBM-F211"):
            read(file(tmp_path, f"{whole}{cut}\n# more\n"))


def test_times_of_wrong_data_alone_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="data were wrong at 1024, 65536"):
        read(file(tmp_path, START + RANKS + COLUMNS + row(1024, wrong=2) + row(65536, wrong=1)))


def test_rows_of_no_bytes_alone_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="all rows are of 0 bytes"):
        read(file(tmp_path, START + RANKS + COLUMNS + row(0)))


def test_processes_that_know_nothing_of_each_other(tmp_path: Path) -> None:
    alone = START + RANKS.split("\n")[0] + "\n" + COLUMNS + row(1024)
    with pytest.raises(FormatError, match="measured alone") as caught:
        read(file(tmp_path, alone * 4))
    assert "MPI=1" in str(caught.value)


@pytest.mark.parametrize("program", ["hypercube_perf", "alltoallv_perf"])
def test_a_program_that_measures_something_else_is_named(tmp_path: Path, program: str) -> None:
    with pytest.raises(FormatError, match=f"AHBM-F210 {program} measures nothing"):
        read(file(tmp_path, TEXT.replace("all_reduce_perf", program)))


def osu(title: str, more: str = "", cells: str = "") -> str:
    head = f"\n# OSU {title} v7.4\n# Datatype: MPI_FLOAT.\n# Size       Avg Latency(us){more}\n"
    return head + "".join(f"{size:<10} {us(size):18.2f}{cells}\n" for size in SIZES)


def test_osu_checked_its_data(tmp_path: Path) -> None:
    columns = "   Min Latency(us)   Max Latency(us)  Iterations   Validation"
    log = osu("MPI-CUDA Allreduce Latency Test", columns, "  9.00  99.00  1000  Pass")
    assert figures(read(file(tmp_path, log), ranks=4)) == [(size, us(size)) for size in SIZES]
    failed = read(file(tmp_path, log[::-1].replace("ssaP", "liaF", 1)[::-1]), ranks=4)
    assert [row.bytes for row in failed.rows] == list(SIZES[:2])
    assert any("data were wrong at 1048576" in note for note in failed.notes)


@pytest.mark.parametrize(
    "mark",
    ["2024-11-11T10:22:33.123456789Z ", "2024-11-11T10:22:33.1Z stdout F ", "[1,0]<stdout>:", "osu-1  | ", "0: "],
)
def test_rows_behind_marks_of_launchers(tmp_path: Path, mark: str) -> None:
    for text in (osu("MPI Allreduce Latency Test"), imb("Allreduce", 4, 1.0)):
        log = file(tmp_path, "".join(f"{mark}{line}\n" for line in text.splitlines()))
        assert figures(read(log, ranks=4)) == [(size, us(size)) for size in SIZES]
    words = osu("MPI Allreduce Latency Test") + "the host has seen an error 8388608 12.5\n"
    assert figures(read(file(tmp_path, words), ranks=4))[-1] == (1 << 20, us(1 << 20))


def test_long_lines_take_no_long_time(tmp_path: Path) -> None:
    """Of numbers that are no row: a pattern went over the rest of the line from each of them."""
    log = file(tmp_path, osu("MPI Allreduce Latency Test") + f"{'1 1.1 ' * 680}x\n" * 100)
    began = time.process_time()
    assert len(read(log, ranks=4).rows) == 3
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    ("title", "collective"),
    [
        ("MPI-CUDA All-to-All Personalized Exchange Latency Test", "all_to_all"),
        ("MPI Non-blocking All-to-All Latency Test", "all_to_all"),
        ("MPI Reduce_scatter Latency Test", "reduce_scatter"),
        ("XCCL-CUDA Persistent Allreduce Latency Test", "all_reduce"),
        ("MPI Neighborhood Allgather Latency Test", None),
        ("MPI All-to-Allv Personalized Exchange Latency Test", None),
        ("MPI Allgatherv Latency Test", None),
        ("MPI-CUDA Latency Test", None),
        ("MPI-CUDA Bandwidth Test", None),
    ],
)
def test_titles_of_osu(tmp_path: Path, title: str, collective: str | None) -> None:
    log = file(tmp_path, osu(title))
    if collective is not None:
        assert read(log, ranks=4).collective == collective
        return
    with pytest.raises(FormatError, match="measures nothing that is read"):
        read(log, ranks=4)


def imb(name: str, processes: int, factor: float, columns: str = "t_min[usec]  t_max[usec]  t_avg[usec]") -> str:
    rule = "#---------------------------------------------\n"
    head = f"{rule}# Benchmarking {name} \n# #processes = {processes} \n{rule}"
    lines = [f"       #bytes #repetitions  {columns}", f"{0:13} {1000:12}  0.03  0.05  0.04"]
    lines += [f"{size:13} {1000:12}  1.00  999.00  {us(size) * factor:.2f}" for size in SIZES]
    return head + "\n".join(lines) + "\n\n"


def test_the_intel_mpi_benchmarks(tmp_path: Path) -> None:
    """Means of the ranks; one collective and number of processes of several."""
    blocks = [("Allreduce", 2, 1.0), ("Allreduce", 4, 2.0), ("Allgather", 4, 3.0)]
    text = "#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part\n" + "".join(imb(*block) for block in blocks)
    log = file(tmp_path, text + imb("Iallreduce", 8, 4.0, "t_ovrl[usec]  t_CPU[usec]  t_pure[usec]"))
    with pytest.raises(FormatError, match="AHBM-F212 ranks 4 after 2") as caught:
        read(log, "all_reduce")
    assert "--ranks takes one of them" in str(caught.value)
    assert figures(read(log, "all_reduce", 4)) == [(size, round(2 * us(size), 2)) for size in SIZES]
    assert figures(read(log, "all_gather"))[0] == (4096, round(3 * us(1024), 2))
    assert figures(read(log, "all_reduce", 8))[0] == (1024, round(4 * us(1024), 2))
    with pytest.raises(FormatError, match="PingPong measures nothing that is read"):
        read(file(tmp_path, imb("PingPong", 2, 1.0, "t[usec]   Mbytes/sec x")))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("1K,13.1", "'1K' is no whole number of bytes"),
        ("1024,", "'' stands where the time of 1024 bytes should"),
        ('1024,"1,313.1"', "'1,313.1' stands where the time of 1024 bytes should"),
    ],
)
def test_cells_of_a_table_of_ones_own(tmp_path: Path, row: str, what: str) -> None:
    """They may be quoted; what is no number is named, in words of tables."""
    head = '# op: all_reduce\n# ranks: 4\n"bytes","time_us"\n"64","9.5"\n'
    log = file(tmp_path, head, "own.csv")
    assert is_table(log) and figures(read(log)) == [(64, 9.5)]
    with pytest.raises(FormatError, match="AHBM-F211") as caught:
        read(file(tmp_path, head + row + "\n", "own.csv"))
    assert what in str(caught.value)


def test_documents_of_nccl_tests(tmp_path: Path) -> None:
    """`-J`: a way that the program does not have is N/A; two documents are two runs."""
    ways = {"out_of_place": {"time": 12.5, "nwrong": 0}, "in_place": {"time": "N/A", "nwrong": "N/A"}}
    document = {"args": ["./alltoall_perf"], "ranks": [{}, {}], "results": [{"size": 1024, **ways}]}
    assert figures(read(file(tmp_path, json.dumps(document)))) == [(1024, 12.5)]
    with pytest.raises(FormatError, match="AHBM-F212 2 documents"):
        read(file(tmp_path, json.dumps(document) + "\n" + json.dumps(document)))


def test_compare_takes_what_its_hints_name(tmp_path: Path) -> None:
    gather = TEXT.replace("all_reduce_perf", "all_gather_perf")
    both = file(tmp_path, TEXT + gather, "both.log")
    one = file(tmp_path, osu("MPI Allgather Latency Test"), "osu.log")
    code, _, asked = run("ahbm", ["compare", str(both), str(one), "--ranks", "4"], tmp_path)
    assert code and "--collective takes one of them" in asked
    code, told, _ = run(
        "ahbm", ["compare", str(both), str(one), "--ranks", "4", "--collective", "all_gather"], tmp_path
    )
    assert code == 0 and told.startswith("# all_gather of 4 ranks on 1 nodes: both.log and osu.log")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (" ---\n      RDMA_Write BW Test\n Dual-port : OFF\n", "perftest"),
        ("nvbandwidth Version: v0.5\n", "pairs of GPUs"),
        ("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n", "pairs of GPUs"),
        ("#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part\n", "Intel MPI Benchmarks"),
        ('{"version": 3, "nccl_version": "22703", "results": []}', "nccl-tests or rccl-tests"),
    ],
)
def test_what_a_log_is(text: str, what: str) -> None:
    found = foreign.of_text(text)
    assert found is not None and what in found.what
