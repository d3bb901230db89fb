"""What a training step takes, 4 models on 6 machines: `python benches/roofline.py [FOLDER]`, needs the extra `torch`.

Every model is recorded once, on devices that are not there, and the recording replayed on every machine. A SIP of the
first machine computes as an A100 of 80 GB does. The recordings are kept in FOLDER, and found there the next time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ahbm
from ahbm.base.words import aligned
from ahbm.config.topology import load_machine

SCRIPTS = Path(__file__).parent.parent / "tests" / "torch_acceptance" / "scripts"
MODELS = {"wide MLP, bf16": 1, "convolutions, DDP": 2, "small Llama, DDP": 2, "small Llama, FSDP2": 4}
"""The number of ranks by model."""
BASE = "npu_ring_8"
PEAK_TFLOPS, MEMORY_GBS = 312.0, 2039.0
"""Of an A100 of 80 GB, by its data sheet."""


def train(model: str) -> None:
    """Three steps of a model, as a script for GPUs has them."""
    sys.path.append(str(SCRIPTS))
    import torch
    import torch.distributed as dist
    from tiny_llama import Transformer
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    net: nn.Module
    if model.startswith("wide"):
        net = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(2))).to(rank, torch.bfloat16)
        given = torch.ones(2048, 2048, device=rank, dtype=torch.bfloat16)
    elif model.startswith("conv"):
        layers = [nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 64), (64, 64), (64, 64))]
        net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 32 * 32, 100)).to(rank)
        given = torch.ones(4, 3, 32, 32, device=rank)
    else:
        net = Transformer(dim=128, n_layers=2).to(rank)
        given = torch.ones(4, 64, device=rank, dtype=torch.int64)
    if "FSDP2" in model:
        for layer in net.layers:
            fully_shard(layer)
        fully_shard(net)
    elif "DDP" in model:
        net = DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(given).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def record(model: str, folder: Path) -> str:
    """The recording of a model, made unless `folder` has it."""
    target = folder / model.replace(" ", "_").replace(",", "")
    if not (target / "step.0.et").exists():
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={MODELS[model]}"]
        command += ["-m", "ahbm.torch", "--device", "cuda", __file__, model]
        env = os.environ | {"AHBM_REPORT": str(target), "AHBM_PAGE": "0", "OMP_NUM_THREADS": "1"}
        env["AHBM_TOPOLOGY"] = f"default, system.sips.count={max(2, MODELS[model])}"
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            raise SystemExit(done.stderr)
    return str(target / "step")


def changed(peak: float = 1, memory: float = 1, links: float = 1) -> Mapping[str, Any]:
    """The first machine with so many times the peak, and the bandwidth of its memory and between its devices."""
    machine = load_machine(BASE)
    pes = machine.cubes * machine.pes
    link = float(dict(machine.parameters)["system.sips.link.bandwidth_gbs"].removesuffix("GB/s"))
    return {
        "pe.roofline.peak_tflops": peak * PEAK_TFLOPS / pes,
        "pe.roofline.memory_gbs": memory * MEMORY_GBS / pes,
        "system.sips.link.bandwidth_gbs": links * link,
    }


def machines() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The machines by name."""
    return {
        "ring of 8": (BASE, changed()),
        "2x peak": (BASE, changed(peak=2)),
        "2x memory": (BASE, changed(memory=2)),
        "2x links": (BASE, changed(links=2)),
        "fully connected": ("npu_fully_connected_8", changed()),
        "switch": ("npu_switch_8", changed()),
    }


def step_ps(job: str, topology: str, overrides: Mapping[str, Any]) -> int:
    """Picoseconds that both recorded steps take together."""
    return round(1000 * ahbm.open(job, topology=topology, overrides=overrides).run().latency_ns)


def table(folder: Path) -> list[tuple[str, ...]]:
    """A row per model: microseconds of a step on every machine."""
    rows = [("model", "ranks", *machines())]
    for model, ranks in MODELS.items():
        job = record(model, folder)
        rows.append((model, f"{ranks}", *(f"{step_ps(job, *at) / 2e6:.2f}" for at in machines().values())))
    return rows


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in MODELS:
        train(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as made:
        print("\n".join(aligned(table(Path(sys.argv[1] if len(sys.argv) > 1 else made)))))


if __name__ == "__main__":
    main()
