"""Files that a command does not read: its error says what they are, and which command reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ahbm.base.foreign import known
from support.commands import run
from support.packed import zstandard

FILES = {
    "log.txt": ("# nThread 1 nGpus 8 minBytes 1024\n#\n", "a log of nccl-tests", "ahbm calibrate log.txt"),
    "prefixed.log": ("[0] # nThread 1 nGpus 8 minBytes 1024\n", "a log of nccl-tests", "ahbm calibrate prefixed.log"),
    "osu.log": ("# OSU MPI Allreduce Latency Test\n", "a log of the OSU micro-benchmarks", "ahbm calibrate osu.log"),
    "table.csv": ("# ranks: 8\nbytes,time_us\n8,1\n", "a table of measured times", "ahbm calibrate table.csv"),
    "tuner.conf": ("allreduce,0,65536,tree,ll,2,-1,-1,-1,-1\n", "a tuning file of NCCL", "--evaluate tuner.conf"),
    "ucc.conf": ("UCC_TL_UCP_TUNE=allreduce:0-4k:@0\n", "a configuration of UCC", "--evaluate ucc.conf"),
    "plan.xml": ('<algo name="a" proto="LL"/>\n', "a plan of MSCCL in XML", "ahbm run plan.xml"),
    "topo.xml": ('<system version="1"/>\n', "NCCL's topology in XML", "ahbm topology topo.xml"),
    "rocm.txt": ("== ROCm System Management Interface ==\n", "the matrices of rocm-smi", "ahbm topology rocm.txt"),
    "amd.txt": ("LINK TYPE TABLE:\n", "the tables of amd-smi topology", "nothing here reads it"),
    "smi.txt": ("| NVIDIA-SMI 550.54.15 |\n", "not the matrix of `nvidia-smi topo -m`", "nothing here reads it"),
    "host.txt": ("Machine (2015GB total)\n", "the text of lstopo", "nothing here reads it"),
    "ns3.txt": ("3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n", "a network of ns-3", "nothing here reads it"),
    "first.json": (json.dumps({"topologies-per-dim": ["Ring"]}), "a network of ASTRA-sim 1.0", "nothing here reads it"),
    "system.json": (json.dumps({"scheduling-policy": "LIFO"}), "a system file of ASTRA-sim", "--system-configuration"),
    "bw.log": ("  RDMA_Write BW Test\n", "a log of perftest", "nothing here reads it"),
    "copies.log": ("nvbandwidth Version: v0.5\n", "a log of copies between pairs of GPUs", "nothing here reads it"),
    "imb.log": ("#    Intel(R) MPI Benchmarks 2021.7\n", "a log of the Intel MPI Benchmarks", "ahbm calibrate imb.log"),
    "tests.json": ('{"average_bus_bandwidth": {}}', "a log of nccl-tests or rccl-tests", "ahbm calibrate tests.json"),
    "nccl.conf": ("NCCL_ALGO=Ring\n", "variables of NCCL", "--evaluate nccl.conf"),
    "a.nsys-rep": (b"\x00NSYS", "a report of Nsight Systems", "nsys export --type sqlite"),
    "a.ncu-rep": (b"NVR\x00", "a report of Nsight Compute", "nothing here reads it"),
    "sum.csv": ("Time (%),Total Time (ns),Instances\n", "a summary of `nsys stats`", "nothing here reads it"),
    "memory.pickle": (b"\x80\x04}(X\x0d\x00\x00\x00device_traces", "a snapshot of PyTorch's memory", "nothing here"),
    "model.pt": (b"PK\x03\x04\x00", "a zip archive", "nothing here reads it"),
    "page.xml": ("<root/>\n", "XML", "nothing here reads it"),
    "rings.xml": ('<graphs version="1"/>\n', "graphs of NCCL in XML", "ahbm topology rings.xml"),
    "hosts.xml": ('<platform version="4.1"/>\n', "a platform of SimGrid in XML", "ahbm topology hosts.xml"),
    "topo.txt": ("\tGPU0\tGPU1\tCPU Affinity\n", "the matrix of nvidia-smi topo -m", "ahbm topology topo.txt"),
    "net.yml": ("topology: [Ring]\nnpus_count: [4]\n", "a network of ASTRA-sim", "ahbm topology net.yml"),
    "taccl.json": (json.dumps({"gpus_per_node": 8}), "a topology of TACCL", "ahbm topology taccl.json"),
    "teccl.json": (json.dumps({"TopologyParams": {}}), "an input of TE-CCL", "ahbm topology teccl.json"),
    "ring.csv": ("NPUs Count,3\n", "a schedule of TACOS", "ahbm run ring.csv"),
    "paths.json": (json.dumps({"8-Chunk paths": {}}), "a schedule of TE-CCL", "ahbm run paths.json"),
    "sccl.json": (json.dumps({"sccl_type": "algorithm"}), "an algorithm of SCCL or TACCL", "ahbm run sccl.json"),
    "plan.json": (json.dumps({"name": "a", "gpus": []}), "an MSCCL++ execution plan", "ahbm run plan.json"),
    "before.json": (
        json.dumps({"name": "a", "gpus": [{"id": 0, "inputChunks": 1, "chunkGroups": 1}]}),
        "of versions before 0.7", "nothing here reads it",
    ),
    "kineto.json": (json.dumps({"traceEvents": []}), "a trace of PyTorch's profiler", "ahbm run kineto.json"),
    "trace_view.json": (
        json.dumps([{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}]),
        "a trace of Ascend's profiler", "nothing here reads it",
    ),
    "chakra.json": (json.dumps({"version": "0.0.4", "nodes": []}), "an execution trace", "ahbm run chakra.json"),
    "dump.json": (json.dumps({"version": "2.10", "pg_config": {}}), "a dump of PyTorch's Flight Recorder", "check"),
    "bench.json": (json.dumps({"ahbm_version": "1"}), "what a command printed with --json", "ahbm compare bench.json"),
    "machine.yaml": ("# mine\nsystem: {sips: {count: 4}}\n", "a machine", "ahbm topology machine.yaml"),
    "rules.yaml": ("defaults: {algorithm: ring_allreduce}\n", "a ccl.yaml", "--ccl rules.yaml"),
    "kernels.csv": ("device,op,d0,latency_us\n", "a table of kernels", "ahbm calibrate kernels.csv"),
    "data.sqlite": (b"SQLite format 3\x00" + b"StringIds", "an export of Nsight Systems", "ahbm run data.sqlite"),
}  # fmt: skip
PLANS = {
    "plan.xml",
    "plan.json",
    "ring.csv",
    "paths.json",
    "sccl.json",
    "kineto.json",
    "chakra.json",
    "dump.json",
    "data.sqlite",
}
READS = {
    "check": PLANS,
    "run": PLANS,
    "convert": PLANS,
    "calibrate": {
        "log.txt",
        "prefixed.log",
        "osu.log",
        "table.csv",
        "kernels.csv",
        "kineto.json",
        "bench.json",
        "imb.log",
        "tests.json",
    },
    "topology": {
        "machine.yaml",
        "topo.xml",
        "rocm.txt",
        "rings.xml",
        "hosts.xml",
        "topo.txt",
        "net.yml",
        "taccl.json",
        "teccl.json",
        "ring.csv",
    },
}


def place(folder: Path, name: str) -> None:
    content = FILES[name][0]
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("command", READS)
def test_an_error_says_what_a_file_is(tmp_path: Path, command: str) -> None:
    """Of every kind, whatever the command: what it is, and which command reads it."""
    for name, (_, what, reader) in FILES.items():
        place(tmp_path, name)
        if name in READS[command]:
            continue
        more = ["out.et"] if command == "convert" else []
        code, out, err = run("ahbm", [command, name, *more], tmp_path)
        said = " ".join((out + err).split())
        assert code != 0 and what in said, (command, name, said)
        assert reader in said or "which describes no machine" in said, (command, name, said)


@pytest.mark.parametrize("option", ["--ccl", "--evaluate"])
def test_an_error_of_an_option_says_what_a_file_is(tmp_path: Path, option: str) -> None:
    # Lines of comments alone are a ccl.yaml without entries.
    own = {
        "--ccl": {"rules.yaml", "log.txt", "osu.log", "imb.log"},
        "--evaluate": {"tuner.conf", "ucc.conf", "plan.xml", "rules.yaml", "nccl.conf"},
    }[option]
    command = {"--ccl": ["run", "all_reduce", "--no-data"], "--evaluate": ["tune", "all_reduce", "-t", "npu_ring_8"]}[
        option
    ]
    for name, (_, what, _) in FILES.items():
        place(tmp_path, name)
        if name not in own:
            code, out, err = run("ahbm", [*command, option, name], tmp_path)
            said = " ".join((out + err).split())
            assert code != 0 and what in said, (option, name, said)


@pytest.mark.parametrize("command", READS)
def test_what_a_command_reads_is_what_it_is_known_for(tmp_path: Path, command: str) -> None:
    for name in FILES:
        place(tmp_path, name)
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
    text = b'{"schemaVersion": 1, "traceEvents": []}'
    for name, packed in {"t.json.gz": gzip.compress(text), "t.json.zst": zstandard(text)}.items():
        (tmp_path / name).write_bytes(packed)
        code, out, err = run("ahbm", ["tune", "all_reduce", "--evaluate", name, "-t", "npu_ring_8"], tmp_path)
        assert code != 0 and f"a trace of PyTorch's profiler: `ahbm run {name}`" in out + err


def test_a_file_that_its_own_command_finds_wrong_keeps_its_error(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("bytes,time_us\n")
    _, out, err = run("ahbm", ["calibrate", "table.csv"], tmp_path)
    assert "is a table of measured times" not in out + err


@pytest.mark.parametrize("command", [["calibrate"], ["compare", "-t", "npu_ring_8"]])
def test_a_log_without_its_collective_is_asked_for_it_and_not_said_to_be_read(
    tmp_path: Path, command: list[str]
) -> None:
    head = "# nThread 1 nGpus 8\n#  Rank  0 Group 0 Pid 1 on a device 0 [0x0] H100\n"
    names = "# size count type redop root time algbw busbw #wrong\n"
    rows = "".join(f"{size} {size // 4} float sum -1 {took} 1 1 0\n" for size, took in ((1024, 20.1), (2048, 21.1)))
    (tmp_path / "log.txt").write_text(head + names + rows)
    code, out, err = run("ahbm", [command[0], "log.txt", *command[1:]], tmp_path)
    assert code != 0 and "AHBM-F212" in out + err and "reads it" not in out + err, out + err


def test_a_store_of_a_sweep_is_known_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "rows" / "parts").mkdir(parents=True)
    (tmp_path / "rows" / "space.json").write_text("{}")
    for command in ("run", "check", "report", "explain"):
        code, out, err = run("ahbm", [command, "rows"], tmp_path)
        assert code != 0 and "rows is a store of a sweep: `ahbm sweep show rows` reads it" in out + err


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(b"")
    code, out, err = run("ahbm", ["run", "rank0.json"], tmp_path)
    assert code != 0 and "rank0.json is an empty file" in out + err
