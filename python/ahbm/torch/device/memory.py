"""Memory of devices that are not there: torch's caching allocator, its limit, and what the most of it is.

As `c10/cuda/CUDACachingAllocator.cpp` has it: requests are rounded to 512 B; those of up to 1 MiB come from segments
of 2 MiB, of up to 10 MiB from segments of 20 MiB, larger ones from segments of their own, rounded to 2 MiB. The
smallest free block that is large enough is split, neighbours that are free are merged, and free segments are given back
where the device has no room. What cuBLAS keeps for a stream and a thread is reserved, and no tensor's.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

import torch

from ahbm.base.logs import notice

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_BLOCK = 512
_SMALL, _SMALL_SEGMENT = MIB, 2 * MIB
_MIDDLE, _MIDDLE_SEGMENT = 10 * MIB, 20 * MIB
_ROUND = 2 * MIB
ENDLESS = 1 << 62
"""Bytes of a device whose memory does not end."""
WORKSPACE = {9: 32 * MIB, 10: 32 * MIB}
"""What cuBLAS keeps by generation of the device (`getChosenWorkspaceSize` in torch's CublasHandlePool.cpp)."""
WORKSPACE_BEFORE = 8519680
ACTIVATIONS, BACKWARD, STEP = "activations", "results of backward", "buffers of the optimizer's step"
PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
_of_task: Any = torch._C._current_graph_task_id
stepping = [False]
"""Whether an optimizer makes its step."""
stream: list[Callable[[], int]] = [lambda: 0]
"""The number of the stream that the calling thread's kernels go to."""


def in_backward() -> bool:
    """Whether the calling thread is in backward."""
    return bool(_of_task() != -1)


class Use:
    """What one storage takes of a device."""

    __slots__ = ("block", "kind", "nbytes", "number", "small")

    def __init__(self, nbytes: int, block: Block, kind: str, number: int, small: bool) -> None:
        self.nbytes, self.block, self.kind, self.number, self.small = nbytes, block, kind, number, small


class Block:
    """A part of a segment."""

    __slots__ = ("after", "at", "before", "free", "pool", "size")

    def __init__(self, pool: Pool, at: int, size: int) -> None:
        self.pool, self.at, self.size = pool, at, size
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None


class Pool(list[Any]):
    """Free blocks of one stream by size and address: (size, address, block)."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        self.small = small
        self.tail: Block | None = None
        """The last block of the segment that expands."""


class Count:
    """A figure of torch's: now, at most, and all that was added and taken."""

    __slots__ = ("added", "now", "peak", "taken")

    def __init__(self) -> None:
        self.now = self.peak = self.added = self.taken = 0

    def add(self, n: int) -> None:
        """Adds, or takes below 0."""
        self.now += n
        if n > 0:
            self.added += n
            if self.now > self.peak:
                self.peak = self.now
        else:
            self.taken -= n


class Memory:
    """The memory of one device."""

    endless = False
    """Whether memory does not end: what a model is does not depend on the device that one looks at it on."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.allocated, self.requested, self.reserved = Count(), Count(), Count()
        self.small_allocated, self.small_reserved = Count(), Count()
        self.blocks, self.segments = Count(), Count()
        self._counts = (
            self.allocated, self.requested, self.reserved, self.small_allocated, self.small_reserved, self.blocks,
            self.segments,
        )  # fmt: skip
        self.retries = self.ooms = 0
        self.fraction = 1.0
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._uses: dict[int, Use] = {}
        self._made = 0
        self._next = 0
        self._capacity: int | None = None
        self._libraries: set[tuple[int, bool]] = set()
        self._lock = threading.Lock()
        self._left: list[Use] = []
        """Freed while blocks were looked for: the collector of garbage comes at any time."""
        self.kept = 0
        """Bytes that libraries keep."""
        self.seen: list[Use] = []
        """What there was close to the peak."""
        self._seen_at = 0
        self.failed: int | None = None
        """Bytes that were held and asked for where the memory ended, latest."""
        self.asked = 0
        """Bytes that were asked for there."""
        self.highest = 0
        """The peak, however often the script has reset its own."""

    @property
    def capacity(self) -> int:
        """Bytes that the device has."""
        if self.endless:
            return ENDLESS
        if self._capacity is None:
            from ahbm.torch.device.machine import machine
            from ahbm.torch.device.smi import memory_of

            self._capacity = memory_of(machine())
        return self._capacity

    def allocate(self, nbytes: int) -> Use:
        """Takes memory on the current stream. Raises torch.OutOfMemoryError."""
        kind = BACKWARD if _of_task() != -1 else STEP if stepping[0] else ACTIVATIONS
        with self._lock:
            while self._left:
                self._free(self._left.pop())
            block = self._block(nbytes, -(-nbytes // _BLOCK) * _BLOCK or _BLOCK, stream[0]())
            self._made += 1
            use = self._uses[self._made] = Use(nbytes, block, kind, self._made, block.pool.small)
            allocated = self.allocated
            allocated.add(block.size)
            self.requested.add(nbytes)
            self.blocks.add(1)
            if use.small:
                self.small_allocated.add(block.size)
            if allocated.now > self.highest:
                self.highest = allocated.now
                if allocated.now > self._seen_at:
                    self._seen_at = allocated.now + allocated.now // 100 + MIB
                    self.seen = list(self._uses.values())
        return use

    def free(self, use: Use) -> None:
        """Gives memory back, to be used again."""
        if not self._lock.acquire(blocking=False):
            self._left.append(use)
            return
        try:
            self._free(use)
        finally:
            self._lock.release()

    def _free(self, use: Use) -> None:
        if self._uses.pop(use.number, None) is None:
            return
        self.allocated.add(-use.block.size)
        self.requested.add(-use.nbytes)
        self.blocks.add(-1)
        if use.small:
            self.small_allocated.add(-use.block.size)
        self._release(use.block)

    def scratch(self, nbytes: int) -> None:
        """A kernel takes memory for as long as it runs. Raises torch.OutOfMemoryError."""
        if nbytes > 0:
            self.free(self.allocate(nbytes))

    def library(self, generation: int) -> None:
        """A product runs: the first on a stream of a thread, as backward has its own, has cuBLAS keep a workspace."""
        who = (stream[0](), _of_task() != -1)
        if who not in self._libraries:
            self._libraries.add(who)
            asked = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
            size = _configured(asked) if asked else WORKSPACE.get(generation, WORKSPACE_BEFORE)
            if size:
                with self._lock:
                    self._block(size, -(-size // _BLOCK) * _BLOCK, who[0])
                self.kept += size

    # ------------------------------------------------------------ blocks

    def _pool(self, stream: int, small: bool) -> Pool:
        key = (stream, small)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(small)
        return pool

    def _block(self, nbytes: int, size: int, stream: int) -> Block:
        pool = self._pool(stream, size <= _SMALL)
        at = bisect_left(pool, (size,))
        limit = config.max_split
        if (
            at < len(pool)
            and not (limit and size < limit <= pool[at][0])
            and not (limit and size >= limit and pool[at][0] >= size + _MIDDLE_SEGMENT)
        ):
            block: Block = pool.pop(at)[2]
            block.free = False
        else:
            block = self._segment(pool, nbytes, size)
        rest = block.size - size
        if rest >= _BLOCK if pool.small else rest > _SMALL and not (limit and size >= limit):
            other = Block(pool, block.at + size, rest)
            other.before, other.after = block, block.after
            if other.after is not None:
                other.after.before = other
            elif pool.tail is block:
                pool.tail = other
            block.after, block.size = other, size
            self._put(other)
        return block

    def _segment(self, pool: Pool, nbytes: int, size: int) -> Block:
        """A new segment, or the room of those that are free given back first."""
        tail = pool.tail if config.expandable and pool.tail is not None and pool.tail.free else None
        if config.expandable:
            grain = _SMALL_SEGMENT if pool.small else _MIDDLE_SEGMENT
            more = size - (tail.size if tail is not None else 0)
            whole = -(-more // grain) * grain
        else:
            whole = _SMALL_SEGMENT if pool.small else _MIDDLE_SEGMENT if size < _MIDDLE else -(-size // _ROUND) * _ROUND
        if self.reserved.now + whole > self.capacity * self.fraction:
            self.retries += 1
            self._empty()
            if config.expandable:
                tail = None
                whole = -(-size // grain) * grain
            if self.reserved.now + whole > self.capacity * self.fraction:
                self.ooms += 1
                self.failed = self.allocated.now + self.kept + nbytes
                self.seen = list(self._uses.values())
                self.asked = nbytes
                raise torch.OutOfMemoryError(self._message(nbytes))
        self.reserved.add(whole)
        if pool.small:
            self.small_reserved.add(whole)
        self.segments.add(1)
        if tail is not None:
            pool.remove((tail.size, tail.at, tail))
            tail.free, tail.size = False, tail.size + whole
            return tail
        block = Block(pool, self._next, whole)
        self._next += whole + (1 << 50 if config.expandable else 1)
        if config.expandable:
            pool.tail = block
        return block

    def _put(self, block: Block) -> None:
        block.free = True
        insort(block.pool, (block.size, block.at, block))

    def _release(self, block: Block) -> None:
        """A block is free: it and its free neighbours are one."""
        pool = block.pool
        for other in (block.before, block.after):
            if other is not None and other.free:
                del pool[bisect_left(pool, (other.size, other.at))]
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                if pool.tail is second:
                    pool.tail = first
                block = first
        self._put(block)

    def empty_cache(self) -> None:
        """`torch.cuda.empty_cache`."""
        with self._lock:
            self._empty()

    def _empty(self) -> None:
        """Gives back what is free: whole segments, or pages of segments that expand."""
        for pool in self._pools.values():
            grain = _SMALL_SEGMENT if pool.small else _MIDDLE_SEGMENT
            kept: list[Any] = []
            block: Block
            for size, at, block in pool:
                gone = 0
                if block.before is None and block.after is None:
                    gone = size
                elif config.expandable:
                    gone = size // grain * grain
                if not gone:
                    kept.append((size, at, block))
                    continue
                self.reserved.add(-gone)
                if pool.small:
                    self.small_reserved.add(-gone)
                self.segments.add(-1)
                if pool.tail is block:
                    pool.tail = block.before if gone == size else block
                if gone < size:
                    block.size = size - gone
                    kept.append((block.size, at, block))
                else:
                    before, after = block.before, block.after
                    if before is not None:
                        before.after = after
                    if after is not None:
                        after.before = before
            kept.sort(key=lambda one: one[:2])
            pool[:] = kept

    def _message(self, nbytes: int) -> str:
        """torch's own words."""
        total, held = self.capacity, self.reserved.now
        limit = ""
        if self.fraction < 1:
            limit = f"{text(int(total * self.fraction))} allowed; "
        used = self.allocated.now + self.kept
        return (
            f"CUDA out of memory. Tried to allocate {text(nbytes)}. GPU {self.index} has a total capacity of "
            f"{text(total)} of which {text(max(0, total - held))} is free. {limit}"
            f"Including non-PyTorch memory, this process has {text(held)} memory in use. "
            f"Of the allocated memory {text(used)} is allocated by PyTorch, and {text(held - used)} is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory "
            "Management (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf)"
        )

    def room(self, nbytes: int) -> None:
        """Raises torch.OutOfMemoryError where so much is not to be had, whatever is given back."""
        if nbytes > self.capacity * self.fraction - self.allocated.now - self.kept:
            with self._lock:
                self._segment(self._pool(0, False), nbytes, -(-nbytes // _BLOCK) * _BLOCK)

    def reset_peak(self) -> None:
        """Peaks are what is held now."""
        for count in self._counts:
            count.peak = count.now

    def reset_accumulated(self) -> None:
        """Sums begin anew."""
        for count in self._counts:
            count.added = count.taken = 0
        self.retries = self.ooms = 0

    def stats(self) -> dict[str, int]:
        """Figures under torch's names."""
        found: dict[str, int] = {}
        zero = Count()
        rows = {
            "allocated_bytes": (self.allocated, self.small_allocated),
            "active_bytes": (self.allocated, self.small_allocated),
            "reserved_bytes": (self.reserved, self.small_reserved),
            "requested_bytes": (self.requested, zero),
            "inactive_split_bytes": (zero, zero),
            "allocation": (self.blocks, zero),
            "active": (self.blocks, zero),
            "segment": (self.segments, zero),
            "inactive_split": (zero, zero),
        }
        for name, (every, small) in rows.items():
            for key, attribute in (("current", "now"), ("peak", "peak"), ("allocated", "added"), ("freed", "taken")):
                whole, part = getattr(every, attribute), getattr(small, attribute)
                found[f"{name}.all.{key}"] = whole
                found[f"{name}.small_pool.{key}"] = part
                found[f"{name}.large_pool.{key}"] = whole - part
        for name in ("oversize_allocations", "oversize_segments"):
            found |= {f"{name}.{key}": 0 for key in ("current", "peak", "allocated", "freed")}
        return {
            **found,
            "num_alloc_retries": self.retries,
            "num_ooms": self.ooms,
            "num_sync_all_streams": 0,
            "num_device_alloc": self.segments.added,
            "num_device_free": self.segments.taken,
            "max_split_size": config.max_split or -1,
        }

    def most(self) -> list[tuple[str, int]]:
        """Bytes by kind close to the peak, the most first."""
        sums: dict[str, int] = {}
        for use in self.seen:
            sums[use.kind] = sums.get(use.kind, 0) + use.nbytes
        return sorted(sums.items(), key=lambda row: (-row[1], row[0]))


class Config:
    """PYTORCH_ALLOC_CONF, or PYTORCH_CUDA_ALLOC_CONF."""

    def __init__(self) -> None:
        self.expandable = False
        self.max_split = 0
        asked = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
        for part in filter(None, (one.strip() for one in asked.split(","))):
            name, _, value = part.partition(":")
            if name == "expandable_segments":
                self.expandable = value.lower() == "true"
            elif name == "max_split_size_mb" and value.isdecimal():
                self.max_split = int(value) * MIB
            else:
                notice(f"PYTORCH_ALLOC_CONF: {part} changes nothing here")


config = Config()
_known: dict[int, Memory] = {}


def of(index: int) -> Memory:
    """The memory of a device."""
    found = _known.get(index)
    if found is None:
        found = _known[index] = Memory(index)
    return found


def ask(index: int | None, args: Any, kwargs: Any, given: list[torch.Tensor]) -> None:
    """An operation will make a tensor on a device: raises torch.OutOfMemoryError before the host takes its memory."""
    if index is None or index < 0:
        return
    if given:
        count, dtype = given[0].numel(), kwargs.get("dtype") or given[0].dtype
    else:
        size = args[0] if args and isinstance(args[0], list | tuple) else ()
        count, dtype = 1, kwargs.get("dtype") or torch.get_default_dtype()
        for n in size:
            count *= n
    if count > _UNASKED:
        of(index).room(count * dtype.itemsize)


_UNASKED = MIB
"""Elements up to which the host is not asked before: what is too much is found as it is made."""


def refused(index: int | None, error: RuntimeError) -> None:
    """The host has no memory for a tensor: raises torch.OutOfMemoryError where that is one of a device."""
    words = f"{error}"
    if index is None or index < 0 or isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" not in words:
        return
    found = [int(part) for part in words.replace(":", " ").split() if part.isdecimal() and int(part) > MIB]
    nbytes = max(found, default=0)
    of(index).room(nbytes)
    of(index).failed = of(index).allocated.now + nbytes
    raise torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {text(nbytes)}. The device that is not there would have room, but its "
        "tensors lie in the host's memory, which has not: python -m ahbm.torch --device cuda:1 --ranks 1 --fake needs "
        "none"
    ) from None


def text(nbytes: int) -> str:
    """A size as torch writes it."""
    if nbytes <= KIB:
        return f"{nbytes} bytes"
    if nbytes <= MIB:
        return f"{nbytes / KIB:.2f} KiB"
    return f"{nbytes / MIB:.2f} MiB" if nbytes <= GIB else f"{nbytes / GIB:.2f} GiB"


def _configured(asked: str) -> int:
    """Bytes of CUBLAS_WORKSPACE_CONFIG, such as `:4096:8`: pairs of KiB and how many."""
    numbers = [int(part) for part in asked.split(":") if part.isdecimal()]
    return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=False)) * KIB


def functions(held: Callable[[Any], Memory]) -> dict[str, Any]:
    """What `torch.cuda` and `torch.accelerator` have of memory, by name. `held`: the memory of what names a device."""

    def set_fraction(fraction: float, device: Any = None) -> None:
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        held(device).fraction = fraction

    def summary(device: Any = None, abbreviated: bool = False) -> str:
        """torch's own table, of these figures."""
        from unittest.mock import patch

        with patch.object(torch.cuda.memory, "memory_stats", lambda device=None: held(device).stats()):
            found: str = _summary(device=held(device).index, abbreviated=abbreviated)
        return found

    def empty() -> None:
        for one in _known.values():
            one.empty_cache()

    found: dict[str, Any] = {}
    for name in ("allocated", "reserved", "cached"):
        count = "allocated" if name == "allocated" else "reserved"
        found[f"memory_{name}"] = lambda device=None, count=count: getattr(held(device), count).now
        found[f"max_memory_{name}"] = lambda device=None, count=count: getattr(held(device), count).peak
    return found | {
        "device_memory_used": lambda device=None: held(device).reserved.now,
        "memory_stats": lambda device=None: held(device).stats(),
        "memory_summary": summary,
        "memory_snapshot": lambda *args, **kw: [],
        "mem_get_info": lambda device=None: (held(device).capacity - held(device).reserved.now, held(device).capacity),
        "reset_peak_memory_stats": lambda device=None: held(device).reset_peak(),
        "reset_max_memory_allocated": lambda device=None: held(device).reset_peak(),
        "reset_max_memory_cached": lambda device=None: held(device).reset_peak(),
        "reset_accumulated_memory_stats": lambda device=None: held(device).reset_accumulated(),
        "empty_cache": empty,
        "set_per_process_memory_fraction": set_fraction,
        "get_per_process_memory_fraction": lambda device=None: held(device).fraction,
    }


_summary: Any = torch.cuda.memory_summary
