"""The JSON schema of ccl.yaml, for editors: made of the same checks that read the file."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ahbm.base.collectives import COLLECTIVES
from ahbm.config.ccl import COMMON, DEFAULTS
from ahbm.config.checks import Check, Schema, parameter, schema_of, text
from ahbm.config.kinds import KINDS, keys, kind
from ahbm.config.rules import RULE


def ccl_schema() -> str:
    """JSON schema of a ccl.yaml, pretty-printed; `data/schemas/ccl.schema.json` is this text."""
    kinds = []
    for key in KINDS:
        found = kind(key)
        entry = _object({**COMMON, **found.keys, key: found.check})
        entry["required"] = [key]
        # What other kinds have is no parameter.
        entry["properties"] |= {other: False for other in sorted(keys()) if other not in (key, *found.keys)}
        entry["additionalProperties"] = False if found.parameters is None else schema_of(found.parameters)
        kinds.append(entry)
    # Laid over an entry of another file, which has its kind.
    laid = _object({key: check for key, check in {**COMMON, **keys()}.items() if key not in KINDS})
    laid["additionalProperties"] = schema_of(parameter)
    laid["not"] = {"anyOf": [{"required": [key]} for key in KINDS]}
    rule = {**_object(RULE), "oneOf": [{"required": ["algorithm"]}, {"required": ["selector"]}]}
    choice = {"oneOf": [schema_of(text), rule, {"type": "array", "minItems": 1, "items": rule}]}
    collectives = {name: choice for name in COLLECTIVES}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AHBM ccl.yaml",
        "description": "Which algorithm runs a collective, and how its queues are set up; laid over the packaged file.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "defaults": {**_object(DEFAULTS), "type": ["object", "null"]},
            "algorithms": {"type": ["object", "null"], "additionalProperties": {"oneOf": [*kinds, laid]}},
            "collectives": {
                "type": ["object", "null"],
                "properties": collectives,
                "additionalProperties": False,
            },
        },
    }
    return json.dumps(schema, indent=2) + "\n"


def _object(checks: Mapping[str, Check]) -> Schema:
    properties = {key: schema_of(check) for key, check in sorted(checks.items())}
    return {"type": "object", "properties": properties, "additionalProperties": False}
