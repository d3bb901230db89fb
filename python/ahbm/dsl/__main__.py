"""`python -m ahbm.dsl [--quirks] [--frontend upstream] prog.py ARGS...`: prints what the script prints, its plan.

Standard output is what the language's own compiler would have printed, and nothing else. Exit codes are those of
`ahbm`: 16 where the program fails, with the author's line on standard error.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from ahbm.dsl.compat import compat
from ahbm.dsl.script import UPSTREAM, execute
from ahbm.dsl.written import collected
from ahbm.errors import AhbmError, Finding, ProgramError


def main() -> None:
    """Runs the script that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ahbm.dsl", description="Prints the plan of a program.")
    parser.add_argument("--quirks", action="store_true", help="the compiler's defects included")
    parser.add_argument("--frontend", choices=[UPSTREAM], help="leave lowering to the installed package")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    complaints: list[tuple[str, Finding]] = []
    try:
        served = nullcontext() if asked.frontend else compat()
        with served, collected(quirks=asked.quirks, complaints=complaints) as programs:
            execute(asked.script, asked.args)
    except AhbmError as error:
        sys.stdout.flush()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    for program in programs:
        for note in program.notes:
            print(note, file=sys.stderr)
    for _, complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        sys.exit(ProgramError.exit_code)


if __name__ == "__main__":
    main()
