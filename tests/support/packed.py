"""Files that are packed, without a library that packs."""

from __future__ import annotations

WINDOW = 1 << 17
"""The longest block of a frame, in bytes."""


def zstandard(content: bytes) -> bytes:
    """A frame of Zstandard whose blocks are not compressed (RFC 8878, 3.1.1)."""
    parts = [content[at : at + WINDOW] for at in range(0, len(content), WINDOW)] or [b""]
    last = len(parts) - 1
    blocks = [(int(at == last) | len(part) << 3).to_bytes(3, "little") + part for at, part in enumerate(parts)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


def repeated(start: bytes, byte: bytes, blocks: int) -> bytes:
    """A frame of a start, and as many blocks of 128 KiB of one byte, 4 bytes each."""
    first = (len(start) << 3).to_bytes(3, "little") + start
    heads = [(int(at == blocks - 1) | 1 << 1 | WINDOW << 3).to_bytes(3, "little") for at in range(blocks)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + first + b"".join(head + byte for head in heads)
