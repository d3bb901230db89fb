"""An accelerator that is not there: `python -m ahbm.torch --device cuda script.py`.

Scripts find `torch.cuda` and `torch.accelerator`, and tensors that say that they are on a GPU. All tensors lie in host
memory, and C++ knows them as such, so that DistributedDataParallel, autograd and whatever else is C++ run as on CPU.
`marks` is where a tensor says that it is, `moving` the calls that name a device, `module` the namespaces, `streams` the
order of what a device does, `kernels` what it is given to do, `meter` how long that takes, and `rest` the rest.
What torch's C++ or a library chooses by the real device is in `routed`, `typed`, `parallel`, `graphs`, `pools`, `nvml`
and `compiled`; what is one operation there and many on the host, in `fused`; kernels that the host has not, in
`precision` and `gpu_only`; `native` refuses what needs a driver. Which kernels an operation is, `described` asks of
`ahbm.kernels`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from ahbm.base.logs import notice


def install(devices: int, asked: dict[Any, str]) -> Any:
    """Gives this process so many devices; `asked` has the backends that it has asked for. Returns the mode that sees
    kernels, for the calling thread."""
    from ahbm.torch import backend, cuda, place
    from ahbm.torch.device import (
        answer,
        checks,
        compiled,
        files,
        fused,
        graphs,
        higher,
        kernels,
        marks,
        meter,
        module,
        moving,
        native,
        nvml,
        parallel,
        pools,
        rest,
        routed,
        scratch,
        typed,
        world,
    )

    more = "; --device cuda:8 gives eight" if devices == 1 and "LOCAL_WORLD_SIZE" not in os.environ else ""
    notice(
        f"{devices} cuda device{'s' * (devices != 1)} that {'is' if devices == 1 else 'are'} not there: tensors are in "
        f"host memory, times are simulated{more}"
    )
    world.refuse_hosts()
    world.environment(devices)
    backend.DEVICES.append("cuda")
    place.devices[0] = True
    marks.install()
    moving.install()
    module.install(devices)

    fake = world.fake_mode()

    def enter() -> Any:
        stack = ExitStack()
        stack.enter_context(kernels.Kernels(meter.meter, fake))
        return stack

    rest.install(enter)
    typed.install()
    pools.install()
    parallel.install()
    graphs.install()
    compiled.install()
    nvml.install()
    routed.install()
    fused.install()
    scratch.install()
    higher.install()
    if fake is not None:
        files.install_storages()
    checks.install()
    cuda.answer_as_asked(asked)
    backend.OWN_MODES[0] = 1
    answer.install()
    native.install()
    return enter()
