"""Kernels as lists of `tl` calls: recorded from their code, and written as modules that make exactly these calls."""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planted.judge.calls import NUMBERS, Call, Kernel

ALGORITHMS = Path(__file__).resolve().parents[3] / "python/ahbm/data/algorithms"
Body = Callable[["Recorder", int, int, int, str], None]
"""A kernel written for the recorder: `tl`, rank, ranks, elements, dtype."""

MODULE = '''"""Makes the calls of its rank."""

COLLECTIVE = {collective!r}
CALLS = {calls}


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16", op="sum", root=0):
    return ()


def kernel(t_ptr, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    if tl.program_id(axis=0) != 0:
        return
    values = {{}}
    for name, *rest in CALLS[sip_rank]:
        if name == "load":
            v, at, n, dtype = rest
            values[v] = tl.load(t_ptr + at, shape=(n,), dtype=dtype)
        elif name == "store":
            tl.store(t_ptr + rest[0], values[rest[1]])
        elif name == "zeros":
            v, n, dtype = rest
            values[v] = tl.zeros((n,), dtype)
        elif name == "cast":
            v, a, dtype = rest
            values[v] = tl.cast(values[a], dtype)
        elif name == "combine":
            v, a, b, op = rest
            values[v] = tl.combine(values[a], values[b], op)
        elif name == "send":
            tl.send(dir=rest[0], src=values[rest[1]])
        elif name == "sendref":
            way, at, n, dtype = rest
            tl.send(dir=way, src=tl.ref(t_ptr + at, shape=(n,), dtype=dtype))
        elif name == "recv":
            v, way, n, dtype = rest
            values[v] = tl.recv(dir=way, shape=(n,), dtype=dtype)
        elif name == "recvto":
            way, n, dtype, at = rest
            tl.recv(dir=way, shape=(n,), dtype=dtype, mode="copy_to_dst", dst=t_ptr + at)
'''


class Value:
    """What a recorded call returns."""

    def __init__(self, name: int, n: int, dtype: str) -> None:
        self.name, self.n, self.dtype = name, n, dtype
        self.shape = (n,)


class Ref:
    """Memory that a message is sent from."""

    def __init__(self, at: int, n: int, dtype: str) -> None:
        self.call = (at, n, dtype)


class Pending(NamedTuple):
    """A receive that was posted."""

    dir: str
    shape: tuple[int]
    dtype: str


class Recorder:
    """A `tl` of one rank that writes down what is called."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._names = itertools.count()

    def _value(self, n: int, dtype: str) -> Value:
        return Value(next(self._names), n, dtype)

    def program_id(self, axis: int) -> int:
        return 0

    def itemsize(self, dtype: str) -> int:
        return np.dtype(NUMBERS[dtype]).itemsize

    def peer(self, *, sip: int, cube: int = 0) -> str:
        return f"sip{sip}.cube{cube}"

    def load(self, ptr: int, shape: tuple[int], dtype: str) -> Value:
        value = self._value(shape[0], dtype)
        self.calls.append(("load", value.name, ptr, shape[0], dtype))
        return value

    def store(self, ptr: int, value: Value) -> None:
        self.calls.append(("store", ptr, value.name))

    def ref(self, ptr: int, shape: tuple[int], dtype: str) -> Ref:
        return Ref(ptr, shape[0], dtype)

    def zeros(self, shape: tuple[int], dtype: str) -> Value:
        value = self._value(shape[0], dtype)
        self.calls.append(("zeros", value.name, shape[0], dtype))
        return value

    def cast(self, a: Value, dtype: str) -> Value:
        value = self._value(a.n, dtype)
        self.calls.append(("cast", value.name, a.name, dtype))
        return value

    def combine(self, a: Value, b: Value, op: str) -> Value:
        value = self._value(a.n, a.dtype)
        self.calls.append(("combine", value.name, a.name, b.name, op))
        return value

    def send(self, dir: str, src: Value | Ref) -> None:
        dir = dir.removesuffix(".cube0")
        self.calls.append(("sendref", dir, *src.call) if isinstance(src, Ref) else ("send", dir, src.name))

    def recv(
        self, dir: str | None = None, *, shape: tuple[int], dtype: str, mode: str | None = None, dst: int = 0
    ) -> Value | None:
        dir = dir and dir.removesuffix(".cube0")
        if mode == "copy_to_dst":
            self.calls.append(("recvto", dir, shape[0], dtype, dst))
            return None
        value = self._value(shape[0], dtype)
        self.calls.append(("recv", value.name, dir, shape[0], dtype))
        return value

    def recv_async(self, dir: str, shape: tuple[int], dtype: str) -> Pending:
        return Pending(dir, shape, dtype)

    def wait(self, future: Pending) -> Value | None:
        """Receives what was posted: a kernel awaits the messages of one direction in the order of their posts."""
        return self.recv(future.dir, shape=future.shape, dtype=future.dtype)


def packaged(name: str, ranks: int, n: int, dtype: str, slots: int, root: int, op: str) -> Kernel:
    """One of the algorithms that come with AHBM, on one cube per rank."""
    module = _module(name)
    wanted = module["kernel_args"].__kwdefaults__
    given: dict[str, Any] = {"cube_w": 1, "cube_h": 1, "dtype": dtype, "root": root, "op": op}
    arguments = module["kernel_args"](ranks, n, **{key: value for key, value in given.items() if key in wanted})
    calls = []
    for rank in range(ranks):
        tl = Recorder()
        module["kernel"](0, *arguments, rank, 0, 0, 0, tl=tl)
        calls.append(tl.calls)
    return Kernel(module["COLLECTIVE"], dtype, n, calls, slots, root, op if "op" in wanted else "sum")


@lru_cache
def _module(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ALGORITHMS / f"{name}.py"))


def written(collective: str, body: Body, ranks: int, n: int, dtype: str, slots: int, root: int = 0) -> Kernel:
    """A kernel that was written for the recorder."""
    calls = []
    for rank in range(ranks):
        tl = Recorder()
        body(tl, rank, ranks, n, dtype)
        calls.append(tl.calls)
    return Kernel(collective, dtype, n, calls, slots, root)


def module(kernel: Kernel) -> str:
    """The text of a module that makes the kernel's calls."""
    return MODULE.format(collective=kernel.collective, calls=kernel.calls)
