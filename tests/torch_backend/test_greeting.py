"""The socket by which processes join the world of rank 0, and who else may call there."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

from ahbm.errors import DistributedError
from ahbm.front.marshal import Member
from ahbm.ranks.setup import Setup
from ahbm.torch import frames, host, listener
from ahbm.torch.host import Host
from ahbm.torch.listener import connect
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
    return connect(door.address, SOON_S)[0]


def answer(link: socket.socket) -> bytes:
    """All that comes until the other side has closed."""
    heard = b""
    with suppress(ConnectionError):
        while more := link.recv(1 << 12):
            heard += more
    return heard


def join_at_once(door: Host) -> None:
    """Rank 1 joins, and rank 0 knows of its goodbye long before the timeout."""
    began = time.monotonic()
    Remote(1, door.address, door.secret, TIMEOUT_S).leave()
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
    "said, why",
    [
        (b"GET / HTTP/1.1\r\n\r\n" + bytes(100), "no language of ranks"),
        (frames.HEADER.pack(frames.MAGIC, frames.HELLO, frames.FACTS_LIMIT, 32), "no language of ranks"),
        (
            frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32) + b'{"rank":1}' + bytes(32),
            "none of this job",
        ),
        (frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 0) + b'{"rank":1}', "none of this job"),
        (frames.HEADER.pack(frames.MAGIC, frames.BYE, 2, 0) + b"{}", "none of this job"),
    ],
    ids=["another protocol", "too long", "a wrong secret", "no secret", "another kind"],
)
def test_strangers_are_sent_away(door: Host, said: bytes, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with call(door) as link:
        link.sendall(said)
        heard = answer(link).decode(errors="replace")
    assert "AHBM-X127" in heard and why in heard and f"process {os.getpid()}" in heard
    assert why in " ".join(door._refused)
    join_at_once(door)


def test_a_rank_comes_once() -> None:
    door = Host(Setup(overrides={"system.sips.count": 3}), 3, TIMEOUT_S)
    first = Remote(1, door.address, door.secret, TIMEOUT_S)
    with pytest.raises(DistributedError, match=r"AHBM-X127 .* the place of rank 1, which process .* has"):
        Remote(1, door.address, door.secret, TIMEOUT_S)
    first.leave()
    join = Remote(2, door.address, door.secret, TIMEOUT_S)
    join.leave()
    door.leave()


def test_a_thousand_callers_of_one_process_keep_nobody_out(door: Host) -> None:
    """Half of them say nothing, the others half of a greeting."""
    half = frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32)[:9]
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            links = []
            for number in range(1000):
                links.append(call(door))
                with suppress(OSError):
                    links[-1].sendall(half * (number % 2))
                if number == 500:
                    there.sendall(b"!")
            there.sendall(b"!")
            time.sleep(SOON_S)
        os._exit(0)
    try:
        here.settimeout(SOON_S)
        assert here.recv(1) == b"!"
        # The second half calls while the rank joins.
        join_at_once(door)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


NOBODY = 65_534


@contextmanager
def as_another_user(act: Callable[[], str]) -> Iterator[str]:
    """What `act` returns in a process of another user, and the end of that."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                said = act()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            there.sendall(said.encode())
            time.sleep(SOON_S)
        os._exit(0)
    try:
        here.settimeout(SOON_S)
        yield here.recv(1 << 12).decode()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be another user")


@root
def test_another_user_who_knows_everything_gets_nothing(door: Host, capfd: pytest.CaptureFixture[str]) -> None:
    def joins() -> str:
        try:
            Remote(1, door.address, door.secret, SOON_S)
        except DistributedError as error:
            told = str(error)
        with call(door) as link:
            with suppress(OSError):
                link.sendall(frames.HEADER.pack(frames.MAGIC, frames.HELLO, 10, 32) + b'{"rank":1}' + door.secret)
            return told + answer(link).decode(errors="replace")

    with as_another_user(joins) as said:
        assert said.count("AHBM-X127") == 2, said
        assert "of user 0 answers in rank 0's place" in said
        assert f"of user {NOBODY} asks for a rank's place" in said
        assert not door._connections
        join_at_once(door)
    assert f"of user {NOBODY} asks for a rank's place" in capfd.readouterr().err


@root
def test_a_flood_of_another_user_keeps_nobody_out(door: Host) -> None:
    def floods() -> str:
        links = []
        for _ in range(900):
            with suppress(OSError):
                links.append(call(door))
        return "flooded"

    with as_another_user(floods) as said:
        assert said == "flooded"
        join_at_once(door)


@root
def test_nobody_joins_another_users_world() -> None:
    """Who can write to torch's store may put an address of its own there."""
    name = f"@ahbm-{secrets.token_hex(8)}"

    def opens() -> str:
        trap = socket.socket(socket.AF_UNIX)
        trap.bind("\0" + name[1:])
        trap.listen()
        globals()["kept"] = trap
        return "open"

    with as_another_user(opens) as said:
        assert said == "open"
        with pytest.raises(DistributedError, match=rf"AHBM-X127 .* user {NOBODY} answers in rank 0's place"):
            Remote(1, name, bytes(32), SOON_S)


@pytest.mark.parametrize("system", ["without abstract names", "without Unix sockets"])
def test_the_sockets_of_other_systems(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "without abstract names":
        monkeypatch.setattr(listener, "LINUX", False)
    else:
        monkeypatch.setattr(listener, "UNIX", None)
    door = Host(SMALL, 2, TIMEOUT_S)
    if isinstance(door.address, str):
        folder = Path(door.address).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    rank = Remote(1, door.address, door.secret, TIMEOUT_S)
    door.meet()
    assert rank._near is isinstance(door.address, str), "memory is read only where the system names the process"
    rank.leave()
    door.leave()
    assert not isinstance(door.address, str) or not folder.exists()


def test_who_was_refused_stands_in_the_error_of_who_did_not_come() -> None:
    door = Host(SMALL, 2, 2.0)
    with call(door) as link:
        link.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        answer(link)
    with pytest.raises(DistributedError, match=rf"rank 1 did not come.*\n.*refused: process {os.getpid()}"):
        door.meet()


def test_a_silent_rank_is_told_why_it_is_left_alone() -> None:
    door = Host(SMALL, 2, 2.0)
    asleep = Remote(1, door.address, door.secret, TIMEOUT_S)
    door.meet()
    mine = door.session.submit(0, Member(door.session.group("WORLD", (0, 1)), 0).barrier())
    with pytest.raises(DistributedError, match=r"AHBM-X122 .*call 1 of WORLD.* for rank 1"):
        door.session.wait(mine, 2.0)
    began = time.monotonic()
    door.leave()
    assert time.monotonic() - began < 1.5
    asleep._reader.join(SOON_S)
    assert "AHBM-X122" in str(asleep._failure) and "call 1 of WORLD" in str(asleep._failure)
    assert "test_greeting.py" in str(asleep._failure)
    asleep.leave()


def test_rank_0_waits_for_the_others_at_most_for_the_timeout() -> None:
    door = Host(SMALL, 2, 0.5)
    with pytest.raises(DistributedError, match="AHBM-X122 init_process_group: rank 1 did not come: Timed out"):
        door.meet()


def test_who_has_come_hears_who_has_not() -> None:
    door = Host(Setup(overrides={"system.sips.count": 3}), 3, 1.0)
    here = Remote(1, door.address, door.secret, TIMEOUT_S)
    with pytest.raises(DistributedError, match="rank 2 did not come"):
        door.meet()
    here._reader.join(SOON_S)
    assert isinstance(here._failure, DistributedError) and "rank 2 did not come" in str(here._failure)
    here.leave()


def test_silent_ranks_have_one_deadline_in_common() -> None:
    size, timeout_s = 13, 0.5
    door = Host(Setup(overrides={"system.sips.count": size}), size, timeout_s)
    others = [Remote(rank, door.address, door.secret, TIMEOUT_S) for rank in range(1, size)]
    door.meet()
    began = time.monotonic()
    door.leave()
    assert time.monotonic() - began < timeout_s * (size - 1) / 2
    for other in others:
        other.leave()


def test_equal_numbers_are_told_alike() -> None:
    told = [Setup(overrides={"system.sips.count": 2, "link": number}).described() for number in (100, 100.0, 100.5)]
    assert told[0] == told[1] != told[2]
