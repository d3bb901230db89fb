"""Programs of other languages: their package names served, and scripts run as their authors run them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from ahbm.dsl.compat import compat
from ahbm.dsl.mscclpp import CollectiveProgram, TestCollective
from ahbm.dsl.written import Written, collected


def run_script(path: Path, args: Sequence[str] = (), *, quirks: bool = False) -> tuple[str, list[Written]]:
    """What a script prints, and the programs that it lowers."""
    out = io.StringIO()
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    with (
        compat(),
        mock.patch.object(sys, "argv", [str(path), *args]),
        contextlib.redirect_stdout(out),
        collected(quirks=quirks) as written,
    ):
        exec(code, {"__name__": "__main__", "__file__": str(path)})
    return out.getvalue(), written


def canonical(text: str) -> str:
    """A plan with sorted keys; channels of signals, waits and flushes and ways to buffers are sets."""
    plan = json.loads(text)

    def visit(op: dict[str, Any]) -> None:
        if op["name"] in ("signal", "wait", "rlxsignal", "rlxwait", "flush"):
            op["channel_ids"].sort()
        for inner in op.get("ops", []):
            visit(inner)

    for gpu in plan["gpus"]:
        for buffer in gpu["remote_buffers"]:
            buffer["access_channel_types"].sort()
        for block in gpu["threadblocks"]:
            for op in block["ops"]:
                visit(op)
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def canonical_hash(text: str) -> str:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(text).encode()).hexdigest()


def lines_in(error: BaseException, path: Path) -> list[int]:
    """Lines of the file on the stack of an exception, outermost first."""
    found, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found.append(trace.tb_lineno)
        trace = trace.tb_next
    return found


@dataclass(frozen=True)
class Plan:
    """A lowered program, as its text says it."""

    written: Written

    @property
    def document(self) -> dict[str, Any]:
        """The plan."""
        document: dict[str, Any] = json.loads(self.written.text)
        return document

    def ops(self, rank: int = 0, tb: int = 0) -> list[dict[str, Any]]:
        """Operations of a thread block."""
        ops: list[dict[str, Any]] = self.document["gpus"][rank]["threadblocks"][tb]["ops"]
        return ops

    def names(self, rank: int = 0, tb: int = 0) -> list[str]:
        """Names of the operations of a thread block."""
        return [op["name"] for op in self.ops(rank, tb)]

    def codes(self) -> list[str]:
        """Codes of the notes."""
        return [note.code for note in self.written.notes]


def lower(
    write: Callable[[], object], *, ranks: int = 2, chunks: int = 8, quirks: bool = False, **settings: Any
) -> Plan:
    """A program with the statements of `write` and `chunks` chunks of input and output."""
    collective = settings.pop("collective", None) or TestCollective(ranks, chunks, chunks)
    with collected(quirks=quirks) as written, CollectiveProgram("p", collective, ranks, **settings) as program:
        write()
        program.to_json()
    return Plan(written[-1])
