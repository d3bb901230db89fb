"""What scripts ask of the allocator and the runtime beside figures: pools, blocks by address, histories, `cudart`."""

from __future__ import annotations

import itertools
import types
from typing import Any

import torch

from ahbm.base.logs import notice
from ahbm.torch.device import marks, memory, module, native, streams

_blocks: dict[int, Any] = {}
"""Blocks that a script holds by their address."""
_numbers = itertools.count(1)


class MemPool:
    """A pool: tensors that are made in it are counted as all others are."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False, **kw: Any) -> None:
        if allocator is not None:
            raise native.refusal("torch.cuda.MemPool(allocator=...)", "an allocator of the script's own")
        self.id = (next(_numbers), 0)
        self.allocator = None
        self._users = 1

    def use_count(self) -> int:
        """How many use it."""
        return self._users

    def snapshot(self, include_traces: bool = True) -> list[Any]:
        """None of its segments: see `notice`."""
        return list(_history()["segments"])


def _history(*_: Any) -> dict[str, Any]:
    notice("the allocator's history and segments are not recorded: snapshots of the memory are empty")
    traces: list[list[Any]] = [[] for _ in range(module.count())]
    return {"segments": [], "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _allocate(size: int, stream: Any = None) -> int:
    held = torch.UntypedStorage(max(size, 1), device=f"{marks.KIND}:{marks.current()}")
    address: int = held.data_ptr()
    _blocks[address] = held
    return address


def _release(address: int) -> None:
    _blocks.pop(address, None)


def _nested(device: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in memory.of(module.number(device)).stats().items():
        *rooms, name = path.split(".")
        at = found
        for room in rooms:
            at = at.setdefault(room, {})
        at[name] = value
    return found


class _Runtime(types.SimpleNamespace):
    """`torch.cuda.cudart()`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cuda"):
            raise native.refusal(f"torch.cuda.cudart().{name}")
        raise AttributeError(name)


def install() -> None:
    """Puts all this in torch's place."""
    core: Any = torch._C
    enabled = [True]

    def enable(value: bool = True) -> None:
        enabled[0] = bool(value)

    nothing = _nothing
    core._cuda_cudaCachingAllocator_raw_alloc = _allocate
    core._cuda_cudaCachingAllocator_raw_delete = _release
    core._cuda_cudaCachingAllocator_enable = enable
    core._cuda_cudaCachingAllocator_is_enabled = lambda: enabled[0]
    core._cuda_memorySnapshot = _history
    core._cuda_memoryStats = _nested
    core._cuda_hostMemoryStats = dict
    core._cuda_isHistoryEnabled = lambda: False
    for name in (
        "_cuda_record_memory_history",
        "_cuda_record_memory_history_legacy",
        "_cuda_attach_out_of_memory_observer",
        "_cuda_resetAccumulatedHostMemoryStats",
        "_cuda_resetPeakHostMemoryStats",
        "_cuda_beginAllocateToPool",
        "_cuda_beginAllocateCurrentThreadToPool",
        "_cuda_beginAllocateCurrentStreamToPool",
        "_cuda_endAllocateToPool",
        "_cuda_releasePool",
        "_cuda_clearCublasWorkspaces",
    ):
        setattr(core, name, nothing)
    core._cuda_getCurrentRawStream = lambda device=None: 0
    memory: Any = torch.cuda.memory
    for name in ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool"):
        setattr(memory, name, nothing)
    memory.MemPool = torch.cuda.MemPool = MemPool
    cuda: Any = torch.cuda
    cuda.get_stream_from_external = lambda data_ptr, device=None: streams.ExternalStream(device)
    success = types.SimpleNamespace(success=0)
    runtime = _Runtime(
        cudaError=success,
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaHostRegister=lambda *args: 0,
        cudaHostUnregister=lambda *args: 0,
        cudaDeviceSynchronize=_synchronize,
        cudaMemGetInfo=lambda device=0: torch.cuda.mem_get_info(device),
        cudaGetErrorString=str,
    )
    cuda.cudart = lambda: runtime
    cuda._cudart = runtime
    cuda.list_gpu_processes = lambda device=None: f"GPU:{module.number(device)}\nno processes are running"
    _plans()
    _symmetric()


def _synchronize() -> int:
    module.synchronize()
    return 0


def _nothing(*args: Any, **kw: Any) -> None:
    """Nothing to do."""


def _plans() -> None:
    """cuFFT keeps plans; the host's transforms have none."""
    kind: Any = torch.backends.cuda.cuFFTPlanCache
    most: dict[int, int] = {}
    kind.size = property(lambda cache: 0)
    kind.max_size = property(
        lambda cache: most.get(cache.device_index, 4096),
        lambda cache, size: most.__setitem__(cache.device_index, size),
    )
    kind.clear = lambda cache: None
    manager: Any = torch.backends.cuda.cuFFTPlanCacheManager
    manager.__getitem__ = lambda plans, device: kind(module.number(device))


def _symmetric() -> None:
    """Memory that ranks write into each other's needs what a driver maps."""
    known: Any = getattr(torch._C._distributed_c10d, "_SymmetricMemory", None)
    if known is None:
        return

    hint = "use the collectives of torch.distributed"
    for name in ("empty_strided_p2p", "rendezvous", "get_mempool_allocator", "memset32", "stream_write_value32"):
        if hasattr(known, name):
            setattr(known, name, staticmethod(native.refusing(f"torch.distributed._symmetric_memory.{name}", hint)))
    known.has_multicast_support = staticmethod(lambda *args: False)
