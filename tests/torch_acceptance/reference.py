"""Runs a script for GPUs on CPU and gloo, without AHBM: `torchrun ... reference.py script.py [arguments]`.

The text of the script says cuda and nccl; here it says cpu and gloo, and numbers of devices are the host.
"""

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.optim.adamw
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _foreach_utils


def stand_in() -> None:
    """Lets calls that name a GPU stay where they are."""
    tensor, module = torch.Tensor, torch.nn.Module
    to, move = tensor.to, module.to

    def host(value: Any) -> Any:
        return (
            "cpu"
            if type(value) is int
            else torch.device("cpu")
            if isinstance(value, torch.device) and value.type == "cpu"
            else value
        )

    tensor.to = lambda x, *args, **kw: to(x, *map(host, args), **kw)
    module.to = lambda m, *args, **kw: move(m, *map(host, args), **kw)
    # The text's `.cuda(0)` and `.is_cuda` are these by now.
    tensor.cpu = lambda x, *args, **kw: x
    tensor.pin_memory = lambda x, *args, **kw: x
    module.cpu = lambda m, *args, **kw: m
    wraps = DistributedDataParallel.__init__

    def ddp(self: Any, module: Any, device_ids: Any = None, *args: Any, **kw: Any) -> None:
        kw.pop("output_device", None)
        wraps(self, module, None, *args, **kw)

    DistributedDataParallel.__init__ = ddp
    number: list[Any] = ["cpu"]
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nothing = lambda *args, **kw: None  # noqa: E731
    accelerator = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: count,
        current_accelerator=lambda check_available=False: torch.device("cpu"),
        device_index=nothing,
        set_device_index=nothing,
        current_device_index=lambda: 0,
        synchronize=nothing,
        current_stream=lambda device=None: SimpleNamespace(is_capturing=lambda: False),
    )
    torch.accelerator = accelerator
    torch._C._get_accelerator = lambda check=None: torch.device("cpu")
    methods = {"__init__": nothing, "record": nothing, "synchronize": nothing, "elapsed_time": lambda self, other: 0.0}
    event = type("Event", (), methods)
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "set_device": lambda device: number.__setitem__(
            0, torch.device(device).index if not isinstance(device, int) else device
        ),
        "current_device": lambda: number[0],
        "synchronize": nothing,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "is_bf16_supported": lambda: True,
        "max_memory_allocated": lambda *args: 0,
        "memory_allocated": lambda *args: 0,
        "reset_peak_memory_stats": nothing,
        "empty_cache": nothing,
        "Event": event,
    }.items():
        setattr(torch.cpu, name, value)
    # Optimizers take many tensors at once, as on a GPU: another order of the same sums.
    supported = [*_foreach_utils._get_foreach_kernels_supported_devices(), "cpu"]
    for name, found in list(sys.modules.items()):
        if name.startswith("torch") and "_get_foreach_kernels_supported_devices" in vars(found):
            found._get_foreach_kernels_supported_devices = lambda: supported
    makes = dist.init_process_group

    def init(*args: Any, **kw: Any) -> None:
        kw.pop("device_id", None)
        makes(*args, **kw)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init


def main() -> None:
    """Runs it; in a process that the script has spawned, once more."""
    script = Path(os.environ.get("REFERENCE_SCRIPT") or sys.argv[1])
    os.environ["REFERENCE_SCRIPT"] = str(script)
    if __name__ == "__main__":
        sys.argv = sys.argv[1:]
    sys.path.insert(0, str(script.parent))
    stand_in()
    text = script.read_text().replace("cuda", "cpu").replace('"nccl"', '"gloo"')
    text = text.replace("backends.cpu.matmul", "backends.cuda.matmul")
    text = re.sub(r'map_location=f"cpu:[^"]*"', 'map_location="cpu"', text)
    text = text.replace("pin_memory=True", "pin_memory=False").replace("Accelerator(", "Accelerator(cpu=True, ")
    text = text.replace('accelerator="gpu"', 'accelerator="cpu"').replace(
        "FSDP(", "FSDP(device_id=torch.device('cpu'), module="
    )
    exec(compile(text, str(script), "exec"), globals())


if __name__ in ("__main__", "__mp_main__"):
    main()
