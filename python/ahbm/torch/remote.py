"""The seat of a rank whose world lives in rank 0's process."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np

from ahbm._core import Gate, Neighbour
from ahbm.errors import DistributedError, FormatError, Site
from ahbm.ranks.blame import call_origin, clone
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import Groups, ProcessGroup
from ahbm.ranks.history import ADVANCE, WAIT
from ahbm.ranks.seat import Call
from ahbm.ranks.stall import timed_out
from ahbm.ranks.ticket import Notify, Ticket
from ahbm.torch import frames
from ahbm.torch.choices import encoded, encoded_why
from ahbm.torch.frames import Connection, Gone, findings, found
from ahbm.torch.listener import Address, connect, refusal, user

NEAR_BYTES = 1 << 14
"""Shorter operands and results travel in frames."""
ANSWER_S = 2.0
"""The time that rank 0's process has to say whom a wait that was too long has waited for."""


class Remote:
    """One rank's connection to its world: a `Seat`.

    Rank 0's process reads long operands and writes long results where they lie in this one's memory, if the system lets
    it; otherwise, and where they are short, they travel over the connection.
    """

    def __init__(self, rank: int, address: Address, secret: bytes, timeout_s: float) -> None:
        """Takes the place of `rank` in the world of rank 0's process, which may then touch this one's memory.

        Raises OSError, and DistributedError (AHBM-X127) where that is another user's or gives the place to nobody.
        """
        self.rank = rank
        link, host = connect(address, timeout_s)
        if not host.ours:
            link.close()
            raise refusal(f"{host} answers in rank 0's place, and rank {rank} is of user {user()}")
        if host.pid is not None:
            Neighbour.admit(host.pid)
        self._shown = np.frombuffer(secret, np.uint8)
        self._connection = Connection(link, timeout_s)
        self._near = self._greet(secret, timeout_s)
        """Whether rank 0's process has shown that it can read this one's memory."""
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Ticket, Call]] = {}
        """By the index of the call."""
        self._late: list[tuple[Ticket, Call]] = []
        """Those that come after others, whose operands have not been read."""
        self._abandoned: list[Call] = []
        """Calls that ended here before they did in rank 0's process, which may still write to their memory."""
        self._questions: dict[int, tuple[Gate, list[Any]]] = {}
        self._groups = Groups()
        self._asked = 0
        """Questions so far; their numbers on the wire are below those of calls: -1, -2, ..."""
        self._clock_ps = 0
        self._calls = 0
        self._steps: list[int] = []
        """The steps of this rank, computing and waiting, since its latest call."""
        self._failure: BaseException | None = None
        self._unanswering = False
        """Whether rank 0's process has left a question without an answer."""
        self._reader = threading.Thread(target=self._read, name="ahbm reader", daemon=True)
        self._reader.start()

    def _greet(self, secret: bytes, timeout_s: float) -> bool:
        """Says who this is; whether rank 0's process can read its memory."""
        hello = {"rank": self.rank, "at": self._shown.ctypes.data}
        with contextlib.suppress(Gone):  # who is sent away is told why
            self._connection.send(frames.HELLO, hello, secret)
        try:
            self._connection.expire(timeout_s)
            kind, facts, _ = self._connection.receive()
            self._connection.expire(None)
        except BaseException:
            self._connection.close()
            raise
        if kind != frames.WELCOME:
            self._connection.close()
            raise found(facts["error"])
        return bool(facts["near"])

    def clock_ps(self, rank: int) -> int:
        """See `Seat`."""
        return self._clock_ps

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        if ps:
            self._steps.append(ps << 2 | ADVANCE)
        self._clock_ps += ps

    def submit(self, rank: int, call: Call) -> Ticket:
        """See `Seat`."""
        with self._lock:
            if self._failure is not None:
                raise clone(self._failure)
            ticket = Ticket(rank, self._calls, call_origin(), touches=call.touches)
            self._calls += 1
            self._open[ticket.call] = (ticket, call)
        steps, self._steps = self._steps, []
        facts = {"ticket": ticket.call, **self._facts(call), "steps": steps}
        facts |= {"clock_ps": self._clock_ps, "origin": ticket.origin}
        facts |= {"to": self._address(call.target[call.take or slice(None)])}
        facts |= {"after": [each.call for each in call.after]}
        if not call.after:
            self._send_operand(frames.SUBMIT, facts, call)
            return ticket
        self._send(frames.SUBMIT, facts)
        with self._lock:
            self._late.append((ticket, call))
        self._bring()
        return ticket

    def _send_operand(self, kind: int, facts: dict[str, Any], call: Call) -> None:
        operand = call.source[call.give or slice(None)]
        at = self._address(operand)
        self._send(kind, {**facts, "at": at}, operand if at is None else b"")

    def _bring(self) -> None:
        """Sends the operands of the calls that have nothing left to come after."""
        while True:
            with self._lock:
                free = (each for each in self._late if all(ticket.done for ticket in each[1].after))
                found = next(free, None)
                if found is None:
                    return
                self._late.remove(found)
            ticket, call = found
            call.read()
            self._send_operand(frames.OPERAND, {"ticket": ticket.call}, call)

    def _address(self, array: Any) -> int | None:
        """The place in memory at which rank 0's process finds `array`; None where it travels over the connection."""
        return array.ctypes.data if self._near and array.nbytes >= NEAR_BYTES else None

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        return int(self._ask(frames.ESTIMATE, self._facts(call)))

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """See `Seat`."""
        return tuple(self._ask(frames.ABSENT, {"of": ticket.call}))

    def _overdue(self, ticket: Ticket, call: Call, timeout_s: float) -> BaseException | None:
        """The error of a wait that was too long, as rank 0's process tells it; None: the call has just ended."""
        answer = self._ask(frames.OVERDUE, {"of": ticket.call, "seconds": timeout_s}, ANSWER_S)
        if answer is None:
            return self._unanswered(ticket, call, timeout_s)
        return found(answer) if answer else None

    def _unanswered(self, ticket: Ticket, call: Call, timeout_s: float) -> DistributedError:
        self._unanswering = True
        label = f"{call.collective} ({call.group.name}), call {ticket.call + 1} of rank {self.rank}"
        site = Site("rank 0's process, which holds the emulator, does not answer", call_origin())
        return timed_out(label, timeout_s, "rank 0", site)

    def _ask(self, kind: int, facts: dict[str, Any], patience_s: float | None = None) -> Any:
        """The answer of rank 0's process; None if there is none after `patience_s`. Raises what ended the world."""
        gate, answer = Gate(), list[Any]()
        with self._lock:
            self._asked += 1
            number = -self._asked
            self._questions[number] = (gate, answer)
        self._send(kind, {"ticket": number, **facts})
        if not gate.wait(patience_s):
            return None
        if not answer:
            raise clone(self._failure) if self._failure else DistributedError("AHBM-X125", "no answer")
        return answer[0]

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self.settle(ticket, timeout_s)
        if ticket.error is not None:
            raise clone(ticket.error)
        self._steps.append(ticket.call << 2 | WAIT)
        self._clock_ps = max(self._clock_ps, ticket.end_ps)

    def settle(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        if ticket.done:
            return
        gate = Gate()
        with self._lock:
            if ticket.done:
                return
            ticket.gates.append(gate)
            _, call = self._open[ticket.call]
        own = threading.get_ident() == self._main
        if own:
            self._send(frames.WAIT, {"ticket": ticket.call, "waits": True})
        if not gate.wait(timeout_s) and not ticket.done:
            if own:
                self._send(frames.WAIT, {"ticket": ticket.call, "waits": False})
            assert timeout_s is not None
            late = self._overdue(ticket, call, timeout_s)
            if late is not None or not gate.wait(ANSWER_S):
                raise late or self._unanswered(ticket, call, timeout_s)

    def detach(self, ticket: Ticket) -> None:
        """See `Seat`; rank 0's process answers in order, after it has read the operand."""
        self.absent(ticket)

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """See `Seat`."""
        with self._lock:
            if not ticket.done:
                ticket.notify = callback
            return not ticket.done

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self._groups.named(name, ranks)

    def leave(self) -> None:
        """Says goodbye and ends the thread."""
        self._end(frames.BYE)

    def abort(self, error: BaseException) -> None:
        """Tells the world to stop, and why."""
        self._end(frames.ABORT, {"error": findings(error)})

    def _end(self, kind: int, facts: dict[str, Any] | None = None) -> None:
        with contextlib.suppress(Gone):
            self._connection.send(kind, facts or {})
        if kind == frames.BYE and not self._unanswering and self._reader is not threading.current_thread():
            self._reader.join(10)
        self._connection.close()
        if self._reader is not threading.current_thread():
            self._reader.join(10)

    def _send(self, kind: int, facts: dict[str, Any], payload: Any = b"") -> None:
        try:
            self._connection.send(kind, facts, payload)
        except Gone as error:
            self._fail(lost(f"{error}"))
            assert self._failure is not None
            raise clone(self._failure) from error

    def _facts(self, call: Call) -> dict[str, Any]:
        exchange, request = isinstance(call.buffer, Exchange), call.terms.request
        return {
            "kind": call.kind,
            "group": call.group.name,
            "ranks": call.group.ranks,
            "collective": request.collective,
            "count": request.count,
            "dtype": request.dtype,
            "op": request.op,
            "root": request.root,
            "shares": request.shares,
            "tag": call.terms.tag,
            "note": call.terms.note,
            "choice": encoded(call.terms.choice),
            "why": encoded_why(call.why),
            "peer": call.peer,
            "style": call.style,
            "size": call.source.size,
            "sends": call.buffer.sends if exchange else (),
            "receives": call.buffer.receives if exchange else (),
            "give": (call.give or slice(None)).indices(call.source.size)[:2],
            "take": (call.take or slice(None)).indices(call.target.size)[:2],
        }

    def _read(self) -> None:
        try:
            while True:
                kind, facts, length = self._connection.receive()
                if kind == frames.ABORT:
                    self._fail(found(facts["error"]))
                    continue
                number, error, end_ps = int(facts["ticket"]), None, 0
                if number in self._questions:
                    gate, answer = self._questions.pop(number)
                    if kind != frames.ERROR:
                        answer.append(facts["answer"])
                    gate.open()
                    continue
                ticket, call = self._open[number]
                if kind == frames.RESULT:
                    if not facts["there"]:
                        result = call.target[call.take or slice(None)]
                        if result.nbytes != length:
                            raise FormatError("AHBM-F170", f"a result of {length} bytes for {result.nbytes}")
                        self._connection.fill(result)
                    ticket.members, end_ps = tuple(facts["members"]), int(facts["end_ps"])
                    ticket.result = call.finish(ticket)
                else:
                    error = found(facts["error"])
                self._done(number, error, end_ps)
                if self._late:
                    self._bring()
        except Gone as error:
            self._fail(lost(f"{error}"))
        except Exception as error:
            self._fail(error)

    def _done(self, number: int, error: BaseException | None, end_ps: int = 0) -> None:
        with self._lock:
            ticket, _ = self._open.pop(number)
            ticket.end(error, end_ps)
            ticket.open_gates()
        if ticket.notify is not None:
            ticket.notify(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._late.clear()
            left = list(self._open)
            self._abandoned += [call for _, call in self._open.values()]
            for gate, _ in self._questions.values():
                gate.open()
            self._questions.clear()
        for number in left:
            self._done(number, error)


def lost(why: str) -> DistributedError:
    """AHBM-X126."""
    return DistributedError(
        "AHBM-X126",
        f"rank 0, whose process holds the emulator, is gone: {why}",
        hint="look at what rank 0 printed last; ranks that end must all end",
    )
