"""Files that a user names, read whole and never more than a bound."""

from __future__ import annotations

import ast
import codecs
import errno
import os
import stat
import sys
import threading
from pathlib import Path

MAX_BYTES = 1 << 28
"""A file that is longer is nothing that this project reads."""
GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""How packed files begin."""
if sys.platform == "win32":
    _FLAGS = os.O_BINARY  # or it changes the ends of lines
else:
    _FLAGS = os.O_NONBLOCK  # or it waits for who writes to a pipe
_read: dict[Path, None] = {}


def files_read() -> list[Path]:
    """The files that were read here since `forget_files_read`, in order."""
    return list(_read)


def forget_files_read() -> None:
    """Begins the list of `files_read` anew."""
    _read.clear()


def is_prefix(target: str | Path) -> bool:
    """Whether this is the prefix P of the files of a trace: P.0.et, or P.0.json, whose content says what it is."""
    return any(os.path.isfile(f"{target}.0{ending}") for ending in (".et", ".json"))


def load_bytes(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of a file or a pipe.

    Raises OSError for whatever else a path may name (a folder, a device, a socket, no path at all) and for more than
    `most` bytes. A pipe that nobody writes to is empty.
    """
    try:
        with open(path, "rb", opener=_opened, buffering=0) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise OSError(errno.EINVAL, "it is no regular file", str(path))
            if sys.platform != "win32":
                os.set_blocking(file.fileno(), True)
            content = bytearray()
            while len(content) <= most and (part := file.read(min(1 << 20, most + 1 - len(content)))):
                content += part
    except ValueError as error:  # a path with a zero byte, or with text that no file system takes
        raise OSError(errno.EINVAL, str(error), ascii(path)) from error
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    _read[Path(path).absolute()] = None
    return bytes(content)


def beginning(path: str | Path, most: int) -> bytes:
    """The first bytes of a file, at most so many; none of what is no file, or cannot be read. A pipe is no file: what
    is read of it is gone."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""


def _opened(name: str, flags: int) -> int:
    return os.open(name, flags | _FLAGS)


def load_text(path: str | Path, most: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8, or in UTF-16 with a byte order mark, with one kind of line end and without the mark.

    Raises OSError as `load_bytes`, and for bytes that are no text.
    """
    try:
        text = decoded(load_bytes(path, most))
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is no UTF-8 text at byte {error.start}", str(path)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(content: bytes, errors: str = "strict") -> str:
    """Bytes as text: UTF-16 where they begin with its byte order mark, as PowerShell's `>` writes, else UTF-8.

    Raises UnicodeDecodeError, unless `errors` says what stands for bytes that are no text.
    """
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf16 else "utf-8-sig", errors)


def load_log(path: str | Path, most: int = MAX_BYTES) -> str:
    """The text that programs printed, packed by gzip or Zstandard or not, as `load_text`; bytes that are no text become
    U+FFFD, for not all that writes into a log is UTF-8. Raises OSError as `load_bytes`, for the unpacked text, too."""
    content = load_bytes(path, most)
    if content.startswith((GZIP, ZSTANDARD)):
        from ahbm._core import unpacked  # `ahbm --help` needs none of it

        content = unpacked(content, most + 1)
        if len(content) > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return decoded(content, "replace").replace("\r\n", "\n").replace("\r", "\n")


_parsing = threading.Lock()


def parse_python(path: str | Path) -> ast.Module:
    """The syntax tree of a Python file, which is not run.

    Raises OSError as `load_bytes`, and SyntaxError, ValueError, RecursionError or MemoryError for what is no Python.
    """
    return parsed(load_bytes(path), str(path))


def parsed(content: bytes, origin: str = "<unknown>") -> ast.Module:
    """The syntax tree of the content of a Python file. Raises as `parse_python`, but for OSError."""
    # CPython up to 3.12 counts the depth of all trees under construction together, whatever the thread.
    with _parsing:
        return ast.parse(content, origin)
