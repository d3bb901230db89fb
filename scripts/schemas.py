"""Writes the JSON schemas of ccl.yaml, of the space of a sweep and of knobs, made of what their readers check; and the
packaged ccl.yaml as it is parsed. The schema of topology.yaml is a matter of Rust:
`AHBM_WRITE_SCHEMA=1 cargo test -p ahbm-machine` writes it."""

from ahbm.base import packaged
from ahbm.base.yaml_source import parsed
from ahbm.config.schema import ccl_schema
from ahbm.runs.knobs import schema as knobs_schema
from ahbm.sweeps.space import space_schema

if __name__ == "__main__":
    (packaged.SCHEMAS / "ccl.schema.json").write_text(ccl_schema(), encoding="utf-8")
    (packaged.SCHEMAS / "sweep.schema.json").write_text(space_schema(), encoding="utf-8")
    (packaged.SCHEMAS / "knobs.schema.json").write_text(knobs_schema(), encoding="utf-8")
    packaged.PARSED.write_text(parsed(packaged.CCL.read_text(encoding="utf-8")), encoding="utf-8")
