"""The floor plan: which package may import which, in Python and in Rust."""

from __future__ import annotations

import ast
import functools
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python/ahbm"
LAYERS = (
    ("base", "kernels"),
    ("config",),
    ("source", "dsl"),
    ("core",),
    ("selectors",),
    ("choice",),
    ("check",),
    ("runs",),
    ("table",),
    ("ranks",),
    ("job", "front", "torch", "mscclpp"),
    ("sweeps", "calibrate"),
    ("choose", "planning"),
    ("views",),
    ("cli",),
)
"""From the bottom: a package may import itself, its own floor and every floor below."""
PUBLIC = {"errors": "base", "distributed": "front", "asked": "cli", "__main__": "cli"}
"""Modules at the root of the package, and the package each belongs to."""
TOGETHER = {"mscclpp", "torch"}
"""Packages of one floor that import each other: scripts of MSCCL++ meet in torch's groups, and `python -m ahbm.torch`
asks MSCCL++'s plans and selectors."""
HARMLESS = {
    frozenset({"mscclpp.memory", "torch.addresses"}): "as TOGETHER",
    frozenset({"mscclpp.executor", "mscclpp.plans"}): "a plan performs itself, as upstream's does",
    frozenset({"job.advice", "job.best", "job.replay"}): "a report is asked what would be better, which replays",
    frozenset(
        {
            "runs.blame",
            "runs.inspection",
            "runs.measure",
            "runs.plans",
            "runs.report",
            "runs.rivals",
            "runs.traces",
        }
    ): "a report is asked to look into its run and for what would be quicker, which runs",
    frozenset(
        {
            "torch.device.files",
            "torch.device.kernels",
            "torch.device.sizes",
            "torch.device.uniform",
            "torch.device.values",
            "torch.device.world",
        }
    ): "what a script asks of a tensor without data is computed by operations, which have tensors without data",
}
"""Modules that import each other, and why that is no harm."""
CRATES = [
    "engine",
    "findings",
    "wire",
    "machine",
    "program",
    "plan",
    "workload",
    "emulator",
    "check",
    "formats",
    "astra",
    "dsl",
    "synthesis",
    "selection",
    "views",
    "python",
]
"""From the bottom; Cargo refuses circles, this order refuses shortcuts upwards."""


def floor(package: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if package in layer)


def imports(path: Path) -> list[tuple[int, str]]:
    """Line and name of every module of this package that `path` imports, inside functions too."""
    return _imports(path.read_text(encoding="utf-8"))


@functools.cache
def _imports(text: str) -> list[tuple[int, str]]:
    return list(_imported(text))


def _imported(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("ahbm."))
        elif isinstance(node, ast.ImportFrom) and node.module == "ahbm":
            yield from ((node.lineno, f"ahbm.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ahbm."):
            yield node.lineno, str(node.module)
        elif isinstance(node, ast.Call) and "import_module" in called(node.func):
            # A text is an import too.
            named = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from ((node.lineno, name) for name in named if name.startswith("ahbm."))


def called(function: ast.expr) -> str:
    """What is called: its name, or all of its text where it is no name."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ast.unparse(function)


def upward(package: str, path: Path) -> list[str]:
    """The imports of `path`, a module of `package`, that go up."""
    found = []
    for line, name in imports(path):
        target = name.split(".")[1]
        target = PUBLIC.get(target, target)
        if any(target in layer for layer in LAYERS) and floor(target) > floor(package):
            found.append(f"{path.name}:{line}: {package} imports {target}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if top != "__init__":
            yield PUBLIC.get(top, top), path


def test_no_package_imports_a_higher_one() -> None:
    assert [told for package, path in modules() for told in upward(package, path)] == []


def test_no_view_runs_a_table() -> None:
    """Views show tables; who makes a page runs them."""
    runs = {"ahbm.table.running", "ahbm.table.processes", "ahbm.table.engine", "ahbm.sweeps.sweep", "ahbm.runs.measure"}
    for path in (PACKAGE / "views").glob("*.py"):
        assert not runs & {name for _, name in imports(path)}, path.name
        assert not re.search(r"\b(gather|climb|attempt|sweep)\(", path.read_text(encoding="utf-8")), path.name


def test_an_upward_import_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("def f():\n    from ahbm.runs.measure import run\n", encoding="utf-8")
    assert upward("check", planted) == ["planted.py:2: check imports runs"]
    assert upward("runs", planted) == []
    planted.write_text("from importlib import import_module\nimport_module('ahbm.cli')\n", encoding="utf-8")
    assert upward("core", planted) == ["planted.py:2: core imports cli"]


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of more than one name in which each leads to every other."""
    reached: dict[str, set[str]] = {}
    for name in edges:
        found, waiting = set[str](), [name]
        while waiting:
            fresh = edges[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        reached[name] = found
    alike = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in edges}
    return sorted((set(one) for one in alike if len(one) > 1), key=sorted)


def test_no_packages_of_one_floor_import_each_other_but_those_that_are_named() -> None:
    edges: dict[str, set[str]] = {name: set() for layer in LAYERS for name in layer}
    for package, path in modules():
        targets = (PUBLIC.get(name.split(".")[1], name.split(".")[1]) for _, name in imports(path))
        if package in edges:
            edges[package] |= {target for target in targets if target in edges and floor(target) == floor(package)}
    assert circles(edges) == [TOGETHER]


def test_no_files_import_each_other_but_those_that_are_named() -> None:
    """While modules run, not for types."""
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for _, path in modules()}
    edges = {name: (set(run_imports(path, files)) & files.keys()) - {name} for name, path in files.items()}
    found = {frozenset(name.removeprefix("ahbm.") for name in one) for one in circles(edges)}
    assert found == set(HARMLESS)


def run_imports(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """The modules among `files` that `path` imports when it runs, inside functions too."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        # No expression holds an import.
        waiting += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in files else node.module for name in names)


def test_a_circle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert circles(edges) == [{"a", "b", "c"}]


@pytest.mark.parametrize("package", [name for layer in LAYERS for name in layer])
def test_a_package_says_what_it_is_for_and_what_it_may_import(package: str) -> None:
    told = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert "May import " in told and len(told.split("\n\n")[0]) > 40


WORDS = {
    "door": "open",
    "heard": "decoded, interruptible",
    "lonely": "one rank",
    "moments": "snapshot",
    "spoken": "protocol",
    "told": "message, text, described",
    "turned": "with_knobs",
    "voice": "costs",
    "voices": "costs",
    "wider": "bandwidth",
}
"""Words that no name of ours is, and the field's own beside each."""


def own_words(path: Path) -> list[str]:
    """Names in a module, and its own, that are a word of `WORDS`, with the word to use."""
    with path.open("rb") as source:
        names = {token.string for token in tokenize.tokenize(source.readline) if token.type == tokenize.NAME}
    return [
        f"{path.name}: {name}: {WORDS[name.strip('_')]}"
        for name in sorted(names | {path.stem})
        if name.strip("_") in WORDS
    ]


def test_names_are_the_words_of_the_field(tmp_path: Path) -> None:
    planted = tmp_path / "door.py"
    planted.write_text("def _told(x): return x  # told\n", encoding="utf-8")
    assert own_words(planted) == ["door.py: _told: message, text, described", "door.py: door: open"]
    assert [found for path in sorted(PACKAGE.rglob("*.py")) for found in own_words(path)] == []


def test_no_module_is_longer_than_600_lines() -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "rust").glob("*/src/**/*.rs")]
    long = {str(path.relative_to(ROOT)) for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 600}
    assert long == set()


def test_no_two_test_modules_share_a_name() -> None:
    # pytest imports a test module by its name alone: the second of a name is not collected.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_crates_depend_on_lower_ones_only() -> None:
    assert sorted(path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml")) == sorted(CRATES)
    for number, crate in enumerate(CRATES):
        manifest = tomllib.loads((ROOT / f"rust/{crate}/Cargo.toml").read_text(encoding="utf-8"))
        needs = [name.removeprefix("ahbm-") for name in manifest.get("dependencies", {}) if name.startswith("ahbm-")]
        assert set(needs) <= set(CRATES[:number]), f"{crate} needs {needs}"


def test_no_declared_dependency_is_unused() -> None:
    for crate in CRATES:
        manifest = tomllib.loads((ROOT / f"rust/{crate}/Cargo.toml").read_text(encoding="utf-8"))
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / f"rust/{crate}/src").rglob("*.rs"))
        for name in manifest.get("dependencies", {}):
            assert re.search(rf"\b{name.replace('-', '_')}\b", text), f"{crate} declares {name} and does not use it"
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["dependencies"]
    manifests = [(ROOT / f"rust/{crate}/Cargo.toml").read_text(encoding="utf-8") for crate in CRATES]
    for name in workspace:
        assert any(re.search(rf"^{name}\b", text, re.MULTILINE) for text in manifests), f"no crate uses {name}"


Module = tuple[str, ...]
"""A module of a crate: the names on the way to it from `lib.rs`, which is ()."""
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]+?|[^\\'\n])'""", re.DOTALL
)
FOR_TESTS = re.compile(r"#\[cfg\((?:test|(?:any|all)\([^\]]*\btest\b[^\]]*\))\)\]")
DECLARED = re.compile(r"\bmod\s+(\w+)\s*([;{])")
USE = re.compile(r"\buse\s+([^;]+);")


def item_end(text: str, start: int) -> int:
    """Behind the item that starts there: behind its block, or its semicolon."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text[at] in ";}":
            return at + 1
    return len(text)


def product(path: Path) -> str:
    """A file of Rust without comments, texts, and what is compiled for tests alone."""
    text = NO_CODE.sub(" ", path.read_text(encoding="utf-8"))
    while found := FOR_TESTS.search(text):
        text = text[: found.start()] + text[item_end(text, found.end()) :]
    return text


def crate_modules(source: Path) -> dict[Module, str]:
    """The text of every module of a crate, without that of the modules inside it."""
    modules: dict[Module, str] = {}
    waiting: list[tuple[Module, str]] = [((), product(source / "lib.rs"))]
    while waiting:
        module, text = waiting.pop()
        while found := DECLARED.search(text):
            child, end = (*module, found[1]), found.end()
            if found[2] == "{":
                end = item_end(text, found.end() - 1)
                waiting.append((child, text[found.end() : end - 1]))
            else:
                waiting.append((child, product(source.joinpath(*child).with_suffix(".rs"))))
            text = text[: found.start()] + text[end:]
        modules[module] = text
    return modules


def used(tree: str) -> Iterator[tuple[list[str], str]]:
    """The paths of a `use`, each with the name that it gets."""
    head, brace, rest = (part.strip() for part in tree.partition("{"))
    if not brace:
        path, _, name = head.partition(" as ")
        yield path.split("::"), name or path.split("::")[-1]
        return
    before, depth, item = head.split("::")[:-1], 0, ""
    for letter in rest[:-1] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter != "," or depth > 0:
            item += letter
            continue
        for path, name in used(item) if item.strip() else ():
            yield (before, before[-1]) if path == ["self"] else (before + path, name)
        item = ""


def crate_edges(source: Path) -> dict[Module, set[Module]]:
    """For every module of a crate, the modules in which stands what it names. A name that was imported stands where it
    was made, so what `lib.rs` exports does not stand there."""
    modules = crate_modules(source)
    uses = {module: [one for tree in USE.findall(text) for one in used(tree)] for module, text in modules.items()}
    names = {module: {name: path for path, name in found} for module, found in uses.items()}

    def stands(module: Module, path: list[str], followed: frozenset[tuple[Module, str]] = frozenset()) -> Module:
        """Where a path from a module leads; the names of other crates lead nowhere."""
        if not path:
            return module
        name, rest = path[0], path[1:]
        if name in {"crate", "self", "super"}:
            return stands({"crate": (), "self": module, "super": module[:-1]}[name], rest, followed)
        if (*module, name) in modules:
            return stands((*module, name), rest, followed)
        if name in names[module] and (module, name) not in followed:
            return stands(module, names[module][name] + rest, followed | {(module, name)})
        return module

    edges: dict[Module, set[Module]] = {}
    for module, text in modules.items():
        paths = [path for path, _ in uses[module]]
        globs = [path for path in paths if path[-1] == "*" and path[0] in {"crate", "self", "super"}]
        assert globs == [], f"{source}: {module} does not say what it imports"
        paths += [path.split("::") for path in re.findall(r"(?<![\w:])\w+(?:::\w+)+", USE.sub("", text))]
        edges[module] = {stands(module, path) for path in paths}
    return edges


def crate_circles(source: Path) -> set[frozenset[str]]:
    """Modules beside each other that name each other. A module counts as one with the modules inside it, so that one
    which is split over files is no circle; neither is `lib.rs` with the rest."""
    edges = crate_edges(source)
    found: set[frozenset[str]] = set()
    for outer in {module[:-1] for module in edges if module}:
        inner: dict[str, set[str]] = {}
        size = len(outer) + 1
        for module, targets in edges.items():
            if len(module) >= size and module[: size - 1] == outer:
                beside = {
                    "::".join(target[:size])
                    for target in targets
                    if len(target) >= size and target[: size - 1] == outer
                }
                inner.setdefault("::".join(module[:size]), set()).update(beside)
        found |= {frozenset(one) for one in circles(inner)}
    return found


@pytest.mark.parametrize("crate", CRATES)
def test_no_modules_of_a_crate_name_each_other(crate: str) -> None:
    assert crate_circles(ROOT / f"rust/{crate}/src") == set()


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "use crate::b::B;", "b": "fn f() { super::a::g(); }"}, [{"a", "b"}]),
        ({"a": "use crate::{Kept as B, c::C};", "b": "use crate::a::{self, A};", "c": ""}, [{"a", "b"}]),
        (
            {"a": "use crate::c::B;", "c": "pub use super::b::{d::E, B};", "b": "use crate::a;\nfn f() { a::g() }"},
            [{"a", "b"}],
        ),
        ({"a": "pub mod d;", "a/d": "use crate::b::B;", "b": "use crate::a::A;"}, [{"a", "b"}]),
        ({"a": "mod d;\nmod e;", "a/d": "use super::e::E;", "a/e": "use super::d::D;", "b": ""}, [{"a::d", "a::e"}]),
        ({"a": "mod d;\nuse d::D;", "a/d": "use super::A;\nuse crate::Root;", "b": "use crate::a::A;"}, []),
        ({"a": "use crate::b::B;", "b": '// crate::a\n/* crate::a */ const A: &str = "crate::a";'}, []),
        ({"a": "use crate::b::B;", "b": "#[cfg(test)]\nmod tests { use crate::a::A; }\nuse std::a::b;"}, []),
        ({"a": "use crate::b::B;", "b": "#[cfg(test)]\nuse crate::a::{A, C};\nconst QUOTE: char = '\"';"}, []),
    ],
)
def test_a_circle_in_a_crate_is_found(tmp_path: Path, files: dict[str, str], found: list[set[str]]) -> None:
    tops = [f"mod {name};" for name in files if "/" not in name]
    (tmp_path / "lib.rs").write_text("\n".join([*tops, "pub use b::B as Kept;", "pub struct Root;"]), encoding="utf-8")
    for name, text in files.items():
        path = tmp_path / f"{name}.rs"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert crate_circles(tmp_path) == {frozenset(one) for one in found}
