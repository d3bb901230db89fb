"""The socket by which processes join the world of rank 0, and who else may call there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

from ahbm.errors import DistributedError
from ahbm.ranks.setup import Setup
from ahbm.torch import frames, host
from ahbm.torch.host import LOOPBACK, Host
from ahbm.torch.remote import Remote

SMALL = Setup(overrides={"system.sips.count": 2, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1})
TIMEOUT_S = 120.0
SOON_S = 30.0
"""Far from the timeout, and far from what a busy machine takes."""


@pytest.fixture
def door() -> Iterator[Host]:
    opened = Host(SMALL, 2, TIMEOUT_S)
    yield opened
    opened.close()


def call(door: Host) -> socket.socket:
    return socket.create_connection((LOOPBACK, door.port), SOON_S)


def join_at_once(door: Host) -> None:
    """Rank 1 joins, and rank 0 knows of its goodbye long before the timeout."""
    began = time.monotonic()
    Remote(1, (LOOPBACK, door.port), door.secret, TIMEOUT_S).leave()
    door.leave()
    assert time.monotonic() - began < SOON_S
    assert all(state.error is None for state in door.world.ranks)


def test_silent_and_slow_callers_keep_nobody_out(door: Host) -> None:
    stop = threading.Event()
    hello = frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32) + b'{"rank":1}' + bytes(32)
    callers = [call(door) for _ in range(host.CALLERS + 16)]

    def drip(link: socket.socket) -> None:
        with suppress(OSError):
            for byte in hello:
                link.sendall(bytes([byte]))
                if stop.wait(1):
                    return

    slow = [threading.Thread(target=drip, args=(link,)) for link in callers[-8:]]
    for thread in slow:
        thread.start()
    try:
        join_at_once(door)
    finally:
        stop.set()
        for link in callers:
            link.close()
        for thread in slow:
            thread.join()


def test_a_caller_has_one_deadline_for_all_it_says(monkeypatch: pytest.MonkeyPatch, door: Host) -> None:
    monkeypatch.setattr(host, "GREETING_S", 0.5)
    began = time.monotonic()
    with call(door) as link, pytest.raises(OSError):
        for byte in frames.HEADER.pack(frames.MAGIC, frames.HELLO, 60, 32) + bytes(1000):
            link.sendall(bytes([byte]))
            time.sleep(0.1)
    assert time.monotonic() - began < SOON_S
    join_at_once(door)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
        frames.HEADER.pack(frames.MAGIC, frames.HELLO, frames.FACTS_LIMIT, 32),
        frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32) + b'{"rank":1}' + bytes(32),
        frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 0) + b'{"rank":1}',
        frames.HEADER.pack(frames.MAGIC, frames.BYE, 2, 0) + b"{}",
    ],
    ids=["another protocol", "too long", "a wrong secret", "no secret", "another kind"],
)
def test_strangers_are_sent_away(door: Host, said: bytes) -> None:
    with call(door) as link:
        link.sendall(said)
        with suppress(ConnectionError):
            assert link.recv(1) == b""
    join_at_once(door)


def test_a_rank_comes_once() -> None:
    door = Host(Setup(overrides={"system.sips.count": 3}), 3, TIMEOUT_S)
    first = Remote(1, (LOOPBACK, door.port), door.secret, TIMEOUT_S)
    began = time.monotonic()
    while 1 not in door._connections:
        assert time.monotonic() - began < SOON_S
        time.sleep(0.01)
    with call(door) as link:
        link.sendall(frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32) + b'{"rank":1}' + door.secret)
        with suppress(ConnectionError):
            assert link.recv(1) == b""
    first.leave()
    join = Remote(2, (LOOPBACK, door.port), door.secret, TIMEOUT_S)
    join.leave()
    door.leave()


def test_rank_0_waits_for_the_others_at_most_for_the_timeout() -> None:
    door = Host(SMALL, 2, 0.5)
    with pytest.raises(DistributedError, match="AHBM-X122 init_process_group: rank 1 did not come: Timed out"):
        door.meet()


def test_who_has_come_hears_who_has_not() -> None:
    door = Host(Setup(overrides={"system.sips.count": 3}), 3, 1.0)
    here = Remote(1, (LOOPBACK, door.port), door.secret, TIMEOUT_S)
    with pytest.raises(DistributedError, match="rank 2 did not come"):
        door.meet()
    here._reader.join(SOON_S)
    assert isinstance(here._failure, DistributedError) and "rank 2 did not come" in str(here._failure)
    here.leave()


def test_silent_ranks_have_one_deadline_in_common() -> None:
    size, timeout_s = 13, 0.5
    door = Host(Setup(overrides={"system.sips.count": size}), size, timeout_s)
    others = [Remote(rank, (LOOPBACK, door.port), door.secret, TIMEOUT_S) for rank in range(1, size)]
    door.meet()
    began = time.monotonic()
    door.leave()
    assert time.monotonic() - began < timeout_s * (size - 1) / 2
    for other in others:
        other.leave()


def test_equal_numbers_are_told_alike() -> None:
    told = [Setup(overrides={"system.sips.count": 2, "link": number}).described() for number in (100, 100.0, 100.5)]
    assert told[0] == told[1] != told[2]
