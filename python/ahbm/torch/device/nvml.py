"""The library of the driver that tells of GPUs, and its command: answered from the machine.

The module `pynvml` where it is installed, and `nvidia-smi`, which a folder at the head of PATH has.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ahbm.torch.device import marks, module, native
from ahbm.torch.device.smi import CAPABILITY, DRIVER, FACTS, bus, uuid


def install() -> None:
    """Puts all this in place."""
    native.when_imported(("pynvml",), _library)
    cuda: Any = torch.cuda
    cuda._raw_device_count_nvml = module.count
    cuda._device_count_nvml = module.count
    cuda._raw_device_uuid_nvml = lambda: [uuid(index) for index in range(module.count())]
    cuda._get_nvml_device_index = module.number
    _command()


def _library(library: Any) -> None:
    """Replaces what the module asks the driver."""

    def unsupported(*args: Any, **kw: Any) -> Any:
        raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)

    for name in list(vars(library)):
        if name.startswith("nvml") and callable(getattr(library, name)) and name[4:5].isupper():
            setattr(library, name, unsupported)

    def by_index(index: int) -> int:
        if not 0 <= index < module.count():
            raise library.NVMLError(library.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def by_uuid(name: Any) -> int:
        text = name.decode() if isinstance(name, bytes) else name
        for index in range(module.count()):
            if uuid(index) == text:
                return index
        raise library.NVMLError(library.NVML_ERROR_NOT_FOUND)

    def memory(handle: int, version: Any = None) -> Any:
        used = torch.cuda.mem_get_info(handle)
        return SimpleNamespace(total=used[1], free=used[0], used=used[1] - used[0], reserved=0, version=version)

    def memory_of_processes(handle: int) -> list[Any]:
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=memory(handle).used)] if marks.used() else []

    def place(handle: int) -> Any:
        name = bus(handle)
        return SimpleNamespace(busId=name, busIdLegacy=name[4:], domain=0, bus=handle + 1, device=0, pciDeviceId=0)

    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlInitWithFlags": lambda flags: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: DRIVER,
        "nvmlSystemGetNVMLVersion": lambda: f"13.{DRIVER}",
        "nvmlSystemGetCudaDriverVersion": lambda: 13000,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": module.count,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetHandleByPciBusId": lambda name: by_index(int(str(name).split(":")[-2], 16) - 1),
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetMinorNumber": lambda handle: handle,
        "nvmlDeviceGetName": module.name,
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=0, memory=0),
        "nvmlDeviceGetPciInfo": place,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: CAPABILITY,
        "nvmlDeviceGetComputeRunningProcesses": memory_of_processes,
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
        "nvmlDeviceGetMigMode": lambda handle: [0, 0],
    }
    for name, answer in answers.items():
        for own in (name, f"{name}_v2", f"{name}_v3"):
            if own == name or hasattr(library, own):
                setattr(library, own, answer)


def _command() -> None:
    """Puts a folder with `nvidia-smi` at the head of PATH, for this process and those that it starts."""
    if os.environ.get(FACTS):
        return
    folder = Path(tempfile.mkdtemp(prefix="ahbm-smi-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    (folder / "facts.json").write_text(json.dumps({"count": module.count()}))
    command = folder / "nvidia-smi"
    answer = Path(__file__).with_name("smi.py")
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(answer))} "$@"\n')
    command.chmod(0o755)
    os.environ[FACTS] = str(folder / "facts.json")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
