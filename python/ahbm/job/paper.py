"""`ahbm paper`: the experiments of J. Yoo et al., Toward a Standardized Representation for Deep Learning Collective
Algorithms, IEEE Micro 45(2), 2025, doi:10.1109/MM.2025.3547363, run again.

Producers of algorithms and consumers of them meet in one representation; what its conversion takes; what chunks in a
job are worth; and the bandwidth of an all_gather by three producers on two networks. Published numbers are those of
the publication's table 2 and, read off its plots, of its figure 8.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ahbm._core import Plan, Workload
from ahbm.base.words import aligned
from ahbm.dsl.script import Script
from ahbm.job.astra import AstraFiles, AstraFlags, simulate
from ahbm.job.open import open_
from ahbm.job.targets import PlanFile
from ahbm.runs.verdict import check_file
from ahbm.source.synthesis import synthesize

PROGRAM = """\
import sys
from msccl.language import *
from msccl.topologies import fully_connected
from msccl.language.collectives import AllGather, AllReduce

kind, n = sys.argv[1], int(sys.argv[2])
gathers = "gather" in kind
collective = AllGather(n, 1, True) if gathers else AllReduce(n, n, True)
with MSCCLProgram(kind, fully_connected(n), collective, 1):
    if kind == "ring_gather":
        for r in range(n):
            c = chunk(r, Buffer.output, r)
            for step in range(1, n):
                c = c.copy((r + step) % n, Buffer.output, r)
    elif kind == "direct_gather":
        for r in range(n):
            for step in range(1, n):
                chunk(r, Buffer.output, r).copy((r + step) % n, Buffer.output, r)
    else:
        for index in range(n):
            c = chunk((index + 1) % n, Buffer.input, index)
            for step in range(2, n + 1):
                c = chunk((index + step) % n, Buffer.input, index).reduce(c)
            for step in range(1, n):
                c = c.copy((index + step) % n, Buffer.input, index)
    XML()
"""
"""MSCCLang: `ring_gather`, `direct_gather` and `ring_reduce`."""
CONVERSION = """\
import time
start = time.process_time()
import sys
from ahbm.dsl.script import Script
program, npus, trace = sys.argv[1:]
Script(program, ("ring_reduce", npus)).chosen().plan.save(trace)
print(time.process_time() - start)
"""
"""What a new interpreter does for table 2: seconds of the processor from its start on, imports included."""
RANKS = (16, 32, 64, 128)
PUBLISHED_S = {16: 0.259, 32: 0.398, 64: 1.485, 128: 7.662}
"""Table 2: seconds from an all_reduce in MSCCLang to the trace, by NPUs."""
CHUNKS = {"1 KiB": 1 << 10, "16 KiB": 1 << 14, "256 KiB": 1 << 18, "1 MiB": 1 << 20, "1 GiB": 1 << 30}
PUBLISHED_GBS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "2-D mesh": {"TACOS": (5, 30, 85, 98, 100), "ring": (3, 20, 25, 25, 25), "direct": (1, 3, 3, 3, 3)},
    "3-D hypercube": {"TACOS": (10, 50, 140, 155, 160), "ring": (10, 30, 40, 40, 40), "direct": (1, 3, 3, 3, 3)},
}
"""Figure 8: GB/s of an all_gather among 64 NPUs by the sizes of `CHUNKS`."""
LINK = {"system.sips.link.latency_ns": 500, "system.sips.link.bandwidth_gbs": 50}
METHODS = {"TACOS": "greedy", "ring": "one_way_ring", "direct": "direct"}
"""Producers of figure 8, by what stands for them: a schedule that is synthesized as TACOS does, a ring of neighbours
one way, and a way of its own for every message."""


@dataclass(frozen=True)
class Paper:
    """What was run, table by table. Times are simulated, but for seconds."""

    rounds: tuple[dict[str, Any], ...]
    """By producer: what each consumer says of its algorithm."""
    conversion: tuple[dict[str, Any], ...]
    """By NPUs: seconds of the processor from the program to the trace, in a new process behind the interpreter's start
    and in a running one, and the published ones."""
    overlap: dict[str, Any]
    """A job whose products wait for a whole all_gather, and for a chunk each."""
    bandwidth: tuple[dict[str, Any], ...]
    """By network, producer and chunk: GB/s, and the published."""

    def to_json(self) -> dict[str, Any]:
        """The tables as JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = ["Producers and consumers: one algorithm in every format"]
        head = ("producer", "verdict", "engine ns", "XML ns", "JSON ns", "trace ns", "profile ns", "ASTRA-sim cycles")
        keys = ("producer", "verdict", "engine", "xml", "json", "et", "profile", "cycles")
        lines += aligned([head, *(tuple(_shown(row[key]) for key in keys) for row in self.rounds)])
        lines += ["", "Table 2: MSCCLang all_reduce to a Chakra trace, seconds"]
        cells: list[tuple[str, ...]] = [("NPUs", "new process", "in a running one", "published")]
        for row in self.conversion:
            cells.append((str(row["npus"]), *(f"{row[key]:.3f}" for key in ("seconds", "running", "published"))))
        lines += aligned(cells)
        own = self.overlap
        lines += [
            "",
            f"Overlap of {own['npus']} NPUs: an all_gather of {own['chunk']} B chunks and products of {own['us']} us",
        ]
        lines.append(
            f"  whole {own['whole_us']:,.2f} us, chunk by chunk {own['chunks_us']:,.2f} us, {own['saved']:.1%} less"
        )
        lines += ["", "Figure 8: all_gather, GB/s (published)"]
        chunks = list(dict.fromkeys(row["chunk"] for row in self.bandwidth))
        cells = [("network", "producer", *chunks)]
        for network, producer in dict.fromkeys((row["network"], row["producer"]) for row in self.bandwidth):
            of = [row for row in self.bandwidth if (row["network"], row["producer"]) == (network, producer)]
            cells.append((network, producer, *(f"{row['gbs']:.1f}{_behind(row['published'])}" for row in of)))
        return "\n".join([*lines, *aligned(cells)])

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


def _shown(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _behind(published: int | None) -> str:
    return "" if published is None else f" ({published})"


def paper(*, small: bool = False) -> Paper:
    """Runs all of it. small: fewer NPUs and sizes, some seconds; of its networks nothing is published."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        n = 4 if small else 16
        rounds = tuple(_round(folder, producer, plan, n) for producer, plan in _produced(program, n))
        counts = RANKS[:2] if small else RANKS
        conversion = tuple(_conversion(folder, program, npus) for npus in counts)
        overlap = _overlap(folder, n)
    return Paper(rounds, conversion, overlap, tuple(_bandwidths(small)))


def _produced(program: Path, n: int) -> Iterator[tuple[str, Plan]]:
    for kind in ("ring_gather", "direct_gather", "ring_reduce"):
        yield f"MSCCLang {kind}", Script(str(program), (kind, str(n))).chosen().plan
    mesh = {
        "system.sips.topology": "mesh_2d_no_wrap",
        "system.sips.w": n // 2 if n < 8 else n // 4,
        "system.sips.h": 2 if n < 8 else 4,
    }
    made = synthesize(
        "all_gather", topology="npu_mesh_4x4", overrides={"system.sips.count": n, **mesh}, method="greedy", size=n << 16
    )
    yield "TACOS (greedy)", made.plan


def _round(folder: Path, producer: str, plan: Plan, n: int) -> dict[str, Any]:
    """What every consumer says of an algorithm among n NPUs in a ring, at 1 MiB of a rank's array."""
    size = n << 16
    on: dict[str, Any] = {"topology": "npu_ring_8", "overrides": {"system.sips.count": n}, "size": size}
    on["slots"] = 1 << 20
    row: dict[str, Any] = {"producer": producer}
    stem = folder / "plan"
    plan.save(f"{stem}.xml")
    row["verdict"] = check_file(f"{stem}.xml").verdict
    report = open_(f"{stem}.xml", **on).run()
    row["engine"] = report.latency_ns
    for form in ("xml", "json", "et"):
        plan.save(f"{stem}.{form}", nbytes=size if form == "et" else None)
        name = f"{stem}.0.et" if form == "et" else f"{stem}.{form}"
        own = on if form != "json" else {key: value for key, value in on.items() if key != "slots"}
        row[form] = open_(name, **own).run(data=False).latency_ns
    report.write_trace(folder / "profile")
    without = {key: value for key, value in on.items() if key != "size"}
    profile = open_(str(folder / "profile.0.et"), kind="algorithm", **without)
    assert isinstance(profile, PlanFile)
    row["profile"] = profile.run(data=False).latency_ns
    row["cycles"] = _cycles(folder, f"{stem}.0.et", plan.collective, n, size)
    return row


def _cycles(folder: Path, graph: str, collective: str, n: int, size: int) -> int | None:
    """ASTRA-sim's cycles for a job of one call that runs the graph, on a ring of n NPUs."""
    kinds = {"all_reduce": 0, "all_gather": 2}
    stated = size // n if collective == "all_gather" else size
    for rank in range(n):
        facts = {"comm_type": kinds[collective], "comm_size": stated}
        attributes = [{"name": key, "int64Val": str(value)} for key, value in facts.items()]
        node = {"id": 0, "name": collective, "type": "COMM_COLL_NODE", "attr": attributes}
        lines = "\n".join(map(json.dumps, ({"version": "0.0.4"}, node)))
        (folder / f"call.{rank}.json").write_text(lines)
    Workload.read(folder / "call.0.json").write(folder / "job")
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system: dict[str, Any] = {f"{name}-implementation": ["ring"] for name in names}
    system |= {
        "endpoint-delay": 0,
        "preferred-dataset-splits": 1,
        "active-chunks-per-dimension": 1,
        "local-mem-bw": 1600,
    }
    system |= {"scheduling-policy": "LIFO", "collective-optimization": "localBWAware"}
    (folder / "system.json").write_text(json.dumps(system))
    (folder / "network.yml").write_text(f"topology: [Ring]\nnpus_count: [{n}]\nbandwidth: [46.566]\nlatency: [500.0]\n")
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    files = AstraFiles(
        workload=folder / "job",
        system=folder / "system.json",
        network=folder / "network.yml",
        memory=folder / "memory.json",
        graphs=(graph,),
    )
    return simulate(files, AstraFlags(backend="congestion_aware")).ranks[0].cycles


def _conversion(folder: Path, program: Path, npus: int) -> dict[str, Any]:
    arguments = [str(program), str(npus), str(folder / f"fresh_{npus}.et")]
    fresh = subprocess.run([sys.executable, "-c", CONVERSION, *arguments], capture_output=True, text=True, check=True)
    start = time.process_time()
    Script(str(program), ("ring_reduce", str(npus))).chosen().plan.save(folder / f"made_{npus}.et")
    running = time.process_time() - start
    return {"npus": npus, "seconds": float(fresh.stdout), "running": running, "published": PUBLISHED_S[npus]}


def _overlap(folder: Path, n: int, chunk: int = 1 << 20, micros: int = 20) -> dict[str, Any]:
    """A ring all_gather beside products: they wait for all of it, and for a chunk each."""
    found = []
    for whole in (True, False):
        for rank in range(n):
            nodes: list[dict[str, Any]] = []

            def add(
                kind: str, name: str, waits: Sequence[int], us: int = 0, nodes: list[Any] = nodes, **facts: Any
            ) -> int:
                attributes = [{"name": key, "int64Val": str(value)} for key, value in facts.items()]
                node = {"id": len(nodes), "name": name, "type": kind, "dataDeps": list(waits), "attr": attributes}
                nodes.append({**node, "durationMicros": us} if us else node)
                return len(nodes) - 1

            last: list[int] = []
            arrived = []
            for step in range(n - 1):
                own: dict[str, Any] = {"comm_size": chunk, "comm_tag": step}
                sent = add("COMM_SEND_NODE", "COMM_SEND", last, comm_dst=(rank + 1) % n, **own)
                got = add("COMM_RECV_NODE", "COMM_RECV", [], comm_src=(rank - 1) % n, **own)
                last = [sent, got]
                arrived.append(got)
            products: list[int] = []
            for step in range(n):
                waits = arrived if whole else arrived[step - 1 : step] if step else []
                # One product at a time, as on an accelerator.
                products.append(add("COMP_NODE", f"MatMul[{step}]", [*waits, *products[-1:]], micros))
            lines = "\n".join(map(json.dumps, ({"version": "0.0.4"}, *nodes)))
            (folder / f"{'whole' if whole else 'chunks'}.{rank}.json").write_text(lines)
        name = str(folder / f"{'whole' if whole else 'chunks'}.0.json")
        on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": n}}
        found.append(open_(name, **on).run().latency_ns / 1000)
    before, after = found
    saved = 1 - after / before
    return {"npus": n, "chunk": chunk, "us": micros, "whole_us": before, "chunks_us": after, "saved": saved}


def _bandwidths(small: bool) -> Iterator[dict[str, Any]]:
    side = 4 if small else 8
    networks: dict[str, dict[str, object]] = {
        "2-D mesh": {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.w": side, "system.sips.h": side},
        "3-D hypercube": {
            "system.sips.topology": "mesh_3d",
            "system.sips.w": side // 2,
            "system.sips.h": side // 2,
            "system.sips.d": 4,
        },
    }
    sizes = list(CHUNKS.items())[1:3] if small else list(CHUNKS.items())
    for network, shape in networks.items():
        npus = side * side
        overrides = {"system.sips.count": npus, **LINK, **shape}
        for producer, method in METHODS.items():
            for at, (chunk, nbytes) in enumerate(sizes):
                found = synthesize(
                    "all_gather", topology="npu_mesh_4x4", overrides=overrides, method=method, size=npus * nbytes
                )
                gbs = npus * nbytes / (found.time_us * 1000)
                published = None if small else PUBLISHED_GBS[network][producer][at]
                yield {"network": network, "producer": producer, "chunk": chunk, "gbs": gbs, "published": published}
