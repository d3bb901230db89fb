"""Which time a script is told: this host's, or with `--clock simulated` the one that its run would take.

The simulated clock stands where the script's host stands: at the end of what the device had been given when the host
last waited for it (`synchronize`, `item`, `cpu`), and later by what the host has issued since, where the machine says
what that takes, and by what the script has slept. A reading takes 0.1 us, so that no two are alike.

Told so are the script and the libraries that it calls in its main thread. torch, Python's own modules, this package,
other threads of libraries and processes that were forked, as a loader's workers, go by the true clock: their timeouts
are of this host. `time.sleep` sleeps, and the simulated clock advances by as much.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import sys
import threading
import time
import timeit
from collections.abc import Callable
from types import FrameType
from typing import Any

from ahbm.errors import ConfigError
from ahbm.ranks import blame
from ahbm.torch.device.meter import meter

ENV = "AHBM_CLOCK"
"""Environment variable in which processes find what `--clock` has asked for."""
KINDS = ("host", "simulated")
READING_PS = 100_000
TIMERS = ("timeit.py", "<timeit-src>", os.path.join("utils", "benchmark", "utils"))
"""Code of Python's and of torch's that measures for the script."""
_READS = re.compile(
    r"\b(perf_counter|monotonic|timeit|default_timer)\b|\btime\.time|\bfrom time import|\.(utc)?now\(\)"
)


class Clock:
    """Simulated time, as the functions of `time` tell it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._main = threading.main_thread()
        self._since = time.time()
        self._ps = 0
        """What readings and sleep have taken."""
        self._latest = 0.0

    def install(self) -> None:
        """Puts these functions in the place of Python's."""
        counts = {"perf_counter": self.seconds, "monotonic": self.seconds, "time": self.date}
        counts |= {"perf_counter_ns": self.ns, "monotonic_ns": self.ns, "time_ns": lambda: int(self.date() * 1e9)}
        for name, tells in counts.items():
            setattr(time, name, self._simulated(getattr(time, name), tells))
        sleeps = time.sleep

        def sleep(seconds: Any) -> None:
            sleeps(seconds)
            if self.tells(sys._getframe(1)):
                self._ps += round(seconds * 1e12)

        time.sleep = sleep
        true = timeit.default_timer
        timeit.default_timer = time.perf_counter
        for function in (timeit.Timer.__init__, timeit.timeit, timeit.repeat):
            kept: Any = function
            kept.__defaults__ = tuple(time.perf_counter if of is true else of for of in kept.__defaults__ or ())
        self._dates()

    def _dates(self) -> None:
        Dates.clock = self
        Dates.__name__, Dates.__qualname__, Dates.__module__ = "datetime", "datetime", "datetime"
        setattr(datetime, "datetime", Dates)  # noqa: B010

    def _simulated(self, true: Callable[[], Any], tells: Callable[[], Any]) -> Callable[[], Any]:
        def read() -> Any:
            return tells() if self.tells(sys._getframe(1)) else true()

        read.__name__ = read.__qualname__ = true.__name__
        return read

    def tells(self, caller: FrameType) -> bool:
        """Whether the caller is told the simulated time."""
        file = caller.f_code.co_filename
        kind = blame.kind_of(file)
        if kind == blame.FRONT and any(part in file for part in TIMERS):
            kind = blame.SCRIPT
        if kind == blame.LIBRARY and threading.current_thread() is not self._main:
            return False
        return kind != blame.FRONT and os.getpid() == self._pid

    def _now_ps(self) -> int:
        self._ps += READING_PS
        return meter.host_ps + self._ps

    def ns(self) -> int:
        """Since the script's start."""
        return self._now_ps() // 1000

    def seconds(self) -> float:
        """Since the script's start."""
        return self._now_ps() / 1e12

    def date(self) -> float:
        """Since 1970, later than at any reading before."""
        self._latest = max(self._since + self._now_ps() / 1e12, math.nextafter(self._latest, math.inf))
        return self._latest


TRUE = datetime.datetime


class Kind(type):
    """All dates are of the class that stands for theirs."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TRUE)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, TRUE)


class Dates(datetime.datetime, metaclass=Kind):
    """`datetime.datetime`, with the simulated time."""

    clock: Clock

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """Now."""
        return TRUE.fromtimestamp(cls.clock.date(), tz) if cls.clock.tells(sys._getframe(1)) else TRUE.now(tz)

    @classmethod
    def utcnow(cls) -> Any:
        """Now, in UTC."""
        now = cls.clock.date() if cls.clock.tells(sys._getframe(1)) else TRUE.now().timestamp()
        return TRUE.fromtimestamp(now, datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """Now."""
        return TRUE.fromtimestamp(cls.clock.date()) if cls.clock.tells(sys._getframe(1)) else TRUE.now()


def install() -> None:
    """Gives the script the clock that was asked for. Raises ConfigError (AHBM-C127)."""
    asked = os.environ.get(ENV) or KINDS[0]
    if asked not in KINDS:
        raise ConfigError("AHBM-C127", f"--clock {asked} is unknown", hint=" or ".join(KINDS))
    if asked == "simulated":
        Clock().install()


def note(source: str) -> str:
    """What is to be said of the clock that a script of this text reads; empty where it reads none."""
    if not _READS.search(source):
        return ""
    if os.environ.get(ENV) == "simulated":
        return "time.time, perf_counter and the like told the script simulated time; a step is that of the streams"
    return (
        "time.time, perf_counter and the like told the script this host's time, and rates by them are of this host: "
        "--clock simulated makes them simulated"
    )
