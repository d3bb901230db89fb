"""How long the kernels of a rank take, by a model of the machine: the roofline.

The longer of operations at the peak of their type and bytes at the bandwidth of the memory, and what it takes to start
a kernel (S. Williams et al., CACM 52(4), 2009). torch counts the operations, by the registry of its FlopCounterMode.
"""

from __future__ import annotations

import os
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import flop_counter

from ahbm.errors import ConfigError
from ahbm.torch.device import module

if TYPE_CHECKING:
    from ahbm.torch.device.lanes import Lanes

FACTORS = "AHBM_KERNELS"
"""Environment variable: `softmax=2,mm=1.1` makes kernels with such a text in their name take so many times as long."""


class Meter:
    """Counts what the kernels of this process do, and how long they take."""

    def __init__(self) -> None:
        self.flops = 0
        self.bytes = 0
        self.kernels = 0
        self.busy_ps = 0
        """The sum of all kernels."""
        self.lanes: Lanes | None = None
        """Where kernels are written down; None where nobody reads it."""
        self.by_name: dict[str, list[int]] = {}
        """Per name of a kernel: how many, operations, bytes, ps."""
        self._machine: tuple[float, float, int, float, float, float] | None = None
        self._factors: list[tuple[str, float]] = []

    def kernel(self, known: Any, args: Any, kwargs: Any, out: Any, given: list[torch.Tensor]) -> None:
        """A kernel was started on the current stream."""
        count = known.counts
        flops = int(count(*args, **kwargs, out_val=out)) if count is not None else 0
        nbytes = 0
        for x in given[known.overwrites :]:
            nbytes += x.nbytes
        if type(out) in (tuple, list):
            for x in out:
                if isinstance(x, torch.Tensor):
                    nbytes += x.nbytes
        elif isinstance(out, torch.Tensor):
            nbytes += out.nbytes
        elif known.writes_operands and given:  # lists in place
            nbytes += sum(x.nbytes for x in args[0]) if type(args[0]) in (list, tuple) else given[0].nbytes
        self.add(known.name, flops, nbytes, given[0].dtype if given else None)

    def add(self, name: str, flops: int, nbytes: int, dtype: torch.dtype | None) -> None:
        """A kernel of so many operations and bytes."""
        machine = self._machine or self._start()
        operations = flops
        if flops and dtype is not None and dtype.itemsize != 2:
            operations = ceil(flops / self._share(dtype, machine))
        ps = ceil(max(operations / machine[0], nbytes / machine[1]) * 1000) + machine[2]
        for text, factor in self._factors:
            if text in name:
                ps = round(ps * factor)
                break
        self.flops += flops
        self.bytes += nbytes
        self.kernels += 1
        self.busy_ps += ps
        row = self.by_name.get(name)
        if row is None:
            row = self.by_name[name] = [0, 0, 0, 0]
        row[0] += 1
        row[1] += flops
        row[2] += nbytes
        row[3] += ps
        if self.lanes is not None:
            self.lanes.kernel(name, operations, nbytes)

    def _start(self) -> tuple[float, float, int, float, float, float]:
        self._machine = module.machine().roofline
        for part in filter(None, os.environ.get(FACTORS, "").split(",")):
            text, _, factor = part.partition("=")
            try:
                self._factors.append((text, float(factor)))
            except ValueError:
                hint = "TEXT=FACTOR, several with commas"
                raise ConfigError("AHBM-C127", f"{FACTORS}: {part!r} is no factor", hint=hint) from None
        return self._machine

    @staticmethod
    def _share(dtype: torch.dtype, machine: tuple[float, float, int, float, float, float]) -> float:
        if dtype.itemsize == 1:
            return machine[5]
        return machine[3] if dtype in (torch.float64, torch.complex128) else machine[4]

    def use(self, stream: int) -> None:
        """Kernels go to this stream."""
        if self.lanes is not None:
            self.lanes.stream = stream

    def tail(self, stream: int) -> tuple[int, ...]:
        """What an event of now on a stream (-1: on all) waits for."""
        return () if self.lanes is None else self.lanes.tail(stream)

    def wait(self, stream: int, tail: tuple[int, ...]) -> None:
        """What the stream is given later waits for `tail`."""
        if self.lanes is not None:
            self.lanes.wait(stream, tail)

    def host_waits(self, tail: tuple[int, ...]) -> None:
        """What is started later waits for `tail`."""
        if self.lanes is not None:
            self.lanes.host_waits(tail)

    def synchronize(self, stream: int | None = None) -> None:
        """The host waits for a stream, by default the current one."""
        if self.lanes is not None:
            self.lanes.host_waits(self.lanes.tail(self.lanes.stream if stream is None else stream))

    def now_ps(self) -> int:
        """The simulated time of this rank."""
        from ahbm.torch.places import places

        return max((place.now_ps() for place in places()), default=self.busy_ps)


meter = Meter()


def counting(packet: Any) -> Any:
    """The function that counts the operations of a kind of kernel; None: it has none worth counting."""
    count = flop_counter.flop_registry.get(packet)
    formula = getattr(count, "__wrapped__", None)
    if formula is None or getattr(count, "_get_raw", False):
        return count

    def of_shapes(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        """As torch's own wrapper, whose walk over all arguments takes longer than a small kernel."""
        named = {name: _shape(arg) for name, arg in kwargs.items()}
        found: int = formula(*map(_shape, args), out_shape=_shape(out_val), **named)
        return found

    return of_shapes


def _shape(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor):
        return arg.shape
    return type(arg)(map(_shape, arg)) if type(arg) in (list, tuple) else arg
