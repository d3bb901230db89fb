"""`python -m ahbm.torch [--record PREFIX] script.py [arguments]`: a script for another backend, on the emulator.

`init_process_group` and `new_group` with "nccl", "gloo" or no backend get "ahbm", and a notice says so once. A call
that the emulator cannot do raises, unless AHBM_FALLBACK=gloo: then a backend that is not known is left alone, and a
call that is not done is made on gloo.
A script that imports `mscclpp` gets `ahbm.mscclpp`: its plans and selectors choose the algorithms of its calls.
`torchrun ... -m ahbm.torch script.py` does the same for every rank. With `--record`, the script keeps its backend, and
what it does is written as a trace (see `ahbm.torch.record`).
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing.spawn
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import ahbm.torch
from ahbm.base.logs import notice, quiet
from ahbm.dsl.compat import compat
from ahbm.errors import ConfigError
from ahbm.mscclpp.choosing import choose
from ahbm.torch import cuda, places, rules
from ahbm.torch.fallback import wanted
from ahbm.torch.replacing import replace

DEVICE = "AHBM_DEVICE"
"""Environment variable in which processes find what `--device` has asked for."""
SCRIPT = "AHBM_TORCH_SCRIPT"
"""Environment variable in which processes that a script spawns find its file."""
REDIRECTED = ("nccl", "rccl", "gloo", "mpi", "ucc", "xccl")


def interpose() -> dict[Any, str]:
    """Makes torch.distributed use backend "ahbm" whatever a script asks for; returns what it does ask for: per group,
    None for the default one."""
    leaves_alone = wanted()
    asked_for: dict[Any, str] = {}

    def redirect(function: Callable[..., Any]) -> Callable[..., Any]:
        position = 0 if function.__name__ == "init_process_group" else 2

        @functools.wraps(function)
        def wrapper(*args: Any, **kw: Any) -> Any:
            given = list(args)
            asked = given[position] if len(given) > position else kw.get("backend")
            backend = redirected(asked, function.__name__, leaves_alone)
            if len(given) > position:
                given[position] = backend
            else:
                kw["backend"] = backend
            if backend == "ahbm":
                kw.pop("device_id", None)
            if position == 0 and str(asked).lower() != "ahbm" and os.environ.get("AHBM_WORLD"):
                from ahbm.torch.device import world

                world.initialize()
                made = None
            else:
                with rules.asking(None if position and not asked else str(asked or "").lower()):
                    made = function(*given, **kw)
            if backend == "ahbm" and asked:
                asked_for[made] = str(asked).lower()
            return made

        return wrapper

    for name in ("init_process_group", "new_group"):
        replace(getattr(c10d, name), redirect(getattr(c10d, name)))
    return asked_for


def redirected(asked: Any, caller: str, leaves_alone: bool) -> Any:
    """The backend to use for the one that was asked for. Raises ConfigError (AHBM-C127) for one that stays unknown."""
    if asked is None and caller == "new_group":
        return None
    name = str(asked or "").lower()
    if name == "fake" and caller == "new_group":  # torch's own for axes of one rank: its groups talk to nobody
        return asked
    parts = [part.rpartition(":")[2] for part in name.split(",")]
    if name and not all(part in (*REDIRECTED, "ahbm") for part in parts):
        if leaves_alone:
            notice(f"{caller}({name!r}) is left alone")
            return asked
        raise ConfigError(
            "AHBM-C127", f"backend {name!r} cannot be redirected", hint="AHBM_FALLBACK=gloo leaves it alone"
        )
    if name != "ahbm":
        notice(f"{caller}({name or 'no backend'!r}) is redirected to backend 'ahbm'")
    return "ahbm"


def devices() -> int | None:
    """The number of devices that are not there, which `--device` has asked for; None where nothing has.

    Raises ConfigError (AHBM-C127).
    """
    asked = os.environ.get(DEVICE)
    if not asked:
        return None
    kind, _, number = asked.partition(":")
    if kind != "cuda" or not ((number.isdecimal() and int(number) > 0) or not number):
        raise ConfigError("AHBM-C127", f"--device {asked} is unknown", hint="cuda, or cuda:8 for eight of them")
    if number or not os.environ.get("AHBM_WORLD"):
        return int(number or os.environ.get("LOCAL_WORLD_SIZE") or 1)
    from ahbm.torch.device.machine import machine

    return machine().sips


def activate() -> AbstractContextManager[None]:
    """Makes this process run scripts for other backends; within the `with` block that follows, it serves `mscclpp`."""
    quiet()
    asked_for = interpose()
    count = devices()
    if count is not None:
        from ahbm.torch import device

        device.install(count, asked_for).__enter__()
    _bring_up_children()

    def serve(package: str) -> None:
        if package == "mscclpp":
            cuda.stand_in(asked_for)
            places.chooser = choose
            for place in places.places():
                place.choose().chooser = choose

    return compat(serve)


def ending() -> AbstractContextManager[None]:
    """Around a script on devices that are not there: how it ends is remembered for the answer."""
    if devices() is None:
        return nullcontext()
    from ahbm.torch.device import ending

    return ending.main()


@contextmanager
def numbered(file: str | None) -> Iterator[None]:
    """Around a script: the numbers of the transformer that it trains are written, if somebody has asked for them. The
    device's memory does not end then: who divides a model may have one that no device holds."""
    if file is None:
        yield
        return
    from ahbm.torch.device import trained
    from ahbm.torch.device.memory import Memory

    Memory.endless = True
    with trained.watched() as seen:
        try:
            yield
        except SystemExit as ended:
            if ended.code:
                raise
    found = trained.written(trained.numbers(seen))
    with open(file, "w", encoding="utf-8") as out:
        out.write(found)


def _bring_up_children() -> None:
    """Has processes that the script spawns start with `ahbm.torch.child` instead of the script."""
    prepares = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepares)
    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepares(name)
        if "init_main_from_path" in data:
            os.environ[SCRIPT] = data.pop("init_main_from_path")
            data["init_main_from_name"] = "ahbm.torch.child"
        return data

    multiprocessing.spawn.get_preparation_data = get_preparation_data


class Search:
    """Notes whether a script looks for a GPU, and whether it makes a process group."""

    def __init__(self) -> None:
        self.asked: str | None = None
        """The first function by which it looked."""
        self.used = False
        """Whether it tried to use one."""
        self.grouped = False
        """Whether it made a process group."""
        self._watch(torch.cuda, "is_available", "device_count", "current_device", "set_device", "_lazy_init")
        self._watch(getattr(torch, "accelerator", None), "is_available", "device_count", "current_accelerator")
        self._watch(dist, "init_process_group")

    def _watch(self, module: Any, *names: str) -> None:
        for name in names:
            if hasattr(module, name):
                setattr(module, name, self._noting(getattr(module, name), f"{module.__name__}.{name}"))

    def _noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kw: Any) -> Any:
            using = name.endswith("_lazy_init")
            self.used = self.used or using
            if name.endswith("init_process_group"):
                self.grouped = True
            elif using or not sys._getframe(1).f_globals.get("__name__", "").startswith(("torch.", "ahbm.")):
                self.asked = self.asked or name
            return function(*args, **kw)

        return wrapper

    def tell(self, *, failed: bool) -> None:
        """A notice for a script that has ended, if it ended for want of a GPU."""
        if self.asked and not torch.cuda.is_available() and (not self.grouped or (failed and self.used)):
            notice(
                f"the script has ended after it looked for a GPU ({self.asked}): python -m ahbm.torch --device cuda "
                "SCRIPT gives it devices that are not there"
            )


def main() -> None:
    """Runs the script that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ahbm.torch", description="Runs a script on the emulator.")
    parser.add_argument("--record", metavar="PREFIX", help="keep its backend and write PREFIX.<rank>.et")
    parser.add_argument(
        "--device", metavar="cuda[:N]", help="N devices that are not there, by default one per rank of this host"
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="with --device: this one process stands for N ranks")
    parser.add_argument("--rank", type=int, default=0, metavar="K", help="with --ranks: which of them it is")
    parser.add_argument("--fake", action="store_true", help="with --ranks: tensors have sizes and no data")
    parser.add_argument("--routing", metavar="skew=S", help="with --fake: the fullest expert gets S times the mean")
    parser.add_argument(
        "--steps", metavar="N", help="with --device: the script ends after N iterations, with exit status 0"
    )
    parser.add_argument(
        "--clock",
        choices=("host", "simulated"),
        help="with --device: which time time.time and the like tell the script",
    )
    parser.add_argument(
        "--lenient", action="store_true", help="pass what the backend that the script asks for, and a device, refuse"
    )
    parser.add_argument(
        "--numbers",
        metavar="FILE",
        help="with --fake: write the numbers of the transformer that the script trains, in place of the answer",
    )
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    ahbm.torch.register()
    sys.argv = [asked.script, *asked.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(asked.script)))
    if asked.lenient:
        os.environ[rules.LENIENT] = "1"
    if asked.device is not None:
        os.environ[DEVICE] = asked.device
    if asked.ranks is not None or asked.fake:
        if asked.ranks is None:
            parser.error("--fake needs --ranks N: --ranks 1 for a script of one process")
        if asked.device is None:
            parser.error("--ranks N needs --device cuda")
        if not 0 <= asked.rank < asked.ranks:
            parser.error(f"--rank K is 0 to {asked.ranks - 1} with --ranks {asked.ranks}")
        os.environ["AHBM_WORLD"] = f"{asked.ranks}:{asked.rank}"
        os.environ["AHBM_FAKE"] = "1" if asked.fake else ""
    if asked.routing is not None:
        if not asked.fake:
            parser.error("--routing says what --fake invents")
        os.environ["AHBM_ROUTING"] = asked.routing
    if asked.clock is not None:
        if asked.device is None:
            parser.error("--clock needs --device")
        os.environ["AHBM_CLOCK"] = asked.clock
    if asked.steps is not None:
        if asked.device is None or not asked.steps.isdecimal() or not int(asked.steps):
            parser.error("--steps N needs --device, and N is 1 or more")
        os.environ["AHBM_END_AFTER"] = asked.steps
    if asked.numbers is not None and not asked.fake:
        parser.error("--numbers needs --fake")
    if asked.numbers is not None:
        os.environ["AHBM_COMPUTE"] = "none"
    if asked.record is None:
        serving = activate()
        search = None if os.environ.get(DEVICE) else Search()
        try:
            with serving, ending(), numbered(asked.numbers):
                runpy.run_path(asked.script, run_name="__main__")
        except BaseException:
            if search is not None:
                search.tell(failed=True)
            raise
        if search is not None:
            search.tell(failed=False)
        return
    with ahbm.torch.record(asked.record):
        try:
            runpy.run_path(asked.script, run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise


if __name__ == "__main__":
    main()
