"""Jobs as traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun
from torch.nn.parallel import DistributedDataParallel

import ahbm
import ahbm.torch
from ahbm._core import read_plan
from ahbm.errors import DistributedError, RankError
from ahbm.torch.journal import Event

HERE = Path(__file__).parent
SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


def test_a_job_is_the_same_under_every_backend(tmp_path: Path) -> None:
    ranks = 3
    for backend in ("gloo", "ahbm"):
        done = torchrun(HERE / "recorded.py", ranks, backend, str(tmp_path / backend), AHBM_COMPUTE="none")
        assert done.returncode == 0, done.stderr
    for rank in range(ranks):
        gloo, ours = ((tmp_path / f"{backend}.{rank}.et").read_bytes() for backend in ("gloo", "ahbm"))
        assert gloo == ours
    assert read_plan(str(tmp_path / "gloo")).ranks == ranks


def recorded(tmp_path: Path, worker: object, **options: str) -> list[Event]:
    """What rank 0 of two noted of `worker()`."""

    def rank() -> list[Event]:
        assert callable(worker)
        with ahbm.torch.record(tmp_path / "job", **options) as recorder:
            dist.init_process_group("ahbm")
            worker()
        return recorder.journal.events

    noted, _ = ahbm.torch.spawn(rank, overrides=SMALL)
    assert isinstance(noted, list)
    assert read_plan(str(tmp_path / "job")).ranks == 2
    return noted


def ancestors(noted: list[Event]) -> list[set[int]]:
    """Per event, all that it waits for."""
    found: list[set[int]] = []
    for event in noted:
        found.append(set(event.deps).union(*(found[dep] for dep in event.deps)))
    return found


def compute() -> None:
    x = torch.ones(300, 300)
    (x @ x).sum().item()


def test_what_follows_a_wait_depends_on_it(tmp_path: Path) -> None:
    def worker() -> None:
        compute()
        work = dist.all_reduce(torch.ones(4), async_op=True)
        compute()
        dist.all_reduce(torch.ones(8, dtype=torch.float64), dist.ReduceOp.MAX)
        compute()
        work.wait()
        compute()
        dist.broadcast(torch.ones(1, dtype=torch.int8), 1)

    noted = recorded(tmp_path, worker)
    first, second, third = (event for event in noted if event.kind == "COMM_COLL_NODE")
    assert first.facts == {
        "pg_name": "0",
        "dtype": "f32",
        "comm_size": 16,
        "ranks": (0, 1),
        "op": "sum",
    }
    assert second.facts | {"dtype": "f64", "comm_size": 64, "op": "max"} == second.facts
    assert third.name == "broadcast" and third.facts["root"] == 1 and "op" not in third.facts
    # The first is under way until its wait: what comes before does not depend on it, what comes later does.
    before = ancestors(noted)
    assert first.number not in before[second.number] and {first.number, second.number} <= before[third.number]
    computed = [event for event in noted if event.kind == "COMP_NODE"]
    assert all(event.duration_ps > 0 for event in computed)
    chain = [{first.number, second.number} & before[event.number] for event in computed]
    assert [chain.count(waited) > 0 for waited in (set(), {second.number}, {first.number})] == [True, True, False]


def test_the_end_of_a_backward_pass_waits_for_its_buckets(tmp_path: Path) -> None:
    def worker() -> None:
        net = DistributedDataParallel(
            torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))), bucket_cap_mb=0.01
        )
        for _ in range(2):
            net(torch.ones(2, 64)).sum().backward()
        dist.barrier()

    noted = recorded(tmp_path, worker)
    buckets = [event.number for event in noted if event.name == "all_reduce"][-4:]
    before = ancestors(noted)
    (barrier,) = (event.number for event in noted if event.name == "barrier")
    assert len(buckets) == 4 and set(buckets) <= before[barrier]
    # They do not wait for each other.
    assert not any(one in before[other] for one in buckets for other in buckets)


def test_groups_that_were_split_off(tmp_path: Path) -> None:
    names = []

    def worker() -> None:
        split = dist.split_group(split_ranks=[[1, 0]])
        names.append(split.group_name)
        dist.broadcast(torch.ones(2), group=split, group_src=0)

    (noted,) = recorded(tmp_path, worker, compute="none")
    assert noted.facts | {"pg_name": names[0], "ranks": (1, 0), "root": 1} == noted.facts and names[0] == names[1]


def test_no_compute(tmp_path: Path) -> None:
    noted = recorded(tmp_path, lambda: dist.barrier(), compute="none")
    assert [(event.kind, event.name, event.facts["comm_size"]) for event in noted] == [("COMM_COLL_NODE", "barrier", 0)]


def test_a_recorder_younger_than_the_group(tmp_path: Path) -> None:
    def worker() -> None:
        dist.init_process_group("ahbm")
        with pytest.raises(DistributedError, match="AHBM-X132"), ahbm.torch.record(tmp_path / "job"):
            raise AssertionError("not reached")

    ahbm.torch.spawn(worker, overrides=SMALL)
    with (
        pytest.raises(DistributedError, match="AHBM-X132 no process group was made"),
        ahbm.torch.record(tmp_path / "job"),
    ):
        pass


def test_a_receive_that_nobody_waited_for(tmp_path: Path) -> None:
    def worker() -> None:
        x = torch.ones(1)
        if dist.get_rank() == 0:
            dist.group.WORLD.recv_anysource([x], 0).is_completed()
        else:
            dist.send(x, 0)

    with pytest.raises((DistributedError, RankError), match="AHBM-X133"):
        recorded(tmp_path, worker)


def test_a_failed_job_leaves_no_trace(tmp_path: Path) -> None:
    def worker() -> None:
        raise ValueError("no luck")

    with pytest.raises(RankError, match="no luck"):
        recorded(tmp_path, worker)
    assert list(tmp_path.iterdir()) == []


def test_a_script_keeps_its_backend(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "kept = torch.ones(4)\n"  # see jobs.end
        "dist.all_reduce(kept)\n"
        "sys.stdout.write(f'{dist.get_backend()} {sys.argv[1:]}\\n')\n"
        "dist.destroy_process_group()\n"
        "sys.exit(0)\n"
    )
    prefix = str(tmp_path / "traces" / "job")
    done = torchrun(Path("--record"), 2, prefix, str(script), "--steps", module="ahbm.torch")
    assert done.returncode == 0, done.stderr
    assert "gloo ['--steps']" in done.stdout
    assert read_plan(prefix).ranks == 2


@pytest.mark.parametrize(("call", "agrees"), [("all_reduce", True), ("all_gather", True), ("broadcast", False)])
def test_a_replay_takes_the_time_of_the_run_where_all_ranks_end_together(
    call: str, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AHBM_REPORT", str(tmp_path / "report"))
    calls: dict[str, Callable[[torch.Tensor], object]] = {
        "all_reduce": dist.all_reduce,
        "all_gather": lambda x: dist.all_gather_into_tensor(torch.empty(4 * x.numel()), x),
        "broadcast": lambda x: dist.broadcast(x, 0),
    }

    def worker() -> None:
        recorder = ahbm.torch.record(tmp_path / "job", compute="none")
        dist.init_process_group("ahbm")
        with recorder:
            for _ in range(4):
                calls[call](torch.ones(10000))
        dist.destroy_process_group()

    ahbm.torch.spawn(worker, world_size=4)
    live = json.loads((tmp_path / "report" / "calls.json").read_text())
    live_ns = max(made["start_ns"] + made["latency_ns"] for made in live)
    replayed_ns = ahbm.open(tmp_path / "job", overrides={"system.sips.count": 4}).run().latency_ns
    assert (replayed_ns == live_ns) if agrees else (replayed_ns < live_ns)
    told = {"all_reduce": f"take {live_ns / 1000:.2f} us live and replayed"}
    told["broadcast"] = f"take {live_ns / 1000:.2f} us live and {replayed_ns / 1000:.2f} us replayed"
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    assert told.get(call, "") in " ".join(page.split())
