"""The time that a rank computes between its calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ahbm.errors import ConfigError

ENV = "AHBM_COMPUTE"
CLOCKS: dict[str, Callable[[], int]] = {
    "none": lambda: 0,
    "cpu": lambda: time.thread_time_ns() * 1000,
    "wall": lambda: time.perf_counter_ns() * 1000,
}
"""By name, a clock in ps; CPU time is that of the calling thread. `ahbm.torch.device` adds "model"."""
usual = ["none"]
"""The clock of a rank that names none."""


class Stopwatch:
    """Measures from one call's end to the next one's begin."""

    def __init__(self, kind: str) -> None:
        """`kind`: one of CLOCKS, to be used unless AHBM_COMPUTE names another. Raises ConfigError (AHBM-C127)."""
        kind = os.environ.get(ENV) or kind
        if kind not in CLOCKS:
            hint = "model is for python -m ahbm.torch --device cuda" if kind == "model" else ", ".join(CLOCKS)
            raise ConfigError("AHBM-C127", f"{ENV}={kind!r} is unknown", hint=hint)
        self.off = kind == "none"
        self._now = CLOCKS[kind]
        self._of_threads = kind == "cpu"
        self.start()

    def start(self) -> None:
        """A call has ended."""
        self._mark = self._now()
        if self._of_threads:
            self._thread = threading.get_ident()

    def ps(self) -> int:
        """Since the last `start`; nothing where that was in another thread, whose CPU time is not this one's."""
        if self._of_threads and threading.get_ident() != self._thread:
            return 0
        return self._now() - self._mark
