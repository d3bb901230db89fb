"""Scripts that tests run in forks end as those of an interpreter of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import apart, environment

ENDS = {
    "by itself": "",
    "with a number": "sys.exit(3)",
    "with a large number": "sys.exit(259)",
    "with a text": "sys.exit('bad')",
    "with None": "sys.exit(None)",
    "with an error": "raise ValueError('wrong')",
    "within a thread": "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()",
    "at once": "sys.stdout.flush(); os._exit(4)",
}
SCRIPT = """\
import atexit, os, sys, threading, time
sys.stdout.write('begins ')
atexit.register(lambda: print('is over'))
{}
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_fork_ends_as_an_interpreter_does(end: str, here: Path) -> None:
    Path("ends.py").write_text(SCRIPT.format(ENDS[end]), encoding="utf-8")
    forked = apart(["ends.py"], here)
    own = [sys.executable, "-S", "ends.py"]
    alone = subprocess.run(own, cwd=here, env=environment(), capture_output=True, text=True, check=False)
    assert (forked.returncode, forked.stdout) == (alone.returncode, alone.stdout)
    assert forked.stderr.splitlines()[-1:] == alone.stderr.splitlines()[-1:]
