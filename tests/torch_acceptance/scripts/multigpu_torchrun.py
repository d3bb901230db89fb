"""In the style of PyTorch's examples, ddp-tutorial-series: a trainer with snapshots, pinned memory, a sampler."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(
        self, model: torch.nn.Module, data: DataLoader, optimizer: torch.optim.Optimizer, snapshot: str
    ) -> None:
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model, self.data, self.optimizer, self.snapshot = model.to(self.gpu_id), data, optimizer, snapshot
        self.epochs_run = 0
        if os.path.exists(snapshot):
            self.load()
        self.model = DDP(self.model, device_ids=[self.gpu_id])

    def load(self) -> None:
        kept = torch.load(self.snapshot, map_location=f"cuda:{self.gpu_id}")
        self.model.load_state_dict(kept["MODEL_STATE"])
        self.epochs_run = kept["EPOCHS_RUN"]

    def save(self, epoch: int) -> None:
        torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch}, self.snapshot)

    def train(self, epochs: int) -> None:
        for epoch in range(self.epochs_run, epochs):
            self.data.sampler.set_epoch(epoch)
            for source, targets in self.data:
                source, targets = source.to(self.gpu_id), targets.to(self.gpu_id)
                self.optimizer.zero_grad()
                loss = F.mse_loss(self.model(source), targets)
                loss.backward()
                self.optimizer.step()
            if self.gpu_id == 0:
                print(f"loss {loss.item():.17g}")
                self.save(epoch)


def main(epochs: int) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group(backend="nccl")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.rand(256, 20), torch.rand(256, 1))
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = DataLoader(dataset, batch_size=32, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset))
    with tempfile.TemporaryDirectory() as folder:
        for upto in (1, epochs):
            Trainer(model, data, optimizer, f"{folder}/snapshot.pt").train(upto)
    destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
