"""What a real library would do where the ranks of a call chose differently: every rank runs its own choice, and waits.

AHBM compares choices before a call and refuses it. A library does not: each rank runs the kernel that it chose, and the
messages of one do not meet those of the other. `mixed` emulates that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ahbm.base.request import Request, Shares
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError, DeadlockError, UnsupportedError
from ahbm.source.module import ModuleAlgorithm
from ahbm.source.reach import Reach


@dataclass(frozen=True)
class Mixed:
    """The end of a call whose ranks ran different algorithms."""

    choices: Mapping[int, str]
    """By group rank."""
    error: AhbmError | None
    """The deadlock with its wait-for cycle, or what else is wrong; None where it ends."""
    latency_ns: float | None = None
    """Simulated; None where it never ends."""

    @property
    def hangs(self) -> bool:
        """Whether ranks wait for each other for ever."""
        return isinstance(self.error, DeadlockError)

    def __str__(self) -> str:
        message = ", ".join(f"rank {rank} {name}" for rank, name in sorted(self.choices.items()))
        if self.error is None:
            return f"{message}: ends after {(self.latency_ns or 0.0) / 1000:.2f} us, perhaps with a wrong result"
        what = "waits for ever" if self.hangs else "cannot run"
        return f"{message}: {what}\n{self.error}"


def mixed(emulator: Emulator, request: Request, choices: Mapping[int, str]) -> Mixed:
    """The end of a request in which each group rank runs the algorithm of its name.

    Raises ConfigError (AHBM-C129) where a rank has no choice, UnsupportedError (AHBM-U233) for an algorithm that is no
    kernel, and what loading one raises.
    """
    if missing := [rank for rank in range(request.world_size) if rank not in choices]:
        raise ConfigError("AHBM-C129", f"choices must name an algorithm for every rank, not none for {missing}")
    parts: dict[str, ModuleAlgorithm] = {}
    for name in dict.fromkeys(choices.values()):
        found = emulator.algorithm(name)
        if not isinstance(found, ModuleAlgorithm):
            raise UnsupportedError(
                "AHBM-U233", f"{name} is a plan for all ranks: no rank can run it alone", hint="kernels can be mixed"
            )
        parts[name] = found
    try:
        compiled = emulator.compile(request, _algorithm(emulator, request, parts, choices))
        return Mixed(dict(choices), None, compiled.latency_ps / 1000)
    except AhbmError as error:
        return Mixed(dict(choices), error)


@dataclass(frozen=True)
class _Dispatch(ModuleAlgorithm):
    """A kernel that is another one on other ranks."""

    parts: tuple[ModuleAlgorithm, ...] = field(default=())
    unmatched: ClassVar[bool] = True

    @property
    def identity(self) -> tuple[str, str]:
        """Kind, and hash of the parts and their ranks."""
        return ("mixed", self.digest)

    def arguments(
        self,
        request: Request,
        n_elem: int,
        cube_w: int,
        cube_h: int,
        node_size: int = 1,
        slice_bytes: int = 0,
        shares: Shares | None = None,
    ) -> tuple[object, ...]:
        """Those of all parts, each as one."""
        sizes = n_elem, cube_w, cube_h, node_size, slice_bytes
        return tuple(part.arguments(request, *sizes, shares) for part in self.parts)


def _algorithm(
    emulator: Emulator, request: Request, parts: Mapping[str, ModuleAlgorithm], choices: Mapping[int, str]
) -> _Dispatch:
    names = list(parts)
    network = emulator.network(request)
    kinds = [part.topology_kind(network) for part in parts.values()]
    number = [names.index(choices[rank]) for rank in range(request.world_size)]

    def kernel(t_ptr: Any, *given: Any, tl: Any) -> None:
        *arguments, rank, _, w, h = given
        mine = number[int(rank)]
        part = parts[names[mine]]
        part.kernel(t_ptr, *arguments[mine], rank, kinds[mine], w, h, tl=tl)

    first = next(iter(parts.values()))
    title = " and ".join(names)
    facts = repr([(name, parts[name].identity) for name in names] + [tuple(number)])
    return _Dispatch(
        name=title,
        path=first.path,
        digest=hashlib.sha256(facts.encode()).hexdigest(),
        collectives=(request.collective,),
        declared=True,
        kernel=kernel,
        kernel_args=first.kernel_args,
        reach=Reach(*(call for part in parts.values() for call in (part.kernel, part.kernel_args))),
        keywords=frozenset().union(*(part.keywords for part in parts.values())),
        kinds=None,
        parts=tuple(parts.values()),
    )
