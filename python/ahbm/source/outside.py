"""Watches the calls of a kernel that is captured: what they read and change besides their arguments is refused.

Functions in C are seen by the interpreter's profiler, whoever calls them; files, sockets and processes by its audit
events. Sets, identities and hashes are seen by `instrument`.
"""

from __future__ import annotations

import builtins
import dis
import io
import operator
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn

from ahbm.errors import KernelError, Site
from ahbm.source.instrument import NAME, instrumented
from ahbm.source.located import place
from ahbm.source.reach import PLAIN, Reach, in_order, is_library

READ, CHANGED, IDENTITY = "AHBM-K217", "AHBM-K218", "AHBM-K219"
HINTS = {
    READ: "a kernel and its kernel_args see nothing but their arguments; what a module reads when it is loaded is a "
    "constant, and random.Random(0) within a kernel draws the same numbers in every call",
    CHANGED: "a kernel changes nothing but the tensor: print and logging are for people, files belong to the caller",
    IDENTITY: "compare numbers with == and !=; two equal integers may be one object or two",
}
EXEMPT = frozenset({"importlib", "linecache", "logging", "reprlib", "traceback", "warnings", "_frozen_importlib"})
"""Modules of Python that read the clock or files for a message, or to load a module."""
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
OF_USERS = frozenset({ADDRESS, HASH, NUMBER})
"""What Python's own modules may ask for: they keep dictionaries by it."""
TURNS = 16
"""Captures, at most, for one reason: a set begins with so many of its elements."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_local = threading.local()
_lock = threading.RLock()


class Watch:
    """The calls of a kernel in this thread, within `with`. Raises KernelError: AHBM-K217 for what they read, K218 for
    what they change, K219 where they ask whether integers are one object."""

    def __init__(self, reach: Reach) -> None:
        self.order = 0
        """How sets are gone through: 0 as Python does, -1 in reverse, n from element n on."""
        self.found: KernelError | None = None
        self._longest = 0
        """Elements of the longest set that was gone through and whose order depends on the process."""
        self._reach = reach
        self._codes = dict(_codes())
        self._seeded: list[object] = []
        self._new: list[tuple[FunctionType, CodeType]] = []
        self._saved: list[tuple[FunctionType, CodeType, Any]] = []
        self._outer: Watch | None = None
        self._profile: Any = None
        self._before: tuple[list[str], dict[str, bytes]] = ([], {})
        self.blind = False
        """Whether code that looks at types or identities could not be instrumented, for want of its text."""
        if not reach.quiet:
            self._new, self.blind = instrumented(reach.functions)

    def __enter__(self) -> Watch:
        _lock.acquire()
        self._outer = getattr(_local, "watch", None)
        for function, new in self._new:
            self._saved.append((function, function.__code__, function.__globals__.get(NAME)))
            function.__code__ = new
            function.__globals__[NAME] = self
        self._before = self._state()
        self._profile = sys.getprofile()
        if not self._reach.quiet:
            _hook()
            _local.watch = self
            sys.setprofile(self._see)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._reach.quiet:
            sys.setprofile(None)
            _local.watch = self._outer
            if callable(self._profile):
                sys.setprofile(self._profile)
            elif self._profile is not None:  # cProfile's
                self._profile.enable()
        while self._saved:
            function, old, outer = self._saved.pop()
            function.__code__ = old
            if outer is None:
                function.__globals__.pop(NAME, None)
            else:
                function.__globals__[NAME] = outer
        _lock.release()
        if self.found is not None and self.found is not error and not isinstance(error, KeyboardInterrupt):
            raise self.found from error

    def repeat(self, capture: Callable[[], object]) -> None:
        """Captures again where the first capture went through a set of no known order, in other orders; where it left
        something changed, until nothing changes, as with a cache; from other states of the random numbers.

        `capture` raises where the kernel does something else.
        """
        orders = (-1, *range(1, min(self._longest, TURNS))) if self._longest else ()
        for order in orders:
            self.order = order
            capture()
        before, (after, drawn) = self._before[0], self._state()
        for _ in range(TURNS):
            if before == after:
                break
            capture()
            before, after = after, self._state()[0]
        begun = self._before[1]
        if begun.keys() != drawn.keys():  # NumPy's were loaded meanwhile
            begun = drawn
            capture()
            drawn = self._drawn()
        changed = {name: state for name, state in drawn.items() if begun[name] != state}
        if changed:
            self._draw_again(capture, changed)

    def _draw_again(self, capture: Callable[[], object], drawn: dict[str, bytes]) -> None:
        """Captures from other states: random numbers that the kernel has seeded itself end in the same ones."""
        numpy: Any = sys.modules.get("numpy.random")
        states = random.getstate(), numpy.get_state() if numpy else None
        random.seed(TURNS)
        if numpy:
            numpy.seed(TURNS)
        try:
            capture()
            now = self._drawn()
        finally:
            random.setstate(states[0])
            if numpy:
                numpy.set_state(states[1])
        if any(now[name] != state for name, state in drawn.items()):
            self._say(READ, RANDOM, self._drawing())

    # What instrumented code calls.

    def ordered(self, values: Any) -> Any:
        """What a set is gone through as."""
        if type(values) not in (set, frozenset) or len(values) < 2 or in_order(values):
            return values
        items = list(values)
        self._longest = max(self._longest, len(items))
        first = self.order % len(items)
        return items[::-1] if self.order < 0 else items[first:] + items[:first]

    def pop(self, values: Any) -> Any:
        """`values.pop()`."""
        if type(values) is not set or not values:
            return values.pop()
        first = next(iter(self.ordered(values)))
        values.remove(first)
        return first

    def same(self, left: Any, right: Any) -> bool:
        """`left is right`, which integers do not know."""
        self._compare(left, right, sys._getframe(1))
        return left is right

    def asked(self, function: Any, left: Any, right: Any) -> Any:
        """`operator.is_(left, right)`, `operator.is_not(left, right)`."""
        if function in (operator.is_, operator.is_not):
            self._compare(left, right, sys._getframe(1))
        return function(left, right)

    def _compare(self, left: Any, right: Any, frame: FrameType) -> None:
        if _is_number(left) and _is_number(right):
            self._refuse(IDENTITY, "whether two integers are one object", frame)

    def hashed(self, function: Any, value: Any) -> Any:
        """`hash(value)`."""
        if function is builtins.hash and not in_order((value,)):
            self._refuse(READ, HASH, sys._getframe(1))
        return function(value)

    def typed(self, function: Any, value: Any) -> Any:
        """`type(value)`: that of a symbolic integer is `int`."""
        return int if function is type and _is_number(value) else function(value)

    def stream(self, file: Any) -> Any:
        """A file to which something is printed."""
        if file is not None and not _is_screen(file):
            self._refuse(CHANGED, FILE, sys._getframe(1))
        return file

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`, one of `ATTRIBUTES`."""
        if owner is sys:
            self._refuse(READ, ARGUMENTS, sys._getframe(1))
        return getattr(owner, name)

    # What the interpreter calls.

    def _see(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            owner = getattr(called, "__self__", None)
            if type(owner) is ModuleType:
                found = CALLS.get(owner.__name__)
                if found is not None and called.__name__ not in HARMLESS:
                    self._call(found, called.__name__, frame)
            elif isinstance(owner, random.Random):
                drawn = called.__name__ not in ("seed", "getstate", "setstate")
                if drawn and not any(owner is seeded for seeded in self._seeded):
                    self._refuse(READ, RANDOM, frame)
            elif isinstance(owner, type):
                if issubclass(owner, date) and called.__name__ in ("now", "today", "utcnow"):
                    self._refuse(READ, CLOCK, frame)
            elif isinstance(owner, io.IOBase) and not _is_screen(owner):
                self._use(owner, called.__name__, frame)
        elif event == "call":
            found = self._codes.get(frame.f_code)
            if found == RANDOM:
                self._seed(frame)
            elif found is not None:
                code = CHANGED if frame.f_code.co_name in ("__setitem__", "__delitem__") else READ
                self._refuse(code, found, frame.f_back)

    def _call(self, found: dict[str, str] | str, name: str, frame: FrameType) -> None:
        if isinstance(found, dict):
            if name not in found:
                return
            found = found[name]
        if found in OF_USERS and (is_library(_module(frame)) or frame.f_code.co_name in ("__hash__", "__eq__")):
            return
        if name in STARTED:
            self._refuse(CHANGED, THREAD if found == THREAD else PROCESS, frame)
        elif found == SYSTEM:
            self._system(name, frame)
        else:
            self._refuse(READ, found, frame)

    def _system(self, name: str, frame: FrameType) -> None:
        if name in ("putenv", "unsetenv"):
            self._refuse(CHANGED, ENVIRONMENT, frame)
        elif name in MADE or name in FILES:
            self._refuse(CHANGED if name in MADE else READ, FILE, frame)
        else:
            own = {"urandom": RANDOM, "getrandom": RANDOM, "getpid": NUMBER, "getppid": NUMBER}
            self._refuse(READ, own.get(name, SYSTEM), frame)

    def _seed(self, frame: FrameType) -> None:
        own, seed = frame.f_locals.get("self"), frame.f_locals.get("a")
        if seed is not None:
            self._seeded.append(own)
        elif isinstance(own, random.Random):
            self._refuse(READ, RANDOM, frame.f_back)

    def _use(self, file: Any, name: str, frame: FrameType) -> None:
        if name.startswith(("write", "truncate")):
            self._refuse(CHANGED, FILE, frame)
        elif name.startswith("read"):
            self._refuse(READ, FILE, frame)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event of this thread."""
        root, _, name = event.partition(".")
        frame = sys._getframe(2)  # an event itself, which is none of those
        if event == "open":
            _, mode, flags = args
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else False
            makes = writes or (isinstance(flags, int) and flags & WRITING)
            self._refuse(CHANGED if makes else READ, FILE, frame)
        elif root == "os":
            if name in STARTED or name in ("exec", "spawn"):
                self._refuse(CHANGED, PROCESS, frame)
            self._system(name, frame)
        elif root == "socket":
            self._refuse(CHANGED if name in ("bind", "connect", "sendto", "sendmsg") else READ, NETWORK, frame)
        elif root in ("subprocess", "pty"):
            self._refuse(CHANGED, PROCESS, frame)
        elif root in ("shutil", "tempfile", "sqlite3"):
            self._refuse(CHANGED, FILE, frame)
        elif root in ("glob", "pathlib"):
            self._refuse(READ, FILE, frame)

    def _refuse(self, code: str, what: str, frame: FrameType | None) -> None:
        """Raises the error for what the kernel does in a frame; nothing where the kernel is not what does it."""
        lines: list[FrameType] = []
        while frame is not None:
            module = _module(frame)
            root = module.partition(".")[0]
            if root == "ahbm":
                break
            if root in EXEMPT or _is_print(frame):
                return
            if not is_library(module):
                lines.append(frame)
            frame = frame.f_back
        if frame is not None and lines:
            self._say(code, what, [(frame.f_code, frame.f_lineno) for frame in lines])

    def _say(self, code: str, what: str, lines: Sequence[tuple[CodeType, int]]) -> NoReturn:
        """Raises the error for lines of which the innermost is the first, the kernel's the last."""
        does = {READ: "reads", CHANGED: "changes", IDENTITY: "asks"}[code]
        if what in (PROCESS, THREAD):
            does = "starts or ends"
        name = lines[-1][0].co_name if lines else "the kernel"
        sites = [Site(name, _origin(*line)) for line in lines[-1:]]
        if lines and _origin(*lines[0]) != sites[0].origin:
            sites.append(Site(f"in {lines[0][0].co_name}", _origin(*lines[0])))
        error = KernelError(code, f"{name} {does} {what}", sites=tuple(sites), hint=HINTS[code])
        self.found = self.found or error
        raise error

    def _drawing(self) -> list[tuple[CodeType, int]]:
        """Where random numbers are drawn, as far as the names in the code say."""
        numpy: Any = sys.modules.get("numpy.random")
        kinds = (random.Random, *((numpy.Generator, numpy.RandomState) if numpy else ()))
        for function in self._reach.functions:
            for step in dis.get_instructions(function.__code__):
                value = function.__globals__.get(step.argval) if isinstance(step.argval, str) else None
                value = value.func if isinstance(value, partial) else value
                known = isinstance(value, kinds) or isinstance(getattr(value, "__self__", None), kinds)
                if (known or step.argval == "random") and step.positions and step.positions.lineno:
                    return [(function.__code__, step.positions.lineno)]
        first = [function.__code__ for function in self._reach.functions[:1]]
        return [(code, code.co_firstlineno) for code in first]

    def _state(self) -> tuple[list[str], dict[str, bytes]]:
        """What outlives the calls, in words, and the state of NumPy's random numbers."""
        words: list[str] = []
        for value in (*self._reach.kept, *self._reach.functions):
            try:
                words.append(repr(value))
                words.append(repr(vars(value)))
            except Exception:  # an object without variables, or one that cannot be shown
                continue
        for function in self._reach.functions:
            known = function.__globals__
            words.extend(repr(known.get(name)) for name in function.__code__.co_names if type(known.get(name)) in PLAIN)
            cells = function.__closure__ or ()
            words.extend(repr(cell.cell_contents) for cell in cells if type(cell.cell_contents) in PLAIN)
        return words, self._drawn()

    def _drawn(self) -> dict[str, bytes]:
        """The states of the random numbers that outlive the calls."""
        states: dict[str, object] = {"random": random.getstate()}
        if numpy := sys.modules.get("numpy.random"):
            states["numpy.random"] = numpy.get_state()
            kept = (value for value in self._reach.kept if isinstance(value, numpy.Generator))
            states.update((f"generator {number}", one.bit_generator.state) for number, one in enumerate(kept))
        return {name: pickle.dumps(state) for name, state in states.items()}


def _codes() -> Any:
    """The functions of Python's own modules that read what is outside, and what that is."""
    environment: Any = type(os.environ)
    for name in ("__getitem__", "__iter__", "__len__", "__setitem__", "__delitem__"):
        yield getattr(environment, name).__code__, ENVIRONMENT
    yield random.Random.seed.__code__, RANDOM
    if platform := sys.modules.get("platform"):
        yield platform.uname.__code__, SYSTEM


def _origin(code: CodeType, line: int) -> str:
    return f"{place(code.co_filename)}:{line}"


def _is_screen(file: Any) -> bool:
    """Whether a file is read by people, or is in memory."""
    screens = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(file, io.StringIO | io.BytesIO) or any(file is one for one in screens)


def _is_print(frame: FrameType) -> bool:
    """Whether a frame writes what is printed, as the streams of notebooks do."""
    writer = frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self")
    return bool(writer) and any(writer is one for one in (sys.stdout, sys.stderr))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_number(value: Any) -> bool:
    """An `int`, plain or symbolic: no truth value, and no member of an enumeration."""
    kind = type(value)
    return kind is int or (isinstance(value, int) and not issubclass(kind, int))


_hooked: list[bool] = []


def _hook() -> None:
    """Watches audit events from now on: a hook stays as long as the process, and does nothing without a watch."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    watch = getattr(_local, "watch", None)
    if watch is not None and event.partition(".")[0] in EVENTS:
        watch.audit(event, args)
