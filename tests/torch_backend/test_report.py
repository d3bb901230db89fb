"""What a job leaves behind, and scripts for other backends."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import python, torchrun

import ahbm.torch
from ahbm._core import write_job_timeline
from ahbm.errors import ConfigError
from ahbm.torch import report
from ahbm.torch.compute import CLOCKS

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


def worker() -> None:
    dist.init_process_group("ahbm")
    x = torch.ones(256)
    dist.all_reduce(x)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        (x @ x).item()
    dist.broadcast(x, 1)
    dist.destroy_process_group()


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AHBM_REPORT", str(tmp_path))
    ahbm.torch.spawn(worker, world_size=4, overrides=SMALL)
    table = (tmp_path / "report.txt").read_text()
    assert table.strip() in capsys.readouterr().err
    rows = {line.split()[0]: line.split() for line in table.splitlines()[2:]}
    assert rows["all_reduce"][1:4] == ["4", "2", "2048"]
    assert rows["broadcast"][1:4] == ["4", "1", "1024"]
    assert 0 < float(rows["all_reduce"][6]) <= 100
    found = json.loads((tmp_path / "calls.json").read_text())
    assert [call["collective"] for call in found] == ["all_reduce", "all_reduce", "broadcast"]
    assert found[1]["start_ns"] == found[0]["start_ns"] + found[0]["latency_ns"]
    assert b"rank 3" in (tmp_path / "trace.pftrace").read_bytes()


def test_a_report_tells_protocols_and_what_is_known_of_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AHBM_REPORT", "-")
    ahbm.torch.spawn(worker, world_size=8, topology="p5")
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert [note.partition(",")[0] for note in notes] == [
        "note: protocols: ll of 1 call",
        "note: calibrated: near 2 of 3 calls",
        "note: 1 of 3 calls are outside the calibrated range",
    ]


@pytest.mark.parametrize("turns", [True, False])
def test_a_run_is_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: bool) -> None:
    def busy(rank: int) -> None:
        dist.init_process_group("ahbm")
        group = dist.new_group([0, 2])
        for _ in range(3):
            works = [dist.all_reduce(torch.ones(64), async_op=True)]
            if rank in (0, 2):
                works.append(dist.all_reduce(torch.ones(32), group=group, async_op=True))
            works += [dist.isend(torch.ones(8), (rank + 1) % 3), dist.irecv(torch.ones(8), (rank - 1) % 3)]
            for work in works:
                work.get_future()
                work.wait()
        dist.destroy_process_group()

    for run in ("a", "b"):
        monkeypatch.setenv("AHBM_REPORT", str(tmp_path / run))
        ahbm.torch.spawn(busy, world_size=3, turns=turns, overrides=SMALL)
    one, other = ((tmp_path / run / "calls.json").read_text() for run in ("a", "b"))
    assert one == other and len(json.loads(one)) == 3 * (1 + 1 + 3)


def shown(worker: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The events of the timeline, in Chrome's form, of two ranks."""
    told: list[Any] = []
    monkeypatch.setenv("AHBM_REPORT", str(tmp_path / "report"))
    monkeypatch.setattr(report, "write_job_timeline", lambda path, *rest: told.append(rest))
    ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)
    write_job_timeline(tmp_path / "trace.json", *told[0])
    events: list[dict[str, Any]] = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("clock", ["cpu", "wall", "none"])
def test_computing_takes_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    monkeypatch.setenv("AHBM_COMPUTE", clock)
    events = shown(worker, monkeypatch, tmp_path)
    ranks = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    computed = {ranks[event["pid"]] for event in events if event.get("name") == "compute"}
    assert computed == (set() if clock == "none" else {"rank 0", "rank 1"})
    begun = [event for event in events if event["ph"] == "B" and event["name"].startswith("all_reduce sum f32 1024 B")]
    assert sorted(ranks[event["pid"]] for event in begun) == ["rank 0", "rank 0", "rank 1", "rank 1"]
    assert all(event["args"]["origin"].startswith("test_report.py:") for event in begun)


def test_computing_beside_an_operation_takes_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts 1 us for each of its readings."""
    ticks = itertools.count()
    monkeypatch.setitem(CLOCKS, "wall", lambda: 1_000_000 * next(ticks))
    monkeypatch.setenv("AHBM_COMPUTE", "wall")

    def worker() -> tuple[int, int]:
        dist.init_process_group("ahbm")
        work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
        assert work is not None and dist.group.WORLD is not None
        seat, rank = dist.group.WORLD._place.seat, dist.get_rank()
        work.wait()
        return work.tickets[0].end_ps, seat.world.ranks[rank].clock_ps

    for end_ps, clock_ps in ahbm.torch.spawn(worker, world_size=2, overrides=SMALL):
        assert clock_ps == end_ps > 4_000_000


def test_messages_are_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exchange() -> None:
        dist.init_process_group("ahbm")
        rank = dist.get_rank()
        works = [dist.isend(torch.ones(4), 1 - rank), dist.irecv(torch.ones(4), 1 - rank)]
        for work in works:
            assert work is not None and work.wait()

    events = shown(exchange, monkeypatch, tmp_path)
    ends = sorted((event["ph"], event["id"]) for event in events if event["ph"] in ("s", "f"))
    assert ends == [("f", 1), ("f", 2), ("s", 1), ("s", 2)]


def test_a_script_for_another_backend(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "assert sys.argv[1:] == ['--steps', '3'] and __name__ == '__main__'\n"
        "dist.init_process_group('gloo')\n"
        "group = dist.new_group([0, 1], backend='gloo')\n"
        "x = torch.ones(4)\n"
        "dist.all_reduce(x, group=group)\n"
        "sys.stdout.write(f'{dist.get_backend()} {dist.get_backend(group)} {x.sum().item()}\\n')\n"
        "dist.destroy_process_group()\n"
    )
    done = torchrun(script, 2, "--steps", "3", module="ahbm.torch", AHBM_REPORT="-")
    assert done.returncode == 0, done.stderr
    assert "ahbm ahbm 8.0" in done.stdout
    assert "ahbm: init_process_group('gloo') is redirected to backend 'ahbm'" in done.stderr
    assert "all_reduce" in done.stderr and "% of bound" in done.stderr


def test_a_backend_that_cannot_be_redirected() -> None:
    from ahbm.errors import ConfigError
    from ahbm.torch.__main__ import redirected

    with pytest.raises(ConfigError, match="backend 'mine' cannot be redirected"):
        redirected("mine", "init_process_group", False)
    assert redirected("mine", "init_process_group", True) == "mine"
    assert redirected("cpu:gloo,cuda:nccl", "init_process_group", False) == "ahbm"
    assert redirected(None, "new_group", False) is None
    assert redirected("fake", "new_group", False) == "fake"
    with pytest.raises(ConfigError, match="backend 'fake' cannot be redirected"):
        redirected("fake", "init_process_group", False)


def test_time_estimates() -> None:
    def estimate() -> tuple[float, float]:
        dist.init_process_group("ahbm")
        x = torch.ones(256)
        with dist.distributed_c10d._time_estimator() as estimated:
            dist.all_reduce(x)
        assert torch.equal(x, torch.ones(256))
        dist.all_reduce(x)
        dist.barrier()
        return estimated.estimated_time

    us = ahbm.torch.spawn(estimate, world_size=4, overrides=SMALL)
    measured = ahbm.run("all_reduce", bytes_per_rank=1024, dtype="f32", overrides={**SMALL, "system.sips.count": 4})
    assert us == [measured.latency_ns / 1000] * 4


def test_calls_are_events_of_the_profiler() -> None:
    def profiled() -> list[str]:
        dist.init_process_group("ahbm")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3))
            dist.barrier()
        return [event.key for event in profile.key_averages()]

    assert all({"ahbm:allreduce", "ahbm:barrier"} <= set(keys) for keys in ahbm.torch.spawn(profiled, world_size=1))


SEARCHES = {
    "counts": "if torch.cuda.device_count() < 2: sys.exit('needs 2 gpus')",
    "asks the accelerator": "if not torch.accelerator.is_available(): sys.exit(0)",
    "moves a tensor": "torch.ones(1).cuda()",
    "sets the device": "torch.cuda.set_device(0)",
    "moves a tensor after init": "dist.init_process_group('nccl')\ntorch.ones(1).to('cuda')",
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_script_that_ends_for_want_of_a_gpu_is_told_what_to_do(tmp_path: Path, search: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(f"import sys, torch, torch.distributed as dist\n{search}\n")
    done = run_alone(script)
    assert "ended after it looked for a GPU (torch." in done.stderr and "--device cuda" in done.stderr


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_script_that_has_a_cpu_path_is_told_nothing(tmp_path: Path, end: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')\n"
        f"dist.all_reduce(torch.ones(1))\ndist.destroy_process_group()\n{end}\n"
    )
    assert "GPU" not in run_alone(script).stderr


def run_alone(script: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script by `-m ahbm.torch`, as the only rank."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    rank = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1"}
    return python("-m", "ahbm.torch", str(script), env={**os.environ, **rank})


def test_a_report_that_cannot_be_written_is_refused_before_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AHBM_REPORT", str(tmp_path / "file" / "folder"))
    done: list[int] = []
    with pytest.raises(ConfigError, match="AHBM-C141") as caught:
        ahbm.torch.spawn(lambda rank: done.append(rank), overrides=SMALL)
    assert not done and "cannot write the report into AHBM_REPORT=" in caught.value.message
    with pytest.raises(ConfigError, match="AHBM-C141"):
        ahbm.torch.init_alone(0, 4)

    def ends_its_folder(rank: int) -> int:
        worker()
        monkeypatch.setenv("AHBM_REPORT", str(tmp_path / "file" / "folder"))
        return rank

    monkeypatch.setenv("AHBM_REPORT", str(tmp_path / "there"))
    assert ahbm.torch.spawn(ends_its_folder, world_size=2, overrides=SMALL) == [0, 1]
    assert "AHBM-C141" in capsys.readouterr().err


def test_the_table_of_the_page_is_that_of_its_job(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    script = tmp_path / "job.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0])
    done = torchrun(script, 4, AHBM_REPORT="-")
    table = page.partition("```text\n")[2].partition("```")[0]
    assert table.startswith("ahbm: 4 ranks") and table in done.stderr, done.stderr
