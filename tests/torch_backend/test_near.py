"""Long operands and results of a rank's process, which rank 0's reads and writes where they lie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
from jobs import torchrun

from ahbm._core import Neighbour
from ahbm.errors import AhbmError, DistributedError
from ahbm.front.marshal import Member
from ahbm.ranks.seat import Call
from ahbm.ranks.setup import Setup
from ahbm.torch import host, remote
from ahbm.torch.frames import RESULT, SUBMIT, Connection
from ahbm.torch.host import Host
from ahbm.torch.remote import Remote
from ahbm.torch.tensors import flat

SMALL = Setup(overrides={"system.sips.count": 2, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1})
TIMEOUT_S = 120.0
LONG = remote.NEAR_BYTES
"""Elements of tensors that are long enough."""

Calls = Callable[[Member, torch.Tensor], Call]


@contextmanager
def pair(*, near: bool = True) -> Iterator[tuple[Host, Remote]]:
    """Both sides of a job of two ranks, in this process: it is a neighbour of its own."""
    door = Host(SMALL, 2, TIMEOUT_S)
    far = Remote(1, door.address, door.secret, TIMEOUT_S)
    try:
        if near:
            arrive = threading.Event()
            while not far._near:
                assert not arrive.wait(0.01)
        yield door, far
    finally:
        far.leave()
        door.leave()


def data(rank: int, size: int = LONG, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(-8, 8, (size,), generator=torch.Generator().manual_seed(rank)).to(dtype)


def issue(door: Host, far: Remote, calls: Calls, tensors: list[torch.Tensor]) -> None:
    """The call of both ranks, from its issue to its end."""
    group = door.session.group("WORLD", (0, 1))
    mine = door.session.submit(0, calls(Member(group, 0), tensors[0]))
    theirs = far.submit(1, calls(Member(far.group("WORLD", (0, 1)), 1), tensors[1]))
    far.settle(theirs, TIMEOUT_S)
    door.session.settle(mine)
    assert theirs.error is None and mine.error is None, theirs.error


CALLS: dict[str, Calls] = {
    "all_reduce": lambda member, x: member.all_reduce(flat(x), "sum"),
    "broadcast": lambda member, x: member.broadcast(flat(x), 1),
    "broadcast to it": lambda member, x: member.broadcast(flat(x), 0),
    "all_gather": lambda member, x: member.all_gather_single(flat(x), flat(x[: len(x) // 2].clone())),
    "all_to_all": lambda member, x: member.all_to_all_single(
        flat(x), flat(x.clone()), (len(x) // 2,) * 2, (len(x) // 2,) * 2
    ),
    "a send": lambda member, x: member.send(flat(x), 0, 7) if member.me else member.recv(flat(x), 1, 7),
    "a receive": lambda member, x: member.recv(flat(x), 0, 7) if member.me else member.send(flat(x), 1, 7),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_bytes_as_over_the_connection(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    sent: list[int] = []
    sends = Connection.send

    def send(link: Connection, kind: int, facts: dict[str, Any], payload: Any = b"") -> None:
        if kind in (SUBMIT, RESULT):
            sent.append(len(memoryview(payload)))
        sends(link, kind, facts, payload)

    monkeypatch.setattr(Connection, "send", send)
    found = []
    for near in (True, False):
        monkeypatch.setattr(remote, "NEAR_BYTES", LONG if near else 1 << 60)
        tensors = [data(rank) for rank in range(2)]
        sent.clear()
        with pair() as (door, far):
            issue(door, far, CALLS[name], tensors)
        assert (max(sent) == 0) is near
        found.append([x.numpy().tobytes() for x in tensors])
    assert found[0] == found[1]
    assert found[0] != [data(rank).numpy().tobytes() for rank in range(2)]


def test_tensors_that_are_not_contiguous() -> None:
    tensors = [data(rank, 2 * LONG).reshape(2, LONG).t() for rank in range(2)]
    want = tensors[0] + tensors[1]
    with pair() as (door, far):
        issue(door, far, CALLS["all_reduce"], tensors)
    assert all(torch.equal(x, want) for x in tensors)


def test_calls_that_overlap_and_share_an_operand() -> None:
    """What a call reads is what was there when it was issued, as over the connection."""
    shared, out = data(1), [torch.zeros(LONG) for _ in range(3)]
    mine = [data(10 + at) for at in range(3)]
    want = [shared + x for x in mine]
    with pair() as (door, far):
        group, theirs = door.session.group("WORLD", (0, 1)), far.group("WORLD", (0, 1))
        tickets = [far.submit(1, Member(theirs, 1).all_reduce(flat(shared), "sum", flat(x))) for x in out[:1]]
        tickets += [far.submit(1, Member(theirs, 1).all_reduce(flat(shared.clone()), "sum", flat(x))) for x in out[1:]]
        for x in mine:
            door.session.submit(0, Member(group, 0).all_reduce(flat(x), "sum"))
        for ticket in reversed(tickets):
            far.wait(ticket, TIMEOUT_S)
    assert all(torch.equal(*both) for both in zip(mine, want, strict=True))
    assert all(torch.equal(*both) for both in zip(out, want, strict=True))


def test_a_system_that_refuses_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def read(self, address: int, out: Any) -> None:
            raise PermissionError("no")

    monkeypatch.setattr(host, "Neighbour", Refusing)
    tensors = [data(rank) for rank in range(2)]
    want = tensors[0] + tensors[1]
    with pair(near=False) as (door, far):
        issue(door, far, CALLS["all_reduce"], tensors)
        assert not far._near
    assert all(torch.equal(x, want) for x in tensors)


def test_a_result_that_cannot_be_written_is_an_error() -> None:
    written = np.zeros(LONG, np.float32)
    with pair() as (door, far):
        group = door.session.group("WORLD", (0, 1))
        mine = door.session.submit(0, Member(group, 0).all_reduce(flat(data(0)), "sum"))
        call = Member(far.group("WORLD", (0, 1)), 1).all_reduce(flat(data(1)), "sum")
        addresses = iter([8, written.ctypes.data])
        far._address = lambda _: next(addresses)  # type: ignore[method-assign]
        theirs = far.submit(1, call)
        with pytest.raises(DistributedError, match="AHBM-X125 rank 1's memory cannot be written"):
            far.wait(theirs, TIMEOUT_S)
        door.session.settle(mine)


def test_the_memory_of_a_neighbour() -> None:
    import os

    there, here = np.arange(1000, dtype=np.int16), np.zeros(1000, np.int16)
    neighbour = Neighbour(os.getpid())
    neighbour.read(there.ctypes.data, here)
    assert (here == there).all()
    neighbour.write(there.ctypes.data + 2 * 10, np.full(5, -1, np.int16))
    assert (there[10:15] == -1).all() and there[9] == 9 and there[15] == 15
    neighbour.read(there.ctypes.data, here[:0])
    for of, address in ((neighbour, 8), (neighbour, 2**64 - 1), (Neighbour(2**32 - 1), there.ctypes.data)):
        with pytest.raises(OSError):
            of.read(address, here)
        with pytest.raises(OSError):
            of.write(address, here)
    here.flags.writeable = False
    for wrong in (here, np.zeros((4, 4))[:, 0]):
        with pytest.raises(AhbmError, match="AHBM-V122"):
            neighbour.read(there.ctypes.data, wrong)


def test_a_process_that_dies_with_a_call_under_way_is_named(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, signal, time, torch, torch.distributed as dist\n"
        # torchrun ends the others as soon as it sees that one is dead, perhaps before they do.
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "dist.init_process_group('ahbm')\n"
        "dist.barrier()\n"
        "x = torch.ones(1 << 20)\n"
        "if dist.get_rank() == 1:\n"
        "    dist.all_reduce(x, async_op=True)\n"
        "    os._exit(7)\n"
        "time.sleep(1)\n"
        "try:\n"
        "    for _ in range(2): dist.all_reduce(x)\n"
        "except Exception as error:\n"
        "    print('rank', dist.get_rank(), 'got', error, flush=True)\n"
        "os._exit(0)\n"
    )
    done = torchrun(script, 2)
    assert "rank 0 got AHBM-X120 rank 1 failed" in done.stdout, done.stdout + done.stderr
