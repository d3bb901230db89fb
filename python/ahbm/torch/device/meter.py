"""How long the kernels of a rank take, by a model of the machine: the roofline."""

from __future__ import annotations

from typing import Any

import torch


class Meter:
    """Counts what the kernels of this process do."""

    def __init__(self) -> None:
        self.flops = 0
        self.bytes = 0
        self.kernels = 0
        self.stream = 0

    def kernel(self, func: Any, known: Any, args: Any, kwargs: Any, out: Any, given: list[torch.Tensor]) -> None:
        """A kernel was started on the current stream."""
        self.kernels += 1

    def use(self, stream: int) -> None:
        """Kernels go to this stream."""
        self.stream = stream

    def tail(self, stream: int) -> Any:
        """What an event of now on a stream waits for."""
        return ()

    def wait(self, stream: int, tail: Any) -> None:
        """What the stream is given later waits for `tail`."""

    def host_waits(self, tail: Any) -> None:
        """What is started later waits for `tail`."""

    def synchronize(self, stream: int | None = None) -> None:
        """The host waits for a stream, by default the current one."""

    def now_ps(self) -> int:
        """The simulated time of this rank."""
        from ahbm.torch.places import places

        return max((place.now_ps() for place in places()), default=0)


meter = Meter()
