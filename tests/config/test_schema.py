"""The JSON schemas that come with the package say of ccl.yaml and topology.yaml what the readers say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ahbm.base import packaged, yaml_nodes
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.yaml_source import Source, parse, parsed
from ahbm.config.ccl import COMMON, DEFAULTS, CclConfig
from ahbm.config.kinds import KINDS, kind
from ahbm.config.rules import RULE
from ahbm.config.schema import ccl_schema
from ahbm.errors import AhbmError

CCL = packaged.SCHEMAS / "ccl.schema.json"
VALUES: dict[str, Any] = {
    "algorithm": "ring_allreduce",
    "buffer_kind": "hbm",
    "slot_size": "auto",
    "backpressure": "sleep",
    "protocol": "LL",
    "quirks": True,
    "lenient": False,
    "limits": {"steps": 5},
    "args": ["--x", 1],
    "program": 0,
    "frontend": "upstream",
    "synth": {"method": "auto", "chunks": 2, "seed": 1},
    "module": "m.py",
    "plan": "p.xml",
    "dsl": "d.py",
    "group": "tp*",
    "node": "gradients",
    "collective": "all_reduce",
    "selector": "nccl",
}
"""Good values of the keys whose value is not a number."""


def by_schema(content: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(json.loads(ccl_schema())).is_valid(content))


def by_reader(content: Any, folder: Path) -> bool:
    path = folder / "ccl.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        CclConfig.load(path)
    except AhbmError:
        return False
    return True


def good(key: str) -> Any:
    return VALUES.get(key, 2)


def entries() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name in KINDS:
        own = {key: good(key) for key in kind(name).keys}
        found += [(name, {name: good(name), key: value}) for key, value in own.items()]
        found.append((name, {name: good(name), **{key: good(key) for key in COMMON}, **own}))
    return found


def test_the_packaged_schema_is_generated() -> None:
    assert CCL.read_text(encoding="utf-8") == ccl_schema(), "run python scripts/schemas.py"


@pytest.mark.parametrize("key", DEFAULTS)
@pytest.mark.parametrize("bad", [None, [], {"a": 1}, -1, True])
def test_defaults(key: str, bad: Any, tmp_path: Path) -> None:
    for value in (good(key), bad):
        content = {"defaults": {key: value}}
        assert by_schema(content) == by_reader(content, tmp_path) == (value is good(key))


@pytest.mark.parametrize(("name", "entry"), entries())
def test_entries(name: str, entry: dict[str, Any], tmp_path: Path) -> None:
    content = {"algorithms": {"mine": entry}}
    assert by_schema(content)
    assert by_reader(content, tmp_path)
    for planted in ({"no_such": {"a": 1}}, {"n_slots": "x"}, {"n_elem": -1}):
        wrong = {"algorithms": {"mine": entry | planted}}
        assert not by_schema(wrong), planted
        assert not by_reader(wrong, tmp_path), planted
    for other in KINDS:
        if other != name:
            both = {"algorithms": {"mine": {name: good(name), other: good(other)}}}
            assert not by_schema(both)
            assert not by_reader(both, tmp_path)


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"defaults": None, "algorithms": None, "collectives": None}, True),
        ({"algorithms": {"ring_allreduce": {"n_slots": 8}}}, True),
        ({"algorithms": {"mine": {"module": "a.py", "root_cube": 5, "names": ["a", 1]}}}, True),
        ({"algorithms": {"mine": {"plan": "a.xml", "root_cube": 5}}}, False),
        ({"algorithm": {}}, False),
        ({"defaults": {"n_slot": 3}}, False),
        ({"collectives": {"all_reduc": "ring_allreduce"}}, False),
        ({"collectives": {"all_gather": []}}, False),
        ({"collectives": {"all_gather": [{"max_bytes": 3}]}}, False),
        ({"collectives": {"all_gather": [{"algorithm": "ring_all_gather", "bytes": 3}]}}, False),
        *(
            ({"collectives": {name: [{key: good(key) for key in RULE if key != other}] for name in COLLECTIVES}}, True)
            for other in ("algorithm", "selector")
        ),
        ({"collectives": {"all_gather": [{key: good(key) for key in RULE}]}}, False),
        ({"collectives": {"all_gather": {"selector": {"kind": "shortlist", "k": 2}}}}, True),
        ({"collectives": {"all_gather": {"selector": {"k": 2}}}}, False),
        ({"collectives": {"all_gather": "ring_all_gather"}}, True),
    ],
)
def test_whole_files(content: Any, fits: bool, tmp_path: Path) -> None:
    assert by_schema(content) == by_reader(content, tmp_path) == fits


@pytest.mark.slow
def test_the_packaged_files_name_their_schemas_and_keep_them() -> None:
    validators: dict[Path, Any] = {}
    for path in (packaged.CCL, packaged.TOPOLOGY, *packaged.TOPOLOGIES.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        file = (path.parent / named).resolve()
        if file not in validators:
            schema = json.loads(file.read_text(encoding="utf-8"))
            jsonschema.Draft202012Validator.check_schema(schema)
            validators[file] = jsonschema.Draft202012Validator(schema)
        validators[file].validate(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    assert len(validators) == 2


def test_the_packaged_file_is_there_as_it_is_parsed() -> None:
    text = packaged.CCL.read_text(encoding="utf-8")
    assert packaged.PARSED.read_text(encoding="utf-8") == parsed(text), "run python scripts/schemas.py"
    by_nodes = yaml_nodes.parse(text, Source("here"), True)
    looked_up = parse(text, "here", packaged=True)
    assert (looked_up.values, looked_up.places) == (by_nodes.values, by_nodes.places)
    assert parse(text + "\nextra: 1\n", "here", packaged=True).values["extra"] == 1


def test_what_is_not_asked_for_is_not_imported() -> None:
    """What many processes begin with takes no longer than it must."""
    told = (
        "import sys, ahbm.core.emulator, ahbm.selectors.asking, ahbm.config.ccl as ccl\n"
        "config = ccl.CclConfig.packaged()\n"
        "config.settings(config.default_algorithm)\n"
        "rare = ['yaml', 'html', 'ahbm.source.synth', 'ahbm.source.dsl', 'ahbm.selectors.nccl_model']\n"
        "print([name for name in rare if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
