"""What sweeps cost, and that their tables do not depend on how they ran: a table of docs/records/measurements.md.

    python benches/sweep.py [--cases 10000] [--rows 1000000] [--most 10000000]

Needs the extra `sweep`; what is measured on Dask needs `distributed`. Rates depend on what else the computer does:
processor time does so less.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import ahbm
from ahbm.sweeps import work
from ahbm.sweeps.running import swept
from ahbm.sweeps.work import Done, Setup
from ahbm.table.build import build
from ahbm.table.cases import Case
from ahbm.table.engine import Given, Here, Pool, Spans, Workers, run
from ahbm.table.files import ID, KINDS, NAMES, Row, written
from ahbm.table.parts import FRESH, Part, build_of, digest_of, key_sum
from ahbm.table.processes import Places
from ahbm.table.store import Store

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


def row_of(case: Case, places: Places) -> Row:
    """Takes `CASE_S`, whatever else the computer does; the row is that of a case that ran."""
    until = time.process_time() + CASE_S
    while time.process_time() < until:
        pass
    values = dict.fromkeys(NAMES) | {"algorithm": case.algorithm, "machine": case.sweep.machine}
    values |= {"latency_ns": 1.0 + case.nbytes, "timeline_hash": "0" * 16, "limited_by": "links", "version": build()}
    return tuple(values.values())


def busy(setup: Setup, positions: Sequence[int]) -> tuple[Done, float]:
    """As a sweep of such cases."""
    work.row = row_of
    return work.work(setup, positions)


def overhead(asked: ahbm.Space, store: Path) -> float:
    """Processor time, in s, of a sweep on two processes beyond that of its cases: planning, processes, sending,
    storing."""
    (own, theirs), kept = used(), Store(store)
    digest = kept.begin(asked.to_json(), asked.count)
    setup = Setup(str(store), asked, asked.kinds, str(store), digest)
    for _ in run(Spans([(0, asked.count)]), partial(busy, setup), Pool(2), lambda position, why: Done(1)):
        pass
    end_server()
    own_after, theirs_after = used()
    return own_after - own + theirs_after - theirs - CASE_S * asked.count


def pretended(positions: Sequence[int]) -> tuple[Done, float]:
    """As cases of `CASE_S`."""
    return Done(len(positions), ran=len(positions)), len(positions) * CASE_S


class Many(Executor):
    """So many workers, of which each takes a while for a call and no processor time."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._seconds, self._free = seconds, [0.0] * workers
        self._ends: list[tuple[float, int, Future[Any], Any]] = []
        self._there, self._count = threading.Condition(), 0
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, fn: Any, /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._there:
            end = max(heapq.heappop(self._free), time.monotonic()) + self._seconds
            heapq.heappush(self._free, end)
            self._count += 1
            heapq.heappush(self._ends, (end, self._count, future, (fn, args)))
            self._there.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._there:
                while not self._ends or self._ends[0][0] > time.monotonic():
                    self._there.wait(max(self._ends[0][0] - time.monotonic(), 0.001) if self._ends else None)
                _, _, future, (fn, args) = heapq.heappop(self._ends)
            future.set_result(fn(*args))


def handed_out(count: int) -> tuple[float, float]:
    """Cases a second that one process hands out to 2,000 workers: by the clock, and by its own processor time."""
    began, own = time.monotonic(), time.thread_time()
    for _ in run(Spans([(0, count)]), pretended, Given(Many(2000, 0.4), 2000), lambda position, why: Done(1)):
        pass
    return count / (time.monotonic() - began), count / (time.thread_time() - own)


def end_server() -> None:
    """The server of the processes counts what they took, and this process what the server did when it has ended."""
    getattr(forkserver, "_forkserver")._stop()  # noqa: B009


def killed(file: Path, store: Path, times: int) -> tuple[int, int]:
    """Sweeps with two processes, killed so many times in the middle and then finished; how many cases were stored
    before the last run, and how many it ran."""
    command = [sys.executable, "-m", "ahbm", "sweep", str(file), "-o", str(store), "--jobs", "2", "--json"]
    for _ in range(times):
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


def filled(store: Path, count: int, each: int) -> None:
    """So many rows in parts of `each`."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    kept, chance = Store(store), np.random.default_rng(1)
    space = kept.begin({"overrides": {GBS: [1, 2.5]}}, count)
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}

    def words(values: list[str], rows: int) -> Any:
        codes = arrow.array(chance.integers(0, len(values), rows).astype(np.int32))
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(values)).cast(arrow.string())

    machines = [f"npu, {number}" for number in range(5000)]
    for first in range(0, count, each):
        rows = min(each, count - first)
        at = np.arange(first, first + rows)
        keys = [hashlib.sha256(str(one).encode()).hexdigest() for one in at]
        columns: dict[str, Any] = {name: arrow.nulls(rows, types[KINDS[name]]) for name in ("key", ID, *NAMES)}
        columns |= {"key": keys, ID: [int(key[:15], 16) for key in keys], "collective": words(["all_reduce"], rows)}
        columns |= {"algorithm": words(["a", "b", "c"], rows), "machine": words(machines, rows)}
        columns |= {"topology": words(["ring_1d"], rows), "dtype": words(["f16"], rows), "ranks": np.full(rows, 8)}
        columns |= {"bytes": 1024 << chance.integers(0, 10, rows), "latency_ns": chance.uniform(1000, 9000, rows)}
        columns |= {"timeline_hash": [key[:16] for key in keys], "links": chance.integers(8, 600, rows)}
        columns |= {"busbw_gbs": chance.uniform(1, 400, rows), "percent_of_bound": chance.uniform(1, 99, rows)}
        columns |= {"link_gbs": np.full(rows, 50.0), "version": words([build()], rows)}
        columns |= {GBS: chance.integers(1, 40, rows).astype(float), "space": words([space], rows), "at": at}
        table = arrow.table(columns)
        own = (space, build_of(build()), first, first + rows, rows, 0, 0, FRESH)
        part = Part(*own, key_sum(keys), digest_of(keys))
        parquet.write_table(table, store / "parts" / part.name, **written(table.column_names))


QUESTIONS = {
    "front": "stored.pareto(store, ['time', 'links'])",
    "best": "stored.pareto(store, ['time'])",
    "sensitivity": "stored.sensitivity(store)",
}


def asked_of(store: Path, question: str) -> tuple[float, float, float]:
    """Seconds and processor seconds of an answer in a fresh process, its start included, and the most MiB it took."""
    text = (
        f"from ahbm.sweeps import stored; from ahbm.table.store import Store; store = Store({str(store)!r}); {question}"
    )
    tail = "; import resource as r; u = r.getrusage(0); print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", text + tail], stdout=subprocess.PIPE, check=True, text=True)
    cpu, memory = map(float, done.stdout.split())
    return time.monotonic() - began, cpu, memory


def merged(store: Path) -> tuple[float, float, float]:
    """As `asked_of`, of a merge of all parts."""
    return asked_of(store, "store.compact()")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=MILLION, help="of a store that is asked as it was written")
    parser.add_argument("--most", type=int, default=0, help="rows of a store that is merged, and then asked")
    parser.add_argument("--kills", type=int, default=3, help="how often a sweep is killed")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        show(given.cases, given.rows, given.most, given.kills, folder)
    finally:
        shutil.rmtree(folder)


def show(cases: int, rows: int, most: int, kills: int, folder: Path) -> None:
    asked = ahbm.Space.of(space(cases))
    file = folder / "space.yaml"
    file.write_text(yaml.safe_dump(space(cases)), encoding="utf-8")
    alone, one_cpu, _, _ = timed(asked, Here(), folder / "serial")
    both, own, theirs, first = timed(asked, Pool(2), folder / "two")
    timed(asked, Given(Shuffled(), 3), folder / "shuffled")
    known, ran = killed(file, folder / "killed", kills)
    beyond = overhead(asked, folder / "busy")
    fixed = overhead(ahbm.Space.of(space(cases // 10)), folder / "short")
    tables = {name: digest(asked, folder / name) for name in ("serial", "two", "shuffled", "killed")}
    if find_spec("distributed") is not None:
        tables["dask"] = on_dask(asked, folder / "dask")
    count = asked.count
    rate, own_rate = handed_out(100 * cases)
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
    print(f"| killed {kills} times: stored, run after that, in all | {known:,} + {ran:,} = {known + ran:,} |")
    print(f"| one process hands out to 2,000 workers | {rate:,.0f} cases/s, {own_rate:,.0f} a second of its own time |")
    for number in sorted({max(rows // 100, 1), rows}):
        store = folder / f"rows{number}"
        filled(store, number, 1000)
        for name, question in QUESTIONS.items():
            told(f"{name} of {number:,} rows in {len(Store(store).parts()):,} parts", asked_of(store, question))
    if most:
        store = folder / "most"
        filled(store, most, 10_000)
        told(f"merge of {most:,} rows in {len(Store(store).parts()):,} parts", merged(store))
        for name, question in QUESTIONS.items():
            told(f"{name} of {most:,} merged rows", asked_of(store, question))


def told(what: str, figures: tuple[float, float, float]) -> None:
    seconds, cpu, memory = figures
    print(f"| {what} | {seconds:.2f} s, {cpu:.2f} s of processor time, {memory:,.0f} MiB |")


if __name__ == "__main__":
    main()
