"""Rank 0's side of a job of processes: its world, and a thread for every other rank."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ahbm._core import Neighbour
from ahbm.base.logs import notice
from ahbm.base.request import Shares
from ahbm.base.words import span
from ahbm.errors import AhbmError, DistributedError, FormatError, Site
from ahbm.ranks.blame import clone
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.lobby import check_world_size
from ahbm.ranks.seat import Call
from ahbm.ranks.session import Session
from ahbm.ranks.setup import Setup
from ahbm.ranks.stall import timed_out, waits_in
from ahbm.ranks.terms import terms, with_choice
from ahbm.ranks.ticket import Ticket
from ahbm.ranks.world import GRACE_S, World
from ahbm.torch import frames, report
from ahbm.torch.choices import decoded, decoded_why
from ahbm.torch.frames import Connection, Gone, findings, found
from ahbm.torch.listener import AGAIN_S, Listener, Peer, refusal, user
from ahbm.torch.rooms import LARGE, Rooms

RUNNER = "ahbm runner"
HURRY_S = 0.05
"""See `World.hurry_s`: processes also wait for each other by other means, such as torch's store."""

GREETING_S = 10.0
"""The time that a caller has to say who it is: a rank does so as soon as it is connected."""
CALLERS = 64
"""Callers that have not said yet who they are; for one more, the oldest of the process that has most has to go."""
REFUSED = 8
"""Refused callers that an error names."""
HELLO_LIMIT = 96
"""Bytes of the facts of a greeting."""


class Host:
    """The world of a job, in rank 0's process, for all of its ranks."""

    def __init__(self, setup: Setup, size: int, timeout_s: float) -> None:
        emulator = setup.emulator()
        check_world_size(size, emulator.world_size, "this job")
        self.world = World(size)
        self.session = Session(setup, emulator, self.world)
        self.timeout_s = timeout_s
        self._rooms = Rooms()
        self.secret = secrets.token_bytes(32)
        self._listener = Listener(size + CALLERS)
        self.address = self._listener.address
        self._stopped = False
        self._connections: dict[int, Connection] = {}
        self._peers: dict[int, Peer] = {}
        """Who the ranks are that have come."""
        self._callers: dict[Connection, Peer] = {}
        """Whoever has not said which rank it is, the oldest first."""
        self._refused: dict[str, None] = {}
        """Who has asked for a place and did not get it."""
        self._joining = threading.Lock()
        """Held for these."""
        self._all_here = threading.Event()
        self._threads: list[threading.Thread] = []
        self._heard_s = dict.fromkeys(range(1, size), time.monotonic())
        """When each rank that has not left has last said something."""
        self._left = threading.Condition()
        """Some rank has left."""
        self.world.hurry_s = HURRY_S
        self.world.enter(0)
        self._start(self._run, RUNNER)
        if size > 1:
            self._start(self._accept, "ahbm accept")

    def meet(self) -> None:
        """Blocks until all ranks have come, so that none of them finds rank 0 gone from torch's store, too.

        Raises DistributedError (AHBM-X122) after the timeout.
        """
        if self.world.size > 1 and not self._all_here.wait(self.timeout_s):
            absent = sorted(set(range(1, self.world.size)) - set(self._connections))
            sites = [Site(f"refused: {who}") for who in list(self._refused)[:REFUSED]]
            error = timed_out(f"init_process_group: {span(absent)} did not come", self.timeout_s, span(absent), *sites)
            self._dismiss(error)
            self.close()
            raise error

    def leave(self) -> None:
        """Rank 0 is done: serves the others until they are, too, or are silent for the timeout; reports on the job.

        There is one deadline for all of them. Where a call has waited in vain, the deadline does not begin anew. Who is
        still there then is told why.
        """
        self.world.leave(0, None, None)
        if self.world.late is None:
            self._heard_s = dict.fromkeys(self._heard_s, time.monotonic())
        with self._left:
            while self._heard_s and (left := self._patience()) > 0:
                self._left.wait(left)
            silent = sorted(self._heard_s)
        if silent:
            states = self.world.ranks
            sites = [waits_in(part, states) for rank in silent if (part := states[rank].waiting) is not None]
            error = self.world.late or timed_out("destroy_process_group", self.timeout_s, span(silent), *sites)
            self._dismiss(error)
        self.close()
        report.add(self.session.ledger)

    def _dismiss(self, error: DistributedError) -> None:
        """Tells every rank that is still there why it can stay no longer."""
        with self._joining:
            connections = list(self._connections.values())
        for connection in connections:
            connection.part(frames.ABORT, {"error": findings(error)})

    def _patience(self) -> float:
        """The wall seconds that ranks still have for a word. One that waits in a call can ask why after its timeout."""
        waits = [state.waiting is not None for state in self.world.ranks]
        heard_s = (at + GRACE_S * waits[rank] for rank, at in list(self._heard_s.items()))
        return max(heard_s, default=0.0) + self.timeout_s - time.monotonic()

    def abort(self, error: BaseException) -> None:
        """Stops every rank with `error`."""
        self.world.interrupt(error)

    def close(self) -> None:
        """Ends all threads."""
        self._stopped = True
        self._shut()
        with self._joining:
            connections = [*self._connections.values(), *self._callers]
        for connection in connections:
            connection.close()
        self.world.be_patient(self.world.patience_s)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)

    def _start(self, target: Any, name: str, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        self.world.runner = threading.get_ident()
        while not self._stopped:
            try:
                self.world.drive(lambda: self._stopped)
            except AhbmError:
                continue  # the ranks that wait for the operation have got it

    def _accept(self) -> None:
        while True:
            try:
                link, who = self._listener.accept()
            except OSError:
                if self._stopped or self._all_here.is_set():
                    return
                time.sleep(AGAIN_S)  # the system has no room for one more
                continue
            caller = Connection(link, self.timeout_s)
            if not who.ours:
                self._refuse(caller, f"{who} asks for a rank's place, and rank 0 is of user {user()}")
                continue
            caller.expire(min(GREETING_S, self.timeout_s))
            with self._joining:
                self._callers[caller] = who
                surplus = self._locked_surplus() if len(self._callers) > CALLERS else None
            if surplus is not None:
                surplus.close()
            threading.Thread(target=self._greet, args=(caller, who), name="ahbm caller", daemon=True).start()

    def _locked_surplus(self) -> Connection:
        """The oldest caller of the process that has most, who is none from now on: a rank calls once."""
        counts = Counter(who.pid for who in self._callers.values())
        most = max(counts.values())
        found = next(caller for caller, who in self._callers.items() if counts[who.pid] == most)
        del self._callers[found]
        return found

    def _refuse(self, caller: Connection, why: str) -> None:
        """Sends a caller away, says so, and remembers it for an error of this job."""
        with self._joining:
            new = len(self._refused) < REFUSED and why not in self._refused
            if new:
                self._refused[why] = None
        if new:
            notice(f"refused: {why}")
        caller.part(frames.ABORT, {"error": findings(refusal(why))})

    def _shut(self) -> None:
        """Nobody comes in any more; ends `_accept`."""
        self._listener.close()

    def _greet(self, caller: Connection, who: Peer) -> None:
        rank, near, why = self._rank_of(caller, who)
        with self._joining:
            waited = self._callers.pop(caller, None) is not None
            if rank in self._connections:
                why = f"{who} asks for the place of rank {rank}, which {self._peers[rank]} has"
            welcome = waited and rank is not None and rank not in self._connections and not self._stopped
            if rank is not None and welcome:
                self._connections[rank], self._peers[rank] = caller, who
                self._start(self._serve, f"ahbm rank {rank}", rank, caller, near)
            all_here = len(self._connections) == self.world.size - 1
        if not welcome and why:
            self._refuse(caller, why)
        elif not welcome:
            caller.close()
        if all_here:
            self._all_here.set()
            self._shut()

    def _rank_of(self, caller: Connection, who: Peer) -> tuple[int | None, Neighbour | None, str]:
        """The rank of a caller that knows the secret, and its process if the secret can be read in its memory; else why
        it is none, "" where it is not worth a word."""
        try:
            kind, facts, length = caller.receive(HELLO_LIMIT)
            given = bytearray(min(length, len(self.secret)))
            caller.fill(given)
            caller.expire(None)
        except FormatError:
            return None, None, f"{who} asks for a rank's place in no language of ranks"
        except (Gone, OSError):
            return None, None, ""
        rank = facts.get("rank")
        if not hmac.compare_digest(bytes(given), self.secret) or kind != frames.HELLO:
            return None, None, f"{who} asks for a rank's place and is none of this job"
        if not isinstance(rank, int) or not 0 < rank < self.world.size:
            return None, None, f"{who} asks for the place of rank {rank} of {self.world.size}"
        if who.pid is None:
            return rank, None, ""
        seen = np.zeros(len(self.secret), np.uint8)
        try:
            near = Neighbour(who.pid)
            near.read(facts["at"], seen)
        except (OSError, KeyError, AhbmError):
            return rank, None, ""
        return rank, near if seen.tobytes() == self.secret else None, ""

    def _serve(self, rank: int, connection: Connection, near: Neighbour | None) -> None:
        served = Served(rank, connection, near)
        tickets = served.tickets
        error: BaseException | None = None
        try:
            connection.send(frames.WELCOME, {"near": near is not None})
            while True:
                kind, facts, length = connection.receive()
                self._heard_s[rank] = time.monotonic()
                if kind == frames.SUBMIT:
                    self._submit(served, facts, length)
                elif kind == frames.OPERAND:
                    number = int(facts["ticket"])
                    served.fill(served.late.pop(number), facts, length)
                    if number in tickets:
                        self.world.supply(tickets[number])
                elif kind == frames.WAIT:
                    ticket = tickets.get(facts["ticket"])
                    if ticket is not None and facts["waits"]:
                        self.world.park(ticket, None, own=True)
                    elif ticket is not None:
                        self.world.unpark(ticket, None, own=True)
                elif kind == frames.ESTIMATE:
                    self._estimate(connection, facts)
                elif kind == frames.ABSENT:
                    asked = tickets.get(facts["of"])
                    ranks = () if asked is None else self.world.absent(asked)
                    connection.send(frames.ABSENT, {"ticket": int(facts["ticket"]), "answer": ranks})
                elif kind == frames.OVERDUE:
                    asked = tickets.get(facts["of"])
                    late = None if asked is None else self.world.overdue(asked, float(facts["seconds"]))
                    answer = [] if late is None else findings(late)
                    connection.send(frames.OVERDUE, {"ticket": int(facts["ticket"]), "answer": answer})
                elif kind == frames.ABORT:
                    raise found(facts["error"])
                elif kind == frames.BYE:
                    break
        except Gone:
            error = None if self._stopped else ConnectionError("its process has ended without leaving the group")
        except (AhbmError, KeyError, TypeError, ValueError) as raised:
            error = raised
        self.world.leave(rank, None, error)
        connection.close()
        with self._left:
            self._heard_s.pop(rank, None)
            self._left.notify_all()

    def _call(self, facts: dict[str, Any]) -> Call:
        """The call that a SUBMIT or ESTIMATE frame describes, with a buffer of the right size, not yet filled."""
        ranks = tuple(int(rank) for rank in facts["ranks"])
        if not ranks or not all(0 <= rank < self.world.size for rank in ranks):
            raise FormatError("AHBM-F170", f"a message between ranks names the ranks {list(ranks)}")
        group = self.session.group(str(facts["group"]), ranks)
        agreed = terms(
            group,
            str(facts["collective"]),
            int(facts["count"]),
            str(facts["dtype"]),
            str(facts["op"]),
            int(facts["root"]),
            tag=int(facts["tag"]),
            note=str(facts["note"]),
            shares=_shares(facts["shares"], len(ranks)),
        )
        if facts["choice"] is not None:
            agreed = with_choice(group, agreed, decoded(facts["choice"]))
        storage, size = agreed.request.element.storage, int(facts["size"])
        if not 0 <= size * storage.itemsize <= frames.PAYLOAD_LIMIT:
            raise FormatError("AHBM-F170", f"a message between ranks asks for {size} elements")
        give, take = slice(*facts["give"]), slice(*facts["take"])
        buffer: Any = self._rooms.take(size, storage, give)
        if facts["kind"] == "exchange":
            receives = tuple(int(n) for n in facts["receives"])
            if not 0 <= sum(receives) * storage.itemsize <= frames.PAYLOAD_LIMIT:
                raise FormatError("AHBM-F170", f"a message between ranks asks for {sum(receives)} elements")
            sends = tuple(int(n) for n in facts["sends"])
            buffer = Exchange(buffer, self._rooms.take(sum(receives), storage, take), sends, receives)
        call = Call(
            str(facts["kind"]), group, agreed, buffer, _kept, facts["peer"], give, take, decoded_why(facts["why"])
        )
        call.style = str(facts["style"])
        return call

    def _submit(self, served: Served, facts: dict[str, Any], length: int) -> None:
        call, number = self._call(facts), int(facts["ticket"])
        if facts["after"]:
            call.supplied = True
            call.after = tuple(served.tickets[of] for of in facts["after"] if of in served.tickets)
            served.late[number] = call
        else:
            served.fill(call, facts, length)
        rank, connection, near, tickets = served.rank, served.connection, served.near, served.tickets
        result = call.target[call.take]
        there = near is not None and facts["to"] is not None

        def notify(error: BaseException | None) -> None:
            tickets.pop(number, None)
            served.answers.give(partial(answer, error), takes_long=error is None and there and result.nbytes >= LARGE)

        def answer(error: BaseException | None) -> None:
            if error is None and near is not None and there:
                try:
                    near.write(int(facts["to"]), result)
                except OSError as refused:
                    error = DistributedError("AHBM-X125", f"rank {rank}'s memory cannot be written: {refused}")
            try:
                if error is not None:
                    connection.send(frames.ERROR, {"ticket": number, "error": findings(error)})
                    return
                result_facts = {
                    "ticket": number,
                    "end_ps": ticket.end_ps,
                    "members": list(ticket.members),
                    "there": there,
                }
                connection.send(frames.RESULT, result_facts, b"" if there else result)
            except Gone:
                return  # its own thread sees that, too
            for room in {id(array): array for array in (call.source, call.target)}.values():
                self._rooms.put(room)

        tickets[number] = ticket = Ticket(rank, notify=notify)
        clock_ps, origin = int(facts["clock_ps"]), str(facts["origin"])
        self.session.ledger.history.extend(rank, facts["steps"])
        try:
            self.session.enter(ticket, call, clock_ps, origin)
        except AhbmError as error:
            notify(clone(error))

    def _estimate(self, connection: Connection, facts: dict[str, Any]) -> None:
        ticket = int(facts["ticket"])
        try:
            connection.send(frames.ESTIMATE, {"ticket": ticket, "answer": self.session.estimate(self._call(facts))})
        except AhbmError as error:
            connection.send(frames.ERROR, {"ticket": ticket, "error": findings(error)})

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self.session.group(name, ranks)


class Served:
    """What rank 0's process knows of another rank."""

    def __init__(self, rank: int, connection: Connection, near: Neighbour | None) -> None:
        self.rank = rank
        self.connection = connection
        self.near = near
        """Its memory, where that may be touched."""
        self.tickets: dict[int, Ticket] = {}
        """Its calls under way."""
        self.late: dict[int, Call] = {}
        """Those whose operands it has not sent."""
        self.answers = Answers()

    def fill(self, call: Call, facts: dict[str, Any], length: int) -> None:
        """Takes the operand of a SUBMIT or OPERAND frame to the call's buffer."""
        operand = call.source[call.give]
        if self.near is not None and facts["at"] is not None:
            try:
                self.near.read(int(facts["at"]), operand)
            except OSError as error:
                raise Gone(str(error)) from error
        elif operand.nbytes == length:
            self.connection.fill(operand)
        else:
            raise FormatError("AHBM-F170", f"a message between ranks has {length} bytes for {operand.nbytes}")


class Answers:
    """The answers to one rank, given in the order in which its operations end: so those of a group end for the rank in
    their order, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] | None = None
        """Those that a thread of their own has yet to give; None: there is no such thread."""

    def give(self, answer: Callable[[], None], *, takes_long: bool) -> None:
        """Gives an answer now, unless that takes long or earlier ones wait: whoever performs operations tells all
        ranks, one after the other."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(answer)
                return
            if takes_long:
                self._waiting = deque([answer])
        if takes_long:
            threading.Thread(target=self._work_off, name="ahbm answer", daemon=True).start()
        else:
            answer()

    def _work_off(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._waiting = None
                    return
                answer = self._waiting.popleft()
            answer()


def _shares(rows: Any, ranks: int) -> Shares | None:
    """The elements that belong to each rank, where they differ."""
    if rows is None:
        return None
    (row,) = rows
    found = tuple(int(n) for n in row)
    if len(found) != ranks or not all(0 <= n <= frames.PAYLOAD_LIMIT for n in found):
        raise FormatError("AHBM-F170", f"a message between ranks shares among {len(found)} of {ranks} ranks")
    return (found,)


def _kept(_: Ticket) -> None:
    pass
