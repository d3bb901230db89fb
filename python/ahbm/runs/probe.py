"""`ahbm probe`: latency and bandwidth of reference traffic patterns, each alone on the machine.

One PE (SIP 0, cube 0, PE 0) reads, writes or exchanges one block with a place at a growing distance. Reads and writes
are DMA between its TCM and the place's memory; ipcq is one `tl.send` to the place's PE and its `tl.recv`. All of them
are without the launch of a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ahbm._core import Machine, Program, ProgramBuilder
from ahbm.config.protocols import CallCosts
from ahbm.config.settings import Queues

SIZES = (4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20)
"""Block sizes in bytes."""

Place = tuple[int, int, int]
"""(sip, cube, pe)."""

_HOME: Place = (0, 0, 0)
_BASE = 1 << 32
_OP_BUDGET = 1000
_NO_LAUNCH = (("launch.overhead_ns", "0"), ("launch.per_rank_ns", "0"))


@dataclass(frozen=True)
class Pattern:
    """Traffic between PE (0, 0, 0) and one place."""

    name: str
    place: Place
    space: str
    """Memory at the place: hbm, or host for the memory behind the SIP's I/O chiplet."""
    kind: str
    """read, write or ipcq; make only makes the block that the latter two move, whose time is not theirs."""


@dataclass(frozen=True)
class Sample:
    """One pattern at one size."""

    pattern: str
    kind: str
    bytes: int
    latency_ns: float
    bandwidth_gbs: float | None
    """None where the pattern takes no time."""

    def to_json(self) -> dict[str, Any]:
        """JSON-serialisable data."""
        return asdict(self)


def patterns(machine: Machine) -> list[Pattern]:
    """The patterns the machine is large enough for, nearest first within a kind."""
    places = [("own HBM", _HOME, "hbm")]
    if machine.pes > 1:
        places.append(("HBM of the next PE", (0, 0, 1), "hbm"))
    if machine.cubes > 1:
        places.append(("HBM of the next cube", (0, 1, 0), "hbm"))
    if machine.cubes > 2:
        places.append(("HBM of the farthest cube", (0, machine.cubes - 1, 0), "hbm"))
    if machine.sips > 1:
        places.append(("HBM of the next SIP", (1, 0, 0), "hbm"))
    places.append(("host memory", _HOME, "host"))
    found = [Pattern(name, place, space, kind) for kind in ("read", "write") for name, place, space in places]
    peers = [(name.removeprefix("HBM of "), place) for name, place, space in places if space == "hbm"][1:]
    return found + [Pattern(name, place, "hbm", "ipcq") for name, place in peers]


def measure(machine: Machine, queues: Queues, sizes: Sequence[int] = SIZES) -> Iterator[Sample]:
    """Runs every pattern at every size (bytes, multiples of 2), each on the idle machine, with the protocol that is for
    all of its runs.

    `queues` gives the queues their tier and slots. Raises ConfigError, LintError.
    """
    launched = machine.changed(_NO_LAUNCH) if machine.launch_ps else machine
    found = {nbytes: launched.with_costs(CallCosts(nbytes=nbytes)) for nbytes in sizes}
    for pattern in patterns(machine):
        for nbytes in sizes:
            latency_ps = _latency_ps(found[nbytes], queues, pattern, nbytes)
            if pattern.kind != "read":
                latency_ps -= _latency_ps(found[nbytes], queues, replace(pattern, kind="make"), nbytes)
            latency_ns = latency_ps / 1000
            yield Sample(pattern.name, pattern.kind, nbytes, latency_ns, nbytes / latency_ns if latency_ps else None)


def note(machine: Machine) -> str:
    """What is to be said of the protocols of a machine's library; "" for nothing."""
    names = ", ".join(protocol.name for protocol in machine.protocols)
    if not names or machine.protocol is not None:
        return ""
    return f"no pattern has a protocol of the machine's library, which has {names}: --set protocol=NAME gives all one"


def _latency_ps(machine: Machine, queues: Queues, pattern: Pattern, nbytes: int) -> int:
    return _program(machine, queues, pattern, nbytes).simulate(record=False).latency_ps


def _program(machine: Machine, queues: Queues, pattern: Pattern, nbytes: int) -> Program:
    builder = ProgramBuilder(
        machine,
        f"probe {pattern.kind} {pattern.name}",
        # What a plan leaves to its protocol is nothing to single messages.
        n_slots=queues.n_slots or 1,
        slot_bytes=None,
        tier=queues.tiers(machine.tiers)[0],
        credit_bytes=queues.ipcq_credit_size_bytes,
        op_budget=_OP_BUDGET,
    )
    group = builder.group()
    shape = (nbytes // 2,)

    def add(place: Place, kernel: Any, buffers: Sequence[int]) -> None:
        views = [(_BASE + i * nbytes, nbytes) for i in range(len(buffers))]
        body = builder.capture(kernel, (), place, (machine.pes, machine.cubes), views, "f16")
        builder.agent(group, place, place, body, buffers)

    def read(*, tl: Any) -> None:
        tl.load(_BASE, shape=shape, dtype="f16")

    def write(*, tl: Any) -> None:
        tl.store(_BASE, tl.zeros(shape, dtype="f16"))

    def send(*, tl: Any) -> None:
        tl.send(dir="sip{}.cube{}.pe{}".format(*pattern.place), src=tl.zeros(shape, dtype="f16"))

    def recv(*, tl: Any) -> None:
        tl.recv(dir="sip{}.cube{}.pe{}".format(*_HOME), shape=shape, dtype="f16")

    def make(*, tl: Any) -> None:
        tl.zeros(shape, dtype="f16")

    if pattern.kind == "make":
        add(_HOME, make, [])
    elif pattern.kind == "ipcq":
        add(_HOME, send, [])
        add(pattern.place, recv, [])
    else:
        memory = builder.buffer(pattern.place, nbytes, pattern.space)
        add(_HOME, read if pattern.kind == "read" else write, [memory])
    return builder.finish()
