"""How long the kernels of a rank take, and its host to issue them, by the models of the machine.

What an operation launches is said by `described`, and what a kernel takes by `Machine.kernel_ps`. torch counts the
operations, by the registry of its FlopCounterMode.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import flop_counter

from ahbm.errors import ConfigError
from ahbm.job.reading import parse_factor
from ahbm.kernels.model import DEFAULT
from ahbm.torch.device import described, host, memory, scratch
from ahbm.torch.device.fusing import Fusing, Work
from ahbm.torch.device.machine import machine

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.kernels import Kernel
    from ahbm.torch.device.lanes import Lanes

FACTORS = "AHBM_KERNELS"
"""Environment variable: `softmax=2,mm=1.1` makes kernels with such a text in their name take so many times as long."""


KNOWN = 1 << 12
"""Different kernels whose times are remembered."""


class _Hushed(threading.local):
    depth = 0


_hushed = _Hushed()


def hushed() -> bool:
    """Whether the calling thread's operations are parts of one that is told as a whole."""
    return _hushed.depth > 0


@contextmanager
def quiet() -> Iterator[None]:
    """The calling thread's operations are parts of one that is told as a whole."""
    _hushed.depth += 1
    try:
        yield
    finally:
        _hushed.depth -= 1


class Meter:
    """Counts what the kernels of this process do, and how long they take."""

    def __init__(self) -> None:
        self.flops = 0
        self.bytes = 0
        self.host_bytes = 0
        """Those that were copied between host and device."""
        self.kernels = 0
        self.busy_ps = 0
        """The sum of all kernels."""
        self.idle_ps = 0
        """Time in which the device had nothing to do, because its host had given it nothing."""
        self.host: host.Host | None = None
        """The host, where it takes time, and once the machine is known."""
        self._calls_ps = 0
        """What is in the rank's time beside these two."""
        self.lanes: Lanes | None = None
        """Where kernels are written down; None where nobody reads it."""
        self.by_name: dict[str, list[int]] = {}
        """Per name of a kernel: how many, operations, bytes, ps."""
        self._waited_ps = 0
        self.tape: Callable[[Work], None] | None = None
        """Takes kernels that are captured, and take no time yet."""
        self._takes: dict[Work, int] = {}
        self.generated = Fusing(self._generated)

    @cached_property
    def factors(self) -> list[tuple[str, float]]:
        """What AHBM_KERNELS asks for. Raises ConfigError (AHBM-C127)."""
        found = []
        for part in filter(None, os.environ.get(FACTORS, "").split(",")):
            try:
                found.append(parse_factor(part))
            except ConfigError:
                hint = "TEXT=FACTOR with a factor of 0 to 1e6, several with commas"
                raise ConfigError("AHBM-C127", f"{FACTORS}: {part!r} is no factor", hint=hint) from None
        return found

    @cached_property
    def machine(self) -> Machine:
        """The machine of the environment, until a world is made on one."""
        found = machine()
        self._hosted_by(found)
        return found

    def on(self, machine: Machine) -> None:
        """Kernels run on this machine from now on."""
        self.machine = machine
        self._takes.clear()
        self.__dict__.pop("units", None)
        self._hosted_by(machine)

    @cached_property
    def units(self) -> int:
        """SMs or CUs of the accelerator, by which libraries divide their kernels."""
        compute = self.machine.compute
        return DEFAULT.units if compute is None else int(compute.values["units"])

    def _hosted_by(self, machine: Machine) -> None:
        now = self.host_ps
        self.host = host.of(machine)
        if self.host is not None:
            self.host.now = now
        if self.lanes is not None:
            self.lanes.host = self.host

    @property
    def host_ps(self) -> int:
        """Where the host is: at the end of what the device had when the host last waited for it, and of what it has
        issued since."""
        return self._waited_ps if self.host is None else self.host.now

    def kernel(self, known: Any, args: Any, kwargs: Any, out: Any, given: list[torch.Tensor]) -> None:
        """An operation started its kernels on the current stream."""
        if _hushed.depth:
            return
        self.starts(known.name, described.kernels(known, args, kwargs, out, given, self.units), out, given)

    def starts(self, name: str, kernels: Sequence[Kernel], out: Any, given: Sequence[torch.Tensor]) -> None:
        """An operation that was given tensors and has made `out` started these kernels on the current stream."""
        if scratch.generates():
            if not self.generated.groups and memory.in_backward():
                torch.autograd.Variable._execution_engine.queue_callback(self.flush)
            self.generated.take(name, kernels, given, out)
            return
        lanes = self.lanes
        before = 0 if lanes is None else len(lanes.events)
        for kind, dims, operations, nbytes, arithmetic in kernels:
            self.run((name, operations, nbytes, arithmetic, False, kind, dims))
        if lanes is not None and self.tape is None and self.host is not None:
            lanes.started(name, kernels, given, out, before)

    def copy(self, name: str, nbytes: int) -> None:
        """So many bytes were copied between host and device, on the current stream."""
        self.host_bytes += nbytes
        self.add(name, 0, nbytes, "f16", host=True)

    def add(self, name: str, flops: int, nbytes: int, arithmetic: str, *, host: bool = False) -> None:
        """A kernel of which no more is known than so many operations, their type, and bytes."""
        self.run((name, flops, nbytes, arithmetic, host, "plain", ()))

    def flush(self, kept: Sequence[torch.Tensor] | None = None) -> None:
        """What generated code has done until now starts its kernels."""
        if self.generated.groups:
            self.generated.flush(kept)

    def run(self, work: Work) -> None:
        """A kernel was started on the current stream."""
        if self.generated.groups:
            self.flush()
        if self.tape is not None:
            self.tape(work)
            return
        name, flops, nbytes, arithmetic, host, kind, dims = work
        ps = self._takes.get(work)
        if ps is None:
            if len(self._takes) >= KNOWN:
                self._takes.clear()
            ps = self.machine.kernel_ps(
                name, flops, nbytes, arithmetic=arithmetic, host=host, kind=kind, dims=dims, factors=self.factors
            )
            self._takes[work] = ps
        self.flops += flops
        self.bytes += nbytes
        self.kernels += 1
        if self.host is not None:
            self._launched(self.host)
        self.busy_ps += ps
        row = self.by_name.get(name)
        if row is None:
            row = self.by_name[name] = [0, 0, 0, 0]
        row[0] += 1
        row[1] += flops
        row[2] += nbytes
        row[3] += ps
        if self.lanes is not None:
            self.lanes.kernel(*work)

    def _generated(self, work: Work) -> None:
        if self.host is not None:
            self.host.generated(work[5])
        self.run(work)

    def whole(self, name: str, kernels: Sequence[Kernel]) -> None:
        """An operation whose parts were hushed started these kernels on the current stream."""
        if self.host is not None:
            self.host.whole()
        for kind, dims, operations, nbytes, arithmetic in kernels:
            self.run((name, operations, nbytes, arithmetic, False, kind, dims))

    def use(self, stream: int) -> None:
        """Kernels go to this stream."""
        self.flush()
        if self.lanes is not None:
            self.lanes.stream = stream

    def tail(self, stream: int) -> tuple[int, ...]:
        """What an event of now on a stream (-1: on all) waits for."""
        self.flush()
        return () if self.lanes is None else self.lanes.tail(stream)

    def wait(self, stream: int, tail: tuple[int, ...]) -> None:
        """What the stream is given later waits for `tail`."""
        self.flush()
        if self.lanes is not None:
            self.lanes.wait(stream, tail)

    def host_waits(self, tail: tuple[int, ...]) -> None:
        """What is started later waits for `tail`."""
        self._waits()
        if self.lanes is not None:
            self.lanes.host_waits(tail)

    def synchronize(self, stream: int | None = None) -> None:
        """The host waits for a stream, by default the current one."""
        self.flush()
        self._waits()
        if self.lanes is not None:
            self.lanes.host_waits(self.lanes.tail(self.lanes.stream if stream is None else stream))

    def now_ps(self) -> int:
        """The simulated time of this rank."""
        from ahbm.torch.places import places

        now = max((place.now_ps() for place in places()), default=self.device_ps)
        self._calls_ps = now - self.device_ps
        return now

    @property
    def device_ps(self) -> int:
        """The time of the device without calls: its kernels, and what it waited for the host."""
        return self.busy_ps + self.idle_ps

    def moment_ps(self) -> int:
        """When the device would come to an event of now."""
        return self.now_ps() if self.host is None else max(self.now_ps(), self.host.now)

    def submission(self) -> AbstractContextManager[None]:
        """What is launched meanwhile is given to the device at once."""
        return nullcontext() if self.host is None else self.host.submission()

    def _launched(self, by: host.Host) -> None:
        by.launches()
        if by.now > self.device_ps + self._calls_ps:
            self.idle_ps += max(by.now - self.now_ps(), 0)

    def _waits(self) -> None:
        if self.host is None:
            self._waited_ps = max(self._waited_ps, self.now_ps())
        else:
            self.host.waits(self.now_ps())


meter = Meter()


def _returns(made: list[torch.Tensor]) -> None:
    """Compiled code has made these: what it has done starts its kernels, as one graph where it was captured."""
    meter.flush(made)
    if scratch.graphed() and meter.host is not None:
        meter.host.issue(meter.host.launch)


scratch.ends.append(_returns)


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
