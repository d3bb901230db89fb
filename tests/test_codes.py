"""The registry of error codes: every code is registered, raised, of its class, and on the page."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from ahbm import errors
from ahbm._core import codes
from ahbm.base import codes as named

ROOT = Path(__file__).resolve().parents[1]
REGISTRY = ROOT / "rust/findings/src/codes.rs"
CODE = re.compile(r"AHBM-[A-Z]\d{3}")


def sources() -> Iterator[tuple[Path, str]]:
    """Everything that may raise, without the Rust tests that stand in a file of their own or at the end of one."""
    for path in [*(ROOT / "rust").glob("*/src/**/*.rs"), *(ROOT / "python/ahbm").rglob("*.py")]:
        listed = path in (REGISTRY, Path(named.__file__)) or path.parent == REGISTRY.with_suffix("")
        if not listed and path.name != "tests.rs":
            yield path, path.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests {")[0]


def test_every_code_is_registered_and_raised() -> None:
    literal = {code for _, text in sources() for code in re.findall(r'"(AHBM-[A-Z]\d{3})"', text)}
    constants = dict(re.findall(r'pub const (\w+): &str = "([^"]+)"', REGISTRY.read_text(encoding="utf-8")))
    used = {code for name, code in constants.items() if any(f"codes::{name}" in text for _, text in sources())}
    registered = {code for code, *_ in codes()}
    assert {"raised and not registered": (literal | used) - registered} == {"raised and not registered": set()}
    assert {"registered and not raised": registered - literal - used} == {"registered and not raised": set()}


def test_names_of_codes_are_registered() -> None:
    values = {value for name, value in vars(named).items() if name.isupper() and isinstance(value, str)}
    assert values and values <= {code for code, *_ in codes()}


def test_a_code_is_raised_with_the_class_of_its_letter() -> None:
    """`AhbmError.of` follows the letter; a class that is written out must be that one, or a subclass."""
    wrong = []
    for path, text in sources():
        for name, code, line in raised(text) if path.suffix == ".py" and '"AHBM-' in text else ():
            kind = getattr(errors, name, None)
            raises = isinstance(kind, type) and issubclass(kind, errors.AhbmError)
            if raises and not issubclass(kind, errors.FAMILIES.get(code[5], errors.AhbmError)):
                wrong.append(f"{path.name}:{line}: {name} {code}")
    assert wrong == []


def raised(text: str) -> Iterator[tuple[str, str, int]]:
    """Name of the class, code and line of each `SomeError("AHBM-...", ...)`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and CODE.fullmatch(first.value):
                yield node.func.id, first.value, node.lineno


def test_pages_and_sources_name_codes_that_exist() -> None:
    registered = {code for code, *_ in codes()}
    texts = [(path, path.read_text(encoding="utf-8")) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    unknown = {f"{path.name}: {code}" for path, text in [*sources(), *texts] for code in CODE.findall(text)}
    assert {entry for entry in unknown if entry.rpartition(" ")[2] not in registered} == set()


def test_the_page_of_errors_is_generated() -> None:
    script = runpy.run_path(str(ROOT / "scripts/errors.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["render"](page), "run python scripts/errors.py"
    assert all(f"| `{code}` |" in page for code, *_ in codes())


def test_every_code_is_explained() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w -]", "", line[3:]).lower().replace(" ", "-") for line in page.splitlines() if line[:3] == "## "
    }
    for code, *row in codes():
        told = named.explained(code.removeprefix("AHBM-").lower())
        assert (told.code, told.meaning, told.example, told.advice) == (code, *row)
        assert told.meaning in page and told.advice in page
        kind = getattr(errors, told.error)
        assert issubclass(errors.FAMILIES.get(code[5], errors.AhbmError), kind) and told.exit_code == kind.exit_code
        listing, subject = told.page.split(", ")
        assert listing.removeprefix("docs/errors.md#") in anchors and (ROOT / subject).exists()
