"""Standard output: what it cannot take is an error with a code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from ahbm.errors import ConfigError


class _Output(io.TextIOWrapper):
    """Raises ConfigError (AHBM-C141) where the file behind it is full, and BrokenPipeError where nobody reads it."""

    def write(self, text: str) -> int:
        with self._told():
            return super().write(text)

    def flush(self) -> None:
        with self._told():
            super().flush()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write standard output: {error.strerror}") from error


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Inside the `with` block, standard output fails by name; what it was given is written at the end of the block.

    Text that its encoding has no bytes for, such as a file name that is no UTF-8, is written with backslashes.
    """
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):  # None where it is closed, a text in tests
        yield
        return
    sys.stdout = output = _Output(
        before.buffer,
        before.encoding,
        "backslashreplace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    try:
        try:
            yield
        finally:
            output.flush()
    except BrokenPipeError:
        sys.exit(1)
    finally:
        sys.stdout = before
        try:
            output.detach()
        except (OSError, ConfigError):
            # What is left in the buffer would fail again when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), before.fileno())
