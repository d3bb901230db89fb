"""Which faults of the package its tests find: one operator, condition or number of a module changed at a time.

    python scripts/mutants.py                       mutants of ten modules, by the tests of each
    python scripts/mutants.py --before ../earlier   and by the tests of another checkout, where none of here finds one
    python scripts/mutants.py --each 20 python/ahbm/runs/bands.py

Prints each mutant and whether a test fails, then a table. `--before` is for changes of tests: exits with 1 where a
mutant lives that died there. The package is that of the folder `python`, its native module beside it; a copy of it is
mutated. A mutant takes a fresh interpreter and tests until the first one fails, one mutant at a time.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "python/ahbm"
CALIBRATED = ("calibrate/test_calibration.py", "calibrate/test_calibrate_command.py")
ROOMS: dict[str, tuple[str, ...]] = {
    "calibrate/cleaning.py": CALIBRATED,
    "calibrate/laws.py": CALIBRATED,
    "check/reference.py": ("runs/test_run.py", "check/test_values.py"),
    "cli/excerpts.py": ("cli/test_excerpts.py", "cli/test_hostile_options.py"),
    "cli/listing.py": ("cli/test_cli.py", "cli/test_help.py"),
    "job/advice.py": ("job/test_job_advice.py",),
    "job/what_if.py": ("job/test_what_if.py",),
    "runs/bands.py": ("runs/test_bands.py",),
    "runs/compare.py": ("runs/test_compare.py",),
    "sweeps/space.py": ("sweeps/test_space.py",),
}
"""Modules, and the tests in `tests` whose business they are."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """A module in which `before` at these places became `after`."""

    module: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: `{self.before}` -> `{self.after}`"

    def text(self, source: str) -> str:
        """The mutated source; statements below stay in their lines."""
        return source[: self.start] + self.after + "\\\n" * self.before.count("\n") + source[self.end :]


def changed(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression may become."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)  # type: ignore[list-item]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)  # type: ignore[arg-type]
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPS[type(node.op)](), node.values)  # type: ignore[arg-type]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Those that are computed: no annotations, decorators or types."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.If | ast.While) and not isinstance(child.test, ast.Name):
                yield child.test
            if isinstance(child, ast.expr):
                yield child
            yield from expressions(child)


def mutants(module: str, source: str) -> list[Mutant]:
    """All of a module, in the order of its text."""
    lines = [0]
    for line in source.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    raw, found = source.encode(), dict[tuple[int, int, str], Mutant]()
    for node in expressions(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = (
            len(raw[: lines[row - 1] + column].decode())
            for row, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        )
        for new in changed(node):
            after = f"({ast.unparse(ast.fix_missing_locations(new))})"
            found.setdefault((start, end, after), Mutant(module, node.lineno, start, end, source[start:end], after))
    return [found[key] for key in sorted(found)]


def dies(package: Path, tests: list[str], limit_s: float, root: Path) -> bool:
    """Whether a test fails, or none ends in time."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", *tests]
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="those of ROOMS where none is named")
    parser.add_argument("--each", type=int, default=4, help="mutants of a module, chosen at random")
    parser.add_argument("--seed", type=int, default=1, help="chooses them")
    parser.add_argument("--list", action="store_true", help="only print them")
    parser.add_argument("--before", type=Path, help="another checkout, whose tests are asked about what lives here")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a mutant counts as dead")
    asked = parser.parse_args(arguments or None)
    rows, lost = list[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "python"
        shutil.copytree(ROOT / PACKAGE, package / "ahbm", ignore=shutil.ignore_patterns("__pycache__"))
        for name in asked.modules or ROOMS:
            module = re.sub(rf".*{PACKAGE}/", "", name)
            path, tests = package / "ahbm" / module, [f"tests/{name}" for name in ROOMS[module]]
            source = path.read_text(encoding="utf-8")
            every = mutants(module, source)
            chosen = random.Random(f"{asked.seed} {module}").sample(every, min(asked.each, len(every)))
            died = missed = 0
            for mutant in sorted(chosen, key=lambda mutant: mutant.start):
                path.write_text(mutant.text(source), encoding="utf-8")
                for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):  # of a mutant of the same second and size
                    stale.unlink()
                dead = asked.list or dies(package, tests, asked.limit, ROOT)
                gone = not dead and asked.before is not None and dies(package, tests, asked.limit, asked.before)
                died, missed = died + (dead and not asked.list), missed + gone
                outcome = "listed" if asked.list else "died" if dead else "LOST" if gone else "lived"
                print(f"{outcome:<6} {mutant}", flush=True)
            path.write_text(source, encoding="utf-8")
            lost += missed
            rows.append(f"| {module} | {' '.join(tests)} | {len(every)} | {len(chosen)} | {died} | {missed} |")
    print("| module | tests | mutants | tried | died | died before |\n|---|---|---|---|---|---|", *rows, sep="\n")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
