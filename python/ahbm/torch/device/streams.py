"""Streams and events of a device that is not there: order in simulated time.

Operations have ended in host memory when their call returns. Streams matter for the time that a model gives them: see
`Meter`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch

from ahbm.torch.device import marks
from ahbm.torch.device.meter import meter

_made = 0
waits: list[Callable[[], None]] = []
"""Asked before the host waits for a stream or an event."""


def synchronized() -> None:
    """The host is about to wait for the device. Raises torch.AcceleratorError where a graph is captured."""
    for ask in waits:
        ask()


class Stream:
    """A queue of kernels; 0 is the default one."""

    cuda_stream = 0
    device_type = 1
    native_handle = 0

    def __init__(self, device: Any = None, priority: int = 0, **given: Any) -> None:
        global _made
        _made += 1
        self.stream_id = given.get("stream_id", _made)
        self.priority = priority
        index = marks.index_of(device)
        self.device_index = marks.current() if index is None else index
        self.device = torch.device(marks.KIND, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority that torch knows, as on a GPU of today."""
        return 0, -3

    def synchronize(self) -> None:
        """The host waits for the stream."""
        synchronized()
        meter.synchronize(self.stream_id)

    def wait_stream(self, stream: Stream) -> None:
        """What is started later waits for what `stream` was given."""
        meter.wait(self.stream_id, meter.tail(stream.stream_id))

    def wait_event(self, event: Event) -> None:
        """What is started later waits for the event."""
        meter.wait(self.stream_id, event.tail)

    def query(self) -> bool:
        """True: nothing is under way."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is captured."""
        return bool(torch.cuda.is_current_stream_capturing())

    def record_event(self, event: Event | None = None) -> Event:
        """An event of now."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _Local.stack.append(current())
        use(self)
        return self

    def __exit__(self, *_: object) -> None:
        use(_Local.stack.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream that another library has made."""


class Event:
    """A moment of a stream."""

    cuda_event = event_id = 0

    def __init__(self, *args: Any, enable_timing: bool = False, **kw: Any) -> None:
        self.enable_timing = enable_timing
        self.tail: Any = ()
        self._ps: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Now."""
        self.tail = meter.tail((stream or current()).stream_id)
        self._ps = meter.moment_ps()

    def elapsed_time(self, end_event: Event) -> float:
        """Simulated milliseconds until `end_event`. Raises RuntimeError unless both are recorded."""
        if self._ps is None or end_event._ps is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._ps - self._ps) / 1e9

    def synchronize(self) -> None:
        """The host waits for the event."""
        synchronized()
        meter.host_waits(self.tail)

    def wait(self, stream: Stream | None = None) -> None:
        """What the stream is given later waits for the event."""
        (stream or current()).wait_event(self)

    def query(self) -> bool:
        """True: nothing is under way."""
        return True


default = Stream(stream_id=0)


class _Streams(threading.local):
    now = default

    def __init__(self) -> None:
        self.stack: list[Stream] = []


_Local = _Streams()


def current(device: Any = None) -> Stream:
    """The stream that the calling thread's kernels go to; of another device, that device's default one."""
    index = marks.index_of(device)
    if index is None or index == _Local.now.device_index:
        return _Local.now
    return of_device(index)


def of_device(device: Any = None) -> Stream:
    """The default stream of a device. All devices of a process have one in common."""
    index = marks.index_of(device)
    if index is None or index == default.device_index:
        return default
    found = copy.copy(default)
    found.device_index, found.device = index, torch.device(marks.KIND, index)
    return found


def use(stream: Stream | None) -> None:
    """Makes a stream the current one."""
    if stream is not None:
        meter.use(stream.stream_id)
        _Local.now = stream


class StreamContext:
    """`torch.cuda.stream`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()
