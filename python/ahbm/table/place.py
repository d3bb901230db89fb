"""Where a store is: a folder of this computer, or any file system that fsspec knows by its URL (`s3://`, `memory://`)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ahbm.base.optional import needed
from ahbm.base.store import make_folders, store
from ahbm.errors import ConfigError, UnsupportedError

TIMEOUT_S = 20
"""Seconds in which an object store answers."""


class Place:
    """The files of a store. Every file is there whole or not at all. Each method raises OSError where it fails."""

    def __init__(self, at: str | Path) -> None:
        """Raises UnsupportedError (AHBM-U145) where a package for its URL is not installed, ConfigError (AHBM-C186) for
        a URL of an unknown kind."""
        self.at = str(at)
        self.remote = "://" in self.at and not self.at.startswith("file://")
        self._fs: Any = None
        if not self.remote:
            self.folder = Path(self.at.removeprefix("file://"))
            return
        self._root = self.at.rstrip("/")
        fsspec = needed("fsspec", f"fsspec is not installed: {self.at} needs it", "pip install ahbm[sweep]")
        kind = self.at.partition("://")[0]
        try:
            self._fs = fsspec.filesystem(kind)
        except ImportError as error:
            raise UnsupportedError(
                "AHBM-U145", f"{self.at} needs a package: {error}", hint="s3:// needs s3fs"
            ) from error
        except ValueError as error:
            hint = "a folder, or a URL that fsspec knows: s3://BUCKET/PREFIX"
            raise ConfigError("AHBM-C186", f"{self.at} is no place of a store: {error}", hint=hint) from error

    @property
    def one_process(self) -> bool:
        """Whether other processes see something else there."""
        return self.at.startswith("memory://")

    def names(self, folder: str) -> list[str]:
        """The files of a folder, in order. Raises FileNotFoundError where there is no such folder."""
        if not self.remote:
            return sorted(path.name for path in (self.folder / folder).iterdir())
        with _as_os_errors():
            self._fs.invalidate_cache()
            found = self._fs.ls(f"{self._root}/{folder}", detail=False)
        return sorted(filter(None, (str(one).rstrip("/").rpartition("/")[2] for one in found)))

    def begin(self, folder: str) -> None:
        """Makes a folder, where folders are made."""
        if not self.remote:
            make_folders(self.folder / folder)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        if not self.remote:
            return (self.folder / name).read_bytes()
        with _as_os_errors():
            return bytes(self._fs.cat_file(f"{self._root}/{name}"))

    def open(self, name: str) -> BinaryIO:
        """A file, to be read."""
        if not self.remote:
            return (self.folder / name).open("rb")
        # A part is small, and one request is quicker than several.
        return io.BytesIO(self.read(name))

    def write(self, name: str, content: bytes) -> None:
        """Writes a file."""
        if not self.remote:
            store({self.folder / name: content})
            return
        with _as_os_errors():
            self._fs.pipe_file(f"{self._root}/{name}", content)

    def take(self, path: Path, name: str) -> None:
        """Moves a file of this computer there; for a folder, one that is beside it."""
        if not self.remote:
            path.replace(self.folder / name)
            return
        with _as_os_errors():
            self._fs.put_file(str(path), f"{self._root}/{name}")
        path.unlink()

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        try:
            if not self.remote:
                (self.folder / name).unlink()
                return
            with _as_os_errors():
                self._fs.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            pass

    def named(self, name: str) -> str:
        """How a file is called by who reads it."""
        return f"{self._root}/{name}" if self.remote else str(self.folder / name)

    def register(self, engine: Any) -> None:
        """Lets a DuckDB connection read there."""
        if self.remote:
            engine.register_filesystem(self._fs)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """What a client of an object store raises is OSError, whatever it calls it."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
