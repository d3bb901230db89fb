"""Runs the random input of tests/support/hostile.py: `python fuzz/hostile.py SECONDS [TARGET...]`.

Prints, for each target, the tries, the codes of the errors, and every try that ended in something else than a result
or an error of AHBM's: replay it with `attempt(target, name, folder)`.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.hostile import TARGETS, attempt

MEMORY = 12 << 30
SHOWN = 20


def main() -> None:
    seconds, targets = float(sys.argv[1]), sys.argv[2:] or list(TARGETS)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    with tempfile.TemporaryDirectory() as folder:
        for target in targets:
            run(target, seconds, Path(folder))


def run(target: str, seconds: float, folder: Path) -> None:
    ended, failed, began = Counter[str](), 0, time.process_time()
    while time.process_time() - began < seconds:
        name = f"{sum(ended.values()) + failed}"
        try:
            ended[attempt(target, name, folder)] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A panic of the core is no Exception.
            failed += 1
            if failed <= SHOWN:
                last = traceback.extract_tb(error.__traceback__)[-1]
                told = f"{type(error).__name__}: {error}"[:300]
                print(f"{target} {name}: {told} ({Path(last.filename).name}:{last.lineno})")
    codes = ", ".join(f"{code} {count}" for code, count in ended.most_common(8))
    print(f"{target}: {sum(ended.values()) + failed} tries in {time.process_time() - began:.0f} s, {failed} findings; "
          f"{len(ended)} outcomes, most often {codes}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
