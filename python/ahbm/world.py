"""Where ranks meet: threads deposit their part of an operation, the world's runner performs it and wakes them.

One thread, the runner, performs every operation: the thread that called `ahbm.spawn`, or the only rank's own thread.
So kernels are captured and simulations polled where Python delivers Ctrl-C, and results do not depend on how threads
interleave. The runner also sees when no rank can go on: every rank either waits or has returned, and nothing is left
to perform. In that state, and in no other, receives from any source choose their sender; if there is none to choose,
it is a stall and every waiting rank gets one error that says who waits for whom.

Invariant: a rank counts as running from the moment its operation completes, not from when its thread wakes up.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ahbm.errors import AhbmError, DistributedError, InterruptedRun, RankError, Site
from ahbm.groups import ProcessGroup, span

GRACE_S = 1.0
"""Wall seconds an aborted world gives to ranks that compute outside of any call; then it leaves them behind."""

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))


@dataclass(eq=False)
class Part:
    """One rank's side of an operation."""

    rank: int
    """Global rank."""
    terms: dict[str, object]
    """What all sides must agree on, in the order in which a disagreement is reported."""
    buffer: Any
    """What the operation works on; its meaning belongs to whoever performs it."""
    finish: Callable[[], object]
    """Takes the result back to the user; returns what `Work.result` gives."""
    clock_ps: int
    """The rank's simulated time at the call."""
    origin: str
    """`file:line` of the call."""
    result: object = None
    operation: Operation = field(init=False)

    def settle(self) -> None:
        """Takes the result back to the user and lets go of the memory."""
        self.result = self.finish()
        self.buffer, self.finish, self.terms = None, _nothing, {}


def _nothing() -> None:
    pass


class Operation:
    """A collective, or a matched send and receive, from its first arrival to its end."""

    def __init__(self, label: str, members: tuple[int, ...], perform: Callable[[Operation], int]) -> None:
        self.label = label
        self.members = members
        self.perform = perform
        self.parts: dict[int, Part] = {}
        self.done = False
        self.error: BaseException | None = None
        self.end_ps = 0
        self.record: object = None

    def add(self, part: Part) -> None:
        """Takes one rank's part; its wait refers to this operation from now on."""
        self.parts[part.rank] = part
        part.operation = self

    def ordered(self) -> list[Part]:
        """The parts in the order of the members."""
        return [self.parts[rank] for rank in self.members]

    def absent(self) -> list[int]:
        """Members that have not arrived."""
        return [rank for rank in self.members if rank not in self.parts]

    def check_agreement(self) -> None:
        """Raises DistributedError (AHBM-X110) naming the ranks and both values of the first term that differs."""
        parts = [self.parts[rank] for rank in sorted(self.parts)]
        for term in parts[0].terms:
            values: dict[object, list[Part]] = {}
            for part in parts:
                values.setdefault(part.terms.get(term), []).append(part)
            if len(values) > 1:
                sides = [(span([part.rank for part in side]), value, side[0].origin) for value, side in values.items()]
                told = "; ".join(
                    f"{who} {'has' if who.startswith('rank ') else 'have'} {value}" for who, value, _ in sides
                )
                raise DistributedError(
                    "AHBM-X110",
                    f"{self.label}: the ranks disagree on {term}: {told}",
                    sites=[Site(f"{who}: {term} {value}", origin) for who, value, origin in sides],
                    hint="every rank of a group must make the same calls in the same order with equal arguments",
                )


@dataclass(eq=False)
class Letter:
    """A posted send or receive that has not met its other side."""

    src: int | None
    """Global rank; None receives from any source."""
    dst: int
    tag: int
    part: Part


@dataclass(eq=False)
class RankState:
    """What the world knows of one rank."""

    rank: int
    wake: threading.Condition
    thread: int = 0
    clock_ps: int = 0
    waiting: Part | None = None
    finished: bool = False
    error: BaseException | None = None
    value: object = None


@dataclass(eq=False)
class Mailbox:
    """The unmatched sends and receives of one group."""

    perform: Callable[[Operation], int]
    name: str
    sends: list[Letter] = field(default_factory=list)
    receives: list[Letter] = field(default_factory=list)

    def pair(self) -> list[tuple[Letter, Letter]]:
        """Takes out every (send, receive) that belongs together whatever happens next.

        A receive from any source holds back the later receives of its rank and tag, as it may take their sender.
        """
        pairs = []
        held: set[tuple[int, int]] = set()
        for receive in list(self.receives):
            if receive.src is None:
                held.add((receive.dst, receive.tag))
            elif (receive.dst, receive.tag) not in held:
                found = next((send for send in self.sends if _fits(send, receive)), None)
                if found is not None:
                    pairs.append(self.take(found, receive))
        return pairs

    def wildcard(self) -> tuple[Letter, Letter] | None:
        """The earliest receive from any source that has a sender, with its earliest sender; nothing is taken out."""
        for receive in sorted((r for r in self.receives if r.src is None), key=lambda r: (r.part.clock_ps, r.dst)):
            fitting = [send for send in self.sends if _fits(send, receive)]
            if fitting:
                return min(fitting, key=lambda send: (send.part.clock_ps, send.part.rank)), receive
        return None

    def take(self, send: Letter, receive: Letter) -> tuple[Letter, Letter]:
        """Removes both sides."""
        self.sends.remove(send)
        self.receives.remove(receive)
        return send, receive


def _fits(send: Letter, receive: Letter) -> bool:
    return send.dst == receive.dst and send.tag == receive.tag and receive.src in (None, send.src)


class World:
    """The ranks of one `spawn` (or the single rank of a plain script) and everything under way between them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.ranks = [RankState(rank, threading.Condition(self.lock)) for rank in range(size)]
        self.runner = threading.get_ident()
        self.patience_s = float("inf")
        self.failure: BaseException | None = None
        self._stir = threading.Condition(self.lock)
        self._jobs: deque[Operation] = deque()
        self._slots: dict[tuple[ProcessGroup, int], Operation] = {}
        self._counts: dict[tuple[ProcessGroup, int], int] = {}
        self._mail: dict[ProcessGroup, Mailbox] = {}

    # What ranks call

    def meet(self, group: ProcessGroup, part: Part, name: str, perform: Callable[[Operation], int]) -> None:
        """Deposits `part` into the group's next collective; the last arrival hands it to the runner."""
        with self.lock:
            self._raise_failure()
            index = self._counts.get((group, part.rank), 0)
            self._counts[group, part.rank] = index + 1
            operation = self._slots.get((group, index))
            if operation is None:
                operation = Operation(f"{name} (call {index + 1} of {group.name})", group.ranks, perform)
                self._slots[group, index] = operation
            operation.add(part)
            if not operation.absent():
                del self._slots[group, index]
                if not operation.done:
                    self._enqueue(operation)

    def post(self, group: ProcessGroup, letter: Letter, *, sends: bool, perform: Callable[[Operation], int]) -> None:
        """Posts one side of a send and receive; sides meet in order per (sender, receiver, tag)."""
        with self.lock:
            self._raise_failure()
            box = self._mail.setdefault(group, Mailbox(perform, group.name))
            me, peer = letter.part.rank, letter.dst if sends else letter.src
            label = f"{'send to' if sends else 'recv from'} {'any rank' if peer is None else f'rank {peer}'}"
            Operation(f"{label} ({group.name})", (me,) if peer is None else (me, peer), perform).add(letter.part)
            (box.sends if sends else box.receives).append(letter)
            for send, receive in box.pair():
                self._join(box, send, receive)

    def wait(self, part: Part, timeout_s: float | None = None) -> None:
        """Blocks rank `part.rank` until its operation ends and moves its clock there; raises the operation's error."""
        state = self.ranks[part.rank]
        if threading.get_ident() != state.thread:
            raise DistributedError(
                "AHBM-X105",
                f"a thread that is not rank {part.rank} waits for its work",
                hint="wait where the collective was issued",
            )
        with self.lock:
            if not part.operation.done:
                self._raise_failure()
                state.waiting = part
                self._stir.notify()
                while self.runner != state.thread and state.waiting is part:
                    if not state.wake.wait(timeout_s) and state.waiting is part:
                        state.waiting = None
                        raise DistributedError(
                            "AHBM-X122",
                            f"{part.operation.label}: not done after {timeout_s:g} s",
                            sites=[self._waiter(part)],
                        )
        if self.runner == state.thread and not part.operation.done:
            try:
                self.drive(lambda: part.operation.done)
            finally:
                state.waiting = None
        if not part.operation.done:
            with self.lock:
                self._raise_failure()
        if part.operation.error is not None:
            raise clone(part.operation.error)
        state.clock_ps = max(state.clock_ps, part.operation.end_ps)

    def enter(self, rank: int) -> None:
        """Marks the calling thread as `rank`."""
        self.ranks[rank].thread = threading.get_ident()

    def leave(self, rank: int, value: object, error: BaseException | None) -> None:
        """The rank's worker has ended; an error aborts the siblings."""
        with self.lock:
            state = self.ranks[rank]
            state.value, state.error, state.finished = value, error, True
            if error is not None:
                self._abort(original(error) or rank_error(rank, error))
            self._stir.notify()

    # What the runner calls

    def drive(self, done: Callable[[], bool]) -> None:
        """Performs operations as they fill up until `done()`; returns early when an aborted world leaves ranks behind.

        KeyboardInterrupt passes through; the operation it hit has failed.
        """
        while (operation := self._next(done)) is not None:
            self._perform(operation)

    def interrupt(self, error: BaseException) -> None:
        """Aborts every rank with `error`."""
        with self.lock:
            self._abort(error)
            self.patience_s = GRACE_S

    def first_error(self) -> BaseException | None:
        """What to raise for the whole world: the own error of the lowest rank that has one."""
        with self.lock:
            for state in self.ranks:
                error = state.error
                if error is not None and not isinstance(original(error), RankError):
                    return original(error) or rank_error(state.rank, error)
            return self.failure

    def check_leftovers(self) -> None:
        """Raises DistributedError (AHBM-X123) when ranks returned with work under way that nobody will finish."""
        with self.lock:
            parts = [
                part for operation in self._slots.values() if not operation.done for part in operation.parts.values()
            ]
            parts += [letter.part for box in self._mail.values() for letter in (*box.sends, *box.receives)]
            if parts:
                sites = [self._waiter(part) for part in sorted(parts, key=lambda part: part.rank)]
                raise DistributedError(
                    "AHBM-X123",
                    f"all ranks have returned, but {sites[0].label}",
                    sites=sites,
                    hint="call wait() on every Work, and make the same calls on every rank",
                )

    # Under the lock

    def _enqueue(self, operation: Operation) -> None:
        self._jobs.append(operation)
        self._stir.notify()

    def _join(self, box: Mailbox, send: Letter, receive: Letter) -> None:
        members = (send.part.rank, receive.dst)
        operation = Operation(f"send from rank {members[0]} to rank {members[1]} ({box.name})", members, box.perform)
        operation.add(send.part)
        operation.add(receive.part)
        self._enqueue(operation)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise clone(self.failure)

    def _abort(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._jobs.clear()
        for state in self.ranks:
            self._release(state)

    def _release(self, state: RankState) -> None:
        if state.waiting is not None:
            state.waiting = None
            state.wake.notify()

    def _complete(self, operation: Operation, error: BaseException | None) -> None:
        operation.error, operation.done = error, True
        for state in self.ranks:
            if state.waiting is not None and state.waiting.operation is operation:
                self._release(state)

    def _next(self, done: Callable[[], bool]) -> Operation | None:
        with self.lock:
            while not self._jobs:
                if done() or (self.failure is not None and self.size == 1):
                    return None
                if not any(state.waiting is None and not state.finished for state in self.ranks):
                    if not self._choose_sender():
                        self._stall()
                elif not self._stir.wait(None if self.patience_s == float("inf") else self.patience_s):
                    if self.failure is not None:
                        return None
                    if any(state.waiting is not None for state in self.ranks):
                        self._time_out()
            return self._jobs.popleft()

    def _choose_sender(self) -> bool:
        found = [(box, pair) for box in self._mail.values() if (pair := box.wildcard()) is not None]
        if not found:
            return False
        box, (send, receive) = min(found, key=lambda entry: (entry[1][1].part.clock_ps, entry[1][1].dst))
        self._join(box, *box.take(send, receive))
        for pair in box.pair():
            self._join(box, *pair)
        return True

    def _stall(self) -> None:
        waits = [state.waiting for state in self.ranks if state.waiting is not None]
        parties = "; ".join(self._waiter(part).label for part in waits[:8])
        more = f"; and {len(waits) - 8} more" if len(waits) > 8 else ""
        error = DistributedError(
            "AHBM-X121",
            f"no rank can go on: {parties}{more}",
            sites=[self._waiter(part) for part in waits],
            hint="every rank of a group must make the same calls in the same order",
        )
        for part in waits:
            if not part.operation.done:
                self._complete(part.operation, error)

    def _time_out(self) -> None:
        waits = [state.waiting for state in self.ranks if state.waiting is not None]
        running = [state.rank for state in self.ranks if state.waiting is None and not state.finished]
        self._abort(
            DistributedError(
                "AHBM-X122",
                f"nothing happened for {self.patience_s:g} s while {span(running)} computed outside of any "
                f"call and {span([part.rank for part in waits])} waited",
                sites=[self._waiter(part) for part in waits],
                hint="pass a longer timeout to init_process_group, or look for an endless loop in the worker",
            )
        )
        self.patience_s = GRACE_S

    def _waiter(self, part: Part) -> Site:
        absent = part.operation.absent()
        if absent:
            reasons = [f"rank {rank}, {self._whereabouts(rank)}" for rank in absent[:4]]
            if len(absent) > 4:
                reasons.append(f"{len(absent) - 4} more")
            return Site(f"rank {part.rank} waits in {part.operation.label} for {' and '.join(reasons)}", part.origin)
        return Site(f"rank {part.rank} waits in {part.operation.label}", part.origin)

    def _whereabouts(self, rank: int) -> str:
        state = self.ranks[rank]
        if state.finished:
            return "which has returned"
        if state.waiting is not None:
            return f"which waits in {state.waiting.operation.label}"
        return "which has not called it"

    # Without the lock

    def _perform(self, operation: Operation) -> None:
        error: BaseException | None = None
        try:
            operation.check_agreement()
            operation.end_ps = operation.perform(operation)
            for part in operation.ordered():
                part.settle()
        except Exception as raised:
            error = raised
            if isinstance(raised, InterruptedRun):
                raise
        except BaseException as raised:
            error = InterruptedRun("AHBM-I101", f"{operation.label}: interrupted")
            raise raised from None
        finally:
            with self.lock:
                self._complete(operation, error)


def call_origin() -> str:
    """`file:line` of the innermost caller outside this package, by the file's base name."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def rank_error(rank: int, error: BaseException) -> RankError:
    """The one error with which a failing rank stops its siblings; its cause is what the rank raised."""
    told = error.message if isinstance(error, AhbmError) else str(error)
    kind = error.code if isinstance(error, AhbmError) else type(error).__name__
    failure = RankError(
        "AHBM-X120",
        f"rank {rank} failed: {kind}: {told}",
        sites=[Site(f"rank {rank} raised {type(error).__name__}", _raised_at(error))],
        hint=error.hint if isinstance(error, AhbmError) else None,
    )
    failure.__cause__ = error
    return failure


def _raised_at(error: BaseException) -> str:
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith((_PACKAGE, *_LIBRARIES)):
            place = f"{Path(frame.f_code.co_filename).name}:{line}"
    return place


def clone(error: BaseException) -> BaseException:
    """A copy of `error` for one more thread to raise: an exception object carries one traceback only."""
    copy = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__dict__["_original"] = original(error) or error
    copy.__cause__ = error.__cause__
    return copy.with_traceback(error.__traceback__)


def original(error: BaseException) -> BaseException | None:
    """The error that `error` is a clone of."""
    found = error.__dict__.get("_original")
    return found if isinstance(found, BaseException) else None
