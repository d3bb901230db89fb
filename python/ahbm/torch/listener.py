"""Where the ranks of a host meet, and who calls there: a Unix socket whose other side the system names.

A Unix socket says which process of which user is at its other end. Both sides look: rank 0 lets nobody in but processes
of its own user, and the others join nobody else's. So it does not matter who reads torch's store, in which the address
stands. On Linux the address has no file. Elsewhere the socket lies in a folder that only its user may enter. Systems
without Unix sockets have one of 127.0.0.1 in its place, which anyone on the host can reach who has read the store.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from ahbm.errors import DistributedError

LOOPBACK = "127.0.0.1"
UNIX: int | None = getattr(socket, "AF_UNIX", None)
"""The family of Unix sockets; None on a system without."""
LINUX = sys.platform.startswith("linux")
LONGEST = 100
"""Bytes of a path that a socket may have on every system."""
AGAIN_S = 0.01
"""Between two tries to connect where too many wait."""

_UCRED = struct.Struct("iII")
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED = struct.Struct("=II")
"""What Linux, and what macOS and the BSDs say of a peer; of the latter, its begin."""

Address = str | int
"""As it stands in torch's store: a name that begins with "@", a path, or a port of 127.0.0.1."""


@dataclass(frozen=True)
class Peer:
    """Who is at the other end; None: the system does not say."""

    user: int | None
    pid: int | None

    @property
    def ours(self) -> bool:
        """Whether it is a process of this one's user, as far as the system says."""
        return self.user in (None, user())

    def __str__(self) -> str:
        process = "a process" if self.pid is None else f"process {self.pid}"
        return process if self.user is None else f"{process} of user {self.user}"


def user() -> int | None:
    """The user that this process acts for; None on systems without."""
    return os.geteuid() if hasattr(os, "geteuid") else None


class Listener:
    """The socket at which rank 0 waits for the others."""

    def __init__(self, backlog: int) -> None:
        self._folder: str | None = None
        self.address: Address
        if UNIX is None:
            self._socket = socket.create_server((LOOPBACK, 0), backlog=backlog)
            self.address = int(self._socket.getsockname()[1])
            return
        self._socket = socket.socket(UNIX)
        if LINUX:
            self.address = f"@ahbm-{secrets.token_hex(16)}"
        else:
            parent = tempfile.gettempdir()
            self._folder = tempfile.mkdtemp(prefix="ahbm-", dir=parent if len(parent) < LONGEST // 2 else "/tmp")
            self.address = os.path.join(self._folder, "socket")
        self._socket.bind(_native(self.address))
        self._socket.listen(backlog)

    def accept(self) -> tuple[socket.socket, Peer]:
        """The next caller. Raises OSError when the socket is closed."""
        link, _ = self._socket.accept()
        return link, peer(link)

    def close(self) -> None:
        """Nobody comes in any more; ends `accept`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def connect(address: Address, timeout_s: float) -> tuple[socket.socket, Peer]:
    """A connection to the listener at an address, and who answers. Raises OSError."""
    if isinstance(address, int):
        link = socket.create_connection((LOOPBACK, address), timeout_s)
    elif UNIX is None:
        raise OSError(f"there are no Unix sockets here to reach {address} by")
    else:
        link = socket.socket(UNIX)
        try:
            _try(link, _native(address), time.monotonic() + timeout_s)
        except OSError:
            link.close()
            raise
    link.settimeout(None)
    return link, peer(link)


def _try(link: socket.socket, address: Any, until: float) -> None:
    while True:
        link.settimeout(max(until - time.monotonic(), AGAIN_S))
        try:
            link.connect(address)
            return
        except BlockingIOError:  # more callers than the system queues
            if time.monotonic() >= until:
                raise
            time.sleep(AGAIN_S)


def peer(link: socket.socket) -> Peer:
    """Who is at the other end of a connection."""
    if UNIX is None or link.family != UNIX:
        return Peer(None, None)
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = _UCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(uid, pid or None)
    uid = _XUCRED.unpack_from(link.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 128))[1]
    try:
        pid = struct.unpack("i", link.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))[0]
    except OSError:
        pid = None
    return Peer(uid, pid)


def refusal(why: str) -> DistributedError:
    """AHBM-X127."""
    return DistributedError("AHBM-X127", f"refused: {why}", hint="start each rank once, all by one user")


def _native(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address
