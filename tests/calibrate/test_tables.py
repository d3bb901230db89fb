"""Readers of measured tables: every form, and what is no table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.calibrate.tables import SPELLED, read
from ahbm.errors import FormatError

CSV = """# accelerator: H100
# nodes: 2
# ranks: 16
# op: alltoall
bytes,dtype,time_us,algbw_gbs,busbw_gbs,time_in_place_us
1024,float,30.5,0,0,29.5
2048,float,31.0,0,0,
"""
TEXT = """# nThread 1 nGpus 8 minBytes 8 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid  71 on     node-a device  0 [0x53] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  71 on     node-a device  1 [0x64] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  72 on     node-b device  0 [0x53] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  72 on     node-b device  1 [0x64] NVIDIA H100 80GB HBM3
node-a:71:99 [0] NCCL INFO cudaDriverVersion 12040
#
#                                      out-of-place                in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    24.10    0.00    0.00      0    23.05    0.00    0.00      0
          16             4     float     sum      -1    24.70    0.00    0.00      0    25.12    0.00    0.00    N/A
# Out of bounds values : 0 OK
"""


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_csv_of_ours(tmp_path: Path) -> None:
    table = read(written(tmp_path, CSV))
    assert (table.collective, table.ranks, table.nodes, table.accelerator) == ("all_to_all", 16, 2, "H100")
    assert [(row.bytes, row.us, row.line) for row in table.rows] == [(1024, 29.5, 6), (2048, 31.0, 7)]
    assert [row.bytes for row in table.half(held=True).rows] == [2048]


def test_the_text_of_nccl_tests(tmp_path: Path) -> None:
    table = read(written(tmp_path, TEXT, "log.txt"), collective="all_reduce")
    assert (table.ranks, table.nodes, table.accelerator) == (4, 2, "NVIDIA H100 80GB HBM3")
    assert [(row.bytes, row.us) for row in table.rows] == [(8, 23.05), (16, 24.7)]
    named = read(written(tmp_path, TEXT.replace("# Using", "# all_gather_perf\n# Using"), "log.txt"))
    assert named.collective == "all_gather"


def test_rows_of_no_bytes_do_not_count(tmp_path: Path) -> None:
    zero = "           0             0     float    none      -1" + 2 * "    12.10    0.00    0.00      0" + "\n"
    start = TEXT.index("           8 ")
    found = read(written(tmp_path, TEXT[:start] + zero + zero + TEXT[start:]), "all_gather")
    assert [row.bytes for row in found.rows] == [8, 16]
    assert any("rows of 0 bytes" in note for note in found.notes)


STARTS = "# Collective test starting: all_reduce_perf\n"
SECOND = TEXT.replace("           8 ", "          32 ").replace("          16 ", "          64 ")


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (
            "# Collective test concluded: all_reduce_perf\n# all_gather_perf\n" + SECOND,
            "op all_gather after all_reduce",
        ),
        (SECOND.replace("Rank  3", "Rank  2"), "ranks 3 after 4"),
        (SECOND.replace("node-b", "node-a"), "nodes 1 after 2"),
    ],
)
def test_a_file_is_one_table(tmp_path: Path, second: str, told: str) -> None:
    assert len(read(written(tmp_path, STARTS + TEXT + STARTS + SECOND)).rows) == 4
    with pytest.raises(FormatError, match=f"AHBM-F212 {told}: a file is one table"):
        read(written(tmp_path, STARTS + TEXT + second))


def test_a_row_that_was_cut_is_called_one(tmp_path: Path) -> None:
    cut = "           8             2     float     sum      -1    24.10    0.00    0.00      0    23.05    0.00\n"
    with pytest.raises(FormatError, match="AHBM-F211 'sum' stands where a time should: the row is cut"):
        read(written(tmp_path, TEXT[: TEXT.index("           8 ")] + cut), "all_reduce")


def test_the_json_of_bench_says_the_nodes(tmp_path: Path) -> None:
    result = {"size": 1024, "in_place": {"time": 10.0, "nwrong": "N/A"}, "report": {"ranks": 16}}
    told = {"config": {"collective": "all_gather", "nodes": 2}, "results": [result]}
    found = read(written(tmp_path, json.dumps(told), "t.json"))
    assert (found.ranks, found.nodes, found.notes) == (16, 2, ())


def test_json_of_both_tools(tmp_path: Path) -> None:
    rows = [{"size": 8, "out_of_place": {"time": 9.5}, "in_place": {"time": 9.0}}, {"size": 16, "error": {}}]
    theirs = {"args": ["./all_reduce_perf", "-J"], "ranks": [{"host": "a"}, {"host": "b"}], "results": rows}
    table = read(written(tmp_path, json.dumps(theirs), "a.json"))
    assert (table.collective, table.ranks, table.nodes, len(table.rows)) == ("all_reduce", 2, 2, 1)
    ours = {"config": {"collective": "all_gather"}, "results": [{**rows[0], "report": {"ranks": 8}}]}
    table = read(written(tmp_path, json.dumps(ours), "b.json"))
    assert (table.collective, table.ranks, table.rows[0].us) == ("all_gather", 8, 9.0)


ITERATIONS = """# all_reduce_perf
# Rank  0 Group  0 Pid  71 on     node-a device  0 [0000:53:00] NVIDIA H100 80GB HBM3
# Rank  1 Group  0 Pid  71 on     node-a device  1 [0000:64:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%           timestamp
           8             2     float     sum      -1    24.10    0.00    0.00       0    12.00    70.00    60.00    35.00    23.05    0.00    0.00       0    11.00    70.00    60.00    35.00  2025-09-01 12:00:00
          16             4     float              -1    24.70    0.00    0.00       0    12.00    70.00    60.00    35.00    25.12    0.00    0.00     N/A    11.00    70.00    60.00    35.00  2025-09-01 12:00:00
          32             8     float                                                                                         26.00    0.00    0.00     N/A    11.00    70.00    60.00    35.00  2025-09-01 12:00:00
"""  # noqa: E501


def test_columns_are_those_that_the_header_names(tmp_path: Path) -> None:
    table = read(written(tmp_path, ITERATIONS, "iterations.txt"))
    assert [(row.bytes, row.us) for row in table.rows] == [(8, 23.05), (16, 24.7), (32, 26.0)]
    # As launchers mark the lines of a process: MPI, Slurm, a script's own, kubectl logs, a logger.
    for mark in ("[1,0]<stdout>:", "0: ", "[0] ", "3 ", "node-a: ", "[pod/nccl-0/main] ", "2026-01-02 03:04:05 INFO "):
        marked = "".join(mark + line for line in ITERATIONS.splitlines(keepends=True))
        assert read(written(tmp_path, marked, "marked.txt")).rows == table.rows
    header = next(line for line in ITERATIONS.splitlines() if "count" in line)
    for other, line in (
        ("", 5),  # of how many columns a way has is not known
        (header.replace("time", "cputime"), 4),
        (header.replace("i_min", "time"), 4),
        (header.replace("time", "when"), 4),
    ):
        with pytest.raises(FormatError) as caught:
            read(written(tmp_path, ITERATIONS.replace(header, other), "other.txt"))
        assert caught.value.code == "AHBM-F210" and caught.value.sites[0].origin.endswith(f":{line}")


def test_times_of_wrong_data_do_not_count(tmp_path: Path) -> None:
    assert read(written(tmp_path, TEXT, "log.txt"), "all_reduce").notes == ()
    one = TEXT.replace("23.05    0.00    0.00      0", "23.05    0.00    0.00     17")
    table = read(written(tmp_path, one, "log.txt"), "all_reduce")
    assert [(row.bytes, row.us) for row in table.rows] == [(8, 24.1), (16, 24.7)]
    assert table.notes == ("log.txt:13: data were wrong at 8 B: the times of wrong data do not count",)
    both = one.replace("24.10    0.00    0.00      0", "24.10    0.00    0.00  1e+06")
    table = read(written(tmp_path, both, "log.txt"), "all_reduce")
    assert [row.bytes for row in table.rows] == [16]
    assert table.notes[0].endswith("and 1 of 2 rows are left out")
    results = [{"size": size, "out_of_place": {"time": 9.0, "nwrong": wrong}} for size, wrong in ((8, 3.0), (16, None))]
    document = {"args": ["all_reduce_perf"], "ranks": [{"host": "a"}] * 2, "results": results}
    table = read(written(tmp_path, json.dumps(document), "log.json"))
    assert [row.bytes for row in table.rows] == [16] and table.notes[0].startswith("log.json:result 1: data were wrong")


@pytest.mark.parametrize(
    ("per", "ranks", "wanted"),
    [(1, [0, 1, 2, 3], 4), (8, [0, 8, 16, 24], 32), (8, [0], 8), (2, [0, 1, 2, 3], 4)],
    ids=["one GPU a process", "eight GPUs a process", "one process", "all ranks"],
)
def test_the_json_of_nccl_tests(tmp_path: Path, per: int, ranks: list[int], wanted: int) -> None:
    hosts = [{"rank": rank, "hostname": f"node{rank >= 16}", "device_info": "NVIDIA H100"} for rank in ranks]
    document = {
        "version": 2,
        "args": ["./build/all_gather_perf", "-J", "out.json"],
        "config": {"nthreads": 1, "ngpus": per, "devices": hosts},
        "results": [{"size": 8, "out_of_place": None, "in_place": {"time": 9.5, "nwrong": 0.0}}],
    }
    table = read(written(tmp_path, json.dumps(document), "a.json"))
    assert (table.collective, table.ranks, table.accelerator) == ("all_gather", wanted, "NVIDIA H100")
    assert (table.nodes, table.rows[0].us, table.notes) == (1 + (max(ranks) >= 16), 9.5, ())
    document["results"] = [{"size": 8, "in_place": {"cpu_time": 9.5}}]
    with pytest.raises(FormatError, match="those of the CPU"):
        read(written(tmp_path, json.dumps(document), "a.json"))


@pytest.mark.parametrize(("name", "times"), [("AllReduce", 1), ("ReduceScatter", 8), ("AlltoAll", 1), ("AllGather", 1)])
def test_what_rccl_tests_writes(tmp_path: Path, name: str, times: int) -> None:
    """Of both ways, with and without MPI; sizes are those that a rank receives."""
    rows = [
        {"size": size, "type": "float", "redop": "sum", "inPlace": way, "time": us, "algBw": 1, "busBw": 1}
        | {"wrong": "0"}
        for size, way, us in ((1024, 0, 13.0), (1024, 1, 12.5), (2048, 0, 14.0), (2048, 1, 14.5))
    ]
    mpi = {"nodes": 1, "ranks": 4, "ranksPerNode": 4, "gpusPerRank": 2}
    wanted = [(1024 * times, 12.5), (2048 * times, 14.0)]
    for own, header in ((mpi, "ranks, rankspernode, gpusperrank"), ({"gpus": 8}, "gpus")):
        results = [{"name": name, **own, **row} for row in rows]
        names = f"collective, {header}, size, type, redop, inplace, time, algbw, busbw, #wrong"
        texts = {
            "lines.json": "".join(json.dumps(result) + "\n" for result in results),
            "list.json": json.dumps(results),
            "rows.csv": "\n".join([names, *(", ".join(map(str, result.values())) for result in results)]) + "\n",
        }
        for file, text in texts.items():
            table = read(written(tmp_path, text, file))
            assert (SPELLED.get(name.lower()), table.ranks, table.nodes) == (table.collective, 8, 1)
            assert [(row.bytes, row.us) for row in table.rows] == wanted, file
            places = {"lines.json": [1, 3], "list.json": ["result 1", "result 3"], "rows.csv": [2, 4]}
            assert [row.line for row in table.rows] == places[file]
            # Its nodes are groups of ranks, not hosts.
            assert "on how many nodes its 8 ranks were" in table.notes[0]
            assert read(tmp_path / file, table.collective, nodes=2).notes == ()


def test_what_rccl_tests_does_not_write(tmp_path: Path) -> None:
    good = {"name": "AllReduce", "gpus": 8, "size": 8, "inPlace": 0, "time": 9.0}
    for change, code, place in (
        ({"name": "AllGather"}, "AHBM-F212", "result 2"),
        ({"gpus": 4}, "AHBM-F212", "result 2"),
        ({"time": "fast"}, "AHBM-F211", "result 2"),
        ({"size": 4}, "AHBM-F211", "result 2"),
    ):
        with pytest.raises(FormatError) as caught:
            read(written(tmp_path, json.dumps([good, {**good, "size": 16, **change}]), "a.json"))
        assert (caught.value.code, caught.value.sites[0].origin.split(":")[-1]) == (code, place)
    for text in ("[3]", '{"a": 1}\n{"b": 2}', "collective, gpus, size\nAllReduce, 8, 8\n", "collective, gpus\nx\n"):
        with pytest.raises(FormatError):
            read(written(tmp_path, text, "a.json"))


def test_a_result_of_json_is_called_by_its_number(tmp_path: Path) -> None:
    document = {"config": {"collective": "all_gather"}, "ranks": [{}, {}], "results": [
        {"size": size, "in_place": {"time": 9.0}} for size in (8, 16, 8)
    ]}  # fmt: skip
    with pytest.raises(FormatError) as caught:
        read(written(tmp_path, json.dumps(document, indent=1), "a.json"))
    assert caught.value.sites[0].origin.endswith("a.json:result 3")


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("1024,float,30.5", "1024,float,nan"), "AHBM-F211", 6),
        (("1024,float,30.5", "1024,float,-1"), "AHBM-F211", 6),
        (("1024,float,30.5", "1024,float,inf"), "AHBM-F211", 6),
        (("1024,float,30.5", "-1,float,30.5"), "AHBM-F211", 6),
        (("1024,float,30.5", "1e3,float,30.5"), "AHBM-F211", 6),
        (("1024,float,30.5", "1024,float,3 us"), "AHBM-F211", 6),
        (("2048,", "1024,"), "AHBM-F211", 7),
        (("2048,float,31.0,0,0,", "2048"), "AHBM-F211", 7),
        (("time_us", "time_ms"), "AHBM-F210", 5),
        (("# op: alltoall", "# op: all_sum"), "AHBM-F212", None),
        (("# ranks: 16", "# ranks: 1"), "AHBM-F212", None),
        (("# ranks: 16", "# ranks: many"), "AHBM-F212", None),
        (("# ranks: 16", ""), "AHBM-F212", None),
        (("# nodes: 2", "# nodes: 3"), "AHBM-F212", None),
        (("1024,float", "x" * 5000 + ",float"), "AHBM-F210", 6),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], code: str, line: int | None
) -> None:
    with pytest.raises(FormatError) as caught:
        read(written(tmp_path, CSV.replace(*change)))
    assert caught.value.code == code
    origin = caught.value.sites[0].origin
    assert origin.endswith(f"table.csv:{line}" if line else "table.csv")


@pytest.mark.parametrize("text", ["", "prose\n", "{", '{"results": 3}', '{"results": []}', "[" * 100_000, "\0\0"])
def test_what_is_no_table(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(written(tmp_path, text))
    assert caught.value.code == "AHBM-F210"


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.csv"):
        with pytest.raises(FormatError) as caught:
            read(path)
        assert caught.value.code == "AHBM-F210"
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    with pytest.raises(FormatError):
        read(tmp_path / "binary")


def test_an_option_does_not_overrule_a_head(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        read(written(tmp_path, CSV), ranks=8)
    assert caught.value.code == "AHBM-F212"
