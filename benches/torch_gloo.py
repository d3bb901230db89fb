"""What a call to torch takes with this backend, as a ratio to gloo: `python benches/torch_gloo.py [CASE ...]`.

Both backends run in one job, one after the other, so that other work on the computer hits both. A ratio is the median
of those of the pairs; the milliseconds are medians as well. `wall` is that of the slowest rank, `cpu` the processor
time of all ranks. Ranks are processes (`spawn` of torch.multiprocessing) or threads (`ahbm.torch.spawn`). torch's front
end has no gloo among threads: there, gloo's own process groups are called, without it.

`start` is `init_process_group` and the first barrier in processes that have imported torch, each time in fresh ones.
"""

from __future__ import annotations

import functools
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import ahbm.torch

BACKENDS = ("ahbm", "gloo")
ELEMENTS = 1 << 24
PAIRS = 9
STARTS = 5

Sample = tuple[float, float]
"""Wall and processor seconds."""


def cpu_s() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sample(call: Callable[[], object], align: Callable[[], object]) -> Sample:
    """One call that all ranks begin together, of which the processor time is that until all have ended."""
    align()
    cpu, wall = cpu_s(), time.perf_counter()
    call()
    took = time.perf_counter() - wall
    align()
    return took, cpu_s() - cpu


def paired(calls: dict[str, Callable[[], object]], align: Callable[[], object]) -> dict[str, list[Sample]]:
    """Alternating samples of the calls, the first two of each not counted."""
    found: dict[str, list[Sample]] = {name: [] for name in calls}
    for _ in range(PAIRS + 2):
        for name, call in calls.items():
            found[name].append(sample(call, align))
    return {name: samples[2:] for name, samples in found.items()}


def show(title: str, of_ranks: list[dict[str, list[Sample]]], *, threads: bool = False) -> None:
    """Prints a line; threads share their processor time."""
    walls: dict[str, list[float]] = {}
    cpus: dict[str, list[float]] = {}
    for name in BACKENDS:
        calls = list(zip(*(of_rank[name] for of_rank in of_ranks), strict=True))
        walls[name] = [max(wall for wall, _ in call) for call in calls]
        cpus[name] = [max(cpu for _, cpu in call) if threads else sum(cpu for _, cpu in call) for call in calls]
    parts = []
    for what, values in (("wall", walls), ("cpu", cpus)):
        ratio = statistics.median(a / g for a, g in zip(values["ahbm"], values["gloo"], strict=True))
        ours, gloos = (1000 * statistics.median(values[name]) for name in BACKENDS)
        parts.append(f"{what} {ratio:5.2f} times gloo's ({ours:.1f} ms, {gloos:.1f} ms)")
    print(f"{title:36s} {', '.join(parts)}", flush=True)


def all_reduce(groups: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """64 MiB of f32."""
    x = torch.ones(ELEMENTS)
    return {name: functools.partial(dist.all_reduce, x, dist.ReduceOp.MAX, group) for name, group in groups.items()}


def ddp_step(groups: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Forward, backward and update of a small transformer: 4 layers of 256, 3.2 M parameters, 4 sequences of 16."""
    torch.manual_seed(0)
    calls: dict[str, Callable[[], object]] = {}
    for name, group in groups.items():
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        net = DistributedDataParallel(
            torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), process_group=group
        )
        calls[name] = functools.partial(step, net, torch.optim.SGD(net.parameters(), 1e-3), torch.randn(4, 16, 256))
    return calls


def step(net: Any, update: Any, x: torch.Tensor) -> None:
    """One step of training."""
    update.zero_grad()
    net(x).square().mean().backward()
    update.step()


CASES = {"all_reduce": all_reduce, "ddp": ddp_step}


def of_process(rank: int, size: int, case: str, port: int, answers: Any) -> None:
    """One rank of a job of processes."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    groups = {"ahbm": dist.new_group(backend="ahbm"), "gloo": dist.group.WORLD}
    found = paired(CASES[case](groups), functools.partial(dist.barrier, dist.group.WORLD))
    answers.put((rank, found))
    dist.barrier(dist.group.WORLD)
    dist.destroy_process_group()


def processes(case: str, size: int) -> None:
    """A line for ranks that are processes."""
    answers = mp.get_context("spawn").SimpleQueue()
    job = mp.spawn(of_process, (size, case, free_port(), answers), size, join=False)
    found = dict(answers.get() for _ in range(size))
    while not job.join():
        pass
    show(f"{case}, {size} processes", [found[rank] for rank in range(size)])


def threads(size: int) -> None:
    """A line for ranks that are threads."""
    store, meeting = dist.HashStore(), threading.Barrier(size)

    def of_thread(rank: int) -> dict[str, list[Sample]]:
        dist.init_process_group("ahbm")
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timedelta(seconds=60))
        x = torch.ones(ELEMENTS)
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MAX
        calls: dict[str, Callable[[], object]] = {
            "ahbm": functools.partial(dist.all_reduce, x, dist.ReduceOp.MAX),
            "gloo": lambda: gloo.allreduce([x], opts).wait(),
        }
        return paired(calls, meeting.wait)

    found = ahbm.torch.spawn(of_thread, world_size=size, turns=False)
    show(f"all_reduce, {size} threads", found, threads=True)


def of_start(rank: int, size: int, backend: str, folder: str, port: int, answers: Any) -> None:
    """One rank of a job that starts."""
    here, all_here = Path(folder), [Path(folder, str(other)) for other in range(size)]
    (here / str(rank)).touch()
    while not all(path.exists() for path in all_here):
        time.sleep(1e-3)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    cpu, wall = cpu_s(), time.perf_counter()
    dist.init_process_group(backend)
    dist.barrier()
    answers.put((rank, (time.perf_counter() - wall, cpu_s() - cpu)))
    dist.destroy_process_group()


def start(size: int) -> None:
    """A line for what a job waits for before its first step."""
    found: list[dict[str, list[Sample]]] = [{name: [] for name in BACKENDS} for _ in range(size)]
    for _ in range(STARTS):
        for name in BACKENDS:
            answers = mp.get_context("spawn").SimpleQueue()
            with tempfile.TemporaryDirectory() as folder:
                job = mp.spawn(of_start, (size, name, folder, free_port(), answers), size, join=False)
                for rank, took in (answers.get() for _ in range(size)):
                    found[rank][name].append(took)
                while not job.join():
                    pass
    show(f"start, {size} processes", found)


def free_port() -> int:
    """A port of this host at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main(asked: list[str]) -> None:
    lines: dict[str, Callable[[int], None]] = {
        "all_reduce": functools.partial(processes, "all_reduce"),
        "threads": threads,
        "ddp": functools.partial(processes, "ddp"),
        "start": start,
    }
    for name in asked or lines:
        for size in (2, 4):
            os.environ["AHBM_TOPOLOGY"] = f"default, system.sips.count={size}"
            lines[name](size)


if __name__ == "__main__":
    main(sys.argv[1:])
