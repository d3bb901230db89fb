"""The seat of a rank whose world lives in rank 0's process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from ahbm._core import Gate
from ahbm.blame import call_origin, clone
from ahbm.errors import AhbmError, DistributedError, FormatError, raise_findings
from ahbm.exchange import Exchange
from ahbm.groups import ProcessGroup
from ahbm.history import ADVANCE, WAIT
from ahbm.operation import Operation, Part, Performer
from ahbm.session import Call
from ahbm.torch import frames
from ahbm.torch.frames import Connection, Gone


def _elsewhere(_: Operation) -> Any:
    raise AssertionError("performed in rank 0's process")


_PERFORMER = Performer(_elsewhere, _elsewhere)


class Remote:
    """One rank's connection to its world: a `Seat`."""

    def __init__(self, rank: int, address: tuple[str, int], secret: bytes, timeout_s: float) -> None:
        self.rank = rank
        link = socket.create_connection(address, timeout_s)
        link.settimeout(None)
        self._connection = Connection(link)
        self._connection.send(frames.HELLO, {"rank": rank}, secret)
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Part, Call]] = {}
        self._estimates: dict[int, tuple[Gate, list[int]]] = {}
        self._groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
        self._tickets = 0
        self._clock_ps = 0
        self._calls = 0
        self._steps: list[int] = []
        """What this rank has computed and waited for since its latest call."""
        self._failure: BaseException | None = None
        self._leaving = False
        self._reader = threading.Thread(target=self._read, name="ahbm reader", daemon=True)
        self._reader.start()

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        if ps:
            self._steps.append(ps << 2 | ADVANCE)
        self._clock_ps += ps

    def submit(self, rank: int, call: Call) -> Part:
        """See `Seat`."""
        part = Part(rank, {}, call.buffer, call.finish, self._clock_ps, call_origin())
        name = str(call.terms["collective"])
        Operation(f"{name} ({call.group.name})", (rank,), _PERFORMER).add(part)
        source = call.buffer.source if isinstance(call.buffer, Exchange) else call.buffer
        with self._lock:
            if self._failure is not None:
                raise clone(self._failure)
            ticket = self._tickets
            self._tickets += 1
            self._open[ticket] = (part, call)
        part.ticket, part.call = ticket, self._calls
        self._calls += 1
        facts = {"ticket": ticket, **self._facts(call, part), "steps": self._steps}
        self._steps = []
        self._send(frames.SUBMIT, facts, source[call.give or slice(None)])
        return part

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        gate, answer = Gate(), list[int]()
        with self._lock:
            ticket = self._tickets
            self._tickets += 1
            self._estimates[ticket] = (gate, answer)
        part = Part(self.rank, {}, None, call.finish, 0, "")
        self._send(frames.ESTIMATE, {"ticket": ticket, **self._facts(call, part)})
        gate.wait()
        if not answer:
            raise clone(self._failure) if self._failure else DistributedError("AHBM-X125", "no estimate")
        return answer[0]

    def wait(self, part: Part, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self.settle(part, timeout_s)
        if part.operation.error is not None:
            raise clone(part.operation.error)
        self._steps.append(part.call << 2 | WAIT)
        self._clock_ps = max(self._clock_ps, part.operation.end_ps)

    def settle(self, part: Part, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        if part.operation.done:
            return
        gate = Gate()
        with self._lock:
            if part.operation.done:
                return
            part.gates.append(gate)
        if threading.get_ident() == self._main:
            self._send(frames.WAIT, {"ticket": part.ticket})
        if not gate.wait(timeout_s) and not part.operation.done:
            raise DistributedError("AHBM-X122", f"{part.operation.label}: not done after {timeout_s:g} s")

    def notify(self, part: Part, told: Callable[[BaseException | None], None]) -> bool:
        """See `Seat`."""
        with self._lock:
            if not part.operation.done:
                part.notify = told
            return not part.operation.done

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self._groups.setdefault((name, ranks), ProcessGroup(name, ranks))

    def leave(self) -> None:
        """Says goodbye and ends the thread."""
        self._end(frames.BYE)

    def abort(self, error: BaseException) -> None:
        """Tells the world to stop."""
        self._end(frames.ABORT)

    def _end(self, kind: int) -> None:
        self._leaving = True
        with contextlib.suppress(Gone):
            self._connection.send(kind, {})
        if kind == frames.BYE and self._reader is not threading.current_thread():
            self._reader.join(10)
        self._connection.close()
        if self._reader is not threading.current_thread():
            self._reader.join(10)

    def _send(self, kind: int, facts: dict[str, Any], payload: Any = b"") -> None:
        try:
            self._connection.send(kind, facts, payload)
        except Gone as error:
            self._fail(_lost(error))
            assert self._failure is not None
            raise clone(self._failure) from error

    def _facts(self, call: Call, part: Part) -> dict[str, Any]:
        exchange = isinstance(call.buffer, Exchange)
        source, target = (call.buffer.source, call.buffer.target) if exchange else (call.buffer, call.buffer)
        return {
            "kind": call.kind,
            "group": call.group.name,
            "ranks": call.group.ranks,
            "terms": {key: value for key, value in call.terms.items() if key != "group"},
            "peer": call.peer,
            "tag": call.tag,
            "size": source.size,
            "sends": call.buffer.sends if exchange else (),
            "receives": call.buffer.receives if exchange else (),
            "give": (call.give or slice(None)).indices(source.size)[:2],
            "take": (call.take or slice(None)).indices(target.size)[:2],
            "clock_ps": part.clock_ps,
            "origin": part.origin,
        }

    def _read(self) -> None:
        try:
            while True:
                kind, facts, length = self._connection.receive()
                ticket = int(facts["ticket"])
                if ticket in self._estimates:
                    gate, answer = self._estimates.pop(ticket)
                    if kind == frames.ESTIMATE:
                        answer.append(int(facts["ps"]))
                    gate.open()
                    continue
                part, call = self._open[ticket]
                if kind == frames.RESULT:
                    target = call.buffer.target if isinstance(call.buffer, Exchange) else call.buffer
                    result = target[call.take or slice(None)]
                    if result.nbytes != length:
                        raise FormatError("AHBM-F170", f"a result of {length} bytes for {result.nbytes}")
                    self._connection.fill(result)
                    part.operation.members = tuple(facts["members"])
                    part.operation.end_ps = int(facts["end_ps"])
                    part.settle()
                self._done(ticket, None if kind == frames.RESULT else _error(facts["error"]))
        except Gone as error:
            self._fail(_lost(error))
        except Exception as error:
            self._fail(error)

    def _done(self, ticket: int, error: BaseException | None) -> None:
        with self._lock:
            part, _ = self._open.pop(ticket)
            part.operation.error, part.operation.done = error, True
            for gate in part.gates:
                gate.open()
            part.gates.clear()
        if part.notify is not None:
            part.notify(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            left = list(self._open)
            for gate, _ in self._estimates.values():
                gate.open()
            self._estimates.clear()
        for ticket in left:
            self._done(ticket, error)


def _lost(error: BaseException) -> DistributedError:
    return DistributedError(
        "AHBM-X126",
        f"rank 0, whose process holds the emulator, is gone: {error}",
        hint="look at what rank 0 printed last; ranks that end must all end",
    )


def _error(findings: list[dict[str, Any]]) -> BaseException:
    try:
        raise_findings(findings)
    except AhbmError as error:
        return error.with_traceback(None)
