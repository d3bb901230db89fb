"""Files that a command does not read: its error says what they are, and which command reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ahbm.base.foreign import known
from support.commands import run

FILES = {
    "log.txt": ("# nThread 1 nGpus 8 minBytes 1024\n#\n", "a log of nccl-tests", "ahbm calibrate log.txt"),
    "prefixed.log": ("[0] # nThread 1 nGpus 8 minBytes 1024\n", "a log of nccl-tests", "ahbm calibrate prefixed.log"),
    "table.csv": ("# ranks: 8\nbytes,time_us\n8,1\n", "a table of measured times", "ahbm calibrate table.csv"),
    "tuner.conf": ("allreduce,0,65536,tree,ll,2,-1,-1,-1,-1\n", "a tuning file of NCCL", "--evaluate tuner.conf"),
    "ucc.conf": ("UCC_TL_UCP_TUNE=allreduce:0-4k:@0\n", "a configuration of UCC", "--evaluate ucc.conf"),
    "plan.xml": ('<algo name="a" proto="LL"/>\n', "a plan of MSCCL in XML", "ahbm run plan.xml"),
    "topo.xml": ('<system version="1"/>\n', "NCCL's topology in XML", "-t topo.xml --set base="),
    "plan.json": (json.dumps({"name": "a", "gpus": []}), "an MSCCL++ execution plan", "ahbm run plan.json"),
    "machine.yaml": ("# mine\nsystem: {sips: {count: 4}}\n", "a machine", "ahbm topology machine.yaml"),
    "kernels.csv": ("device,op,d0,latency_us\n", "a table of kernels", "ahbm calibrate kernels.csv"),
}
READS = {
    "check": {"plan.xml", "plan.json"},
    "run": {"plan.xml", "plan.json"},
    "calibrate": {"log.txt", "prefixed.log", "table.csv", "kernels.csv"},
    "topology": {"machine.yaml", "topo.xml"},
}


@pytest.mark.parametrize("command", READS)
def test_an_error_says_what_a_file_is(tmp_path: Path, command: str) -> None:
    for name, (text, what, reader) in FILES.items():
        (tmp_path / name).write_text(text)
        if name in READS[command]:
            continue
        file = f"./{name}" if command == "topology" else name
        code, out, err = run("ahbm", [command, file], tmp_path)
        said = " ".join((out + err).split())
        assert code != 0 and what in said, (command, name, said)
        # The machine of -t is a file of another tool: its error is as it was.
        assert reader in said.replace("./", "") or "machines are read from" in said, (command, name, said)


@pytest.mark.parametrize("command", READS)
def test_what_a_command_reads_is_what_it_is_known_for(tmp_path: Path, command: str) -> None:
    for name, (text, _, _) in FILES.items():
        (tmp_path / name).write_text(text)
        found = known(tmp_path / name)
        assert found is not None and found.is_read_by(command, [name]) == (name in READS[command]), name


def test_files_that_commands_write_are_known_as_what_reads_them(tmp_path: Path) -> None:
    assert run("ahbm", ["synth", "all_gather", "-t", "npu_ring_8", "-b", "1K", "-o", "plan.xml"], tmp_path)[0] == 0
    assert run("ahbm", ["convert", "plan.xml", "plan.json"], tmp_path)[0] == 0
    (tmp_path / "bench.json").write_text(run("ahbm", ["bench", "all_reduce", "--sizes", "1K", "--json"], tmp_path)[1])
    assert run("ahbm", ["topology", "npu_ring_8", "-o", "mine.yaml"], tmp_path)[0] == 0
    reads = {"plan.xml": "check", "plan.json": "check", "bench.json": "compare", "mine.yaml": "topology"}
    for name, command in reads.items():
        found = known(tmp_path / name)
        assert found is not None and found.is_read_by(command, [name]), name


def test_a_trace_is_told_from_its_text(tmp_path: Path) -> None:
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}'))
    code, out, err = run("ahbm", ["tune", "all_reduce", "--evaluate", "t.json.gz", "-t", "npu_ring_8"], tmp_path)
    assert code != 0 and "a trace of PyTorch's profiler: `ahbm run t.json.gz`" in out + err


def test_a_file_that_its_own_command_finds_wrong_keeps_its_error(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("bytes,time_us\n")
    _, out, err = run("ahbm", ["calibrate", "table.csv"], tmp_path)
    assert "is a table of measured times" not in out + err
