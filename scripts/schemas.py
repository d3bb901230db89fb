"""Writes the JSON schema of ccl.yaml, made of the checks of its reader. That of topology.yaml is a matter of Rust:
`AHBM_WRITE_SCHEMA=1 cargo test -p ahbm-machine` writes it."""

from ahbm.base import packaged
from ahbm.config.schema import ccl_schema

if __name__ == "__main__":
    (packaged.SCHEMAS / "ccl.schema.json").write_text(ccl_schema(), encoding="utf-8")
