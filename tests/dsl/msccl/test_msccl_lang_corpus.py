"""MSCCLang: public programs, unmodified, against upstream. Runs where AHBM_CORPUS names their folder."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import logging
import os
import re
import runpy
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ahbm.dsl.written import Written, collected
from ahbm.errors import AhbmError, ProgramError

CORPUS = os.environ.get("AHBM_CORPUS")
pytestmark = pytest.mark.skipif(CORPUS is None, reason="AHBM_CORPUS is not set")
FOLDER = Path(CORPUS or "") / "msccl_dsl"
OURS = "ahbm.dsl.msccl"
SERVED = {
    "msccl.language": "",
    "msccl.language.collectives": ".collectives",
    "msccl.language.routines": ".routines",
    "msccl.topologies": ".topologies",
    "msccl.topologies.distributed": ".topologies.distributed",
    "msccl.topologies.nvidia": ".topologies.nvidia",
    "msccl.topologies.generic": ".topologies.generic",
    "msccl.collectives": ".synthesis_collectives",
    "msccl.programs": ".programs",
}
MEANT = {
    # Slices of scratch whose offsets differ, and channels that the current compiler ignores and then refuses.
    ("alltonext_backward.py", "4 1"),
    ("hierarchical_allreduce.py", "4 2 1 --schedule manual"),
}
"""Programs whose plan differs from upstream's by default."""
UNTRUE = {"allreduce_a100_pcie_hierarchical.py", "allreduce_2_gpus_tree.py"}
"""Programs whose own `Check()` fails."""


def cases() -> list[Any]:
    found = []
    for entry in json.loads((FOLDER / "index.json").read_text()) if CORPUS else []:
        for case in entry["cases"]:
            found.append(pytest.param(entry["file"], case, id=f"{Path(entry['file']).name} {' '.join(case['args'])}"))
    return found


def canonical(document: str) -> str:
    """A document without what upstream leaves to memory addresses: which nop carries which dependency."""
    root = ET.fromstring(document)

    def text(kind: str, attributes: dict[str, str]) -> str:
        return f"{kind} " + " ".join(f"{key}={value}" for key, value in sorted(attributes.items()))

    out = [text("algo", root.attrib)]
    for gpu in root.iter("gpu"):
        out.append(text("gpu", gpu.attrib))
        numbers = {
            (block.get("id"), step.get("s")): n
            for block in gpu
            for n, step in enumerate(step for step in block if step.get("type") != "nop")
        }
        for block in gpu:
            out.append(text("tb", block.attrib))
            waits: set[tuple[int, int]] = set()
            n = 0
            for step in block:
                rest = dict(step.attrib)
                key = (rest.pop("depid"), rest.pop("deps"))
                del rest["hasdep"], rest["s"]
                if key[0] != "-1":
                    waits.add((int(key[0]), numbers[key]))
                if rest["type"] != "nop":
                    out.append(text(str(n), rest) + f" dep={sorted(waits)}")
                    waits, n = set(), n + 1
    return "\n".join(out)


def digest(found: list[Written]) -> str | None:
    documents = re.findall(r"<algo\b.*?</algo>", "\n".join(written.text for written in found), re.DOTALL)
    text = "\n\n".join(canonical(document) for document in documents)
    return hashlib.sha256(text.encode()).hexdigest() if documents else None


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = types.ModuleType("msccl")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "msccl", package)
    for name, ours in SERVED.items():
        monkeypatch.setitem(sys.modules, name, importlib.import_module(OURS + ours))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(file: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, quirks: bool) -> tuple[Any, ...]:
    """What was lowered, the error, and the program's lines on its stack."""
    path = str(FOLDER / file)
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    error: Exception | None = None
    with collected(quirks=quirks) as found, contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(path, run_name="__main__")
        except Exception as raised:
            error = raised
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return found, error, [frame.lineno for frame in frames if frame.filename == path]


@pytest.mark.slow
@pytest.mark.parametrize("quirks", [True, False], ids=["quirks", "meant"])
@pytest.mark.parametrize(("file", "case"), cases())
def test_case(file: str, case: dict[str, Any], quirks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = case["M1"]
    name = Path(file).name
    found, error, lines = run(file, case["args"], monkeypatch, quirks)
    if not quirks and (name, " ".join(case["args"])) in MEANT:
        assert [note.code for written in found for note in written.notes] == ["AHBM-A221"]
        assert {written.plan.check()[0] for written in found} <= {"correct", "no_expectation"}
        return
    if expected := upstream.get("error"):
        assert expected["type"] in [kind.__name__ for kind in type(error).__mro__]
        assert (expected["contains"] in str(error), lines) == (True, expected["lines"])
        if isinstance(error, AhbmError):
            assert all(site.origin.startswith(f"{name}:") for site in error.sites)
        return
    if quirks or name not in UNTRUE:
        assert error is None
    else:
        assert isinstance(error, ProgramError)
        assert error.code == "AHBM-A209"
    assert digest(found) == upstream.get("hash")
    recorded = upstream.get("check")
    if recorded is None:
        return
    for written, before in zip(found, recorded if isinstance(recorded, list) else [recorded], strict=True):
        verdict, _, findings, *_ = written.plan.check()
        assert verdict == before["verdict"]
        assert {finding["code"] for finding in findings} >= set(before["codes"])
        origins = {site["origin"] for finding in findings for site in finding["sites"] if site["origin"]}
        assert all(origin.startswith(f"{name}:") for origin in origins)
