"""The files that come with the package: algorithms, topologies, the default topology.yaml and ccl.yaml."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent / "data"
"""Holds `algorithms/*.py`, `topologies/*.yaml`, `schemas/*.json`, `topology.yaml`, `ccl.yaml`, `ccl.json`,
`nccl_model.yaml`, and in `project/` what `ahbm init` writes."""
ALGORITHMS = ROOT / "algorithms"
TOPOLOGIES = ROOT / "topologies"
TOPOLOGY = ROOT / "topology.yaml"
SCHEMAS = ROOT / "schemas"
"""JSON schemas of topology.yaml and ccl.yaml, for editors."""
CCL = ROOT / "ccl.yaml"
PARSED = ROOT / "ccl.json"
"""What `CCL` says, parsed, with its digest; made by `scripts/schemas.py`."""
NCCL_MODEL = ROOT / "nccl_model.yaml"
"""The constants of the selector "nccl"."""


def names(folder: Path, suffix: str) -> list[str]:
    """Sorted stems of the files in `folder` that end in `suffix`; empty when there is no such folder."""
    return sorted(path.stem for path in folder.glob(f"*{suffix}") if not path.name.startswith("_"))
