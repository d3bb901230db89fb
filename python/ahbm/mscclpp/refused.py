"""What needs a GPU, MPI or the library itself: names that programs may mention, and errors where they are used."""

from __future__ import annotations

from typing import Any, NoReturn

from ahbm.errors import UnsupportedError

NAMES = (
    "Communicator",
    "Connection",
    "Device",
    "Endpoint",
    "EndpointConfig",
    "EndpointConfigIb",
    "Fifo",
    "GpuBufferGranularity",
    "Host2DeviceSemaphore",
    "Host2HostSemaphore",
    "IbMode",
    "MemoryChannel",
    "MemoryDevice2DeviceSemaphore",
    "PortChannel",
    "ProxyService",
    "RegisteredMemory",
    "Semaphore",
    "SwitchChannel",
    "TcpBootstrap",
    "TransportFlags",
    "compile_native",
    "connect_nvls_collective",
    "get_include",
    "get_lib",
    "npkit",
    "numa",
)
"""What `mscclpp` exports and the emulator does not have."""


def refuse(what: str, hint: str | None = None) -> NoReturn:
    """Raises UnsupportedError (AHBM-U180)."""
    raise UnsupportedError(
        "AHBM-U180",
        f"mscclpp.{what} is not emulated: it needs a GPU or MSCCL++'s own library",
        hint=hint or "programs of its DSL run: mscclpp.compile, CommGroup, Executor, and torch.distributed",
    )


class _Refused(type):
    def __call__(cls, *args: Any, **kw: Any) -> NoReturn:
        refuse(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        refuse(f"{cls.__name__}.{name}")


REFUSED: dict[str, Any] = {name: _Refused(name, (), {"__doc__": "Not emulated."}) for name in NAMES}
"""Each can be imported and named in annotations; a use raises UnsupportedError (AHBM-U180)."""
