"""Every example runs as it stands; each is short, and teaches one thing."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.commands import apart

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
LINES = 60


def code(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_examples() -> None:
    assert len(SCRIPTS) >= 5
    assert len(NOTEBOOKS) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, tmp_path: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    assert ast.get_docstring(ast.parse(text))
    for package in ("torch", "optuna"):
        if package in script.stem and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = apart([str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook: Path, here: Path) -> None:
    cells = code(notebook)
    assert sum(len(cell.splitlines()) for cell in cells) <= LINES
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, text in enumerate(cells):
        body = ast.parse(text).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        filename = f"/tmp/ipykernel_1/{number}.py"
        exec(compile(ast.Module(body, []), filename, "exec"), names)
        if isinstance(last, ast.Expr):
            answer = eval(compile(ast.Expression(last.value), filename, "eval"), names)
            rich = getattr(answer, "_repr_html_", None) or getattr(answer, "_repr_svg_", None)
            shown += [rich()] if rich is not None else []
    assert shown


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_valid_and_hold_no_outputs(notebook: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in content["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        wanted |= {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == wanted
        assert not cell.get("outputs")
    if find_spec("nbformat") is not None:
        import nbformat  # type: ignore[import-not-found]

        nbformat.validate(nbformat.from_dict(content))
