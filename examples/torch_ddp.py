"""The real torch.distributed on the emulator: DistributedDataParallel trains, and every rank has the same weights."""

import sys

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ahbm.torch
except ImportError:
    sys.exit("this example needs torch: pip install 'ahbm[torch]'")


def worker(rank: int) -> tuple[float, float]:
    dist.init_process_group("ahbm")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = model(torch.randn(32, 256)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item(), model.module.weight.sum().item()


if __name__ == "__main__":
    results = ahbm.torch.spawn(worker, world_size=4)
    assert len({weight for _, weight in results}) == 1, "every rank has the same weights"
    print(f"{len(results)} ranks agree on their weights after a step")
