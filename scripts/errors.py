"""Writes the tables and lists of docs/errors.md from the registry of codes; `--check` only compares, and exits with 1.

    python scripts/errors.py [--check]

The registry is `rust/findings/src/codes.rs`, as the installed `ahbm` has it; classes and exit codes are those of
`ahbm.errors`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from ahbm._core import codes
from ahbm.base.codes import FAMILIES as HEADINGS
from ahbm.errors import FAMILIES, AhbmError, RankError

PAGE = Path(__file__).resolve().parent.parent / "docs/errors.md"
GENERATED = re.compile(r"(<!-- (\w+): written by scripts/errors\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def families() -> str:
    lines = ["| letter | class | exit code | what is wrong |", "|---|---|---|---|"]
    for letter, kind in [*FAMILIES.items(), ("other", AhbmError)]:
        names = " or ".join(f"`{each.__name__}`" for each in ([kind, RankError] if letter == "X" else [kind]))
        about = (kind.__doc__ or "").partition("\n")[0] if kind is not AhbmError else "A defect of AHBM."
        lines.append(f"| {letter} | {names} | {kind.exit_code} | {about.replace('``', '`')} |")
    return "\n".join(lines) + "\n"


def warnings() -> str:
    runs: list[list[str]] = []
    for code, meaning, *_ in codes():
        if not meaning.startswith("warning:"):
            continue
        follows = runs and (runs[-1][-1][:6], int(runs[-1][-1][6:]) + 1) == (code[:6], int(code[6:]))
        runs[-1].append(code) if follows else runs.append([code])
    ranges = [f"`{run[0]}`" if len(run) == 1 else f"`{run[0]}` to `{run[-1]}`" for run in runs]
    return textwrap.fill(f"These codes are warnings: {', '.join(ranges[:-1])} and {ranges[-1]}.", 124) + "\n"


def tables() -> str:
    known = codes()
    assert {row[0][5] for row in known} == set(HEADINGS), "a family without a heading"
    parts = []
    for letter, family in HEADINGS.items():
        rows = [f"| `{code}` | {meaning} | {advice} |" for code, meaning, _, advice in known if code[5] == letter]
        head = ["| code | meaning | what to do |", "|---|---|---|"]
        parts.append("\n".join([f"## {letter}: {family.subject}", "", *head, *rows, ""]))
    return "\n" + "\n".join(parts) + "\n"


def render(page: str) -> str:
    """The page with its generated parts as they should be."""
    made = {"families": families, "warnings": warnings, "codes": tables}
    return GENERATED.sub(lambda match: match[1] + made[match[2]]() + match[3], page)


def main(*arguments: str) -> int:
    old = PAGE.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in arguments:
        if old != new:
            print("docs/errors.md is not what the registry says: run python scripts/errors.py", file=sys.stderr)
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
