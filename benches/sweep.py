"""What sweeps cost, and that their tables do not depend on how they ran: a table of docs/records/measurements.md.

    python benches/sweep.py [--cases 10000] [--rows 1000000]

Needs the extra `sweep`; what is measured on Dask needs `distributed`. Rates depend on what else the computer does:
processor time does so less.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import yaml

import ahbm
from ahbm.sweeps.case import plan
from ahbm.sweeps.sweep import swept
from ahbm.table.build import build
from ahbm.table.cases import Case, Sweep
from ahbm.table.engine import Given, Here, Pool, Workers, run
from ahbm.table.processes import Places
from ahbm.table.store import NAMES, Row, Store

GBS = "system.sips.link.bandwidth_gbs"
MILLION = 1_000_000


def space(cases: int) -> dict[str, Any]:
    """So many cases of a 16-NPU all-reduce, of four machines and two algorithms."""
    return {
        "algorithms": ["ring_allreduce", "tree_allreduce"],
        "topologies": ["npu_ring_8", "npu_switch_8"],
        "overrides": {"system.sips.count": 16, GBS: [50, 100]},
        "sizes": [64 * number for number in range(16, 16 + cases // 8)],
        "data": False,
    }


class Shuffled(Executor):
    """One thread, which does not take what it was given first."""

    def __init__(self) -> None:
        self._random, self._pool, self._waiting = random.Random(1), ThreadPoolExecutor(1), list[Any]()

    def submit(self, fn: Any, /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, fn, args, given))
        self._pool.submit(self._one)
        return future

    def _one(self) -> None:
        future, fn, args, given = self._waiting.pop(self._random.randrange(len(self._waiting)))
        if future.set_running_or_notify_cancel():
            future.set_result(fn(*args, **given))


def used() -> tuple[float, float]:
    """Seconds of processor time of this process, and of those that it has ended."""
    own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, theirs.ru_utime + theirs.ru_stime


def timed(asked: ahbm.Space, workers: Workers, store: Path) -> tuple[float, float, float, float]:
    """Seconds of a sweep, of processor time here and in other processes, and those before the first row."""
    began, (own, theirs), first = time.monotonic(), used(), 0.0
    for _ in swept(asked, workers, store):
        first = first or time.monotonic() - began
    took = time.monotonic() - began
    end_server()
    own_after, theirs_after = used()
    return took, own_after - own, theirs_after - theirs, first


CASE_S = 0.002
"""Seconds of processor time of a case whose sweep's own costs are measured."""


def busy(cases: Sequence[Case]) -> tuple[list[Row], float]:
    """Takes `CASE_S` for each case, whatever else the computer does; rows are those of a case that ran."""
    start, rows = time.perf_counter(), list[Row]()
    for case in cases:
        until = time.process_time() + CASE_S
        while time.process_time() < until:
            pass
        values = dict.fromkeys(NAMES) | {"algorithm": case.algorithm, "machine": case.sweep.machine}
        values |= {
            "latency_ns": 1.0 + case.nbytes,
            "timeline_hash": "0" * 16,
            "limited_by": "links",
            "version": build(),
        }
        rows.append(tuple(values.values()))
    return rows, time.perf_counter() - start


def overhead(asked: ahbm.Space, store: Path) -> float:
    """Processor time, in s, of a sweep on two processes beyond that of its cases: planning, processes, sending,
    storing."""
    (own, theirs), kept = used(), Store(store)
    name, kinds = kept.begin(asked.to_json()), asked.kinds
    for cases, rows in run(plan(asked, Places(), mixed=True), busy, Pool(2), lambda case, why: ()):
        kept.add(name, cases, rows, kinds)
    end_server()
    own_after, theirs_after = used()
    return own_after - own + theirs_after - theirs - CASE_S * asked.count


def end_server() -> None:
    """The server of the processes counts what they took, and this process what the server did when it has ended."""
    getattr(forkserver, "_forkserver")._stop()  # noqa: B009


def killed(file: Path, store: Path) -> tuple[int, int]:
    """Sweeps with two processes, killed three times in the middle and then finished; how many cases were stored before
    the last run, and how many it ran."""
    command = [sys.executable, "-m", "ahbm", "sweep", str(file), "-o", str(store), "--jobs", "2", "--json"]
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        before = len(list((store / "parts").glob("*"))) if store.exists() else 0
        while process.poll() is None and len(list((store / "parts").glob("*"))) < before + 15:
            time.sleep(0.02)
        process.kill()
        process.wait()
    answer = yaml.safe_load(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return answer["known"], answer["run"]


def digest(asked: ahbm.Space, store: Path) -> str:
    """Of the table of a space and of the rows of its store."""
    table = ahbm.sweep(asked, store=store).csv()
    lines = "\n".join(Store(store).rows().csv().splitlines())
    return hashlib.sha256(f"{table}\n{lines}".encode()).hexdigest()[:16]


def on_dask(asked: ahbm.Space, store: Path) -> str:
    """The digest of a sweep by two workers of a Dask scheduler."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        timed(asked, Given(client.get_executor(pure=False), 2), store)
    return digest(asked, store)


def million(store: Path, count: int) -> tuple[float, float]:
    """Seconds of a query for the front of so many rows, and the most memory that it took, in MiB."""
    chance, rows, cases = random.Random(1), [], []
    asked = ahbm.Space(overrides={GBS: [1, 2.5]})
    kept = Store(store)
    name, kinds = kept.begin(asked.to_json()), asked.kinds
    for at in range(count):
        sweep = Sweep("all_reduce", 1, 1, machine="machine", varied={GBS: chance.uniform(1, 400)})
        cases.append(Case(sweep, "ring", 1024, at=at, key=hashlib.sha256(str(at).encode()).hexdigest()))
        values = dict.fromkeys(NAMES) | {
            "collective": "all_reduce",
            "algorithm": chance.choice("abc"),
            "machine": f"npu, {chance.randrange(5000)}",
            "topology": "ring_1d",
            "ranks": 8,
            "bytes": 1024 << chance.randrange(10),
            "dtype": "f16",
            "latency_ns": chance.uniform(1000, 9000),
            "limited_by": "links",
            "timeline_hash": f"{chance.getrandbits(64):016x}",
            "links": chance.randrange(8, 600),
            "link_gbs": 50.0,
            "version": build(),
        }
        rows.append(tuple(values.values()))
        if len(rows) == count // 8:
            kept.add(name, cases, rows, kinds)
            cases, rows = [], []
    query = (
        "import time, resource; from ahbm.sweeps import answers; from ahbm.table.store import Store\n"
        "began = time.process_time(); names = [*answers.ASKED, 'latency_ns', 'links']\n"
        f"found = Store({str(store)!r}).chosen(names, lambda rows, at: answers.pareto(rows, ['time', 'links'], at))\n"
        "print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(found))"
    )
    done = subprocess.run([sys.executable, "-c", query], stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    return float(done[0]), float(done[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=MILLION, help="of the table whose front is asked for")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        show(given.cases, given.rows, folder)
    finally:
        shutil.rmtree(folder)


def show(cases: int, rows: int, folder: Path) -> None:
    asked = ahbm.Space.of(space(cases))
    file = folder / "space.yaml"
    file.write_text(yaml.safe_dump(space(cases)), encoding="utf-8")
    alone, one_cpu, _, _ = timed(asked, Here(), folder / "serial")
    both, own, theirs, first = timed(asked, Pool(2), folder / "two")
    timed(asked, Given(Shuffled(), 3), folder / "shuffled")
    known, ran = killed(file, folder / "killed")
    beyond = overhead(asked, folder / "busy")
    fixed = overhead(ahbm.Space.of(space(cases // 10)), folder / "short")
    tables = {name: digest(asked, folder / name) for name in ("serial", "two", "shuffled", "killed")}
    if find_spec("distributed") is not None:
        tables["dask"] = on_dask(asked, folder / "dask")
    count = asked.count
    seconds, memory = million(folder / "million", rows)
    print("| what | figure |")
    print("|---|---|")
    print(f"| cases of a 16-NPU all-reduce, one process | {count:,}, {count / alone:,.0f}/s |")
    print(f"| processor time of a case | {1000 * one_cpu / count:.2f} ms |")
    print(f"| two processes | {count / both:,.0f}/s, {alone / both:.2f} times one |")
    print(f"| processor time of the process that asks, of all | {100 * own / (own + theirs):.1f} % |")
    print(f"| processor time of all, against one process | {100 * ((own + theirs) / one_cpu - 1):+.1f} % |")
    each = (beyond - fixed) / (count - count // 10)
    print(f"| processor time beyond a case of {1000 * CASE_S:.0f} ms on two processes | {100 * each / CASE_S:.1f} % |")
    print(f"| the same with the start and the end of the processes | {100 * beyond / CASE_S / count:.1f} % |")
    print(f"| first row after | {first:.2f} s |")
    alike = [" = ".join(name for name in tables if tables[name] == one) for one in dict.fromkeys(tables.values())]
    print(f"| tables and stores that are the same, to the byte | {'; '.join(alike)} |")
    print(f"| killed three times: stored, run after that, in all | {known:,} + {ran:,} = {known + ran:,} |")
    print(f"| front of {rows:,} rows | {seconds:.2f} s of processor time, {memory:,.0f} MiB |")


if __name__ == "__main__":
    main()
