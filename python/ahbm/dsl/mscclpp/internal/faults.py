"""Errors of a program, with the statement of its author."""

from __future__ import annotations

from typing import NoReturn

from ahbm._core import mscclpp_statement
from ahbm.errors import AhbmError, Finding, Site, program_error


def fault(raised: str, code: str, message: str, hint: str | None = None) -> AhbmError:
    """The error `code` at the author's statement, which is also a `raised`: the name of a built-in exception."""
    return program_error([Finding(code, message, (Site("statement", mscclpp_statement()),), hint).to_json()], raised)


def refuse_chunk_references(module: str) -> NoReturn:
    """Refuses a program that imports a module of MSCCL++ up to v0.7.0. Raises `ProgramError` (AHBM-A106)."""
    name = module.rpartition(".")[2]
    message = f"mscclpp.language.{name}: a program with chunk references, of MSCCL++ up to v0.7.0, which is not served"
    hint = "since v0.8.0 statements are calls of Rank and of channels"
    raise fault("RuntimeError", "AHBM-A106", message, hint)
