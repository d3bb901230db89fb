"""Stores: one row for each case however it was run, resumed, merged, compacted; with Parquet and without."""

from __future__ import annotations

import random
import shutil
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import ConfigError, DistributedError, UnsupportedError
from ahbm.sweeps import clusters, running, work
from ahbm.sweeps.case import Cases, plan
from ahbm.sweeps.running import swept
from ahbm.sweeps.space import Space
from ahbm.table import build, columns, files, kept, made
from ahbm.table.engine import Given, Here
from ahbm.table.processes import Places
from ahbm.table.store import Store

pytestmark = pytest.mark.usefixtures("here")

GBS = "system.sips.link.bandwidth_gbs"
SPACE = Space(
    algorithms=["ring_allreduce", "tree_allreduce", "synth:ring"],
    topologies=["npu_ring_8", "npu_switch_8"],
    overrides={GBS: [50, 100.5], "system.sips.count": [4, 8]},
    sizes=["1K", "4K", 5000],
    data=False,
)
"""Cases of which one algorithm does not run on one machine."""


class Shuffled(Executor):
    """Gives results in another order than that of the calls."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pool = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, (fn, args, given)))
        self._pool.submit(self._one)
        return future

    def _one(self) -> None:
        future, (fn, args, given) = self._waiting.pop(self._random.randrange(len(self._waiting)))
        if future.set_running_or_notify_cancel():
            future.set_result(fn(*args, **given))


def ran(store: str, stop: int | None = None) -> int:
    """Runs `SPACE` into a store, to its end or for so many batches; returns how many cases ran."""
    count = 0
    for number, done in enumerate(swept(SPACE, Here(), store), 1):
        count += done.ran
        if number == stop:
            break
    return count


def exported(store: str) -> str:
    return "\n".join(Store(store).rows().csv().splitlines())


@pytest.mark.slow
def test_the_table_is_the_same_however_it_was_run() -> None:
    plain = ahbm.sweep(SPACE)
    assert len(plain) == SPACE.count == 72 and plain.failed == 0
    tables = [ahbm.sweep(SPACE, executor=Shuffled(seed), jobs=3) for seed in range(3)]
    tables += [ahbm.sweep(SPACE, store="a"), ahbm.sweep(SPACE, store="a")]
    for stop in (1, 2, 3):
        ran("killed", stop)
    tables.append(ahbm.sweep(SPACE, store="killed"))
    tables.append(ahbm.sweep(SPACE, store="shuffled", executor=Shuffled(9), jobs=3))
    assert {table.csv() for table in tables} == {plain.csv()}
    assert exported("a") == exported("killed") == exported("shuffled")


def test_rows_of_another_build_are_run_again_and_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = ran("s")
    for module in (work, files, made, kept, running):
        monkeypatch.setattr(module, "build", lambda: "0.0.0+other")
    assert ran("s") == cases
    rows = Store("s").rows()
    assert set(rows.column("version")) == {"0.0.0+other"} and len(rows) == cases
    assert len(Store("s").read(("key",))) == 2 * cases


def test_a_build_is_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.build().startswith(f"{ahbm.__version__}+") and len(build.build().partition("+")[2]) == 12
    monkeypatch.setattr(build, "sources", lambda: "other rust")
    build.build.cache_clear()
    try:
        other = build.build()
    finally:
        monkeypatch.undo()
        build.build.cache_clear()
    assert other != build.build()


def test_machines_that_differ_in_bandwidth_follow_each_other_and_positions_stay() -> None:
    plain, mixed = (list(plan(SPACE, Places(), mixed=mixed)) for mixed in (False, True))
    assert [case.at for case in plain] == list(range(len(plain)))
    assert sorted((case.at, case.key) for case in mixed) == [(case.at, case.key) for case in plain]
    first = mixed[0]
    assert [(case.algorithm, case.nbytes) for case in mixed[:8]] == [(first.algorithm, first.nbytes)] * 8


def test_what_is_stored_is_not_run_again() -> None:
    first = ran("s", 2)
    assert 0 < first < 72
    assert ran("s") == 72 - first
    assert ran("s") == 0
    keys = Store("s").read(("key",)).column("key")
    assert len(keys) == len(set(keys)) == 72


def test_equal_cases_run_once_and_are_rows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # The number of ranks is that of the machine without the override.
    space = Space(topologies="npu_ring_8", overrides={"system.sips.count": [8, 8]}, sizes="1K", data=False)
    ran: list[Any] = []
    measure = work.row
    monkeypatch.setattr(work, "row", lambda *given: ran.append(given) or measure(*given))
    list(swept(space, Here()))
    assert len(ran) == 1
    table = ahbm.sweep(space)
    assert len(table) == 2 and len({tuple(row.values()) for row in table}) == 1


def test_stores_are_merged_by_copying_parts() -> None:
    whole = exported("whole") if ran("whole") else ""
    ran("left", 2)
    ran("right", 4)
    for path in Store("right").parts():
        shutil.copy(Path("right/parts") / path.name, "left/parts")
    assert ran("left") < 72
    assert exported("left") == whole


def test_a_compact_store_says_the_same_in_fewer_parts() -> None:
    ran("s")
    ran("other", 3)
    for path in Store("other").parts():
        shutil.copy(Path("other/parts") / path.name, "s/parts")
    before = exported("s")
    parts, left = Store("s").compact()
    assert parts > left == 1 == len(Store("s").parts())
    assert exported("s") == before
    assert Store("s").compact() == (1, 1) and exported("s") == before
    assert ran("s") == 0


@pytest.mark.parametrize("missing", ["pyarrow.parquet", "duckdb"])
def test_a_store_needs_its_packages(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran("s", 1)
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, missing, None)
        with pytest.raises(UnsupportedError, match=f"AHBM-U145 {missing.partition('.')[0]} is not installed"):
            Store("s").rows()


def test_a_part_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    ran("s", 2)
    before = exported("s")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", torn)
        with pytest.raises(KeyboardInterrupt):
            ran("s")
    assert exported("s") == before
    assert not [path for path in Path("s/parts").iterdir() if path.name.endswith(".part")]


def test_rows_of_dead_processes_are_no_proof_and_run_again() -> None:
    class Dead(Exception):
        pass

    Dead.__name__ = "KilledWorker"
    cases = Cases(SPACE, Places())

    class Killing(Executor):
        def submit(self, fn: Any, /, *args: Any, **given: Any) -> Future[Any]:
            future: Future[Any] = Future()
            here = [cases.case(position)[0] for position in args[0]]
            if any(case and case.nbytes == 4096 and case.algorithm == "ring_allreduce" for case in here):
                future.set_exception(Dead())
            else:
                future.set_result(fn(*args))
            return future

    failed = ahbm.sweep(SPACE, executor=Killing, store="s")
    assert failed.failed == 8 and {row["code"] for row in failed} == {None, columns.LOST}
    assert {row["bytes"] for row in failed if row["code"]} == {4096}
    again = ahbm.sweep(SPACE, store="s")
    assert again.failed == 0 and again.csv() == ahbm.sweep(SPACE).csv()


def test_a_case_over_budget_is_a_row_and_a_proof() -> None:
    space = Space(
        topologies="npu_ring_8",
        overrides={"event_budget": [10, 10**9]},
        sizes="1K",
        data=False,
        algorithms="ring_allreduce",
    )
    table = ahbm.sweep(space, store="s")
    assert [row["code"] for row in table] == ["AHBM-B120", None]
    assert [row["event_budget"] for row in table] == [10, 10**9]
    assert not list(swept(space, Here(), "s"))


def test_a_machine_that_does_not_load_is_rows() -> None:
    table = ahbm.sweep(topologies="torus_2d", overrides={"system.sips.count": [7, 16]}, sizes="4K", data=False)
    assert [row["code"] is None for row in table] == [False, True]
    assert table[0]["code"].startswith("AHBM-T")


def test_functions_are_swept_here_alone() -> None:
    from ahbm.config.ccl import CclConfig
    from ahbm.source.module import load

    packaged = load(CclConfig.load().settings("ring_allreduce"))
    mine = ahbm.algorithm(packaged.kernel, kernel_args=packaged.kernel_args, name="mine")
    with ThreadPoolExecutor(1) as pool, pytest.raises(UnsupportedError, match="AHBM-U146 mine is a function"):
        ahbm.sweep(algorithms=mine, topologies="npu_ring_8", sizes="1K", executor=pool)
    assert ahbm.sweep(algorithms=mine, topologies="npu_ring_8", sizes="1K", store="s")[0]["algorithm"] == "mine"


def test_jobs_are_replayed_under_every_machine() -> None:
    Path("tiny.yaml").write_text("layers: 1\nhidden: 64\nheads: 4\nsequence: 8\ndp: 2\nmicro_batches: 1\n")
    space = Space(jobs=["tiny.yaml", "nowhere.et"], topologies="npu_ring_8", overrides={GBS: [1, 400]})
    table = ahbm.sweep(space, store="s")
    assert [row["job"] for row in table] == ["tiny.yaml"] * 2 + ["nowhere.et"] * 2
    assert table[0]["latency_ns"] > table[1]["latency_ns"] > 0 and table[2]["code"] is not None
    assert not list(swept(space, Here(), "s"))
    Path("tiny.yaml").write_text("layers: 2\nhidden: 64\nheads: 4\nsequence: 8\ndp: 2\nmicro_batches: 1\n")
    assert ahbm.sweep(space, store="s")[0]["latency_ns"] > table[0]["latency_ns"]


def test_jobs_on_calibrated_machines_tell_their_error() -> None:
    Path("tiny.yaml").write_text("layers: 1\nhidden: 64\nheads: 4\nsequence: 8\ndp: 8\nmicro_batches: 1\n")
    table = ahbm.sweep(Space(jobs="tiny.yaml", topologies=["azure_nd_h100", "npu_ring_8"]))
    (note,) = table.notes
    assert note.startswith("tiny.yaml on azure_nd_h100: calibrated: near ")


def test_seeds_are_rows_of_their_own() -> None:
    table = ahbm.sweep("all_reduce", "ring_allreduce", "npu_ring_8", sizes="1K", seeds=[0, 1])
    assert [row["seed"] for row in table] == [0, 1] and {row["wrong"] for row in table} == {0}


@pytest.mark.parametrize("content", [b"", b"junk", b"PAR1"])
def test_a_part_that_is_none_is_named(content: bytes) -> None:
    ran("s", 2)
    part = Store("s").parts()[0].name
    (Path("s/parts") / part).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"AHBM-C186 .*{part} is no part of a sweep"):
        Store("s").rows()


@pytest.mark.parametrize(
    ("name", "told"), [("x.parquet", "no part of a sweep"), (f"{'0' * 24}.jsonl", "older versions wrote")]
)
def test_what_is_no_part_is_named(name: str, told: str) -> None:
    ran("s", 1)
    (Path("s/parts") / name).write_text("{}\n")
    for ask in (lambda: Store("s").rows(), lambda: ran("s"), lambda: Store("s").compact()):
        with pytest.raises(ConfigError, match=f"AHBM-C186 {name} .*{told}"):
            ask()


def test_a_folder_without_a_sweep_is_named() -> None:
    with pytest.raises(ConfigError, match="AHBM-C186 nowhere holds no sweep"):
        Store("nowhere").rows()


def test_an_executor_that_is_none_and_a_space_beside_others_are_refused() -> None:
    for arguments in ({"executor": 3}, {"executor": len}, {"executor": lambda n: n}, {"jobs": 0}, {"jobs": "x"}):
        with pytest.raises(ConfigError, match="AHBM-C129"):
            ahbm.sweep(sizes="1K", **arguments)
    with pytest.raises(ConfigError, match="AHBM-C129"):
        ahbm.sweep(SPACE, "ring_allreduce")


def test_arrow_has_the_columns() -> None:
    pytest.importorskip("pyarrow")
    table = ahbm.sweep(SPACE).to_arrow()
    assert table.num_rows == 72 and table.column(GBS).to_pylist()[:2] == [50.0, 50.0]


@pytest.mark.slow
def test_two_processes_give_the_same_table_and_a_kernel_that_exits_costs_its_case_alone() -> None:
    source = (Path(ahbm.__file__).parent / "data/algorithms/ring_allreduce.py").read_text(encoding="utf-8")
    marked = source.replace(
        "-> tuple[object, ...]:\n",
        "-> tuple[object, ...]:\n    __import__('ctypes').string_at(0) if n_elem == 4096 else None\n",
        1,
    )
    assert marked != source
    Path("deadly.py").write_text(marked, encoding="utf-8")
    sizes = [256 * number for number in range(4, 104)]
    space = Space(algorithms=["./deadly.py"], topologies="npu_ring_8", sizes=sizes, data=False)
    found = ahbm.sweep(space, jobs=2, store="s")
    assert [row["bytes"] for row in found if row["code"] == columns.LOST] == [8192]
    Path("deadly.py").write_text(source, encoding="utf-8")
    good = ahbm.sweep(space)
    assert [row for row in found if row["code"] is None] == [row for row in good if row["bytes"] != 8192]


@pytest.mark.slow
def test_dask_runs_a_sweep_though_a_worker_is_killed() -> None:
    distributed = pytest.importorskip("distributed")
    import os
    import signal

    plain = ahbm.sweep(SPACE).csv()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        batches = swept(SPACE, Given(client.get_executor(pure=False), 2), "s")
        next(batches)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        for _ in batches:
            pass
    assert ahbm.sweep(SPACE, store="s").csv() == plain
    keys = Store("s").read(("key",)).column("key")
    assert len(keys) == len(set(keys)) == 72


def test_a_scheduler_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "CONNECT_S", 1)
    before = threading.active_count()
    for address in ("tcp://127.0.0.1:1", "127.0.0.1:1", "", "x", "inproc://x"):
        with pytest.raises(DistributedError, match="AHBM-X141 no Dask scheduler answers"):
            clusters.dask_executor(address)
    assert threading.active_count() == before
