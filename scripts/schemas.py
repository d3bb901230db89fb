"""Writes the JSON schemas of ccl.yaml, of the space of a sweep and of knobs, made of what their readers check; and the
packaged ccl.yaml as it is parsed. The schema of topology.yaml is a matter of Rust:
`AHBM_WRITE_SCHEMA=1 cargo test -p ahbm-machine` writes it. The rows of `compute` in docs/machine-model.md are of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ahbm.base import packaged
from ahbm.base.yaml_source import parsed
from ahbm.config.schema import ccl_schema
from ahbm.runs.knobs import schema as knobs_schema
from ahbm.sweeps.space import space_schema

PAGE = Path(__file__).resolve().parent.parent / "docs/machine-model.md"
ROWS = re.compile(r"(^\| `compute\..*\n)+", re.MULTILINE)


def rows(keys: dict[str, Any], path: str) -> Iterator[str]:
    """The rows of a section's keys."""
    for name, about in keys.items():
        key = f"{path}.{name}"
        if "properties" in about:
            yield from rows(about["properties"], key)
            continue
        default = f"`{json.dumps(about['default'])}`" if "default" in about else ""
        yield f"| `{key}` | {default} | {about['description']} |\n"


if __name__ == "__main__":
    topology = json.loads((packaged.SCHEMAS / "topology.schema.json").read_text(encoding="utf-8"))
    table = "".join(rows(topology["properties"]["compute"]["properties"], "compute"))
    PAGE.write_text(ROWS.sub(lambda _: table, PAGE.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    (packaged.SCHEMAS / "ccl.schema.json").write_text(ccl_schema(), encoding="utf-8")
    (packaged.SCHEMAS / "sweep.schema.json").write_text(space_schema(), encoding="utf-8")
    (packaged.SCHEMAS / "knobs.schema.json").write_text(knobs_schema(), encoding="utf-8")
    packaged.PARSED.write_text(parsed(packaged.CCL.read_text(encoding="utf-8")), encoding="utf-8")
