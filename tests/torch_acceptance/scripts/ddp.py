"""In the style of PyTorch's examples, distributed/ddp: DistributedDataParallel by number of the device."""

import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(self.relu(self.net1(x)))


def main() -> None:
    if torch.cuda.device_count() < 2:
        print("Unable to locate sufficient 2 gpus to run this example. Exiting.")
        return
    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    assert torch.cuda.current_device() == local_rank
    print(f"rank {rank} of {dist.get_world_size()}, backend {dist.get_backend()}")
    torch.manual_seed(0)
    model = ToyModel().cuda(local_rank)
    ddp_model = DDP(model, device_ids=[local_rank])
    loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        labels = torch.randn(20, 5).to(local_rank)
        assert outputs.is_cuda and outputs.device == labels.device
        loss = loss_fn(outputs, labels)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"loss {loss.item():.17g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
