"""Standard output and error: what the first cannot take is an error with a code, what the second cannot is lost."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TypeVar

from ahbm.errors import ConfigError

_Stream = TypeVar("_Stream", bound=io.TextIOWrapper)


class _Output(io.TextIOWrapper):
    """Raises ConfigError (AHBM-C141) where the file behind it is full, and BrokenPipeError where nobody reads it."""

    def write(self, text: str) -> int:
        with self._guarded():
            return super().write(text)

    def flush(self) -> None:
        with self._guarded():
            super().flush()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write standard output: {error.strerror}") from error


class _Errors(io.TextIOWrapper):
    """Loses what the file behind it does not take: there is no other place to tell, and the exit code tells more."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Inside the `with` block, standard output fails by name; what it was given is written at the end of the block.

    Text that its encoding has no bytes for, such as a file name that is no UTF-8, is written with backslashes.
    """
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):  # None where it is closed, a text in tests
        yield
        return
    sys.stdout = output = _in_place_of(before, _Output)
    try:
        try:
            yield
        finally:
            output.flush()
    except BrokenPipeError:
        sys.exit(1)
    finally:
        sys.stdout = before
        _let_go(output, before)


@contextlib.contextmanager
def unfailing() -> Iterator[None]:
    """Inside the `with` block, standard error never fails."""
    before = sys.stderr
    if not isinstance(before, io.TextIOWrapper):
        yield
        return
    sys.stderr = errors = _in_place_of(before, _Errors)
    try:
        yield
    finally:
        sys.stderr = before
        _let_go(errors, before)


def _in_place_of(before: io.TextIOWrapper, kind: type[_Stream]) -> _Stream:
    return kind(
        before.buffer,
        before.encoding,
        "backslashreplace",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _let_go(stream: io.TextIOWrapper, before: io.TextIOWrapper) -> None:
    try:
        stream.detach().flush()
    except (OSError, ConfigError):
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), before.fileno())
