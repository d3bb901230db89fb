"""In the style of PyTorch's examples, distributed/FSDP2: meta device, mixed precision, prefetching, checkpoint."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from tiny_llama import Transformer
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor


def main(args: argparse.Namespace) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    if not torch.accelerator.is_available() or torch.accelerator.device_count() < 2:
        print("Unable to locate sufficient 2 gpus to run this example. Exiting.")
        return
    device_type = torch.accelerator.current_accelerator()
    device = torch.device(f"{device_type}:{rank}")
    torch.accelerator.device_index(rank)
    backend = dist.get_default_backend_for_device(device)
    dist.init_process_group(backend=backend, device_id=device)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Transformer(n_layers=4)
    kwargs = {}
    if args.mixed_precision:
        kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    if args.explicit_prefetching:
        for layer, following in zip(model.layers[:-1], model.layers[1:], strict=True):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])
    model.to_empty(device=device)
    model.reset_parameters()
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        if args.explicit_prefetching:
            model.unshard()
        x = torch.randint(0, 256, (4, 32), device=device)
        loss = model(x).float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
        if rank == 0:
            print(f"loss {loss.item():.17g}")
    full = {name: param.full_tensor().cpu() for name, param in model.state_dict().items()}
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(full, f"{folder}/model.pt")
            full = torch.load(f"{folder}/model.pt", mmap=True, weights_only=True, map_location="cpu")
    for name, param in model.state_dict().items():
        again = distribute_tensor(full[name], param.device_mesh, param.placements)
        assert again.device == param.device and torch.equal(again.to_local(), param.to_local())
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--explicit-prefetching", action="store_true")
    parser.add_argument("--mixed-precision", action="store_true")
    main(parser.parse_args())
