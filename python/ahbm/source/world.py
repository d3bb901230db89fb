"""What functions of Python's own modules read and change besides their arguments, by the names of the functions."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

READ, CHANGED = "AHBM-K217", "AHBM-K218"
CLOCK, RANDOM, FILE, NETWORK = "the clock", "random numbers", "a file", "the network"
SYSTEM, ENVIRONMENT, ADDRESS, HASH = (
    "the system",
    "the environment",
    "the address of an object",
    "the hash of a text or an object",
)
PROCESS, THREAD, NUMBER, MEMORY = (
    "a process",
    "a thread",
    "the number of a process or thread",
    "the interpreter's memory",
)
ARGUMENTS = "the command line or the interpreter's paths"
STARTED = frozenset(
    {
        "_exit",
        "abort",
        "execv",
        "execve",
        "fork",
        "fork_exec",
        "forkpty",
        "kill",
        "killpg",
        "posix_spawn",
        "posix_spawnp",
        "start_joinable_thread",
        "start_new_thread",
        "system",
    }
)
"""Functions that start or end a process or a thread."""
MADE = frozenset(
    {
        "chdir",
        "chmod",
        "chown",
        "chroot",
        "copy_file_range",
        "fchdir",
        "fchmod",
        "fchown",
        "ftruncate",
        "lchown",
        "link",
        "mkdir",
        "mkfifo",
        "mknod",
        "putenv",
        "pwrite",
        "pwritev",
        "remove",
        "removexattr",
        "rename",
        "replace",
        "rmdir",
        "sendfile",
        "setxattr",
        "symlink",
        "truncate",
        "unlink",
        "unsetenv",
        "utime",
        "write",
        "writev",
    }
)
"""Functions of `os` that change something else."""
FILES = frozenset({"access", "getxattr", "listdir", "listxattr", "lstat", "readlink", "scandir", "stat", "statvfs"})
"""Functions of `os` that look at files."""
CALLS: dict[str, dict[str, str] | str] = {
    "time": CLOCK,
    "posix": SYSTEM,
    "nt": SYSTEM,
    "_socket": NETWORK,
    "_posixsubprocess": PROCESS,
    "_uuid": RANDOM,
    "pwd": SYSTEM,
    "grp": SYSTEM,
    "resource": SYSTEM,
    "select": NETWORK,
    "gc": MEMORY,
    "_thread": {
        "start_new_thread": THREAD,
        "start_joinable_thread": THREAD,
        "get_ident": NUMBER,
        "get_native_id": NUMBER,
    },
    "builtins": {"id": ADDRESS, "hash": HASH, "input": "the keyboard"},
    "sys": {"getrefcount": MEMORY},
}
"""What functions of modules in C read: all of a module, or some."""
HARMLESS = frozenset(
    {
        "sleep",
        "mktime",
        "strptime",
        "asctime",
        "fspath",
        "_path_normpath",
        "_path_splitroot",
        "_path_splitroot_ex",
        "strerror",
        "close",
        "lseek",
        "isatty",
        "fstat",
        "open",
        "get_terminal_size",
        "enable",
        "disable",
        "collect",
        "isenabled",
    }
)
"""Functions of those modules that depend on their arguments alone, or that audit events show."""
EVENTS = frozenset({"open", "os", "socket", "subprocess", "pty", "shutil", "tempfile", "sqlite3", "glob", "pathlib"})
"""The first words of the audit events that are looked at."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
Met = tuple[str, str] | None
"""The code of an error, and what is read or changed; None where it is nothing."""


def of_call(module: str, name: str) -> Met:
    """What a function of a module in C does."""
    found = CALLS.get(module)
    if found is None or name in HARMLESS:
        return None
    what = found.get(name) if isinstance(found, dict) else found
    if what is None:
        return None
    if name in STARTED:
        return CHANGED, THREAD if what == THREAD else PROCESS
    return _of_system(name) if what == SYSTEM else (READ, what)


def of_event(event: str, args: tuple[Any, ...]) -> Met:
    """What an audit event says."""
    root, _, name = event.partition(".")
    if event == "open":
        _, mode, flags = args
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        return CHANGED if writes or (isinstance(flags, int) and flags & WRITING) else READ, FILE
    if root in ("subprocess", "pty") or (root == "os" and (name in STARTED or name in ("exec", "spawn"))):
        return CHANGED, PROCESS
    if root == "os":
        return _of_system(name)
    if root == "socket":
        return CHANGED if name in ("bind", "connect", "sendto", "sendmsg") else READ, NETWORK
    return READ if root in ("glob", "pathlib") else CHANGED, FILE


def of_method(name: str) -> Met:
    """What a method of an open file does."""
    if name.startswith(("write", "truncate")):
        return CHANGED, FILE
    return (READ, FILE) if name.startswith("read") else None


def functions() -> Iterator[tuple[CodeType, tuple[str, str]]]:
    """Functions in Python that are seen when they are called."""
    environment: Any = type(os.environ)
    for name in ("__getitem__", "__iter__", "__len__", "__setitem__", "__delitem__"):
        yield (
            getattr(environment, name).__code__,
            (CHANGED if name in ("__setitem__", "__delitem__") else READ, ENVIRONMENT),
        )
    if platform := sys.modules.get("platform"):
        yield platform.uname.__code__, (READ, SYSTEM)


SEED = random.Random.seed.__code__
"""It seeds random numbers, with `a`, or from outside where that is None."""


def _of_system(name: str) -> tuple[str, str]:
    if name in ("putenv", "unsetenv"):
        return CHANGED, ENVIRONMENT
    if name in MADE or name in FILES:
        return CHANGED if name in MADE else READ, FILE
    own = {"urandom": RANDOM, "getrandom": RANDOM, "getpid": NUMBER, "getppid": NUMBER}
    return READ, own.get(name, SYSTEM)
