"""What in a script says where an iteration ends: optimizers, scalers, profilers, `ahbm.torch.step()`; and which kernels
are those of one call of a module or of backward."""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

import ahbm.torch
from ahbm.ranks import blame
from ahbm.torch.device import kernels, marks
from ahbm.torch.device.lanes import Lanes
from ahbm.torch.device.meter import meter
from ahbm.torch.device.steps import OPTIMIZER, PROFILER, USER, Count
from ahbm.torch.replacing import replace

count = Count()
"""The iterations of this process."""
after: list[Callable[[], None]] = []
"""Functions that are called after each mark, and may end the script."""


class Watch:
    """See above."""

    def __init__(self, lanes: Callable[[], Lanes | None]) -> None:
        """`lanes`: where marks are written down, as long as they are."""
        self._lanes = lanes
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._free: dict[Any, list[int]] = {}
        self._total = 0
        self._stepped = 0
        self._thread = threading.get_ident()
        self._depth = self._start = 0
        self._hooks: list[Any] = []

    def install(self) -> None:
        """From now on."""
        _watches.append(self)
        ahbm.torch.on_step.append(lambda: self.mark(USER, 0))
        register_optimizer_step_post_hook(lambda optimizer, *_: self.step(optimizer))
        _script[0] = os.environ.get("AHBM_TORCH_SCRIPT") or sys.argv[0]
        count.by_script = _BY_SCRIPT.search(source()) is not None
        self._optimizers()
        self._scalers()
        self._profilers()
        self._backward()
        if self._lanes() is not None:
            self._hooks = [
                module.register_module_forward_pre_hook(lambda *_: self._enter()),
                module.register_module_forward_hook(lambda *_: self._leave(), always_call=True),
            ]

    def mark(self, source: int, who: int, *, skipped: bool = False) -> None:
        """Something has ended that may be an iteration."""
        while self._hooks:
            self._hooks.pop().remove()
        lanes = self._lanes()
        if lanes is None:
            count.mark(source, who)
        else:
            lanes.mark(source, who, skipped=skipped)
        for function in after:
            function()

    def step(self, optimizer: Any, *, skipped: bool = False) -> None:
        """An optimizer has stepped. In a capture, every replay steps."""
        if kernels.placing.graph is not None:
            kernels.placing.graph.stepped.append(weakref.ref(optimizer))
            return
        number = self._numbers.get(optimizer)
        if number is None:
            number = self._numbers[optimizer] = self._total
            self._total += 1
        self._stepped += 1
        self.mark(OPTIMIZER, number, skipped=skipped)

    def _optimizers(self) -> None:
        """Numbers them as they are made. One that was made at the line of another that is gone has its number."""
        starts = Optimizer.__init__

        @functools.wraps(starts)
        def start(optimizer: Any, *args: Any, **kw: Any) -> None:
            starts(optimizer, *args, **kw)
            free = self._free.setdefault((type(optimizer), blame.call_origin()), [])
            if free:
                number = free.pop(0)
            else:
                number, self._total = self._total, self._total + 1
            self._numbers[optimizer] = number
            count.made += 1
            weakref.finalize(optimizer, self._gone, free, number).atexit = False

        Optimizer.__init__ = start

    def _gone(self, free: list[int], number: int) -> None:
        free.append(number)
        count.made -= 1

    def _scalers(self) -> None:
        """A step that a scaler skips ends an iteration as well."""
        scaler: Any = torch.amp.grad_scaler.GradScaler
        steps = scaler._maybe_opt_step

        @functools.wraps(steps)
        def maybe(scaler: Any, optimizer: Any, state: Any, *args: Any, **kw: Any) -> Any:
            before = self._stepped
            if marks.fake[0] is not None:  # what is told of a value without data says that it is infinite
                for value in state["found_inf_per_device"].values():
                    value.item()
                return optimizer.step(*args, **kw)
            out = steps(scaler, optimizer, state, *args, **kw)
            if self._stepped == before:
                self.step(optimizer, skipped=True)
            return out

        scaler._maybe_opt_step = maybe

    def _profilers(self) -> None:
        profile: Any = torch.profiler.profile
        steps = profile.step

        @functools.wraps(steps)
        def step(profiler: Any) -> None:
            steps(profiler)
            self.mark(PROFILER, 0)

        profile.step = step

    def _backward(self) -> None:
        """Its kernels are one part, and calls that it makes in other threads are those of its line."""
        runs = torch.autograd.graph._engine_run_backward

        @functools.wraps(runs)
        def run(*args: Any, **kw: Any) -> Any:
            before = blame.backward[0]
            blame.backward[0] = blame.call_origin()
            self._enter()
            if meter.host is not None:
                meter.host.backward()
            try:
                return runs(*args, **kw)
            finally:
                self._leave(backward=True)
                blame.backward[0] = before

        replace(runs, run)

    def _enter(self) -> None:
        if self._hooks and threading.get_ident() == self._thread:
            lanes = self._lanes()
            if self._depth == 0 and lanes is not None:
                self._start = len(lanes.events)
            self._depth += 1

    def _leave(self, *, backward: bool = False) -> None:
        if self._hooks and threading.get_ident() == self._thread and self._depth:
            self._depth -= 1
            lanes = self._lanes()
            if self._depth == 0 and lanes is not None and not lanes.full and self._start < len(lanes.events):
                lanes.calls.append((self._start, len(lanes.events)))
                if backward:
                    lanes.backwards.append(len(lanes.events))


_watches: list[Watch] = []


def step(optimizer: Any) -> None:
    """An optimizer has stepped, in a graph."""
    for each in _watches:
        each.step(optimizer)


_script = [""]
_BY_SCRIPT = re.compile(
    r"\bahbm\.torch\.step\b|^\s*from ahbm\.torch import\b.*\bstep\b|^\s*import ahbm\.torch as\b", re.MULTILINE
)


def source() -> str:
    """The script's text; empty where it is no file."""
    try:
        with open(_script[0], encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
