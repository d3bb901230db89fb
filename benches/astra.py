"""ASTRA-sim's numbers: recorded runs that come out exactly, broken ones that are told, processor time of large jobs.

    AHBM_CORPUS=folder python benches/astra.py [--runs] [--jobs]

`--runs`: the runs in `astra_sim` of AHBM_CORPUS. `--jobs`: generated steps of a transformer, in a folder for temporary
files. Both without either. Times are processor seconds of the command `ahbm astra --parity`, with reading and start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ahbm.errors import AhbmError
from ahbm.job.astra import AstraFiles, AstraFlags, AstraReport, simulate

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER = 2, 0, 7


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def block(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def number(name: str, value: int, field: int = 9) -> bytes:
    return block(10, block(1, name.encode()) + varint(field << 3) + varint(value))


def text(name: str, value: str) -> bytes:
    return block(10, block(1, name.encode()) + block(29, value.encode()))


def texts(name: str, values: list[str]) -> bytes:
    return block(10, block(1, name.encode()) + block(30, b"".join(block(1, value.encode()) for value in values)))


def node(at: int, name: str, kind: int, deps: list[int], attributes: bytes) -> bytes:
    packed = b"".join(map(varint, deps))
    body = varint(1 << 3) + varint(at) + block(2, name.encode()) + varint(3 << 3) + varint(kind)
    body += (block(5, packed) if deps else b"") + attributes
    return varint(len(body)) + body


STEPS = [(8, 4, 2, 16), (16, 8, 2, 8), (32, 8, 4, 8), (64, 8, 1, 96)]
"""Data, tensor and pipeline parallel ranks, and layers."""
READY = 40_000
"""Nodes that are ready at a time."""
HEAD = varint(7) + block(1, b"0.0.4")


def step(dp: int, tp: int, pp: int, layers: int, rank: int) -> bytes:
    """A rank's step of a transformer: tensor, data and pipeline parallel, 42 nodes a layer, about 300 bytes a node."""
    stage, within = divmod(rank, dp * tp)
    data, tensor = divmod(within, tp)
    own, gradients = str(1 + stage * dp + data), str(1 + pp * dp + stage * tp + tensor)
    out, at, last = [HEAD], 0, None

    def add(name: str, kind: int, attributes: bytes) -> None:
        nonlocal at, last
        names = texts("inputs", [f"{name}.x", "1048576", f"{name}.w", "1048576"]) + texts("outputs", [f"{name}.y", "4"])
        cpu = number("is_cpu_op", 0, 7)
        out.append(node(at, name, kind, [] if last is None else [last], cpu + attributes + names))
        last, at = at, at + 1

    def call(name: str, kind: int, size: int, group: str) -> None:
        add(name, COLLECTIVE, number("comm_type", kind) + number("comm_size", size) + text("pg_name", group))

    def message(kind: int, peer: int) -> None:
        ends = number("comm_dst", peer, 7) if kind == SEND else number("comm_src", peer, 7)
        tag = number("comm_tag", 100 + min(rank, peer) // (dp * tp), 7) + number("comm_size", 4 << 20)
        add("activations", kind, ends + tag)

    if stage > 0:
        message(RECV, rank - dp * tp)
    for layer in range(layers // pp):
        for part in range(31):
            work = number("num_ops", 1 << 34) + number("tensor_size", 1 << 24, 13) + text("op_type", "matmul")
            add(f"layer{layer}.gemm{part}", COMP, work)
            if part % 3 == 0 and part < 30:
                kind = ALL_GATHER if part % 2 else REDUCE_SCATTER
                call(f"layer{layer}.tp{part}", kind, 1 << 20, own)
        call(f"layer{layer}.gradients", ALL_REDUCE, 8 << 20, gradients)
    if stage < pp - 1:
        message(SEND, rank + dp * tp)
    return b"".join(out)


def write(folder: Path, dp: int, tp: int, pp: int, layers: int) -> dict[str, Path]:
    """A job's files."""
    ranks = dp * tp * pp
    for rank in range(ranks):
        (folder / f"et.{rank}.et").write_bytes(step(dp, tp, pp, layers, rank))
    groups: dict[str, list[int]] = {}
    for stage in range(pp):
        base = stage * dp * tp
        for data in range(dp):
            groups[str(1 + stage * dp + data)] = [base + data * tp + tensor for tensor in range(tp)]
        for tensor in range(tp):
            groups[str(1 + pp * dp + stage * tp + tensor)] = [base + data * tp + tensor for data in range(dp)]
    return setup(folder, ranks, groups)


def setup(folder: Path, ranks: int, groups: dict[str, list[int]] | None = None) -> dict[str, Path]:
    """The files beside the traces."""
    ways = {f"{name}-implementation": ["ring"] for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")}
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
        "roofline-enabled": 1,
        "peak-perf": 900,
        **ways,
    }
    network = f"topology: [Switch]\nnpus_count: [{ranks}]\nbandwidth: [50.0]\nlatency: [500.0]\n"
    files = {
        "system": json.dumps(system),
        "network": network,
        "memory": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}),
        "groups": json.dumps(groups or {}),
    }
    paths = {name: folder / f"{name}.json" for name in files}
    for name, path in paths.items():
        path.write_text(files[name])
    return {"workload": folder / "et", **paths}


def wide(folder: Path, nodes: int) -> dict[str, Path]:
    """Two ranks with nodes that are all ready at once."""
    body = [
        node(at, f"c{at}", COMP, [], number("is_cpu_op", 0, 27) + number("num_ops", 1 << 30) + number("tensor_size", 1))
        for at in range(nodes)
    ]
    for rank in range(2):
        (folder / f"et.{rank}.et").write_bytes(HEAD + b"".join(body))
    return setup(folder, 2)


def command(files: dict[str, Path], backend: str) -> list[str]:
    names = {"workload": "workload", "system": "system", "network": "network", "memory": "remote-memory"}
    options = [
        part for name, path in files.items() if name in names for part in (f"--{names[name]}-configuration", path)
    ]
    options += ["--comm-group-configuration", files["groups"], "--limit", "file_bytes=4000000000"]
    options += ["--limit", "inflated_bytes=4000000000"]
    return [sys.executable, "-m", "ahbm", "astra", "--parity", "--backend", backend, *map(str, options)]


def job(name: str, files: dict[str, Path], backend: str) -> None:
    process = subprocess.Popen(command(files, backend), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    ended = sum(line.startswith("sys[") for line in lines)
    print(f"{name:44}{backend:20}{seconds:8.2f} s{usage.ru_maxrss / 1024:8.0f} MB  {ended} ranks, exit {status >> 8}")


def jobs(folder: Path) -> None:
    print("processor time and peak memory of the command")
    for dp, tp, pp, layers in STEPS:
        here = folder / f"{dp}-{tp}-{pp}-{layers}"
        if not here.exists():
            here.mkdir(parents=True)
            write(here, dp, tp, pp, layers)
        files = setup_of(here)
        ranks = dp * tp * pp
        nodes = ranks * (layers // pp * 42 + 1)
        name = f"{ranks} ranks, {nodes:,} nodes"
        for backend in ("congestion_unaware", "congestion_aware"):
            if ranks != 512 or backend == "congestion_unaware":
                job(name, files, backend)
    here = folder / "wide"
    if not here.exists():
        here.mkdir()
        wide(here, READY)
    job(f"{READY:,} ready nodes", setup_of(here), "congestion_unaware")
    here = folder / "narrow"
    if not here.exists():
        here.mkdir()
        wide(here, 1)
    job("1 ready node: the start", setup_of(here), "congestion_unaware")


def setup_of(folder: Path) -> dict[str, Path]:
    names = ("system", "network", "memory", "groups")
    return {"workload": folder / "et", **{name: folder / f"{name}.json" for name in names}}


def cases(folder: Path) -> Iterator[tuple[dict[str, Any], AstraFiles, AstraFlags]]:
    for case in json.loads((folder / "index.json").read_text())["cases"]:
        flags = case.get("flags", {})
        paths = {name: folder / case[name] for name in ("workload", "system", "network", "memory")}
        groups = folder / case["groups"] if "groups" in case else None
        yield (
            case,
            AstraFiles(**paths, groups=groups),
            AstraFlags(
                backend=case["backend"],
                queues=flags.get("num-queues-per-dim", 1),
                injection_scale=flags.get("injection-scale", 1.0),
                rendezvous=flags.get("rendezvous-protocol", False),
            ),
        )


def difference(case: dict[str, Any], report: AstraReport, folder: Path) -> int:
    """The largest difference from what was recorded in ns, of ranks and, where they were recorded, of nodes."""
    worst = 0
    for rank in report.ranks:
        for mine, theirs in ((rank.cycles, case["cycles"]), (rank.exposed, case["exposed"])):
            worst = max(worst, abs((mine or 0) - theirs[rank.rank]))
    if "times" in case and report.times is not None:
        for rank_name, nodes in json.loads((folder / case["times"]).read_text()).items():
            mine_of = {at: (begin, end) for at, begin, end in report.times[int(rank_name)]}
            for at, begin, end in nodes:
                worst = max(worst, abs(mine_of[at][0] - begin), abs(mine_of[at][1] - end))
    return worst


def runs(folder: Path) -> None:
    exact: Counter[str] = Counter()
    total: Counter[str] = Counter()
    worst, diagnosed, broken, alarms = 0, 0, 0, []
    for case, files, flags in cases(folder):
        is_broken = "broken" in case
        broken += is_broken
        try:
            report = simulate(files, flags, times=True)
            report.raise_findings()
        except AhbmError as error:
            diagnosed += is_broken
            if not is_broken:
                alarms.append(f"{case['id']}: {error}")
                total[case["family"]] += 1
            continue
        if is_broken:
            print(f"  nothing said of {case['id']}: {case['broken']}")
            continue
        far = difference(case, report, folder)
        worst = max(worst, far)
        total[case["family"]] += 1
        exact[case["family"]] += far == 0
    print(f"exact {exact.total()} of {total.total()} runs, worst difference {worst} ns")
    for family, many in total.items():
        print(f"  {family:16}{exact[family]:4} of {many}")
    print(f"broken {diagnosed} of {broken} diagnosed, {len(alarms)} false alarms")
    for alarm in alarms:
        print(f"  {alarm}")


def main() -> None:
    wanted = set(sys.argv[1:]) or {"--runs", "--jobs"}
    corpus = os.environ.get("AHBM_CORPUS")
    if "--runs" in wanted and corpus:
        runs(Path(corpus) / "astra_sim")
    if "--jobs" in wanted:
        jobs(Path(tempfile.gettempdir()) / "ahbm-astra-jobs")


if __name__ == "__main__":
    main()
