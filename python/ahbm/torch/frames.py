"""Messages between the processes of a job: a fixed header, JSON facts and raw bytes, over a socket of this host.

A frame is `AHBM`, a kind (1 byte), the length of the facts (4 bytes) and of the payload (8 bytes), little-endian, then
both. Lengths are checked before anything is allocated; nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from typing import Any

from ahbm.errors import AhbmError, DistributedError, FormatError, raise_findings

HEADER = struct.Struct("<4sBIQ")
MAGIC = b"AHBM"
FACTS_LIMIT = 1 << 22
PAYLOAD_LIMIT = 1 << 38
PARTING_S = 0.1
"""The time that a last frame may take."""
LONGEST_S = 1 << 30
_TIMEVAL = struct.Struct("@ll")

HELLO, WELCOME, SUBMIT, WAIT, ESTIMATE, ABSENT, OVERDUE, BYE, ABORT, RESULT, OPERAND, ERROR = range(12)


class Gone(ConnectionError):
    """The other side has closed the connection, or it broke."""


class Connection:
    """One side of a connection. Any thread may send; one receives."""

    def __init__(self, link: socket.socket, timeout_s: float) -> None:
        """`timeout_s`: the longest time that a send waits for the other side to read."""
        if link.family == socket.AF_INET:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "SO_SNDTIMEO") and os.name == "posix":
            most = min(timeout_s, float(LONGEST_S))
            limit = _TIMEVAL.pack(int(most), max(int(most % 1 * 1e6), 1))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._link = link
        self._sending = threading.Lock()
        self._until: float | None = None

    def expire(self, seconds: float | None) -> None:
        """All that is received from now on must have come `seconds` from now; None: whenever it comes."""
        self._until = None if seconds is None else time.monotonic() + seconds
        self._link.settimeout(seconds)

    def send(self, kind: int, facts: dict[str, Any], payload: Any = b"") -> None:
        """Sends one frame; `payload` is any contiguous buffer. Raises Gone."""
        encoded = json.dumps(facts, separators=(",", ":")).encode()
        data = memoryview(payload).cast("B") if len(memoryview(payload)) else memoryview(b"")
        head = HEADER.pack(MAGIC, kind, len(encoded), len(data)) + encoded
        try:
            with self._sending:
                if len(data) < 1 << 16:
                    self._link.sendall(head + data)
                else:
                    self._link.sendall(head)
                    self._link.sendall(data)
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self, limit: int = FACTS_LIMIT) -> tuple[int, dict[str, Any], int]:
        """The next frame's kind, facts of at most `limit` bytes and payload length; `fill` reads the payload.

        Raises Gone, and FormatError (AHBM-F170) for bytes that are no frame.
        """
        head = bytearray(HEADER.size)
        self.fill(head)
        magic, kind, length, payload = HEADER.unpack(head)
        if magic != MAGIC or kind > ERROR or length > limit or payload > PAYLOAD_LIMIT:
            raise FormatError("AHBM-F170", f"a message between ranks starts with {bytes(head[:8])!r}: no frame")
        encoded = bytearray(length)
        self.fill(encoded)
        try:
            facts = json.loads(encoded)
        except (ValueError, RecursionError) as error:
            raise FormatError("AHBM-F170", f"the facts of a message between ranks are no JSON: {error}") from error
        if not isinstance(facts, dict):
            raise FormatError("AHBM-F170", "the facts of a message between ranks are no object")
        return kind, facts, payload

    def fill(self, buffer: Any) -> None:
        """Reads exactly as many bytes as `buffer` has. Raises Gone."""
        view = memoryview(buffer)
        view = view.cast("B") if len(view) else memoryview(bytearray())
        while len(view):
            try:
                if self._until is not None:
                    self._link.settimeout(max(self._until - time.monotonic(), 1e-3))
                got = self._link.recv_into(view)
            except OSError as error:
                raise Gone(str(error)) from error
            if not got:
                raise Gone("closed by the other side")
            view = view[got:]

    def part(self, kind: int, facts: dict[str, Any]) -> None:
        """Sends a last frame, unless the other side does not read, and ends the connection."""
        if self._sending.acquire(timeout=PARTING_S):
            self._sending.release()
            with contextlib.suppress(OSError):
                self._link.settimeout(PARTING_S)
            with contextlib.suppress(Gone):
                self.send(kind, facts)
        self.close()

    def close(self) -> None:
        """Ends the connection; a thread in `receive` gets Gone."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


def findings(error: BaseException) -> list[dict[str, Any]]:
    """An error's findings as JSON."""
    if not isinstance(error, AhbmError):
        error = DistributedError("AHBM-X125", f"the emulator failed with {type(error).__name__}: {error}")
    encoded: list[dict[str, Any]] = error.to_json()["findings"]
    return encoded


def found(encoded: list[dict[str, Any]]) -> BaseException:
    """The error that `findings` has told."""
    try:
        raise_findings(encoded)
    except AhbmError as error:
        return error.with_traceback(None)
