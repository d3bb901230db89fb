"""Meeting point of ranks: threads deposit their part of an operation, the world's runner performs it and wakes them.

Operations are performed one at a time, in the order in which they fill up: a quick one by the rank that arrives last,
any other by the runner: the thread that called `ahbm.spawn`, or the only rank's own thread. So kernels are captured and
simulations polled where Python delivers Ctrl-C, and results do not depend on how threads interleave. The runner also
sees when no rank can go on: every rank either waits or has returned, and nothing is left to perform. In that state, and
in no other, the simulated time goes to the ranks that asked, and receives from any source choose their sender; if there
is neither, it is a stall and every waiting rank gets one error that says who waits for whom.

With `turns`, one rank's thread runs at a time: a rank hands the turn over where it waits or ends, to the next one in
rank order that can go on. A rank whose thread waits for a helper that waits for an operation hands it over, too.

Invariants: a rank counts as running from the moment its operation completes, not from when its thread wakes up; a rank
counts as waiting only while its own thread waits, not for helper threads that wait on its behalf.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ahbm._core import Gate, Gates
from ahbm.errors import DistributedError, InterruptedRun, RankError
from ahbm.ranks import stall
from ahbm.ranks.blame import clone, original, rank_error
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.mail import Letter, Mailbox, first_wildcard
from ahbm.ranks.operation import Operation, Part, Performer, sort_held
from ahbm.ranks.stall import RankState
from ahbm.ranks.ticket import Notify, Telling, Ticket
from ahbm.ranks.turns import Pause, TurnTable

GRACE_S = 1.0
"""Wall seconds an aborted world gives to ranks that compute outside of any call; then it leaves them behind."""


class World:
    """The ranks of one `spawn` (or the single rank of a plain script) and everything under way between them."""

    def __init__(self, size: int, turns: Pause | None = None) -> None:
        """`turns`: one rank runs at a time, and this is done as it stops and goes on; None: all run freely."""
        self.size = size
        self.lock = threading.Lock()
        self.ranks = [RankState(rank) for rank in range(size)]
        self.runner = threading.get_ident()
        self.patience_s = float("inf")
        self.failure: BaseException | None = None
        self.hurry_s: float | None = None
        """After so many wall seconds without progress a receive from any source takes a sender that is there, though
        other ranks run on: they may wait for something else than this world. None: it waits for them."""
        self.late: DistributedError | None = None
        """The error of the first wait that has timed out."""
        self._gates = Gates(size)
        self._turns = None if turns is None else TurnTable(size, turns)
        self._stir = threading.Condition(self.lock)
        self._jobs: deque[Operation] = deque()
        self._held: list[Operation] = []
        """All sides have arrived, but an operand is not here, or an earlier one of the lane is held."""
        self._late: list[Part] = []
        """The parts whose operands are not here."""
        self._performing = False
        self._running = size
        self._ticks = 0
        self._open: dict[Ticket, Part] = {}
        """The parts of operations that have not ended."""
        self._notices = Telling(self.lock)
        self._blocked: dict[Part, None] = {}
        self._slots: dict[tuple[ProcessGroup, int], Operation] = {}
        self._counts: dict[tuple[ProcessGroup, int], int] = {}
        self._mail: dict[ProcessGroup, Mailbox] = {}
        self._asking: list[Part] = []

    # Methods that ranks call

    def meet(self, group: ProcessGroup, part: Part, name: str, performer: Performer) -> None:
        """Deposits `part` into the group's next collective; the last arrival performs it or hands it to the runner."""
        with self.lock:
            self._locked_raise_failure()
            index = self._counts.get((group, part.rank), 0)
            self._counts[group, part.rank] = index + 1
            operation = self._slots.get((group, index))
            if operation is None:
                label = f"{name} (call {index + 1} of {group.name})"
                operation = Operation(label, group.ranks, performer, (group,))
                self._slots[group, index] = operation
            operation.add(part)
            if operation.done:
                part.ticket.end(operation.error)
            else:
                self._locked_open(part)
            if len(operation.parts) == len(operation.members):
                del self._slots[group, index]
                if not operation.done:
                    self._locked_fill(operation)
            self._ticks += 1
            idle = not self._jobs
        if not idle:
            self._work_off()

    def post(self, group: ProcessGroup, letter: Letter, *, sends: bool, performer: Performer) -> None:
        """Posts one side of a send and receive; sides meet in order per (sender, receiver, tag)."""
        with self.lock:
            self._locked_raise_failure()
            box = self._mail.setdefault(group, Mailbox(performer, group.name))
            me, peer = letter.part.rank, letter.dst if sends else letter.src
            label = f"{'send to' if sends else 'recv from'} {'any rank' if peer is None else f'rank {peer}'}"
            Operation(f"{label} ({group.name})", (me,) if peer is None else (me, peer), performer).add(letter.part)
            self._locked_open(letter.part)
            (box.sends if sends else box.receives).append(letter)
            for send, receive in box.pair():
                self._locked_join(box, send, receive)
            if self.hurry_s is not None:
                self._stir.notify()
        self._work_off()

    def ask(self, part: Part, performer: Performer) -> None:
        """Blocks until no rank can go on; then all ranks that ask are one operation."""
        with self.lock:
            self._locked_raise_failure()
            Operation("the simulated time", (part.rank,), performer).add(part)
            self._open[part.ticket] = part
            self._asking.append(part)
        self.settle(part.ticket)

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """Blocks until the operation ends and moves the rank's clock there; raises the operation's error."""
        self.settle(ticket, timeout_s)
        if ticket.error is not None:
            raise clone(ticket.error)
        state = self.ranks[ticket.rank]
        state.clock_ps = max(state.clock_ps, ticket.end_ps)

    def settle(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """Blocks until the operation ends, well or not; the clock stays. Raises what stopped the world."""
        if not ticket.done:
            if threading.get_ident() == self.runner:
                self._drive_until(ticket)
            else:
                self._block(ticket, timeout_s)

    def detach(self, ticket: Ticket) -> None:
        """From now on the operand of a send, under way, may be written: the send keeps what it was given."""
        with self.lock:
            part = self._open.get(ticket)
            if part is None:
                return
            waits = len(part.operation.parts) == 1 or part.operation in self._held
            if waits:
                part.buffer = part.buffer.copy()
        if not waits:  # its receive is there: it is about to end
            self.settle(ticket)

    def under_way(self, tickets: tuple[Ticket, ...]) -> tuple[Part, ...]:
        """The parts of those of a rank's operations that have not ended."""
        with self.lock:
            return tuple(part for part in map(self._open.get, tickets) if part is not None)

    def supply(self, ticket: Ticket) -> None:
        """The operand of an operation, under way, is in its buffer now."""
        with self.lock:
            part = self._open.get(ticket)
            if part is not None:
                part.supplied = True
                self._ticks += 1
                self._locked_bring()
                self._locked_hand_on()
        self._work_off()

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """The ranks that the operation still waits for, or that a wait for it has waited for in vain."""
        with self.lock:
            part = self._open.get(ticket)
            return ticket.absent or (() if part is None else tuple(part.operation.absent()))

    def overdue(self, ticket: Ticket, timeout_s: float) -> DistributedError | None:
        """The error (AHBM-X122) of a wait that has lasted `timeout_s` wall seconds; None if the operation has ended."""
        with self.lock:
            if (part := self._open.get(ticket)) is None:
                return None
            self._locked_queue()
            late = stall.late(part, self.ranks, timeout_s)
            self.late = self.late or late
            self._locked_give_turn()
            return late

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """Calls `callback`, from any thread, with the operation's error when that ends; False when it has ended."""
        with self.lock:
            if not ticket.done:
                ticket.notify = callback
            return not ticket.done

    def park(self, ticket: Ticket, gate: Gate | None, *, own: bool) -> Part | None:
        """Notes that somebody waits for the operation, `own`: its rank itself. Returns what is waited for, None when
        there is nothing to wait for.

        `gate`, if any, is opened when the operation ends or the world is aborted.
        """
        with self.lock:
            if ticket.done:
                return None
            self._locked_raise_failure()
            if gate is not None:
                ticket.gates.append(gate)
            part = self._open[ticket]
            self._blocked[part] = None
            if not own and self._turns is not None:
                self._turns.helped[ticket.rank] += 1
                self._locked_lend(ticket.rank, self._turns)
            if own:
                self.ranks[ticket.rank].waiting = part
                self._running -= 1
                self._locked_end_turn(ticket.rank)
                if not self._running:
                    self._stir.notify()
            return part

    def unpark(self, ticket: Ticket, gate: Gate | None, *, own: bool) -> Part | None:
        """Takes back a `park`; None when the operation has ended meanwhile."""
        with self.lock:
            state, part = self.ranks[ticket.rank], self._open.get(ticket)
            waits = own and part is not None and state.waiting is part
            if part is None or (gate not in ticket.gates and not waits):
                return None
            if gate in ticket.gates:
                ticket.gates.remove(gate)
            if not ticket.gates:
                self._blocked.pop(part, None)
            if waits:
                state.waiting = None
                self._running += 1
            return part

    def enter(self, rank: int) -> None:
        """Marks the calling thread as `rank`; with turns, blocks until it is the rank's."""
        self.ranks[rank].thread = threading.get_ident()
        if self._turns is not None:
            self._await_turn(rank, self._turns, first=True)

    @contextmanager
    def aside(self, rank: int, unlocked: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """`rank`'s thread waits for another one, which may wait for ranks that have no turn: they get it meanwhile.
        `unlocked` lets go of what the thread holds, for as long as it waits to have the turn again."""
        turns = self._turns
        if turns is None or threading.get_ident() != self.ranks[rank].thread:
            yield
            return
        with self.lock:
            turns.aside[rank] = True
            self._locked_lend(rank, turns)
        try:
            yield
        finally:
            with self.lock:
                turns.aside[rank] = False
                lent = turns.turn != rank
            if lent:
                with unlocked():
                    self._await_turn(rank, turns)

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
            self._locked_end_turn(rank)
            if error is not None:
                self._locked_abort(original(error) or rank_error(rank, error))
            self._stir.notify()
        self._notices.tell()

    # Methods that the runner calls

    def drive(self, done: Callable[[], bool]) -> None:
        """Performs operations as they fill up until `done()`; returns early when an aborted world leaves ranks behind.

        KeyboardInterrupt passes through; the operation it hit has failed.
        """
        while (operation := self._next(done)) is not None:
            self._perform(operation)
        self._notices.tell()

    def interrupt(self, error: BaseException) -> None:
        """Aborts every rank with `error`."""
        with self.lock:
            self._locked_abort(error)
            self.patience_s = GRACE_S
            self._stir.notify()
        self._notices.tell()

    def first_error(self) -> BaseException | None:
        """The error to raise for the whole world: the own error of the lowest rank that has one."""
        with self.lock:
            for state in self.ranks:
                error = state.error
                if error is not None and not isinstance(original(error), RankError):
                    return original(error) or rank_error(state.rank, error)
            return self.failure

    def check_leftovers(self) -> None:
        """Raises DistributedError (AHBM-X123) when ranks returned with work under way that nobody will finish."""
        with self.lock:
            parts = list(self._locked_pending())
        if parts:
            raise stall.left_over(parts, self.ranks)

    # Under the lock

    def _locked_pending(self) -> Iterator[Part]:
        """The parts of operations that not all sides, or operands, have arrived for."""
        for operation in (*self._slots.values(), *self._held):
            if not operation.done:
                yield from operation.parts.values()
        for box in self._mail.values():
            yield from (letter.part for letter in (*box.sends, *box.receives))
        yield from self._asking

    def _locked_open(self, part: Part) -> None:
        self._open[part.ticket] = part
        if part.is_late:
            self._late.append(part)
            self._locked_bring()

    def _locked_bring(self) -> None:
        """Reads the operands of the parts that have nothing left to come after."""
        for part in list(self._late):
            if part.first is None:
                part.bring()
                if not part.is_late:
                    self._late.remove(part)

    def _locked_fill(self, operation: Operation) -> None:
        """All sides have arrived."""
        if self._late or self._held:
            self._held.append(operation)
            self._locked_hand_on()
        else:
            self._jobs.append(operation)

    def _locked_hand_on(self) -> None:
        """Leaves to the performers what is held no longer."""
        free, self._held = sort_held(self._held)
        self._jobs += free

    def _locked_awaits_operand(self) -> bool:
        """Whether an operand is on its way."""
        return any(part.first is None for part in self._late if part.operation in self._held)

    def _locked_join(self, box: Mailbox, send: Letter, receive: Letter) -> None:
        members = (send.part.rank, receive.dst)
        label = f"send from rank {members[0]} to rank {members[1]} ({box.name})"
        operation = Operation(label, members, box.performer, (send.part.group, *members, send.tag))
        for letter in (send, receive):
            operation.add(letter.part)
        self._locked_fill(operation)

    def _locked_collect_asked(self) -> bool:
        parts = sorted(self._asking, key=lambda part: part.rank)
        self._asking.clear()
        if parts:
            first = parts[0].operation
            operation = Operation(first.label, tuple(part.rank for part in parts), first.performer)
            for part in parts:
                operation.add(part)
            self._jobs.append(operation)
        return bool(parts)

    def _locked_raise_failure(self) -> None:
        if self.failure is not None:
            raise clone(self.failure)

    def _locked_abort(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        for operation in [*(part.operation for part in self._locked_pending()), *self._jobs]:
            if not operation.done:
                self._locked_complete(operation, self.failure)
        self._held.clear()
        self._late.clear()
        self._jobs.clear()
        for part in list(self._blocked):
            self._locked_release(part)
        self._locked_give_turn()

    def _locked_release(self, part: Part) -> None:
        self._blocked.pop(part, None)
        state = self.ranks[part.rank]
        if state.waiting is part:
            state.waiting = None
            self._running += 1
        part.ticket.open_gates()

    def _locked_complete(self, operation: Operation, error: BaseException | None) -> None:
        operation.error, operation.done = error, True
        self._ticks += 1
        for part in operation.parts.values():
            ticket = part.ticket
            ticket.end(error, operation.end_ps)
            self._open.pop(ticket, None)
            if ticket.notify is not None:
                self._notices.add(ticket)
            if part in self._blocked:
                self._locked_release(part)
        operation.let_go()
        if self._late:
            self._locked_bring()
        if self._held:
            self._locked_hand_on()

    def _locked_unblock(self) -> None:
        """No rank runs and nothing is left to perform: time is told, or a sender chosen, or it is a stall."""
        if self._locked_collect_asked() or self._locked_choose_sender():
            return
        error = stall.stalled(self.ranks)
        for part in [state.waiting for state in self.ranks if state.waiting is not None]:
            if not part.operation.done:
                self._locked_complete(part.operation, error)
        self._jobs = deque(operation for operation in self._jobs if not operation.done)
        self._locked_give_turn()

    def _locked_await_stir(self) -> bool:
        """Lets go of the lock until something happens or patience ends; False when the world has failed by then."""
        ticks = self._ticks
        if self.hurry_s is not None and first_wildcard(self._mail.values()) is not None:
            if not self._stir.wait(self.hurry_s) and self._ticks == ticks:
                self._locked_choose_sender()
        elif not self._stir.wait(None if self.patience_s == float("inf") else self.patience_s):
            if self.failure is not None:
                return False
            if self._ticks == ticks and self._blocked:
                self._locked_queue()
                self._locked_abort(stall.silent(self.ranks, list(self._blocked), self.patience_s))
                self.patience_s = GRACE_S
        return True

    def _locked_lend(self, rank: int, turns: TurnTable) -> None:
        if turns.lends(rank):
            turns.hooks.pause(rank)
            self._locked_end_turn(rank)

    def _locked_queue(self) -> None:
        """Notes who has no turn, for words about ranks."""
        for state in self.ranks:
            state.queued = self._turns is not None and self._turns.wishes(state.rank) and state.waiting is None

    def _locked_end_turn(self, rank: int) -> None:
        if self._turns is not None and self._turns.end(rank):
            self._locked_give_turn()

    def _locked_give_turn(self) -> None:
        """Hands out the turn if nobody has it, once nothing is left to perform that could free another rank."""
        turns = self._turns
        if turns is not None and turns.turn is None and not self._jobs and not self._performing:
            turns.give(lambda rank: self.ranks[rank].waiting is None)

    def _locked_choose_sender(self) -> bool:
        found = first_wildcard(self._mail.values())
        if found is None:
            return False
        box, (send, receive) = found
        self._locked_join(box, *box.take(send, receive))
        for pair in box.pair():
            self._locked_join(box, *pair)
        return True

    # Without the lock

    def _work_off(self) -> None:
        """Performs what is quick; leaves the rest to the runner, or to whoever performs right now."""
        while True:
            with self.lock:
                self._ticks += 1
                if not self._jobs or self._performing:
                    return
                if not self._jobs[0].ready().quick:
                    self._stir.notify()
                    return
                self._performing = True
                operation = self._jobs.popleft()
            self._perform(operation)

    def _next(self, done: Callable[[], bool]) -> Operation | None:
        """The next operation to perform, once there is one; None when `done()`, or when an aborted world ends."""
        while True:
            with self.lock:
                while not self._jobs or self._performing:
                    if done() or (self.failure is not None and self.size == 1):
                        return None
                    if not self._running and not self._performing and not self._locked_awaits_operand():
                        self._locked_unblock()
                    elif self._notices.waits:
                        break
                    elif not self._locked_await_stir():
                        return None
                else:
                    self._performing = True
                    return self._jobs.popleft()
            self._notices.tell()

    def _perform(self, operation: Operation) -> None:
        error: BaseException | None = None
        try:
            operation.end_ps = operation.ready().perform()
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
                self._locked_complete(operation, error)
                self._locked_give_turn()
                if threading.get_ident() != self.runner and (self._jobs or not self._running):
                    self._stir.notify()
            self._notices.tell()

    def _block(self, ticket: Ticket, timeout_s: float | None) -> None:
        rank = ticket.rank
        own = threading.get_ident() == self.ranks[rank].thread
        turns = self._turns if own else None
        gate = self._gates.gate(rank) if own else Gate()
        late: DistributedError | None = None
        if turns is not None:
            turns.hooks.pause(rank)
            turns.wish(rank, gate)
        # With turns, the gate opens not when the operation ends, but when the rank has its turn after that.
        if self.park(ticket, gate if turns is None else None, own=own):
            try:
                opened = gate.wait(timeout_s)
            except BaseException:
                self.unpark(ticket, gate, own=own)
                raise
            finally:
                if not own and self._turns is not None:
                    with self.lock:
                        self._turns.helped[rank] -= 1
            if not opened and self.unpark(ticket, gate, own=own) is not None:
                assert timeout_s is not None
                late = self.overdue(ticket, timeout_s)
            if not opened and turns is not None:
                gate.wait()
        elif turns is not None:
            turns.withdraw(rank)
        if turns is not None:
            turns.hooks.resume(rank)
        if late is not None:
            raise late
        if not ticket.done:
            with self.lock:
                self._locked_raise_failure()

    def _await_turn(self, rank: int, turns: TurnTable, *, first: bool = False) -> None:
        """Blocks until it is `rank`'s turn; the `first` one is given when all ranks have come."""
        gate = self._gates.gate(rank)
        with self.lock:
            turns.wish(rank, gate)
            if not first or all(turns.wishes(state.rank) or state.finished for state in self.ranks):
                self._locked_give_turn()
        gate.wait()
        turns.hooks.resume(rank)

    def _drive_until(self, ticket: Ticket) -> None:
        """The only rank of a world performs its own operations."""
        part = self.park(ticket, None, own=True)
        if part is None:
            return
        try:
            self.drive(lambda: ticket.done)
        finally:
            with self.lock:
                self._locked_release(part)
        if not ticket.done:
            with self.lock:
                self._locked_raise_failure()
