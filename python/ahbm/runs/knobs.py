"""Knobs beside a program: the file `NAME.knobs.json`, keyed by the content of the program `NAME.xml`, `.json` or `.et`.

Formats of plans say what moves where. With how many channels and threads, by which protocol and in which pieces, is a
matter of the library that runs them, and stands beside the plan. The schema is `schemas/knobs.schema.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import Any

from ahbm._core import Machine, Plan, plan_files
from ahbm.base.knobs import KNOBS, MOST, Knobs, must_be
from ahbm.base.load import load_bytes, load_text
from ahbm.base.store import store, writing
from ahbm.base.yaml_source import did_you_mean
from ahbm.core.with_knobs import FULL_THREADS, MATH, slower_math
from ahbm.errors import FormatError, Site
from ahbm.source.plan import PROTOCOLS, is_free

VERSION = 1
SUFFIX = ".knobs.json"
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Applied:
    """What knobs do to a run of a plan."""

    modelled: Knobs
    """Those that change the simulated time."""
    overrides: Mapping[str, object]
    """Of the topology."""
    note: str


def beside(program: str | Path) -> Path:
    """The path of the knobs of a program: of a trace one for the files of all ranks."""
    path = Path(program)
    return path.with_name(re.sub(r"(\.[0-9]+)?\.et$|\.[^.]*$", "", path.name) + SUFFIX)


def digest(program: str | Path) -> str:
    """64 hex digits (SHA-256) of a program's file, or of all files of a trace.

    Raises FormatError (AHBM-F101, F139).
    """
    try:
        return hashlib.sha256(b"".join(load_bytes(file) for file in plan_files(Path(program)))).hexdigest()
    except OSError as error:
        raise FormatError("AHBM-F101", f"{program} cannot be read: {error}") from error


def read(program: str | Path) -> Knobs | None:
    """The knobs beside a program; None where there are none.

    Raises FormatError: AHBM-F188 for a file that is no set of knobs, F199 for knobs of another content, F101.
    """
    path = beside(program)
    if not isfile(path):
        return None
    try:
        document = json.loads(load_text(path, _MAX_BYTES))
    except OSError as error:
        raise FormatError("AHBM-F101", f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise _malformed(path, f"no JSON: {error or type(error).__name__}", getattr(error, "lineno", 1)) from error
    known = ("version", "program", "knobs")
    if not isinstance(document, dict) or set(document) != set(known) or not isinstance(document["knobs"], dict):
        raise _malformed(path, f"no object of {', '.join(known)}, of which knobs is an object")
    if document["version"] != VERSION:
        raise _malformed(path, f"version {str(document['version'])[:40]}: version {VERSION} is read")
    found = {str(key): _value(path, str(key), value) for key, value in document["knobs"].items()}
    if document["program"] != (wanted := digest(program)):
        hint = f'write them anew, or "program": "{wanted}" where they are meant for it as it is'
        sites = (Site("knobs", f"{path}:1"), Site("program", str(program)))
        raise FormatError("AHBM-F199", f"the knobs are for another content of {program}", sites=sites, hint=hint)
    return Knobs(**found)


def _value(path: Path, name: str, value: object) -> Any:
    if name not in KNOBS:
        raise _malformed(path, f"unknown knob {name[:40]!r}", hint=did_you_mean(name, KNOBS))
    wanted = must_be(name, value)
    if value is None or (wanted is None and (name != "protocol" or value in PROTOCOLS)):
        return value
    if name == "protocol":
        wanted = f"one of {', '.join(PROTOCOLS)}"
    raise _malformed(path, f"{name} must be {wanted}, not {str(value)[:40]!r}")


def _malformed(path: Path, what: str, line: int = 1, hint: str | None = None) -> FormatError:
    return FormatError("AHBM-F188", what, sites=(Site("written", f"{path}:{line}"),), hint=hint)


def schema() -> str:
    """The JSON schema of such a file."""
    wanted: dict[str, object] = {
        "protocol": {"enum": [*PROTOCOLS, None], "description": "The protocol of the library."},
        "channels": _number("channels", "Parallel copies of the program, each on its share of every chunk."),
        "threads": _number("threads", f"Threads of one block; {FULL_THREADS} do math at the machine's full rate."),
        "chunk_bytes": _number("chunk_bytes", "Bytes of the largest message."),
    }
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Knobs beside a program",
        "type": "object",
        "properties": {
            "version": {"const": VERSION},
            "program": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of the program's file."},
            "knobs": {"type": "object", "properties": wanted, "additionalProperties": False},
        },
        "required": ["version", "program", "knobs"],
        "additionalProperties": False,
    }
    return json.dumps(document, indent=4) + "\n"


def _number(name: str, about: str) -> dict[str, object]:
    return {"type": ["integer", "null"], "minimum": 1, "maximum": MOST[name], "description": about}


def text(knobs: Knobs, program: str | Path) -> str:
    """The file of knobs for a program as it is now. Raises FormatError (AHBM-F101)."""
    document = {"version": VERSION, "program": digest(program), "knobs": knobs.knobs}
    return json.dumps(document, indent=2) + "\n"


def write(knobs: Knobs, program: str | Path) -> Path:
    """Writes them beside a program. Raises FormatError: AHBM-F102, and as `text`."""
    path = beside(program)
    with writing(path):
        store({path: text(knobs, program).encode()})
    return path


def carry(source: str | Path, target: str | Path) -> list[Path]:
    """Writes the knobs beside `source`, if there are any, beside `target` too: the same knobs for what it became."""
    knobs = read(source)
    return [] if knobs is None else [write(knobs, target)]


def apply(knobs: Knobs, plan: Plan, machine: Machine, program: str | Path) -> Applied:
    """What knobs do to a run of `plan`, and a note that says so.

    The emulator models the protocol, channels and chunk size of plans of thread blocks that send and receive; threads
    everywhere. Plans of MSCCL++ state their own, and traces without buffers have none of them: there the knobs are
    carried along and change nothing.
    """
    overrides: dict[str, object] = {}
    modelled = knobs if is_free(plan) else Knobs()
    if knobs.threads is not None:
        slower = slower_math(machine, knobs.threads)
        if slower is not None and knobs.threads < FULL_THREADS:
            overrides[MATH] = str(slower)
        threads = None if slower is None else knobs.threads
        modelled = replace(modelled, threads=threads)
    carried = {name: value for name, value in knobs.knobs.items() if name not in modelled.knobs}
    message = f"{beside(program).name}: {modelled.text or 'none'} in the time"
    if carried:
        message += f"; {', '.join(f'{name} {value}' for name, value in carried.items())} carried, not modelled"
    return Applied(modelled, overrides, message)
