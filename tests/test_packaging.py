"""The package describes itself: what an index shows, and the workflow that builds its wheels."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import ahbm
import ahbm.distributed

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = ROOT / ".github/workflows/wheels.yml"


def test_an_index_page_says_who_what_and_where() -> None:
    assert PROJECT["authors"] == [{"name": "The AHBM authors"}]
    assert PROJECT["keywords"] == sorted(PROJECT["keywords"], key=str.lower)
    kinds = {classifier.partition(" :: ")[0] for classifier in PROJECT["classifiers"]}
    assert kinds >= {"Development Status", "Intended Audience", "Operating System", "Programming Language", "Topic"}
    # The licence is an expression: a classifier beside it is an error (PEP 639).
    assert "License" not in kinds
    for path in [PROJECT["readme"], *PROJECT["license-files"]]:
        assert (ROOT / path).is_file()


def test_links_of_the_readme_lead_into_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["maturin"]
    included = {path for each in settings["include"] for path in ROOT.glob(each["path"])}
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")):
        if link.startswith(("http", "LICENSE")):
            continue
        target = ROOT / link
        files = [path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        left_out = {*(files if target.is_dir() else [target])} - included
        assert target.exists() and not left_out, f"README.md links {link}, which the source distribution leaves out"


def test_wheels_are_built_for_all_platforms_without_secrets() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    targets = {row["target"].split("-")[0] + row["target"].split("-")[2] for row in _matrix(workflow)}
    assert targets == {"x86_64linux", "aarch64linux", "aarch64darwin", "x86_64darwin"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    assert all("upload-artifact" in str(job["steps"]) for job in workflow["jobs"].values())


@pytest.mark.parametrize("system", ["Linux", "MacOS"])
def test_classifiers_name_the_systems_that_have_wheels(system: str) -> None:
    assert any(each.endswith(system) for each in PROJECT["classifiers"])


def _matrix(workflow: dict[str, Any]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = workflow["jobs"]["wheel"]["strategy"]["matrix"]["include"]
    return rows


def test_the_reference_of_the_interface_is_generated() -> None:
    script = runpy.run_path(str(ROOT / "scripts/api.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["render"](), "run python scripts/api.py"
    assert all(f"\n### ahbm.{name}\n" in page for name in ahbm.__all__ if name not in ("errors", "__version__"))


def test_every_public_name_says_what_it_is() -> None:
    for name in ahbm.__all__:
        assert name == "__version__" or getattr(ahbm, name).__doc__, name
    for name in ahbm.distributed.__all__:
        assert getattr(ahbm.distributed, name).__doc__, name
