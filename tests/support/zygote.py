"""A process that has imported the modules that its arguments name, and forks what is to run instead of starting an
interpreter for each.

Reads a job a line from standard input, as JSON: `ranks` (the environment of each), `arguments` (those of `python`:
a script, or `-m MODULE`, and what follows), `folder` (the working one) and `files` (where the output of each rank and
its errors go). Answers with a line of exit codes. As torchrun does, it ends a job as soon as one of its ranks fails.

A forked process ends without the last step of an interpreter, which takes its modules apart: in a process that has
imported torch that step takes 1.5 s, nearly all of it to copy pages that are shared with this one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
from typing import NoReturn

# Before any thread of theirs: a fork keeps none.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def serve() -> None:
    """Answers until standard input ends; in a forked process, returns what it is to run."""
    for line in sys.stdin:
        job = json.loads(line)
        running = {}
        for number, environment in enumerate(job["ranks"]):
            child = os.fork()
            if child == 0:
                become(environment, job["arguments"], job["folder"], job["files"][number])
                return
            running[child] = number
        codes = [0] * len(running)
        while running:
            child, status = os.wait()
            if child not in running:
                continue
            codes[running.pop(child)] = code = os.waitstatus_to_exitcode(status)
            for other in running if code else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGTERM)
        print(json.dumps(codes), flush=True)


def become(environment: dict[str, str], arguments: list[str], folder: str, files: list[str]) -> None:
    """Makes this process what `python arguments...` is before it runs anything."""
    for number, name in ((0, os.devnull), (1, files[0]), (2, files[1])):
        opened = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    for path in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(1, path)
            if os.path.exists(custom := os.path.join(path, "sitecustomize.py")):
                runpy.run_path(custom)


def run() -> None:
    """Runs a script or a module, as `python` does."""
    if sys.argv[0] == "-m":
        module, sys.argv = sys.argv[1], sys.argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


def end(left: SystemExit | None) -> NoReturn:
    """Ends this process as an interpreter does: its threads, what was registered for the end, its exit code."""
    code = left.code if left else 0
    if code is None or isinstance(code, int):
        status = code or 0
    else:
        print(code, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page of what was imported
    zygote = os.getpid()
    serve()
    if os.getpid() != zygote:
        try:
            run()
        except SystemExit as left:
            end(left)
        except KeyboardInterrupt:
            raise  # ended by the signal
        except BaseException:
            sys.excepthook(*sys.exc_info())
            end(SystemExit(1))
        end(None)
