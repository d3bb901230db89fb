"""Many calls on any `concurrent.futures.Executor`: in batches, a few at a time, none lost with the process that dies.

An executor needs `submit`, and futures with `add_done_callback`; nothing else is asked of it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import connection
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, cast

from ahbm.base.arguments import refused
from ahbm.errors import AhbmError, DistributedError

BATCH_S = 0.4
"""Seconds that a batch should take: a hundred times what it costs to send one and to store its rows."""
MOST = 1000
"""Items of a batch."""
GROWTH = 4
"""Most times that a batch is longer than the one before it: the first is a single item, so that its row is there at
once."""
AHEAD = 4 * MOST
"""Items that are taken while workers are busy, the beginning of their processes included."""
LEAST_S = BATCH_S / 16
"""Seconds that a batch takes at least near the end, where all workers should end together."""
WINDOW = 32
"""Batches under way on an executor of which nobody says how many workers it has."""
DEATHS = 2
"""Times that a process has to die of one item alone before the item is to blame."""
KILLED = ("KilledWorker", "WorkerCrashedError")
"""Names of errors by which an executor says that the workers of one call died; it goes on with the others."""

_Item = TypeVar("_Item")
_Row = TypeVar("_Row")
_Rows = TypeVar("_Rows", bound=Sized)
_Result = TypeVar("_Result")
Call = Callable[[Sequence[_Item]], tuple[_Rows, float]]
"""What the first of some items give, at least one, with as many as they are for its length; and the seconds that they
took."""


class Workers(Protocol):
    """Where calls go."""

    window: int
    """Batches that are under way at once."""

    def open(self) -> Executor:
        """An executor to begin with, or in place of one that broke. Raises DistributedError (AHBM-X141)."""

    def check(self) -> None:
        """Raises DistributedError (AHBM-X141) where it broke for reasons of its own, not of what it ran."""

    def close(self, done: bool) -> None:
        """Lets the executor go; unless all is done, without waiting."""


class _Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **given))
        return future


class Here:
    """This process, one call after the other."""

    window = 1

    def open(self) -> Executor:
        """See `Workers`."""
        return _Inline()

    def check(self) -> None:
        """Nothing breaks."""

    def close(self, done: bool) -> None:
        """There is nothing to close."""


def begin(stop: Any) -> None:
    """A process of a pool begins: one thread, deaf to Ctrl-C, and gone when the other end of the pipe `stop` is closed,
    as it is when the process that has it dies."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        connection.wait([stop])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def ready() -> bool:
    """Whether a process answers."""
    return True


class Pool:
    """Processes of this computer that begin afresh, as copies of one that has imported what cases need (forkserver), or
    each on its own (spawn, where systems have no such thing). They end with this one, however it ends."""

    def __init__(self, workers: int, needed: str = __name__) -> None:
        """needed: a module that what they run needs, imported before they begin."""
        self.window = 2 * workers
        self._workers = workers
        self._needed = needed
        self._executor: ProcessPoolExecutor | None = None
        self._ready: Future[bool] | None = None
        self._stop: Any = None

    def open(self) -> Executor:
        """See `Workers`."""
        self.close(False)
        context = _context(self._needed)
        # The processes end when nobody can tell them anything any more.
        note, self._stop = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(self._workers, context, begin, (note,))
        try:
            self._ready = _submit(self._executor, ready)
        except BrokenExecutor as error:
            self._ready = Future()
            self._ready.set_exception(error)
        return self._executor

    def check(self) -> None:
        """See `Workers`."""
        try:
            if self._ready is None or not self._answers():
                # What broke it may have been quicker than the answer: asked again with nothing else to do.
                self.open()
                assert self._ready is not None
                self._ready.result()
        except BrokenExecutor as error:
            raise DistributedError(
                "AHBM-X141",
                "the processes of the sweep do not start",
                hint='a script calls it below `if __name__ == "__main__":`, for every process imports the script',
            ) from error

    def _answers(self) -> bool:
        return self._ready is not None and self._ready.exception() is None

    def close(self, done: bool) -> None:
        """See `Workers`."""
        if self._executor is None:
            return
        if not done:
            self._stop.close()
        self._executor.shutdown(wait=done, cancel_futures=not done)
        self._stop.close()
        self._executor = None


def _submit(executor: Executor, call: Callable[..., _Result], *given: Any) -> Future[_Result]:
    """Raises BrokenExecutor also where the executor breaks while it starts a process: its pipes are closed by then,
    which is an OSError."""
    try:
        return executor.submit(call, *given)
    except OSError as error:
        raise BrokenExecutor(str(error)) from error


def _context(needed: str) -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", needed, "ahbm.runs.measure"])
    return context


class Given:
    """An executor of somebody else, or a function that makes one."""

    def __init__(self, executor: Executor | Callable[[], Executor], workers: int | None = None) -> None:
        self.window = WINDOW if workers is None else 2 * workers
        self._given = executor
        self._executor: Executor | None = None

    def open(self) -> Executor:
        """See `Workers`."""
        again = self._executor is not None
        if isinstance(self._given, Executor):
            if again:
                hint = "pass a function that makes an executor; what was done is done, and is not run again"
                raise DistributedError("AHBM-X141", "the executor broke, and there is no other", hint=hint)
            self._executor = self._given
        else:
            self.close(False)
            self._executor = self._given()
            if not isinstance(self._executor, Executor):
                raise refused("executor", "an Executor, or a function that makes one", self._executor)
        return self._executor

    def check(self) -> None:
        """Whether it works is for those to say who gave it."""

    def close(self, done: bool) -> None:
        """See `Workers`; an executor that was given is not shut down."""
        if self._executor is not None and not isinstance(self._given, Executor):
            # Not every executor can cancel what waits; `run` has done so.
            self._executor.shutdown(wait=done)


@dataclass(frozen=True)
class Spans:
    """Items that are integers: from the first to below the second of each pair. They are handed out as ranges, which
    cost the same however long they are; whoever gets them makes what they stand for."""

    pairs: Sequence[tuple[int, int]]


def run(
    items: Iterable[_Item] | Spans,
    call: Call[_Item, _Rows],
    workers: Workers,
    lost: Callable[[_Item, str], _Rows],
    most: int = MOST,
    ahead: int = AHEAD,
) -> Iterator[tuple[Sequence[_Item], _Rows]]:
    """Calls `call` with batches of `items`, and gives batches with what they gave as they are done, in any order.

    items: taken as they are needed. call: sent to the workers. lost: what an item gives whose process died `DEATHS`
    times, of which a text says more. most: items of a batch. ahead: items that are taken before
    they are needed. When a pool breaks, the batches that were under way run
    again one after the other, each halved until the item to blame stands alone.

    Raises DistributedError (AHBM-X141) where workers do not start, or cannot run `call` at all; and what `items`
    raises.
    """
    source = _Spans(items.pairs) if isinstance(items, Spans) else _Source(items, ahead)
    ended: SimpleQueue[Future[tuple[_Rows, float]]] = SimpleQueue()
    """What is done, or was: a future comes here once. To look for it among those that fly would take longer, the more
    workers there are."""
    back: deque[Sequence[_Item]] = deque()
    """What came back unfinished, or was never taken."""
    suspects: deque[_Batch[_Item]] = deque()
    flying: dict[Future[tuple[_Rows, float]], _Batch[_Item]] = {}
    size, least, refused, done = 1, 1, 0, False
    executor = workers.open()
    try:
        while True:
            # A suspect flies alone: when a process dies then, the blame is clear.
            trial = bool(suspects) and not flying
            window = 1 if trial else 0 if suspects or (refused and flying) else workers.window
            while len(flying) < window:
                if trial:
                    batch = suspects.popleft()
                else:
                    taken = back.popleft() if back else source.take(size, least, workers.window)
                    batch = _Batch(cast("Sequence[_Item]", taken))
                if not batch.items:
                    break
                try:
                    sent = _submit(executor, call, batch.items)
                    flying[sent] = batch
                    sent.add_done_callback(ended.put)
                    refused = 0
                except BrokenExecutor as broken:
                    # It broke before the future that was to say so: what was sent now is not to blame.
                    if trial:
                        suspects.appendleft(batch)
                    else:
                        back.appendleft(batch.items)
                    refused += 1
                    if refused > DEATHS:
                        raise _unable(broken) from broken
                    break
            if not flying:
                if not refused:
                    break
                workers.check()
                executor = workers.open()
                continue
            source.look_ahead(ended.empty)
            future = ended.get()
            if future not in flying:
                continue
            batch = flying.pop(future)
            error = future.exception()
            if error is None:
                rows, seconds = future.result()
                back.extend([batch.items[len(rows) :]] if len(rows) < len(batch.items) else [])
                per_second = len(rows) / max(seconds, 1e-9)
                size = max(1, min(most, GROWTH * len(rows), int(BATCH_S * per_second)))
                least = min(size, int(LEAST_S * per_second) + 1)
                yield batch.items[: len(rows)], rows
            elif isinstance(error, BrokenExecutor) and not trial:
                suspects.append(batch)
                for other, its in list(flying.items()):
                    if not other.done() or other.exception() is not None:
                        suspects.append(its)
                        del flying[other]
                workers.check()
                executor, refused = workers.open(), 0
            elif isinstance(error, BrokenExecutor) or type(error).__name__ in KILLED:
                if isinstance(error, BrokenExecutor):
                    workers.check()
                    executor, refused = workers.open(), 0
                half = len(batch.items) // 2
                if half:
                    suspects.extendleft([_Batch(batch.items[half:]), _Batch(batch.items[:half])])
                elif batch.deaths + 1 < DEATHS:
                    suspects.appendleft(_Batch(batch.items, batch.deaths + 1))
                else:
                    yield batch.items, lost(batch.items[0], f"{type(error).__name__}: {error}")
            else:
                raise error if isinstance(error, AhbmError) else _unable(error) from error
        done = True
    finally:
        for future in flying:
            future.cancel()
        workers.close(done)


class _Source(Generic[_Item]):
    """Items, some of which are taken before they are needed."""

    def __init__(self, items: Iterable[_Item], most: int) -> None:
        self._items, self._most = iter(items), most
        self._ahead: deque[_Item] = deque()
        self._ended = False

    def look_ahead(self, idle: Callable[[], bool]) -> None:
        """Takes items while there is nothing else to do."""
        while len(self._ahead) < self._most and not self._ended and idle():
            self._pull()

    def take(self, size: int, least: int, parts: int) -> tuple[_Item, ...]:
        """The next `size` items; near the end fewer, for `parts` batches to be alike, but no fewer than `least`."""
        while len(self._ahead) < size and not self._ended:
            self._pull()
        if self._ended:
            size = max(least, min(size, -(-len(self._ahead) // parts)))
        return tuple(self._ahead.popleft() for _ in range(min(size, len(self._ahead))))

    def _pull(self) -> None:
        try:
            self._ahead.append(next(self._items))
        except StopIteration:
            self._ended = True


class _Spans:
    """Integers, as ranges that lie in one pair each."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = deque(pairs)
        self._left = sum(end - first for first, end in pairs)

    def look_ahead(self, idle: Callable[[], bool]) -> None:
        """There is nothing to make before it is needed."""

    def take(self, size: int, least: int, parts: int) -> range:
        """The next `size` items, as `_Source.take`; none of the next pair."""
        if not self._pairs:
            return range(0)
        if self._left < size * parts:
            size = max(least, min(size, -(-self._left // parts)))
        first, end = self._pairs.popleft()
        stop = min(first + size, end)
        if stop < end:
            self._pairs.appendleft((stop, end))
        self._left -= stop - first
        return range(first, stop)


@dataclass(frozen=True)
class _Batch(Generic[_Item]):
    items: Sequence[_Item]
    deaths: int = 0
    """Times that a process died with this batch alone."""


def _unable(error: BaseException) -> DistributedError:
    message = f"the executor does not run what a sweep sends it: {type(error).__name__}: {error}"
    return DistributedError("AHBM-X141", message, hint="its workers need the same version of ahbm and the same files")


def ordered(batches: Iterable[tuple[Sequence[tuple[int, Any]], Sequence[_Row]]]) -> Iterator[_Row]:
    """The rows of numbered items in the order of their numbers, each as soon as all before it are there."""
    waiting: dict[int, _Row] = {}
    at = 0
    for items, rows in batches:
        waiting.update((number, row) for (number, _), row in zip(items, rows, strict=True))
        while at in waiting:
            yield waiting.pop(at)
            at += 1
