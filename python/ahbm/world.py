"""Where ranks meet: threads deposit their part of an operation, the world's runner performs it and wakes them.

Operations are performed one at a time, in the order in which they fill up: a quick one by the rank that arrives last,
any other by the runner: the thread that called `ahbm.spawn`, or the only rank's own thread. So kernels are captured and
simulations polled where Python delivers Ctrl-C, and results do not depend on how threads interleave. The runner also
sees when no rank can go on: every rank either waits or has returned, and nothing is left to perform. In that state, and
in no other, the simulated time is told to who asked for it, and receives from any source choose their sender; if there
is neither, it is a stall and every waiting rank gets one error that says who waits for whom.

With `turns`, one rank's thread runs at a time: a rank hands the turn over where it waits or ends, to the next one in
rank order that can go on.

Invariants: a rank counts as running from the moment its operation completes, not from when its thread wakes up; a rank
counts as waiting only while its own thread waits, not for helper threads that wait on its behalf.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ahbm._core import Gate, Gates
from ahbm.blame import clone, original, rank_error
from ahbm.errors import DistributedError, InterruptedRun, RankError, Site
from ahbm.groups import ProcessGroup, span
from ahbm.mail import Letter, Mailbox
from ahbm.operation import Operation, Part, Performer

GRACE_S = 1.0
"""Wall seconds an aborted world gives to ranks that compute outside of any call; then it leaves them behind."""


@dataclass(eq=False)
class RankState:
    """What the world knows of one rank."""

    rank: int
    thread: int = 0
    ready: Gate | None = None
    """With turns: opens when the rank may run."""
    clock_ps: int = 0
    waiting: Part | None = None
    finished: bool = False
    error: BaseException | None = None
    value: object = None


class Turns(Protocol):
    """What a rank's thread does as it gives its turn away and gets it back, e.g. swap the state that threads share."""

    def pause(self, rank: int) -> None:
        """The calling thread, `rank`, is about to wait."""

    def resume(self, rank: int) -> None:
        """The calling thread, `rank`, runs again."""


class World:
    """The ranks of one `spawn` (or the single rank of a plain script) and everything under way between them."""

    def __init__(self, size: int, turns: Turns | None = None) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.ranks = [RankState(rank) for rank in range(size)]
        self.runner = threading.get_ident()
        self.patience_s = float("inf")
        self.failure: BaseException | None = None
        self.hurry_s: float | None = None
        """After so many wall seconds without progress a receive from any source takes a sender that is there, though
        other ranks run on: they may wait for something else than this world. None: it waits for them."""
        self._gates = Gates(size)
        self._turns = turns
        self._turn: int | None = None
        self._last_turn = size - 1
        self._stir = threading.Condition(self.lock)
        self._jobs: deque[Operation] = deque()
        self._performing = False
        self._running = size
        self._ticks = 0
        self._untold: list[tuple[Part, BaseException | None]] = []
        self._blocked: dict[Part, None] = {}
        self._slots: dict[tuple[ProcessGroup, int], Operation] = {}
        self._counts: dict[tuple[ProcessGroup, int], int] = {}
        self._mail: dict[ProcessGroup, Mailbox] = {}
        self._asking: list[Part] = []

    # What ranks call

    def meet(self, group: ProcessGroup, part: Part, name: str, performer: Performer) -> None:
        """Deposits `part` into the group's next collective; the last arrival performs it or hands it to the runner."""
        with self.lock:
            self._raise_failure()
            index = self._counts.get((group, part.rank), 0)
            self._counts[group, part.rank] = index + 1
            operation = self._slots.get((group, index))
            if operation is None:
                operation = Operation(f"{name} (call {index + 1} of {group.name})", group.ranks, performer)
                self._slots[group, index] = operation
            operation.add(part)
            if len(operation.parts) == len(operation.members):
                del self._slots[group, index]
                if not operation.done:
                    self._jobs.append(operation)
            self._ticks += 1
            idle = not self._jobs
        if not idle:
            self._work_off()

    def post(self, group: ProcessGroup, letter: Letter, *, sends: bool, performer: Performer) -> None:
        """Posts one side of a send and receive; sides meet in order per (sender, receiver, tag)."""
        with self.lock:
            self._raise_failure()
            box = self._mail.setdefault(group, Mailbox(performer, group.name))
            me, peer = letter.part.rank, letter.dst if sends else letter.src
            label = f"{'send to' if sends else 'recv from'} {'any rank' if peer is None else f'rank {peer}'}"
            Operation(f"{label} ({group.name})", (me,) if peer is None else (me, peer), performer).add(letter.part)
            (box.sends if sends else box.receives).append(letter)
            for send, receive in box.pair():
                self._join(box, send, receive)
            if self.hurry_s is not None:
                self._stir.notify()
        self._work_off()

    def ask(self, part: Part, performer: Performer) -> None:
        """Blocks until no rank can go on; then all ranks that ask are one operation."""
        with self.lock:
            self._raise_failure()
            Operation("the simulated time", (part.rank,), performer).add(part)
            self._asking.append(part)
        self.settle(part)

    def wait(self, part: Part, timeout_s: float | None = None) -> None:
        """Blocks until the part's operation ends and moves its rank's clock there; raises the operation's error."""
        self.settle(part, timeout_s)
        if part.operation.error is not None:
            raise clone(part.operation.error)
        state = self.ranks[part.rank]
        state.clock_ps = max(state.clock_ps, part.operation.end_ps)

    def settle(self, part: Part, timeout_s: float | None = None) -> None:
        """Blocks until the part's operation ends, well or not; the clock stays. Raises what stopped the world."""
        if not part.operation.done:
            if threading.get_ident() == self.runner:
                self._drive_until(part)
            else:
                self._block(part, timeout_s)

    def notify(self, part: Part, told: Callable[[BaseException | None], None]) -> bool:
        """Has `told` called, from any thread, with the operation's error when that ends; False when it has ended."""
        with self.lock:
            if not part.operation.done:
                part.notify = told
            return not part.operation.done

    def park(self, part: Part, gate: Gate | None, *, own: bool) -> bool:
        """Notes that somebody waits for `part`, `own`: its rank itself. False when there is nothing to wait for.

        `gate`, if any, is opened when the operation ends or the world is aborted.
        """
        with self.lock:
            if part.operation.done:
                return False
            self._raise_failure()
            if gate is not None:
                part.gates.append(gate)
            self._blocked[part] = None
            if own:
                self.ranks[part.rank].waiting = part
                self._running -= 1
                self._end_turn(part.rank)
                if not self._running:
                    self._stir.notify()
            return True

    def enter(self, rank: int) -> None:
        """Marks the calling thread as `rank`; with turns, blocks until it is the rank's."""
        state = self.ranks[rank]
        state.thread = threading.get_ident()
        if self._turns is not None:
            self._await_turn(state)

    def be_patient(self, seconds: float) -> None:
        """After `seconds` of wall time without any progress waiting ranks fail."""
        with self.lock:
            self.patience_s = seconds
            self._stir.notify()

    def leave(self, rank: int, value: object, error: BaseException | None) -> None:
        """The rank's worker has ended; an error aborts the siblings."""
        with self.lock:
            state = self.ranks[rank]
            if state.finished:
                return
            self._running -= state.waiting is None
            self._gates.leave(rank)
            state.value, state.error, state.finished, state.waiting = value, error, True, None
            self._end_turn(rank)
            if error is not None:
                self._abort(original(error) or rank_error(rank, error))
            self._stir.notify()
        self._tell()

    # What the runner calls

    def drive(self, done: Callable[[], bool]) -> None:
        """Performs operations as they fill up until `done()`; returns early when an aborted world leaves ranks behind.

        KeyboardInterrupt passes through; the operation it hit has failed.
        """
        while (operation := self._next(done)) is not None:
            self._perform(operation)
        self._tell()

    def interrupt(self, error: BaseException) -> None:
        """Aborts every rank with `error`."""
        with self.lock:
            self._abort(error)
            self.patience_s = GRACE_S
            self._stir.notify()
        self._tell()

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
            parts = list(self._pending())
            if parts:
                sites = [self._waiter(part) for part in sorted(parts, key=lambda part: part.rank)]
                raise DistributedError(
                    "AHBM-X123",
                    f"all ranks have returned, but {sites[0].label}",
                    sites=sites,
                    hint="call wait() on every Work, and make the same calls on every rank",
                )

    # Under the lock

    def _pending(self) -> Iterator[Part]:
        """The parts of operations that not all sides have arrived for."""
        for operation in self._slots.values():
            if not operation.done:
                yield from operation.parts.values()
        for box in self._mail.values():
            yield from (letter.part for letter in (*box.sends, *box.receives))
        yield from self._asking

    def _join(self, box: Mailbox, send: Letter, receive: Letter) -> None:
        members = (send.part.rank, receive.dst)
        operation = Operation(f"send from rank {members[0]} to rank {members[1]} ({box.name})", members, box.performer)
        operation.add(send.part)
        operation.add(receive.part)
        self._jobs.append(operation)

    def _collect_asked(self) -> bool:
        parts = sorted(self._asking, key=lambda part: part.rank)
        self._asking.clear()
        if parts:
            operation = Operation(
                parts[0].operation.label, tuple(part.rank for part in parts), parts[0].operation.performer
            )
            for part in parts:
                operation.add(part)
            self._jobs.append(operation)
        return bool(parts)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise clone(self.failure)

    def _abort(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        for operation in [*(part.operation for part in self._pending()), *self._jobs]:
            if not operation.done:
                self._complete(operation, self.failure)
        self._jobs.clear()
        for part in list(self._blocked):
            self._release(part)
        if self._turns is not None and self._turn is None:
            self._give_turn()

    def _release(self, part: Part) -> None:
        self._blocked.pop(part, None)
        state = self.ranks[part.rank]
        if state.waiting is part:
            state.waiting = None
            self._running += 1
        for gate in part.gates:
            gate.open()
        part.gates.clear()

    def _complete(self, operation: Operation, error: BaseException | None) -> None:
        operation.error, operation.done = error, True
        self._ticks += 1
        for part in operation.parts.values():
            if part.notify is not None:
                self._untold.append((part, error))
            if part in self._blocked:
                self._release(part)
        operation.parts = {}  # They refer to it.

    def _next(self, done: Callable[[], bool]) -> Operation | None:
        with self.lock:
            while not self._jobs or self._performing:
                if done() or (self.failure is not None and self.size == 1):
                    return None
                ticks = self._ticks
                if not self._running and not self._performing:
                    if not self._collect_asked() and not self._choose_sender():
                        self._stall()
                elif self._untold:
                    self.lock.release()
                    try:
                        self._tell()
                    finally:
                        self.lock.acquire()
                elif self.hurry_s is not None and self._wildcards():
                    if not self._stir.wait(self.hurry_s) and self._ticks == ticks:
                        self._choose_sender()
                elif not self._stir.wait(None if self.patience_s == float("inf") else self.patience_s):
                    if self.failure is not None:
                        return None
                    if self._ticks == ticks and self._blocked:
                        self._time_out()
            self._performing = True
            return self._jobs.popleft()

    def _end_turn(self, rank: int) -> None:
        if self._turns is not None and self._turn == rank:
            self._turn = None
            self._give_turn()

    def _give_turn(self) -> None:
        """Nobody runs: the next rank in order that can, once nothing is left that could free another one. Announces the
        one behind it."""
        if self._jobs or self._performing:
            return
        for state in self._after_last_turn():
            if state.ready is not None and state.waiting is None:
                self._turn = self._last_turn = state.rank
                state.ready.open()
                state.ready = None
                break
        for state in self._after_last_turn():
            if state.ready is not None:
                state.ready.announce()
                return

    def _after_last_turn(self) -> Iterator[RankState]:
        for step in range(1, self.size + 1):
            yield self.ranks[(self._last_turn + step) % self.size]

    def _wildcards(self) -> list[tuple[Mailbox, tuple[Letter, Letter]]]:
        return [(box, pair) for box in self._mail.values() if (pair := box.wildcard()) is not None]

    def _choose_sender(self) -> bool:
        found = self._wildcards()
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
        if self._turns is not None and self._turn is None:
            self._give_turn()

    def _time_out(self) -> None:
        waits = list(self._blocked)
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

    def _work_off(self) -> None:
        """Performs what is quick; leaves the rest to the runner, or to whoever performs right now."""
        while True:
            with self.lock:
                self._ticks += 1
                if not self._jobs or self._performing:
                    return
                if not self._jobs[0].performer.quick(self._jobs[0]):
                    self._stir.notify()
                    return
                self._performing = True
                operation = self._jobs.popleft()
            self._perform(operation)

    def _perform(self, operation: Operation) -> None:
        error: BaseException | None = None
        try:
            operation.check_agreement()
            operation.end_ps = operation.performer.perform(operation)
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
                self._performing = False
                self._complete(operation, error)
                if self._turns is not None and self._turn is None:
                    self._give_turn()
                if threading.get_ident() != self.runner and (self._jobs or not self._running):
                    self._stir.notify()
            self._tell()

    def _tell(self) -> None:
        """Notifies whoever asked to be told of an operation's end."""
        while self._untold:
            with self.lock:
                told, self._untold = self._untold, []
            for part, error in told:
                if part.notify is not None:
                    notify, part.notify = part.notify, None
                    notify(error)

    def _block(self, part: Part, timeout_s: float | None) -> None:
        state = self.ranks[part.rank]
        own = threading.get_ident() == state.thread
        turns = self._turns if own else None
        gate = self._gates.gate(part.rank) if own else Gate()
        if turns is not None:
            turns.pause(part.rank)
            state.ready = gate
        # With turns, the gate opens not when the operation ends, but when the rank has its turn after that.
        if self.park(part, gate if turns is None else None, own=own):
            try:
                opened = gate.wait(timeout_s)
            except BaseException:
                self._unpark(part, gate, own=own)
                raise
            if not opened and self._unpark(part, gate, own=own):
                raise DistributedError(
                    "AHBM-X122",
                    f"{part.operation.label}: not done after {timeout_s:g} s",
                    sites=[self._waiter(part)],
                )
            if not opened and turns is not None:
                gate.wait()
        elif turns is not None:
            state.ready = None
        if turns is not None:
            turns.resume(part.rank)
        if not part.operation.done:
            with self.lock:
                self._raise_failure()

    def _unpark(self, part: Part, gate: Gate, *, own: bool) -> bool:
        """Takes back a `park`; False when the operation has ended meanwhile."""
        with self.lock:
            waits = own and self.ranks[part.rank].waiting is part
            if gate not in part.gates and not waits:
                return False
            if gate in part.gates:
                part.gates.remove(gate)
            if not part.gates:
                self._blocked.pop(part, None)
            if waits:
                self.ranks[part.rank].waiting = None
                self._running += 1
            return True

    def _await_turn(self, state: RankState) -> None:
        gate = self._gates.gate(state.rank)
        with self.lock:
            state.ready = gate
            if self._turn is None and all(other.ready or other.finished for other in self.ranks):
                self._give_turn()
        gate.wait()
        if self._turns is not None:
            self._turns.resume(state.rank)

    def _drive_until(self, part: Part) -> None:
        """The only rank of a world performs its own operations."""
        if not self.park(part, None, own=True):
            return
        try:
            self.drive(lambda: part.operation.done)
        finally:
            with self.lock:
                self._release(part)
        if not part.operation.done:
            with self.lock:
                self._raise_failure()
