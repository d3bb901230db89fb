"""Writes `python/ahbm/_core.pyi`, the types of the extension module, or with `--check` says where it differs.

Types and sentences are read from the built module, in which PyO3 keeps them. What Rust's types do not say (the dtype
of an array, what a kernel's value may be combined with) is in `rust/python/types.pyi`, which has those signatures
alone: one that the module says as well is refused there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python/ahbm/_core.pyi"
SAID = ROOT / "rust/python/types.pyi"
VAGUE = {"Any", "Incomplete", "list", "tuple", "dict"}
"""Names that say nothing about a value when nothing stands behind them."""
Definitions = dict[tuple[str, str], ast.FunctionDef]


class Plainer(ast.NodeTransformer):
    """The names that people use for what PyO3 takes: `int`, `float`, `Sequence` and `Mapping` for the protocols behind
    them, and for what takes no other."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("int") if node.id == "SupportsIndex" else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in ("SupportsGetItem", "SupportsLenAndGetItem"):
            items = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Sequence"), items)
        if isinstance(node.value, ast.Name) and node.value.id == "dict":
            return ast.Subscript(ast.Name("Mapping"), node.slice)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        parts = {ast.unparse(node.left), ast.unparse(node.right)}
        return ast.Name("float") if parts == {"SupportsFloat", "int"} else node


def generated() -> str:
    """The stub that the build tool reads from the module; it builds what is not built."""
    maturin = Path(sys.executable).parent / "maturin"
    with tempfile.TemporaryDirectory() as folder:
        command = [str(maturin), "generate-stubs", "--profile", "release", "--locked", "-q", "-o", folder]
        subprocess.run([*command, "-i", sys.executable], cwd=ROOT, check=True, capture_output=True)
        return (Path(folder) / "ahbm/_core.pyi").read_text(encoding="utf-8")


def definitions(tree: ast.Module) -> Definitions:
    """Functions and methods by class and name."""
    found: Definitions = {}
    for node in tree.body:
        for member in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(member, ast.FunctionDef):
                found[node.name if isinstance(node, ast.ClassDef) else "", member.name] = member
    return found


def annotations(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    """Those of all parameters but `self`, and of the result."""
    given = function.args
    for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if each is not None and each.arg not in ("self", "cls"):
            yield each.annotation
    yield function.returns


def is_vague(function: ast.FunctionDef) -> bool:
    """Whether a type of it is unknown, or a container of unknown things."""
    for annotation in annotations(function):
        if annotation is None:
            return True
        behind = {id(node.value) for node in ast.walk(annotation) if isinstance(node, ast.Subscript)}
        names = (node for node in ast.walk(annotation) if isinstance(node, ast.Name) and id(node) not in behind)
        if any(name.id in VAGUE for name in names):
            return True
    return False


def merged(generated: str, said: str) -> str:
    """The stub: what was generated, in plainer names, with the signatures that `said` has for vague ones.

    Raises ValueError for a signature of `said` that the module does not have, or that it says as well.
    """
    tree, own = ast.parse(generated), ast.parse(said)
    known, added = definitions(tree), definitions(own)
    for key, function in added.items():
        name = ".".join(key).strip(".")
        if key not in known:
            raise ValueError(f"{SAID.name}: there is no {name}")
        if not is_vague(known[key]):
            raise ValueError(f"{SAID.name}: {name} is said by the module itself: {ast.unparse(known[key].args)}")
        known[key].args, known[key].returns = function.args, function.returns
    for key, function in known.items():
        if key not in added:
            Plainer().visit(function.args)
    first = next(at for at, node in enumerate(tree.body) if isinstance(node, ast.Assign))
    plain = ast.parse("from collections.abc import Mapping, Sequence").body
    imports = [*plain, *(node for node in tree.body[1:first] if isinstance(node, ast.ImportFrom))]
    heads = [node for node in own.body if isinstance(node, ast.Import | ast.ImportFrom)]
    aliases = [node for node in own.body if isinstance(node, ast.AnnAssign)]
    tree.body = [tree.body[0], *imports, *heads, tree.body[first], *aliases, *tree.body[first + 1 :]]
    tidied(tree, "")
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def tidied(node: ast.Module | ast.ClassDef | ast.FunctionDef, indent: str) -> None:
    """Docstrings begin behind their quotes; those of attributes, which nothing shows, go."""
    text = ast.get_docstring(node)
    strings = [each for each in node.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
    node.body = [each for each in node.body if each not in strings or each.value.value is ...]  # type: ignore[attr-defined]
    if text is not None:
        lines = text.splitlines()
        end = f"\n{indent}" if len(lines) > 1 else ""
        sentences = "\n".join(f"{indent}{line}".rstrip() for line in lines).lstrip()
        node.body.insert(0, ast.Expr(ast.Constant(sentences + end)))
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            tidied(each, f"{indent}    ")
    node.body = node.body or [ast.Expr(ast.Constant(...))]


def formatted(text: str) -> str:
    """The text as the formatter has it, with the imports that it needs."""
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check", "-q", "--fix-only", "--select", "F401,I001"], ["format", "-q"]):
        called = [ruff, *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(called, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main(arguments: list[str]) -> int:
    """Exit code: 1 where the stub differs."""
    text = formatted(merged(generated(), SAID.read_text(encoding="utf-8")))
    if arguments[:1] != ["--check"]:
        STUB.write_text(text, encoding="utf-8")
        return 0
    if STUB.read_text(encoding="utf-8") == text:
        return 0
    print(f"{STUB.relative_to(ROOT)} is not what the module says: python scripts/stubs.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
