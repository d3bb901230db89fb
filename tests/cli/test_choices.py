"""Every choice of the user is honoured, refused by code, or told: an option with a value of its own changes what a
command answers, on every kind of target, or the command exits with a code."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ahbm.job.transformer import Transformer
from support import astra_files
from support.commands import _in_process, commands
from support.plans import ring
from support.scripts import exchange
from support.traces import attribute, write

RANKS = 4
CCL = """\
defaults: {n_elem: 96, n_slots: 1, algorithm: tree_allreduce}
algorithms:
  mine: {module: pat_all_gather}
collectives: {all_gather: mine, all_reduce: tree_allreduce, send_recv: nowhere}
"""


def profile(rank: int) -> dict[str, Any]:
    """Two steps of a kernel, an all_reduce, and a kernel that the host launches late."""
    events: list[dict[str, Any]] = []
    ts = 1000.0

    def add(cat: str, name: str, start: float, us: float, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us, "args": args})

    def launch(name: str, us: float, stream: int, start: float, **facts: object) -> None:
        number = len(events)
        add("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=number)
        add("kernel", name, start, us, stream=stream, device=0, correlation=number, **facts)

    for step in (3, 4):
        begin = ts
        launch("layer0.gemm", 10, 7, ts + 5)
        facts = {"Collective name": "allreduce", "In msg nelems": 1 << 12, "dtype": "Half", "Group size": 2}
        launch("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 30, 24, ts + 15, **facts)
        ts += 100 * step
        launch("layer0.gemm", 20, 7, ts + 5)
        ts += 50
        add("user_annotation", f"ProfilerStep#{step}", begin, ts - begin)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}]
    info = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": groups}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


def graph(folder: Path) -> None:
    """A trace that sends without buffers; a dependency on a node that does not exist."""
    for rank in range(RANKS):
        send = [attribute("comm_dst", (rank + 1) % RANKS), attribute("comm_size", 1 << 12)]
        recv = [attribute("comm_src", (rank - 1) % RANKS), attribute("comm_size", 1 << 12)]
        nodes = [{"id": 0, "type": "COMM_SEND_NODE", "attr": send}, {"id": 1, "type": "COMM_RECV_NODE", "attr": recv}]
        write(folder / "graph", rank, nodes)


def inputs(folder: Path) -> None:
    """The files that the commands of this page are about."""
    (folder / "ring.xml").write_text(ring(RANKS))
    graph(folder)
    model = Transformer(layers=1, hidden=64, heads=4, sequence=32, vocabulary=64, tp=2, dp=2)
    model.workload().write(folder / "step")
    (folder / "profile").mkdir()
    for rank in range(2):
        text = json.dumps(profile(rank)).encode()
        (folder / "profile" / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(text))
    exchange(folder)
    astra_files.write(folder)
    (folder / "other.yaml").write_text(CCL)
    (folder / "groups.json").write_text('{"tp0": [0, 1], "0": [0, 1]}')
    (folder / "gather.py").write_text(
        "import numpy as np, ahbm, ahbm.distributed as dist\n"
        "def worker():\n"
        "    dist.init_process_group('ahbm')\n"
        "    x = np.ones(512, np.float16)\n"
        "    dist.all_reduce(x)\n"
        "    if dist.get_rank() == 0:\n"
        "        print(dist.simulated_time())\n"
        "ahbm.spawn(worker)\n"
    )


MACHINE = ("-t", "npu_ring_8", "--ranks", f"{RANKS}")
SIZE = ("--size", "4K")
TARGETS: dict[str, tuple[str, ...]] = {
    "collective": ("all_reduce", "-a", "ring_allreduce"),
    "plan": ("ring.xml",),
    "graph": ("graph.0.json",),
    "program": ("exchange.py",),
    "job": ("step",),
    "profile": ("profile/rank0_trace.json.gz",),
}
SWEPT = ("--sizes", "1K,4K")
SMALL_SWEEP = ("-b", "1K", "-e", "4K")
OF_RUNS: dict[str, tuple[str, ...]] = {name: (*TARGETS[name], *MACHINE) for name in TARGETS}
COLLECTIVE = {"collective": OF_RUNS["collective"]}
MEASURED = {name: OF_RUNS[name] for name in ("collective", "plan", "program")}
JOBS = {name: OF_RUNS[name] for name in ("job", "profile")}
BASES: dict[str, dict[str, tuple[str, ...]]] = {
    "run": {
        **OF_RUNS,
        "jobs": ("step", "step", "-t", "npu_ring_8", "--ranks", f"{2 * RANKS}"),
        "script": (*MACHINE, "-a", "ring_allreduce", "gather.py"),
    },
    "explain": OF_RUNS,
    "report": {name: (*base, *SMALL_SWEEP) for name, base in OF_RUNS.items() if name in MEASURED}
    | {name: OF_RUNS[name] for name in ("graph", "job", "profile")},
    "bench": {name: (*base, *SMALL_SWEEP) for name, base in MEASURED.items()},
    "inspect": {name: OF_RUNS[name] for name in ("collective", "plan", "graph", "program")},
    "numerics": COLLECTIVE,
    "explore": {"collective": (*OF_RUNS["collective"], "--seeds", "2"), "plan": (*OF_RUNS["plan"], "--seeds", "2")},
    "features": {"collective": ("ring_allreduce", *MACHINE), "plan": OF_RUNS["plan"], **JOBS},
    "check": {"plan": ("ring.xml",), "graph": ("graph.0.json",), "module": ("-a", "ring_allreduce", *MACHINE)},
    "compare": {"collective": ("all_reduce", "-a", "ring_allreduce", "-a", "tree_allreduce", *MACHINE, *SMALL_SWEEP)},
    "ladder": {"collective": (*OF_RUNS["collective"], *SMALL_SWEEP)},
    "tune": {
        "collective": ("all_reduce", *MACHINE, *SMALL_SWEEP, "-a", "ring_allreduce", "-a", "tree_allreduce", "-o", "t")
    },
    "synth": {"collective": ("all_gather", *MACHINE, *SIZE)},
    "convert": {
        "kernel": ("ring_allreduce", "out.xml", *MACHINE),
        "plan": ("ring.xml", "out.json"),
        "trace": ("profile/rank0_trace.json.gz", "out.et"),
    },
    "astra": {"machine": tuple(astra_files.OPTIONS[1:]), "parity": tuple(astra_files.OPTIONS)},
    "topology": {"machine": MACHINE},
    "probe": {"machine": MACHINE},
}
VALUES: dict[str, tuple[str, ...]] = {
    "-a": ("tree_allreduce",),
    "-t": ("npu_switch_8",),
    "--ranks": ("2",),
    "--set": ("system.sips.link.latency_ns=900",),
    "--size": ("8K",),
    "-b": ("2K",),
    "-e": ("16K",),
    "-f": ("3",),
    "-i": ("1K",),
    "--sizes": ("64",),
    "-d": ("f32",),
    "--op": ("max",),
    "-r": ("1",),
    "--ccl": ("other.yaml",),
    "--protocol": ("LL",),
    "--slice": ("64",),
    "--instances": ("2",),
    "--slots": ("1",),
    "--lanes": ("unlimited",),
    "--compute": ("layer=3",),
    "--as": ("job",),
    "--groups": ("groups.json",),
    "--step": ("3",),
    "--replicas": ("4",),
    "--limit": ("file_bytes=10",),
    "--program": ("nobody",),
    "--frontend": ("upstream",),
    "--et": ("written",),
    "--trace": ("written.json",),
    "--place": ("striped",),
    "--check": ("race",),
    "--what-if": ("system.sips.link.latency_ns=900",),
    "--vary": ("ranks=2,3",),
    "--gate": ("0.001",),
    "--ladder": ("written.yaml",),
    "--collective_algorithm": ("all_reduce=nowhere.et",),
    "--selector": ("prior",),
    "-j": ("2",),
    "--synth": ("ring",),
    "-k": ("2",),
    "--seed": ("5",),
    "--seeds": ("3",),
    "--charts": ("written",),
    "--format": ("png",),
    "-o": ("written",),
    "--at": ("100",),
    "--element": ("0:3",),
    "--from": ("0",),
    "--rank": ("1",),
    "--pe": ("0",),
    "--depth": ("1",),
    "--chunk-bytes": ("512",),
    "--method": ("ring",),
    "--members": ("0,1",),
    "--evaluate": ("other.yaml",),
    "--budget": ("4",),
    "--measured": ("table.csv",),
    "--channels": ("4",),
    "--nodes": ("2",),
    "--collective": ("all_gather",),
    "--orders": ("2",),
    "--calls": ("3",),
    "--svg": ("written.svg",),
    "--store": ("rows",),
    "--backend": ("congestion_aware",),
    "--num-queues-per-dim": ("2",),
    "--comm-scale": ("2",),
    "--compute-scale": ("2",),
    "--injection-scale": ("2",),
    "--rendezvous-protocol": ("true",),
    "--logging-configuration": ("log.toml",),
    "--logging-folder": ("logs",),
    "--comm-group-configuration": ("nowhere.json",),
}
"""A value of its own for each option that takes one, by its first spelling, or its long one where there is one."""


EXCUSED: dict[tuple[str, str, str], str] = {
    ("*", "*", "-j"): "as many processes, the same answer",
    ("*", "*", "--quirks"): "the file has no known defect",
    ("*", "*", "--no-fold"): "the times of ranks that are folded are those of all",
    ("*", "*", "--lenient"): "every dependency is on a node that exists",
    ("run", "graph", "--no-data"): "a graph of sizes runs for its time only",
    ("run", "job", "--no-data"): "a job runs for its time only",
    ("run", "profile", "--no-data"): "a job runs for its time only",
    ("*", "job", "--as"): "it is a job",
    ("*", "jobs", "--as"): "they are jobs",
    ("run", "jobs", "--selector"): "it chooses what the configuration does",
    ("*", "profile", "--as"): "it is a job",
    ("*", "profile", "--lanes"): "its streams wait for each other",
    ("*", "program", "--instances"): "an argument of the script",
    ("*", "graph", "--slots"): "no queue of it holds two messages",
    ("*", "profile", "--op"): "no operator takes another time",
    ("compare", "collective", "--no-data"): "rows of compare have times, and results that are wrong; these are right",
    ("check", "plan", "--orders"): "what is right is right in every order",
    ("check", "plan", "--calls"): "what is right is right again",
    ("check", "plan", "--seed"): "what is right is right in every order",
    ("check", "graph", "--orders"): "it ends in every order",
    ("check", "graph", "--calls"): "it ends again",
    ("check", "graph", "--seed"): "it ends in every order",
    ("astra", "parity", "--parity"): "it is asked for",
    ("astra", "parity", "--backend"): "no two messages want one link",
    ("astra", "parity", "--num-queues-per-dim"): "it has one collective",
    ("explain", "*", "--op"): "no operator takes another time",
    ("inspect", "*", "--op"): "no operator takes another time",
    ("*", "collective", "--device"): "the machine has one cube per SIP: its tile is the array",
    ("convert", "kernel", "-t"): "the plan of a kernel is that of its network's kind",
    ("convert", "kernel", "--set"): "a plan has no times",
    ("convert", "kernel", "-d"): "a plan leaves the type to the run",
    ("convert", "kernel", "-b"): "a plan is for all sizes",
    ("convert", "kernel", "--slots"): "queues are of what is written as .json",
    ("convert", "kernel", "--limit"): "no file is read",
    ("numerics", "collective", "-t"): "the order of additions is the algorithm's",
    ("numerics", "collective", "--set"): "the order of additions is the algorithm's",
    ("synth", "collective", "-d"): "a schedule moves bytes",
    ("features", "*", "--op"): "no column depends on the operator",
    ("features", "*", "-r"): "no column depends on the root",
    **{
        ("features", target, name): "columns of a job are those of its graphs, whatever they run on"
        for target in ("job", "profile")
        for name in ("--lanes", "--groups", "--host-gaps", "--symmetric", "-d", "-t", "--ranks", "--set")
    },
    ("probe", "machine", "--ranks"): "neighbours are probed",
}
"""Command, target and option, or all (`*`) -> why the answer may be the same."""


def excuse(command: str, target: str, name: str) -> str | None:
    """Why an option may leave the answer as it is."""
    keys = ((a, b, name) for a in (command, "*") for b in (target, "*"))
    return next((EXCUSED[key] for key in keys if key in EXCUSED), None)


def spelling(option: Any) -> str:
    return next((name for name in option.opts if name in VALUES), option.opts[0])


def normal(text: str, folder: Path) -> str:
    """Without what says again which options were given, and without the processor's time."""
    text = re.sub(r"[0-9.]+ ms|_ms\": [0-9.e-]+", "", text.replace(str(folder), ""))
    return re.sub(r'"args": \[[^\]]*\]', "", text)


def answered(command: str, arguments: tuple[str, ...], source: Path, folder: Path) -> tuple[object, ...]:
    """Exit code, what is printed, and the digests of the files that are written."""
    shutil.copytree(source, folder)
    before = {path for path in folder.rglob("*")}
    code, out, err = _in_process([command, *arguments], folder)
    written = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path not in before and path.is_file()
    }
    shutil.rmtree(folder)
    return code, normal(out, folder), normal(err, folder), tuple(written.items())


QUICK = ("run", "convert", "astra", "synth", "topology", "probe")
"""Commands that are looked at every time; the others take minutes together."""


def cases() -> Iterator[Any]:
    for command, bases in BASES.items():
        for target in bases:
            yield pytest.param(command, target, marks=[] if command in QUICK else [pytest.mark.slow])


class Told:
    """What altair is told, in its place."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __getattr__(self, name: str) -> Told:
        if name.startswith("__"):
            raise AttributeError(name)
        return Told(f"{self.text}.{name}")

    def __call__(self, *given: object, **named: object) -> Told:
        return Told(f"{self.text}({given}, {named})")

    def keys(self) -> tuple[str, ...]:
        return (self.text,)

    def __getitem__(self, name: str) -> Told:
        return self

    def __setitem__(self, name: str, value: object) -> None:
        self.text += f"[{name}] = {value}"

    def __add__(self, other: object) -> Told:
        return Told(f"{self} + {other}")

    __or__ = __and__ = __add__


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and their charts are not made, and jobs are not tried with every algorithm: each takes seconds."""
    for name in ("charts", "comparisons", "jobs", "links", "why"):
        monkeypatch.setattr(f"ahbm.views.{name}.alt", Told("alt"))
    monkeypatch.setattr("ahbm.views.drawing.Drawing.svg", lambda drawing: repr(drawing.chart))
    monkeypatch.setattr("ahbm.views.drawing.Drawing.png", lambda drawing: repr(drawing.chart).encode())
    monkeypatch.setattr("ahbm.views.page.Page.html", lambda page: repr((page.headline, page.facts, page.sections)))
    monkeypatch.setattr("ahbm.job.advice.SEARCHED", 0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    inputs(folder)
    return folder


def holes(command: str, target: str, source: Path, folder: Path) -> list[str]:
    base = BASES[command][target]
    usual = answered(command, base, source, folder)
    found = []
    for option in commands()[command].params:
        if option.param_type_name == "argument":
            continue
        name = spelling(option)
        if option.required or excuse(command, target, name):
            continue
        value = () if option.is_flag else VALUES[name]
        spelled = option.secondary_opts[0] if option.is_flag and option.default is True else name
        kept = without(base, option)
        given = (spelled, *value, *kept) if target == "script" else (*kept, spelled, *value)
        changed = answered(command, given, source, folder)
        if changed == (usual if kept == base else answered(command, base, source, folder)):
            found.append(name)
    return found


def without(base: tuple[str, ...], option: Any) -> tuple[str, ...]:
    """The arguments without an option that is given among them."""
    kept, at = list[str](), 0
    while at < len(base):
        if base[at] in option.opts and not option.is_flag:
            at += 2
            continue
        kept.append(base[at])
        at += 1
    return tuple(kept)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "target"), cases())
def test_an_option_changes_the_answer_or_is_refused(command: str, target: str, source: Path, tmp_path: Path) -> None:
    found = holes(command, target, source, tmp_path / "here")
    assert found == [], f"{command} {target}: {found}"
