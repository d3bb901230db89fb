"""Watches the calls of a kernel that is captured: what they read and change besides their arguments is refused.

Functions in C are seen by the interpreter's profiler, whoever calls them; files, sockets and processes by its audit
events. Sets, identities and hashes are seen by `instrument`.
"""

from __future__ import annotations

import builtins
import dis
import io
import operator
import pickle
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import groupby
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar

from ahbm.errors import AhbmError, KernelError, Site
from ahbm.source.instrument import NAME, instrumented
from ahbm.source.located import place
from ahbm.source.reach import PLAIN, Reach, in_order, is_library
from ahbm.source.world import (
    ADDRESS,
    ARGUMENTS,
    CHANGED,
    CLOCK,
    EVENTS,
    FILE,
    HASH,
    NUMBER,
    PROCESS,
    RANDOM,
    READ,
    SEED,
    THREAD,
    Met,
    functions,
    of_call,
    of_event,
    of_method,
)

IDENTITY = "AHBM-K219"
UNSTEADY = "AHBM-K216"
HINTS = {
    READ: "a kernel and its kernel_args see nothing but their arguments; what a module reads when it is loaded is a "
    "constant, and random.Random(0) within a kernel draws the same numbers in every call",
    CHANGED: "a kernel changes nothing but the tensor: print and logging are for people, files belong to the caller",
    IDENTITY: "compare numbers with == and !=; two equal integers may be one object or two",
}
EXEMPT = frozenset({"importlib", "linecache", "logging", "reprlib", "traceback", "warnings", "_frozen_importlib"})
"""Modules of Python that read the clock or files for a message, or to load a module."""
OF_USERS = frozenset({ADDRESS, HASH, NUMBER})
"""What Python's own modules may ask for: they keep dictionaries by it."""
TURNS = 16
"""Captures, at most, for one reason: a set begins with so many of its elements."""
Line = tuple[CodeType, int]
T = TypeVar("T")
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
        self._through: list[Line] = []
        """Where the first such set was gone through."""
        self._reach = reach
        self._codes: dict[CodeType, Met] = dict(functions())
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

    def first(self, capture: Callable[[], T]) -> T:
        """Captures for the first time. Raises KernelError: as `capture`, K217 where random numbers are what differs."""
        try:
            return capture()
        except KernelError as error:
            self._blame(capture, error)
            raise

    def repeat(self, capture: Callable[[], object]) -> None:
        """Captures again, as `_repeat`. Raises KernelError as `first`."""
        try:
            self._repeat(capture)
        except KernelError as error:
            self._blame(capture, error)
            raise

    def _blame(self, capture: Callable[[], object], error: KernelError) -> None:
        """Refuses random numbers where they are why a kernel did something else: what they were is chance, the verdict
        is not."""
        if error.code == UNSTEADY and self.found is None:
            begun, drawn = self._before[1], self._drawn()
            self._draw_again(capture, {name: state for name, state in drawn.items() if begun.get(name) != state})

    def _repeat(self, capture: Callable[[], object]) -> None:
        """Captures again where the first capture went through a set of no known order, in other orders; where it left
        something changed, until nothing changes, as with a cache; from other states of the random numbers.

        `capture` raises where the kernel does something else.
        """
        orders = (-1, *range(1, min(self._longest, TURNS))) if self._longest else ()
        for order in orders:
            self.order = order
            try:
                capture()
            except KernelError as error:
                raise self._of_order(error) from error.__cause__
        self.order = 0
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
        self._draw_again(capture, changed)
        self._before = self._state()

    def _of_order(self, error: KernelError) -> AhbmError:
        """The error of a capture in another order of sets, which names the set first."""
        if error.code != UNSTEADY:
            return error
        sites = (Site("goes through a set of no fixed order", _origin(self._through)), *error.sites)
        return error.with_findings(
            [replace(error.findings[0], sites=sites, hint="sorted(...) is the same in every process")]
        )

    def _draw_again(self, capture: Callable[[], object], drawn: dict[str, bytes]) -> None:
        """Captures from other states: random numbers that the kernel has seeded itself end in the same ones."""
        if not drawn:
            return
        numpy: Any = sys.modules.get("numpy.random")
        states = random.getstate(), numpy.get_state() if numpy else None
        random.seed(TURNS)
        if numpy:
            numpy.seed(TURNS)
        unsteady: KernelError | None = None
        try:
            try:
                capture()
            except KernelError as error:
                unsteady = error
            now = self._drawn()
        finally:
            random.setstate(states[0])
            if numpy:
                numpy.set_state(states[1])
        if any(now[name] != state for name, state in drawn.items()):
            self._say(READ, RANDOM, self._drawing())
        if unsteady is not None:
            raise unsteady

    # What instrumented code calls.

    def ordered(self, values: Any) -> Any:
        """What a set is gone through as."""
        if type(values) not in (set, frozenset) or len(values) < 2 or in_order(values):
            return values
        items = list(values)
        self._longest = max(self._longest, len(items))
        self._through = self._through or _lines(sys._getframe(1)) or _lines(sys._getframe(2))
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
                met = of_call(owner.__name__, called.__name__)
                if met and not (met[1] in OF_USERS and _is_key(frame)):
                    self._refuse(*met, frame)
            elif isinstance(owner, random.Random):
                drawn = called.__name__ not in ("seed", "getstate", "setstate")
                if drawn and not any(owner is seeded for seeded in self._seeded):
                    self._refuse(READ, RANDOM, frame)
            elif isinstance(owner, type):
                if issubclass(owner, date) and called.__name__ in ("now", "today", "utcnow"):
                    self._refuse(READ, CLOCK, frame)
            elif isinstance(owner, io.IOBase) and not _is_screen(owner) and (met := of_method(called.__name__)):
                self._refuse(*met, frame)
        elif event == "call":
            if frame.f_code is SEED:
                self._seed(frame)
            elif met := self._codes.get(frame.f_code):
                self._refuse(*met, frame.f_back)

    def _seed(self, frame: FrameType) -> None:
        own, seed = frame.f_locals.get("self"), frame.f_locals.get("a")
        if seed is not None:
            self._seeded.append(own)
        elif isinstance(own, random.Random):
            self._refuse(READ, RANDOM, frame.f_back)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event of this thread."""
        if met := of_event(event, args):
            self._refuse(*met, sys._getframe(2))

    def _refuse(self, code: str, what: str, frame: FrameType | None) -> None:
        """Raises the error for what the kernel does in a frame; nothing where the kernel is not what does it."""
        if lines := _lines(frame):
            self._say(code, what, lines)

    def _say(self, code: str, what: str, lines: Sequence[Line]) -> NoReturn:
        """Raises the error for lines of the kernel and its helpers."""
        does = {READ: "reads", CHANGED: "changes", IDENTITY: "asks"}[code]
        if what in (PROCESS, THREAD):
            does = "starts or ends"
        name = lines[0][0].co_name if lines else "the kernel"
        error = KernelError(code, f"{name} {does} {what}", sites=(Site(name, _origin(lines)),), hint=HINTS[code])
        self.found = self.found or error
        raise error

    def _drawing(self) -> list[Line]:
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


def _lines(frame: FrameType | None) -> list[Line]:
    """The line of the kernel that led to a frame, and those of its helpers; none where it only tells people."""
    lines: list[Line] = []
    while frame is not None:
        module = _module(frame)
        root = module.partition(".")[0]
        if root == "ahbm":
            return lines[::-1]
        if root in EXEMPT or _is_print(frame):
            return []
        if not is_library(module):
            lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return []


def _origin(lines: Sequence[Line]) -> str:
    return " -> ".join(origin for origin, _ in groupby(f"{place(code.co_filename)}:{line}" for code, line in lines))


def _is_key(frame: FrameType) -> bool:
    """Whether a frame asks for what only a dictionary is kept by."""
    return is_library(_module(frame)) or frame.f_code.co_name in ("__hash__", "__eq__")


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
