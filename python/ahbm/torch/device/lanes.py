"""A rank's journal by streams: kernels of a stream follow each other, and what else they wait for.

The host runs ahead of the device: only where it waits for the device, what it starts later waits as well. Where it
takes time of its own, what it does is a chain of nodes beside those of the device, and the device waits for these.
Marks say where iterations end (`steps`). Nothing is kept after enough of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ahbm.ranks.blame import call_origin
from ahbm.ranks.seat import Call
from ahbm.torch.compute import Stopwatch
from ahbm.torch.device import steps
from ahbm.torch.device.host import QUEUE, Host
from ahbm.torch.device.kept import Kept
from ahbm.torch.device.shadow import Shadow
from ahbm.torch.journal import Event, Fact, Journal

if TYPE_CHECKING:
    import torch

    from ahbm.kernels import Kernel

MOST = 2_000_000
"""Nodes of a rank that are kept."""
MANY = 1 << 15
"""Nodes without marks from which on a pattern that repeats ends what is kept."""
SOON = 64
"""The same where a script is to end after some."""
COPIES = ("_to_copy", "copy_")
"""Kernels that set up as well as compute: an iteration has others."""
HOST = "host"
"""What the host does before it issues something."""
SPARE = 8
"""Iterations, beside twice those that are wanted, after which no more of the usual kind are waited for."""


class Lanes(Journal):
    """See above. Kept are the first iteration and `limit` later ones that are alike."""

    def __init__(self, limit: int, count: steps.Count | None = None) -> None:
        """`count`: told of all marks, of those as well after which nothing is kept."""
        self._chains: dict[int, list[int]] = {}
        self._fence: list[int] = []
        self.stream = 0
        self.limit = limit
        self.count = count or steps.Count()
        self.marks: list[steps.Mark] = []
        self.calls: list[steps.Range] = []
        """The nodes of each outermost call of a module or of backward, until there are marks."""
        self.backwards: list[int] = []
        """Nodes before which outermost calls of backward have ended, until there are marks."""
        self.full = False
        """Whether nothing more is kept."""
        self.whole = True
        """Whether nothing was left out."""
        self._wanted = 0
        """Iterations after which a script without marks is to end; 0: it ends by itself."""
        self._end: Callable[[], None] = lambda: None
        self._source = steps.PROFILER + 1
        """Who marked the iterations that were enough."""
        self._names: list[int] = []
        self._known: dict[Hashable, int] = {}
        self._next = MANY
        """How many nodes there are when a pattern is looked for."""
        self._generation = 0
        self.host: Host | None = None
        """The host, where it takes time: what it does is a chain of nodes, each before what it issues."""
        self._issued: int | None = None
        """The latest of them."""
        self._awaited: list[int] = []
        """What the host has waited for since."""
        self._queue: deque[int] = deque(maxlen=QUEUE)
        """The latest launches."""
        self._shadow = Shadow()
        super().__init__(Stopwatch("none"))

    def ends_after(self, number: int, end: Callable[[], None]) -> None:
        """Where nothing marks, `end` is called after so many iterations, which is seen some kernels later."""
        self._wanted, self._end, self._next = number, end, SOON

    @property
    def _chain(self) -> list[int]:
        return self._chains.setdefault(self.stream, list(self._fence))

    @_chain.setter
    def _chain(self, numbers: list[int]) -> None:
        self._chains[self.stream] = numbers

    def kernel(
        self,
        name: str,
        operations: int,
        nbytes: int,
        arithmetic: str,
        host: bool,
        kind: str = "plain",
        dims: tuple[int, ...] = (),
    ) -> None:
        """A kernel on the current stream; see `Meter.run`."""
        if operations or nbytes or dims:
            with self._lock:
                if not self.full:
                    event = self._add("COMP_NODE", name)
                    event.facts = {"num_ops": operations, "tensor_size": nbytes}
                    if arithmetic != "f16":
                        event.facts["num_ops_dtype"] = arithmetic
                    if dims:
                        event.facts["kernel_kind"] = kind
                        event.facts["kernel_dims"] = dims
                    if host:
                        event.facts["host_copy"] = 1
                    event.stream = self.stream
                    if self.host is not None:
                        self._queue.append(event.number)
                    if self.stream:  # a device interleaves streams; these are short copies before calls
                        event.facts["comm_priority"] = 1
                    self._chain = [event.number]
                    if event.number >= self._next:
                        self._look()
                else:
                    self.whole = False

    def started(
        self, name: str, kernels: Sequence[Kernel], given: Sequence[torch.Tensor], made: Any, before: int
    ) -> None:
        """An operation has started these kernels, whose nodes lie behind those before."""
        if not self.full:
            nodes = [event for event in self.events[before:] if "is_cpu_op" not in event.facts]
            self._shadow.take(name, kernels, given, made, nodes)

    def _add(self, kind: str, name: str) -> Event:
        if self.host is None:
            return super()._add(kind, name)
        host = self.host
        if self._issued is None or not host.submits or host.pending:
            number = len(self.events)
            deps = [] if self._issued is None else [self._issued]
            if len(self._queue) == QUEUE:
                deps.append(self._queue[0])
            deps += [one for one in dict.fromkeys(self._awaited) if one not in deps]
            facts: dict[str, Fact] = {"is_cpu_op": 1}
            if host.staged:
                facts["pageable"] = host.staged
            self.events.append(Event(number, "COMP_NODE", HOST, deps, 0, host.pending, facts))
            self._issued, self._awaited, host.pending, host.staged = number, [], 0, 0
        event = super()._add(kind, name)
        event.deps.append(self._issued)
        return event

    def call(self, call: Call, me: int) -> tuple[int, Event] | None:
        """A call of rank `me`, on the current stream."""
        self._shadow.end()
        if self.host is not None and not self.host.submits:
            self.host.issue(self.host.collective)
        if self.full:
            self.whole = False
            return None
        origin = call_origin()
        event = self.issue(call, me)
        event.facts.setdefault("ranks", call.group.ranks)  # a group that only sends is not told of elsewhere
        event.name = f"{event.name} {origin}"
        return self._generation, event

    def waited(self, issued: tuple[int, Event] | None) -> None:
        """The current stream waits for a call."""
        if issued is not None and issued[0] == self._generation:
            self.join([issued[1]])

    def tail(self, stream: int) -> tuple[int, ...]:
        """See `Meter`."""
        if stream < 0:
            return tuple(dict.fromkeys(number for chain in self._chains.values() for number in chain))
        return tuple(self._chains.get(stream, self._fence))

    def wait(self, stream: int, tail: Iterable[int]) -> None:
        """See `Meter`."""
        with self._lock:
            chain = self._chains.setdefault(stream, list(self._fence))
            chain += [number for number in tail if number < len(self.events) and number not in chain]

    def host_waits(self, tail: Iterable[int]) -> None:
        """See `Meter`."""
        self._shadow.end()
        tail = [number for number in tail if number < len(self.events)]
        if self.host is not None:
            self._awaited += tail
            return
        for stream in self._chains:
            self.wait(stream, tail)
        self._fence = list(tail) or self._fence

    def mark(self, source: int, who: int, *, skipped: bool = False) -> None:
        """Something has ended that may be an iteration."""
        self._shadow.end()
        with self._lock:
            before = self.count.ended
            self.count.mark(source, who)
            if self.full and source < self._source:
                self._again()
            if not self.full:
                self.marks.append(steps.Mark(source, who, len(self.events), skipped))
                if self.count.sure and self.count.ended != before:
                    self._enough()

    def forget(self) -> None:
        """What was kept was no part of what follows."""
        self._shadow.end()
        with self._lock:
            self._again()
            self._source = steps.PROFILER + 1
            self._next = SOON if self._wanted else MANY

    def _again(self) -> None:
        """What was kept is forgotten, as another source marks, which wins."""
        self.events, self.marks, self.calls, self.backwards, self._names = [], [], [], [], []
        self._chains, self._fence = {}, []
        self._issued, self._awaited = None, []
        self._queue.clear()
        if self.host is not None:
            self.host.pending = self.host.staged = 0
        self._generation += 1
        self.full = self.whole = False
        self._next = MOST

    def _enough(self) -> None:
        """Ends what is kept where there is enough."""
        whole = steps.divided(self.marks, over=False)
        if len(whole) > self.limit:
            found = self._compared(whole)
            least = max(self.limit, 2) if self.limit else 0  # one alone does not show what is beside it
            if len(found.looked) >= least or len(whole) > 2 * self.limit + SPARE:
                self.full, self._source = True, min(mark.source for mark in self.marks)

    def _look(self) -> None:
        """Looks for a pattern where nothing marks."""
        number = len(self.events)
        if number >= MOST:
            self.full = True
            return
        self._next = min(number + max(number // (8 if self._wanted else 4), 16), MOST)
        if self.marks or self.count.made:
            self._next = MOST
            return
        found = len(self._repeated())
        if self._wanted and found >= self._wanted:
            self._end()
        if number >= MANY and found > self.limit + 1 and not self._wanted:
            self.full = True

    def _compared(self, whole: list[steps.Range]) -> steps.Found:
        return steps.compared(whole, self._tokens(), [mark.at for mark in self.marks if mark.skipped])

    def _repeated(self) -> list[steps.Range]:
        names = self._tokens()
        found = steps.repeated(names, self.calls, {self._known.get(name) for name in (*COPIES, HOST)})
        return found or steps.alike(list(pairwise((0, *self.backwards))), names)

    def _tokens(self) -> list[int]:
        """What each node does, as a number: the name of a kernel, and of a call its size as well."""
        for event in self.events[len(self._names) :]:
            of: Hashable = event.name
            if event.kind != "COMP_NODE":
                of = (event.kind, event.name, event.facts.get("comm_size"), event.facts["pg_name"])
            self._names.append(self._known.setdefault(of, len(self._known)))
        return self._names

    def keep(self, *, over: bool) -> Kept:
        """What is left; `over`: the script ended by itself, or at the end of an iteration."""
        self._shadow.end()
        with self._lock:
            self.full = True
            whole = steps.divided(self.marks, over=over)
            if not self.marks:
                whole = self._repeated()
            elif not (over or self.count.ended):
                whole = []
            found, marked = self._compared(whole), bool(self.marks)
            return Kept(self.nodes(), found, marked, self.whole, self.count.ended if marked else len(whole))
