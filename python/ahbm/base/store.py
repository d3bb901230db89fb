"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
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

    Folders must exist. A path that is no regular file (a pipe, a device) is written to as it is. Raises OSError.
    """
    beside: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            target = path.resolve()
            if target.exists() and not target.is_file():
                target.write_bytes(content)
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
