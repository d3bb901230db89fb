"""What a program of a language becomes, and who is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ahbm._core import Plan
from ahbm.dsl import judgement
from ahbm.errors import Finding


@dataclass(frozen=True)
class Written:
    """A program after its lowering."""

    name: str
    """The name that the program gives itself."""
    language: str
    """`"mscclpp"` or `"msccl"`."""
    plan: Plan
    """What it computes. The origins of its steps are the author's lines."""
    text: str
    """What the language's own compiler prints: JSON or XML."""
    notes: tuple[Finding, ...] = ()
    """Where the plan differs from what the language's own compiler makes, and old names that were used."""


@dataclass(frozen=True)
class Lowering:
    """How programs are lowered, and the ones that were."""

    quirks: bool = False
    """Do what the language's own compiler does, its defects included."""
    written: list[Written] | None = None
    """Where lowered programs are collected, to be checked or run; None: nowhere."""
    complaints: list[tuple[str, Finding]] | None = None
    """Where what a program finds wrong with itself is kept, with its name; None: it is raised."""

    def tell(self, program: Written) -> None:
        """Takes note of a lowered program, which is checked where nobody collects it, as `judgement.warn`."""
        if self.written is None:
            judgement.warn(program)
        else:
            self.written.append(program)


_PLAIN = Lowering()
_LOWERING: ContextVar[Lowering] = ContextVar("ahbm_dsl_lowering", default=_PLAIN)


def lowering() -> Lowering:
    """That of the current context."""
    return _LOWERING.get()


@contextmanager
def collected(*, quirks: bool = False, complaints: list[tuple[str, Finding]] | None = None) -> Iterator[list[Written]]:
    """Collects every program that is lowered inside, in order.

    `complaints` collects what programs find wrong with themselves, with their names; without it, that is raised.
    """
    found: list[Written] = []
    token = _LOWERING.set(Lowering(quirks, found, complaints))
    try:
        yield found
    finally:
        _LOWERING.reset(token)
