"""A training script in the manner of accelerate's examples: accumulation, clipping, metrics, state."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
    set_seed(0)
    inputs = torch.randn(64, 16)
    data = DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
    assert accelerator.device.type == "cuda" and next(model.parameters()).is_cuda
    for _ in range(2):
        for source, target in data:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(source), target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        gathered = accelerator.gather_for_metrics(loss.detach().reshape(1))
        if accelerator.is_main_process:
            print(f"loss {gathered.float().mean().item():.17g}")
    with tempfile.TemporaryDirectory() as folder:
        if accelerator.is_main_process:
            accelerator.save(accelerator.unwrap_model(model).state_dict(), f"{folder}/model.pt")
            torch.load(f"{folder}/model.pt")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
