"""Threads that ranks start, where ranks are threads themselves: they act for their rank, as in a process of its own."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

from ahbm.torch.own import Own, calling

T = TypeVar("T")
Acting = Callable[[Own], AbstractContextManager[None]]
"""Makes the calling thread act for a rank."""


@contextmanager
def helping(acting: Acting) -> Iterator[None]:
    """Threads that ranks start act for them, and tasks of pools for whoever submits them. While a rank waits for a
    thread that waits for other ranks, these have their turns."""
    thread, pool, condition = (
        cast("Any", kind) for kind in (threading.Thread, ThreadPoolExecutor, threading.Condition)
    )
    start, submit = thread.start, pool.submit

    @functools.wraps(start)
    def starts(self: Any) -> None:
        self.run = _for_rank(acting, self.run)
        with _for_nobody():  # it waits until the thread runs, which needs no other rank
            start(self)

    @functools.wraps(submit)
    def submits(self: Any, task: Any, /, *args: Any, **kw: Any) -> Any:
        task = _for_rank(acting, task)
        with _for_nobody():  # a worker that this starts is anybody's: the next task may be another rank's
            return submit(self, task, *args, **kw)

    others: dict[tuple[Any, str], Any] = {
        (thread, "start"): starts,
        (pool, "submit"): submits,
        (thread, "join"): _aside(thread.join),
        (condition, "wait"): _aside(condition.wait, _unlocked),
        (time, "sleep"): _aside(time.sleep),
    }
    before = {(owner, name): getattr(owner, name) for owner, name in others}
    try:
        for (owner, name), other in others.items():
            setattr(owner, name, other)
        yield
    finally:
        for (owner, name), own in before.items():
            setattr(owner, name, own)


def _for_rank(acting: Acting, body: Callable[..., T]) -> Callable[..., T]:
    """`body`, for whomever the calling thread acts."""
    own = calling.own
    if own is None:
        return body

    @functools.wraps(body)
    def run(*args: Any, **kw: Any) -> T:
        with acting(own):
            return body(*args, **kw)

    return run


@contextmanager
def _for_nobody() -> Iterator[None]:
    own, calling.own = calling.own, None
    try:
        yield
    finally:
        calling.own = own


def _aside(
    wait: Callable[..., T], unlocked: Callable[..., AbstractContextManager[None]] = nullcontext
) -> Callable[..., T]:
    """`wait`, a function that waits for other threads. `unlocked(*args)` lets go of what it holds as it returns."""

    @functools.wraps(wait)
    def waits(*args: Any, **kw: Any) -> T:
        if calling.own is None:
            return wait(*args, **kw)
        context = calling.own.context
        with context.world.aside(context.rank, functools.partial(unlocked, *args[:1])):
            return wait(*args, **kw)

    return waits


@contextmanager
def _unlocked(condition: Any) -> Iterator[None]:
    held = condition._release_save()
    try:
        yield
    finally:
        condition._acquire_restore(held)
