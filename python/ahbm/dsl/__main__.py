"""`python -m ahbm.dsl [--quirks] [--frontend upstream] prog.py ARGS...`: prints what the script prints, its plan.

Standard output is what the language's own compiler would have printed, and nothing else. Every plan is checked; with
`--quirks` none is, as that compiler checks none. Exit codes are those of `ahbm`: 16 where the program fails, that of
`ahbm check` where a plan is wrong, with the author's lines on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext

from ahbm.base.verdicts import exit_code
from ahbm.dsl.compat import compat
from ahbm.dsl.judgement import judge, unchecked
from ahbm.dsl.script import UPSTREAM, execute
from ahbm.dsl.written import collected
from ahbm.errors import AhbmError, Finding, ProgramError


def main() -> None:
    """Runs the script that the command line names; exits with 1 where nobody reads what it prints, as `ahbm` does."""
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run() -> int:
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
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from None
        sys.stdout.flush()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    for program in programs:
        for note in (*program.notes, *map(Finding.from_json, program.plan.warnings)):
            print(note, file=sys.stderr)
    for _, complaint in complaints:
        print(complaint, file=sys.stderr)
    judgements = [] if asked.quirks or unchecked() else [judge(program.name, program.plan) for program in programs]
    for judgement in judgements:
        if judgement.findings:
            print(judgement, file=sys.stderr)
    code = exit_code(judgement.verdict for judgement in judgements if judgement.failed)
    return code or (ProgramError.exit_code if complaints else 0)


if __name__ == "__main__":
    main()
