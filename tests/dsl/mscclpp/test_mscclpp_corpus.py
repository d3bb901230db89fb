"""Public MSCCL++ DSL programs give the plans of the language's own compiler. Runs where AHBM_CORPUS names them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from ahbm.dsl import mscclpp
from ahbm.dsl.compat import compat
from ahbm.dsl.written import Written, collected
from ahbm.errors import AhbmError, ProgramError
from support.programs import canonical, canonical_hash, lines_in, run_script

FOLDER = Path(os.environ.get("AHBM_CORPUS", "/nonexistent")) / "mscclpp_dsl"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="AHBM_CORPUS is not set")

CASES = [
    pytest.param(FOLDER / entry["file"], case, id=f"{Path(entry['file']).stem}-{number}")
    for entry in (json.loads((FOLDER / "index.json").read_text(encoding="utf-8")) if FOLDER.is_dir() else [])
    for number, case in enumerate(
        # Programs of functions were lowered in one process, one after the other.
        case | {"earlier": [other for other in entry["cases"][:number] if "function" in other]}
        for number, case in enumerate(entry["cases"])
    )
    if "note" not in case
]
REPAIRED = {
    "reduce_fuse_test-0": "reductions that do not continue each other were fused",
    "reduce_packets_fuse_test-0": "reductions that do not continue each other were fused",
    "allreduce_multi_nodes-5": "barriers were counted on from the program before",
    "allreduce_multi_nodes-7": "barriers were counted on from the program before",
}
"""Programs of which the own compiler makes something else than they say."""
GRAVITY = ("no_expectation", "correct", "undecided", "wrong", "deadlock")


def spec_of(case: dict[str, Any]) -> mscclpp.AlgoSpec:
    given = dict(case["spec"])
    collective = given.pop("collective")
    kind = getattr(mscclpp, collective["class"])
    given["collective"] = kind(collective["num_ranks"], collective["chunk_factor"], collective["inplace"])
    given["replication_policy"] = mscclpp.ReplicationPolicy(given["replication_policy"])
    return mscclpp.AlgoSpec(**given)


def lowered(path: Path, case: dict[str, Any], quirks: bool) -> tuple[str, Written]:
    if "function" not in case:
        text, written = run_script(path, case["args"], quirks=quirks)
        return text, written[-1]
    absent = {name: mock.MagicMock() for name in ("torch", "torch.distributed", "netifaces", "cupy")}
    with compat(), mock.patch.dict(sys.modules, absent), collected(quirks=quirks) as written:
        package: Any = importlib.import_module("mscclpp")
        package.AlgoSpec = mscclpp.AlgoSpec
        package.__getattr__ = mock.MagicMock()
        function = getattr(loaded(path), case["function"])
        for one in [*case["earlier"], case]:
            text = function(spec_of(one), **one["kwargs"]).to_json()
    return text, written[-1]


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program_of_the_corpus", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("quirks", [True, False], ids=["quirks", "meant"])
@pytest.mark.parametrize(("path", "case"), CASES)
def test_the_plan_is_that_of_the_own_compiler(
    path: Path, case: dict[str, Any], quirks: bool, request: pytest.FixtureRequest
) -> None:
    if "refuse" in case:
        with pytest.raises(ProgramError, match=re.escape("v0.7.0")) as caught:
            run_script(path, case["args"], quirks=quirks)
        assert lines_in(caught.value, path)
        return
    if "error" in case:
        with pytest.raises(Exception) as failed:
            run_script(path, case["args"], quirks=quirks)
        assert case["error"]["type"] in {kind.__name__ for kind in type(failed.value).__mro__}
        assert case["error"]["contains"] in str(failed.value)
        assert lines_in(failed.value, path)[-len(case["error"]["lines"]) :] == case["error"]["lines"]
        if "function" not in case and case["error"]["type"] != "KeyError":
            assert isinstance(failed.value, AhbmError)
        return
    text, written = lowered(path, case, quirks)
    assert text.strip() == written.text
    if not quirks and request.node.callspec.id.removesuffix("-meant") in REPAIRED:
        assert canonical_hash(text) != case["hash"]
        return
    if case.get("plan") and canonical_hash(text) != case["hash"]:
        assert canonical(text) == (FOLDER / case["plan"]).read_text(encoding="utf-8").strip()
    assert canonical_hash(text) == case["hash"]
    assert not [note for note in written.notes if note.code == "AHBM-A121"]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "case"), [param for param in CASES if "check" in param.values[1]])
def test_the_verdict_is_the_recorded_one(path: Path, case: dict[str, Any]) -> None:
    written = lowered(path, case, False)[1]
    verdict, _, findings, _ = written.plan.check()
    assert GRAVITY.index(verdict) >= GRAVITY.index(case["check"]["verdict"])
    for finding in findings:
        for site in finding["sites"]:
            assert "#" not in site["origin"], site
    with contextlib.suppress(IndexError):
        assert path.name in findings[0]["sites"][0]["origin"]
