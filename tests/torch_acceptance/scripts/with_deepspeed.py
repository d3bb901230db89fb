"""A training script in the manner of DeepSpeed's examples: an engine with ZeRO-1."""

import os

import deepspeed
import torch
from torch import nn


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(dist_backend="nccl")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": False},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(4):
        torch.manual_seed(2 * step + engine.global_rank)
        source = torch.randn(8, 16, device=engine.device)
        loss = nn.functional.cross_entropy(engine(source), (source.sum(1) > 0).long())
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0:
            print(f"loss {loss.item():.17g}")


if __name__ == "__main__":
    main()
