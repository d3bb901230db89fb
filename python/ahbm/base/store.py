"""Files that are written whole or not at all, and the folders that they are in."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ahbm.errors import AhbmError, Finding


@contextmanager
def writing(path: str | Path, code: str = "AHBM-F102") -> Iterator[None]:
    """Raises the error of a code, a FormatError or ConfigError, where what is written at a path cannot be."""
    try:
        yield
    except OSError as error:
        raise AhbmError.of([Finding(code, f"{path} cannot be written: {error}")]) from error


def store(files: Mapping[Path, bytes]) -> None:
    """Writes every file beside its place, then moves all of them there: a failure while writing leaves what was there.

    Folders must exist. A pipe that somebody reads and a device are written to as they are. Raises OSError: for a pipe
    that nobody reads (it would wait for a reader), and for a disk.
    """
    beside: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            target = path.resolve()
            if target.exists() and not target.is_file():
                _write_special(target, content)
                continue
            part = beside[target] = target.with_name(f".{target.name}.{os.getpid()}.part")
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, part)
        for target, part in beside.items():
            part.replace(target)
    except BaseException:
        for part in beside.values():
            part.unlink(missing_ok=True)
        raise


def make_folders(folder: Path) -> None:
    """Makes a folder and those around it that are missing, however deep. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)


def _write_special(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a disk")
    if sys.platform == "win32" or not stat.S_ISFIFO(mode):
        path.write_bytes(content)
        return
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(error.errno, "it is a pipe that nobody reads") from error
    os.set_blocking(pipe, True)
    with open(pipe, "wb") as file:
        file.write(content)
