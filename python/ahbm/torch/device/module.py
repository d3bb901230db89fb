"""`torch.cuda` and `torch.accelerator` of devices that are not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from ahbm.torch import places
from ahbm.torch.device import marks, memory, streams
from ahbm.torch.device.machine import machine
from ahbm.torch.device.meter import meter
from ahbm.torch.device.smi import CAPABILITY, called, memory_of

_count = 1


def count() -> int:
    """The devices of this host."""
    return _count


def number(device: Any = None) -> int:
    """The number of a device, which must be there. Raises RuntimeError as torch does."""
    index = marks.index_of(device) if device is not None else marks.current()
    if isinstance(device, str | torch.device) and torch.device(device).type == "cpu":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    if index is None:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    if not 0 <= index < _count:
        raise torch.AcceleratorError(f"CUDA error: invalid device ordinal: {device}, and there are {_count}")
    return index


def set_device(device: Any) -> None:
    """Makes a device the current one."""
    if not (type(device) is int and device < 0):
        marks.set_current(number(device))


def _exchange(index: int) -> int:
    before = marks.current()
    if index >= 0:
        set_device(index)
    return before


class device:
    """`with torch.cuda.device(1)`."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else number(device)

    def __enter__(self) -> None:
        self.prev_idx = _exchange(self.idx)

    def __exit__(self, *_: object) -> None:
        _exchange(self.prev_idx)


class device_of(device):
    """`with torch.cuda.device_of(tensor)`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(marks.where(obj))


def properties(device: Any = None) -> Any:
    """The properties that the machine has; those that it does not model are those of a usual device."""
    number(device)
    compute = machine().compute
    return SimpleNamespace(
        name=name(),
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=capacity(),
        multi_processor_count=meter.units if compute else machine().cubes * machine().pes,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=round(compute.values["l2_mib"] * 2**20) if compute else 1 << 25,
        warp_size=32,
        gcnArchName="",
        uuid=f"ahbm-{marks.current()}",
    )


def name(device: Any = None) -> str:
    """What the device is called."""
    return called(machine())


def capacity() -> int:
    """Bytes of a device's memory."""
    return memory_of(machine())


def synchronize(device: Any = None) -> None:
    """The host waits for all streams, collectives included."""
    streams.synchronized()
    places.synchronize()
    meter.host_waits(meter.tail(-1))


class Range:
    """Marks in profiles: nobody reads them."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        """Takes what torch takes."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        """As a decorator: the function itself."""
        return function


@contextlib.contextmanager
def _range(*args: Any, **kw: Any) -> Iterator[None]:
    yield


def _nothing(*args: Any, **kw: Any) -> None:
    """Nothing to do."""


def _held(device: Any = None) -> memory.Memory:
    return memory.of(number(device))


def _types() -> set[torch.dtype]:
    found = (getattr(torch, name) for name in dir(torch))
    return {each for each in found if isinstance(each, torch.dtype) and not str(each).startswith("torch.q")}


def _state(device: Any = None) -> torch.Tensor:
    return torch.default_generator.get_state()


def _set_state(new_state: torch.Tensor, device: Any = None) -> None:
    torch.default_generator.set_state(new_state)


def install(devices: int) -> None:
    """Puts all this in torch's place."""
    global _count
    _count = devices
    memory.stream[0] = lambda: streams.current().stream_id
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "Stream": streams.Stream,
        "ExternalStream": streams.ExternalStream,
        "Event": streams.Event,
        "StreamContext": streams.StreamContext,
        "stream": streams.StreamContext,
        "current_stream": streams.current,
        "default_stream": streams.of_device,
        "set_stream": streams.use,
        "synchronize": synchronize,
        "is_available": lambda: True,
        "is_initialized": marks.used,
        "_is_compiled": lambda: True,
        "_lazy_init": _nothing,
        "init": _nothing,
        "_lazy_call": lambda function, **kw: None,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "device_count": count,
        "current_device": marks.current,
        "set_device": set_device,
        "device": device,
        "device_of": device_of,
        "_exchange_device": _exchange,
        "_maybe_exchange_device": _exchange,
        "get_device_name": name,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_properties": properties,
        "can_device_access_peer": lambda device, peer_device: True,
        "get_arch_list": lambda: [f"sm_{CAPABILITY[0]}{CAPABILITY[1]}"],
        "get_gencode_flags": lambda: "",
        "utilization": lambda device=None: 0,
        "temperature": lambda device=None: 0,
        "power_draw": lambda device=None: 0,
        "clock_rate": lambda device=None: 0,
        "memory_usage": lambda device=None: 0,
        "ipc_collect": _nothing,
        "_sleep": _nothing,
        "set_sync_debug_mode": _nothing,
        "get_sync_debug_mode": lambda: 0,
    }
    of_memory = memory.functions(_held)
    of_chance: dict[str, Any] = {
        # One generator for the host and the device: a script draws what it draws on CPU.
        "get_rng_state": _state,
        "set_rng_state": _set_state,
        "get_rng_state_all": lambda: [_state()] * _count,
        "set_rng_state_all": lambda new_states: _set_state(next(iter(new_states))),
        "manual_seed": _nothing,
        "manual_seed_all": _nothing,
        "seed": _nothing,
        "seed_all": _nothing,
        "initial_seed": lambda: torch.default_generator.initial_seed(),
    }
    _put(cuda, answers | of_memory | of_chance)
    _put(cuda.memory, of_memory)
    _put(cuda.random, of_chance)
    _put(cuda.streams, {"Stream": streams.Stream, "Event": streams.Event, "ExternalStream": streams.ExternalStream})
    cuda.default_generators = (torch.default_generator,) * devices
    _put(cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), _nothing))
    cuda.nvtx.range = _range
    _put(cuda.profiler, {"start": _nothing, "stop": _nothing})
    cuda.cudart = lambda: SimpleNamespace(cudaProfilerStart=_nothing, cudaProfilerStop=_nothing)
    cuda.nccl.version = lambda: (2, 27, 5)
    accelerators: dict[str, Any] = {
        "_accelerator_getAccelerator": lambda: torch.device(marks.KIND),
        "_get_accelerator": lambda check=None: torch.device(marks.KIND),
        "_accelerator_getDeviceIndex": marks.current,
        "_accelerator_setDeviceIndex": set_device,
        "_accelerator_exchangeDevice": _exchange,
        "_accelerator_maybeExchangeDevice": _exchange,
        "_accelerator_getStream": streams.current,
        "_accelerator_setStream": streams.use,
        "_accelerator_synchronizeDevice": synchronize,
        "_accelerator_getDeviceStats": of_memory["memory_stats"],
        "_accelerator_getMemoryInfo": of_memory["mem_get_info"],
        "_accelerator_resetAccumulatedStats": of_memory["reset_accumulated_memory_stats"],
        "_accelerator_resetPeakStats": of_memory["reset_peak_memory_stats"],
        "_accelerator_emptyCache": of_memory["empty_cache"],
        "_accelerator_emptyHostCache": _nothing,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceCapability": lambda device_index=None: {"supported_dtypes": _types()},
        "_accelerator_getDefaultGenerator": lambda device: torch.default_generator,
        "_cuda_getDeviceCount": count,
        "_cuda_getDevice": marks.current,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": _exchange,
        "_cuda_maybeExchangeDevice": _exchange,
        "_cuda_synchronize": synchronize,
    }
    _put(torch._C, accelerators)
    _put(torch.accelerator, {key: of_memory[key] for key in vars(torch.accelerator) if key in of_memory})
    torch.accelerator.memory_stats = of_memory["memory_stats"]
    torch.accelerator.get_memory_info = of_memory["mem_get_info"]
    torch.Stream = streams.Stream
    torch.Event = streams.Event
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"


def _put(module: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        setattr(module, key, value if isinstance(value, type) else _own(value))


def _own(function: Any) -> Any:
    """A function for one name alone: TorchDynamo has a table by function, and wants one entry of each."""
    return lambda *args, **kw: function(*args, **kw)
