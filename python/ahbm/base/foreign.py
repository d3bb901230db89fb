"""What a file is, by its beginning, and which command reads it: for errors of commands that do not."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from ahbm.base.load import ZSTANDARD, beginning, decoded
from ahbm.errors import Finding

LOOKED_AT = 1 << 16
"""Bytes of a file, and of its text, that tell what it is."""


ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What colours a terminal."""
OF_FILES = ("--ccl", "-t", "--topology", "--evaluate", "--groups")
"""Options that name a file of their own."""
SHOWN = 2
"""Commands that an advice names."""


@dataclass(frozen=True)
class Known:
    """What a file is."""

    what: str
    commands: tuple[str, ...] = ()
    """Command lines that read it, `FILE` in its place; none where nothing here does."""

    def is_read_by(self, command: str, arguments: Sequence[str], behind: str = "") -> bool:
        """Whether a command with these arguments reads such a file, as its argument or behind its option. behind: what
        stands before the file."""
        for line in self.commands:
            name, *words = line.split()[1:]
            option = next((word for word, file in pairwise(words) if file == "FILE"), None)
            if name == command and (behind not in OF_FILES if option is None else option in arguments):
                return True
        return False

    def advice(self, file: str) -> str:
        """What it is and how it is read, in words."""
        if not self.commands:
            return f"{file} is {self.what}: nothing here reads it"
        lines = [f"`{command.replace('FILE', file)}`" for command in self.commands[:SHOWN]]
        return f"{file} is {self.what}: {' and '.join(lines)} {'reads' if len(lines) == 1 else 'read'} it"


_RUN = ("ahbm run FILE", "ahbm check FILE", "ahbm convert FILE OUT", "ahbm report FILE", "ahbm explain FILE")
_TRACE = Known("a trace of PyTorch's profiler", (*_RUN[:1], "ahbm calibrate FILE -o MACHINE.yaml", *_RUN[1:]))
_TABLE = ("ahbm calibrate FILE -o MACHINE.yaml",)
_TIMES = (*_TABLE, "ahbm compare FILE -t MACHINE")
_TUNER = ("ahbm tune COLLECTIVE --evaluate FILE",)
_MACHINES = ("ahbm topology FILE", "ahbm run COLLECTIVE -t FILE")
_ASTRA = "ahbm astra --workload-configuration PREFIX"
_GRAPH = tuple(f"{command} --set base=MACHINE" for command in _MACHINES)
GRAPH = Known("an InfraGraph document", _GRAPH)
MACHINE = Known("a machine", _MACHINES)
NCCL_GRAPHS = Known("graphs of NCCL in XML (NCCL_GRAPH_DUMP_FILE)", _MACHINES)
NCCL_TOPOLOGY = Known("NCCL's topology in XML (NCCL_TOPO_FILE)", _MACHINES)
ROCM = Known("the matrices of rocm-smi --showtopo", _MACHINES)
SMI = Known("the matrix of nvidia-smi topo -m", _MACHINES)
ASTRA_NETWORK = Known("a network of ASTRA-sim", (*_MACHINES, f"{_ASTRA} --network-configuration FILE"))
SIMGRID = Known("a platform of SimGrid in XML", _MACHINES)
TACCL = Known("a topology of TACCL", _MACHINES)
TECCL = Known("an input of TE-CCL", _MACHINES)
TACOS = Known("a schedule of TACOS", ("ahbm run FILE", "ahbm topology FILE", *_RUN[1:], *_MACHINES[1:]))
OTHERS = (NCCL_GRAPHS, NCCL_TOPOLOGY, SMI, ROCM, ASTRA_NETWORK, SIMGRID, TACCL, TECCL, TACOS)
"""Files of other tools that describe machines."""
_DUMP = Known("a dump of PyTorch's Flight Recorder", ("ahbm check FOLDER", "ahbm run FOLDER", *_RUN))
_SYSTEM = Known("a system file of ASTRA-sim", (f"{_ASTRA} --system-configuration FILE",))
LOG = Known("a log of nccl-tests or rccl-tests", _TIMES)
_JSON: tuple[tuple[str, Known], ...] = (
    ("Ascend Hardware", Known("a trace of Ascend's profiler (trace_view.json)")),
    ("traceEvents", _TRACE), ("distributedInfo", _TRACE), ("deviceProperties", _TRACE),
    ("ahbm_version", Known("what a command printed with --json", ("ahbm compare FILE OTHER", *_TABLE))),
    ("average_bus_bandwidth", LOG), ("nccl_version", LOG), ("inPlace", LOG),
    ("collective_seq_id", _DUMP),
    ("pg_config", _DUMP),
    ("TopologyParams", TECCL),
    ("gpus_per_node", TACCL),
    ("8-Chunk paths", Known("a schedule of TE-CCL", _RUN)),
    ("msccl_type", Known("an algorithm of SCCL or TACCL", _RUN)),
    ("sccl_type", Known("an algorithm of SCCL or TACCL", _RUN)),
    ("chunkGroups", Known("an MSCCL++ execution plan of versions before 0.7, which had other keys")),
    ("gpus", Known("an MSCCL++ execution plan", _RUN)),
    ("scheduling-policy", _SYSTEM), ("active-chunks-per-dimension", _SYSTEM),
    ("topologies-per-dim", Known("a network of ASTRA-sim 1.0, before its network.yml")),
    ("components", GRAPH),
    ("nodes", Known("an execution trace", _RUN)),
)  # fmt: skip
_XML = {
    "system": NCCL_TOPOLOGY,
    "topology": Known("a topology of lstopo in XML", _GRAPH),
    "graphs": NCCL_GRAPHS,
    "platform": SIMGRID,
    "algo": Known("a plan of MSCCL in XML", _RUN),
}
STORE = Known("a store of a sweep", ("ahbm sweep show FILE",))
_SQLITE = b"SQLite format 3\x00"
NSIGHT = Known("an export of Nsight Systems", ("ahbm run FILE", *_RUN[1:]))
_REPORTS = {
    ".nsys-rep": "a report of Nsight Systems: its export is read, of `nsys export --type sqlite`",
    ".qdrep": "a report of Nsight Systems: its export is read, of `nsys export --type sqlite`",
    ".ncu-rep": "a report of Nsight Compute",
}
"""What files are by their endings, which have no text."""
_NCCL_TUNER = r"(allreduce|allgather|reducescatter|broadcast|reduce|alltoall)\s*,"
_LINES: tuple[tuple[str, Known], ...] = (
    (r"(\S+\s+)?#\s*nThread\b", Known("a log of nccl-tests", _TIMES)),
    (r"(\S+\s+)?#.*\bOSU\b", Known("a log of the OSU micro-benchmarks", _TIMES)),
    (r"(\S+\s+)?#.*\bIntel\(R\) MPI Benchmarks\b", Known("a log of the Intel MPI Benchmarks", _TIMES)),
    (r".*\b(RDMA_(Write|Read)|Send|Atomic) (BW|Latency|Bidirectional BW)\b.*Test\b",
     Known("a log of perftest (ib_write_bw and others), which measures one link and no collective")),
    (r"nvbandwidth Version\b|.*P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test",
     Known("a log of copies between pairs of GPUs, which measures links and no collective")),
    (r"=+ ROCm System Management Interface =|=+ (Weight|Hops|Link Type|Link accessibility) between two GPUs =", ROCM),
    (r"(ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:", Known("the tables of amd-smi topology")),
    (r"\W*NVIDIA-SMI \d", Known("the overview of nvidia-smi, not the matrix of `nvidia-smi topo -m`")),
    (r"Machine( L#\d+)? \(\d+", Known("the text of lstopo, not the XML of `lstopo FILE.xml`")),
    (r"\d+ \d+ \d+(\.\d+)?Gbps ", Known("a network of ns-3 (ASTRA-sim, HPCC)")),
    (r"\W*(\[\d*m)?GPU0\s+(GPU1|CPU Affinity|NIC0)", SMI),
    (r"Time \(%\)\s*,\s*Total Time \(ns\)", Known("a summary of `nsys stats`")),
    (r"NPUs Count\s*,", TACOS),
    (r"\"?bytes\"?\s*,", Known("a table of measured times", _TIMES)),
    (r"device\s*,.*latency_us", Known("a table of kernels", _TABLE)),
    (_NCCL_TUNER + r"\s*\d", Known("a tuning file of NCCL", _TUNER)),
    (r"(export\s+)?UCC_\w+\s*=", Known("a configuration of UCC", _TUNER)),
    (r"(export\s+)?NCCL_\w+=", Known("variables of NCCL", _TUNER)),
    (r"(export\s+)?RCCL_\w+=", Known("variables of RCCL", _TUNER)),
    (r"(export\s+)?MSCCLPP_\w+=", Known("variables of MSCCL++, which scripts take from the environment")),
    (r"(export\s+)?CCL_\w+=", Known("variables of oneCCL")),
    (r"(export\s+)?I_MPI_\w+=", Known("variables of Intel MPI")),
    (r"(export\s+)?(OMPI_MCA_)?coll_tuned_\w+\s*=", Known("parameters of Open MPI")),
    (r"\d+\s*#.*\bcollectives\b", Known("a file of Open MPI's rules (coll_tuned_dynamic_rules_filename)")),
    (r"(devices|components|instances)\s*:", GRAPH),
    (r"base\s*:|system\s*:|sip\s*:|ipcq\s*:", MACHINE),
    (r"(topology|npus_count)\s*:", ASTRA_NETWORK),
    (r"(defaults|algorithms|collectives)\s*:", Known("a ccl.yaml", ("ahbm run COLLECTIVE --ccl FILE",))),
)  # fmt: skip


def known(path: str | Path) -> Known | None:
    """What the file of a path is, or the folder of a store; None for what is none, and for files of any other kind."""
    if os.path.isdir(path):
        return STORE if os.path.isfile(os.path.join(path, "space.json")) else None
    packed = beginning(path, LOOKED_AT)
    start = _unpacked(packed)
    if not start and packed.startswith(ZSTANDARD):
        return Known("a file packed by Zstandard, of which the beginning alone says nothing")
    if not packed and os.path.isfile(path):
        return Known("an empty file")
    if start.startswith(b"\x80") and (b"pg_config" in start or b"profiling_name" in start):
        return _DUMP
    if start.startswith(b"\x80") and b"device_traces" in start:
        return Known("a snapshot of PyTorch's memory")
    if start.startswith(b"PK\x03\x04"):
        return Known("a zip archive, or a checkpoint of PyTorch")
    if start[257:262] == b"ustar":
        return Known("a tar archive: unpacked, its files are read")
    if (ending := os.path.splitext(path)[1]) in _REPORTS:
        return Known(_REPORTS[ending])
    if start.startswith(_SQLITE):
        return NSIGHT if b"StringIds" in start or b"CUPTI_ACTIVITY" in start else Known("a database of SQLite")
    return of_text(decoded(start, "replace"))


def head_of(path: str | Path) -> str:
    """The text at the beginning of a file, which may be packed; none of what is no file, or cannot be read."""
    return decoded(_unpacked(beginning(path, LOOKED_AT)), "replace")


def _unpacked(start: bytes) -> bytes:
    if start.startswith(_SQLITE):
        return start
    from ahbm._core import unpacked  # `ahbm --help` needs none of it

    return unpacked(start, LOOKED_AT, cut=True)


def of_text(text: str) -> Known | None:
    """What a file is that begins with a text; as `known`."""
    head = text[:LOOKED_AT].lstrip("\ufeff \t\r\n")
    if head.startswith("<"):
        tags = re.findall(r"<([A-Za-z_][\w.-]*)", head[:4096])
        return next((_XML[tag] for tag in tags if tag in _XML), Known("XML"))
    if re.match(r"[\[{]\s*[\[{\]}\"]", head):
        return next((what for key, what in _JSON if f'"{key}"' in head), None)
    lines = ESCAPES.sub("", head).splitlines()[:64]
    return next((what for line in lines for pattern, what in _LINES if re.match(pattern, line, re.IGNORECASE)), None)


NOT_READ = frozenset(
    f"AHBM-{code}"
    for code in ("C101", "C102", "C105", "C108", "C110", "C144", "F101", "F111", "F131", "F139", "F141", "F180", "F183",
                 "F189", "F190", "F210", "F212", "T001", "T003", "T004", "T101", "T102", "U291")
)  # fmt: skip
"""Codes of a file that is not of the kind that a command reads."""


def advised(findings: Sequence[Finding], arguments: Sequence[str], command: str) -> tuple[Finding, ...]:
    """The findings of a command, the first of them with what a file among its arguments is, where it speaks of one that
    another command reads."""
    first, *others = findings
    if first.code in NOT_READ:
        text = f"{first}"
        for behind, file in pairwise(("", *arguments)):
            name = os.path.basename(os.path.normpath(file))
            if os.path.exists(file) and name in text and (found := known(file)) is not None:
                if found.is_read_by(command, arguments, behind):
                    break
                return replace(first, hint=found.advice(file)), *others
    return tuple(findings)
