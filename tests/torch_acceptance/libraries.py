"""Libraries on top of torch.distributed, on backend "ahbm" and on gloo, by what they compute.

    python tests/torch_acceptance/libraries.py             # what torch itself brings; the gate runs these
    pip install lightning accelerate && python tests/torch_acceptance/libraries.py lightning accelerate

Two processes, forked, for all that share a process group, two of torchrun's for each other job. Prints one row per
job, and fails where the backends differ in a bit or a job fails on both. Every rank ends without finalising its
interpreter, which gloo's threads may abort.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent), str(HERE.parent / "torch_backend")]

import jobs
import sharding

RANKS = 2
MARK = "job "
Job = Callable[[str], list[float]]


def dtensor(_: str) -> list[float]:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (RANKS,))
    x = distribute_tensor(torch.arange(24.0).reshape(4, 6), mesh, [Shard(0)])
    whole = (x @ x.redistribute(mesh, [Shard(1)]).t()).redistribute(mesh, [Replicate()]).to_local()
    scattered = x.redistribute(mesh, [Shard(1)]).to_local()
    summed = x.sum(dim=0)
    assert isinstance(summed.placements[0], Partial)
    return [*whole.flatten().tolist(), *scattered.flatten().tolist(), *summed.full_tensor().tolist()]


def checkpoint(_: str) -> list[float]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    fully_shard(net)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    dcp.save({"net": net.state_dict()}, checkpoint_id=folder[0])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    state = {"net": net.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    net.load_state_dict(state["net"])
    return [p.full_tensor().sum().item() for p in net.parameters()]  # type: ignore[attr-defined]


def lightning(backend: str) -> list[float]:
    import lightning as pl
    from lightning.pytorch.strategies import DDPStrategy

    losses: list[float] = []

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 1)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = (self.net(batch) ** 2).mean()
            losses.append(self.all_gather(loss.detach()).mean().item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    pl.seed_everything(0, verbose=False)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
    strategy = DDPStrategy(process_group_backend=backend)
    trainer = pl.Trainer(accelerator="cpu", devices=RANKS, strategy=strategy, max_epochs=2, **quiet)
    trainer.fit(Model(), data)
    return losses


def accelerate(backend: str) -> list[float]:
    from accelerate import Accelerator

    if backend == "ahbm":
        from ahbm.torch.__main__ import interpose

        interpose()  # as `-m ahbm.torch` does: accelerate refuses other backends than gloo on the CPU
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    net = nn.Linear(8, 1)
    step = torch.optim.SGD(net.parameters(), 0.1)
    data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
    net, step, data = accelerator.prepare(net, step, data)
    losses: list[float] = []
    for batch in data:
        loss = (net(batch) ** 2).mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        step.step()
        step.zero_grad()
        losses.append(accelerator.gather_for_metrics(loss.detach()[None]).mean().item())
    assert dist.get_backend() == backend
    return losses


TOGETHER: dict[str, Job] = {
    **{job.__name__: job for job in (dtensor, checkpoint)},
    **{name: lambda _, job=job: job() for name, job in sharding.JOBS.items()},
}
"""Jobs that take the default group as it is."""
APART: dict[str, Job] = {job.__name__: job for job in (lightning, accelerate)}
"""Jobs of libraries that make their own."""


def run(names: Sequence[str], backend: str) -> dict[str, str]:
    """The numbers of each job on that backend, as text; the last line of the error for those that did not end."""
    command, env = [__file__, "--job", backend, *names], {**os.environ, "OMP_NUM_THREADS": "1"}
    if names[0] in APART:
        done = jobs.by_torchrun(command, RANKS, env)
    else:
        done = jobs.forked(command, [env | place for place in jobs.places(RANKS)], HERE)
    lines = [line.removeprefix(MARK).partition(" ") for line in done.stdout.splitlines() if line.startswith(MARK)]
    errors = done.stderr.splitlines() or [f"exit code {done.returncode}"]
    failed = "failed: " + ([line for line in errors if line.startswith("[rank")] or errors)[-1]
    return {**dict.fromkeys(names, failed), **{name: numbers for name, _, numbers in lines}}


def rank(backend: str, *names: str) -> None:
    """One rank of some jobs."""
    if names[0] in TOGETHER:
        dist.init_process_group(backend)
    for name in names:
        numbers = {**TOGETHER, **APART}[name](backend)
        if dist.get_rank() == 0:
            print(f"{MARK}{name} {json.dumps(numbers)}", flush=True)
    dist.barrier()
    if backend == "ahbm":
        dist.destroy_process_group()
    jobs.end()


def main() -> int:
    asked, different = sys.argv[1:] or list(TOGETHER), 0
    for names in ([name for name in asked if name in TOGETHER], *([name] for name in asked if name not in TOGETHER)):
        if not names:
            continue
        theirs, ours = run(names, "gloo"), run(names, "ahbm")
        for name in names:
            same = theirs[name] == ours[name] and not ours[name].startswith("failed")
            different += not same
            told = ("ran", "equal") if same else (theirs[name], ours[name])
            print(f"| {name} | {' | '.join(told)} |", flush=True)
    return different and 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        rank(*sys.argv[2:])
    sys.exit(main())
