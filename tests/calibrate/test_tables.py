"""Readers of measured tables: every form, and what is no table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.calibrate.tables import read
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


def test_json_of_both_tools(tmp_path: Path) -> None:
    rows = [{"size": 8, "out_of_place": {"time": 9.5}, "in_place": {"time": 9.0}}, {"size": 16, "error": {}}]
    theirs = {"args": ["./all_reduce_perf", "-J"], "ranks": [{"host": "a"}, {"host": "b"}], "results": rows}
    table = read(written(tmp_path, json.dumps(theirs), "a.json"))
    assert (table.collective, table.ranks, table.nodes, len(table.rows)) == ("all_reduce", 2, 2, 1)
    ours = {"config": {"collective": "all_gather"}, "results": [{**rows[0], "report": {"ranks": 8}}]}
    table = read(written(tmp_path, json.dumps(ours), "b.json"))
    assert (table.collective, table.ranks, table.rows[0].us) == ("all_gather", 8, 9.0)


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("1024,float,30.5", "1024,float,nan"), "AHBM-F211", 6),
        (("1024,float,30.5", "1024,float,-1"), "AHBM-F211", 6),
        (("1024,float,30.5", "1024,float,inf"), "AHBM-F211", 6),
        (("1024,float,30.5", "0,float,30.5"), "AHBM-F211", 6),
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
