"""Names and numbers that MSCCL++ gives to types, operators, errors and places."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "CollectiveBufferMode",
    "CommResult",
    "DataType",
    "DeviceType",
    "ErrorCode",
    "PacketType",
    "ReduceOp",
    "Transport",
]


class DataType(Enum):
    """Element types; the value is the emulator's name of one that it computes with, else the name itself."""

    int32 = "i32"
    uint32 = "u32"
    float16 = "f16"
    float32 = "f32"
    bfloat16 = "bf16"
    float8_e4m3fn = "f8e4m3"
    float8_e4m3fnuz = "float8_e4m3fnuz"
    float8_e5m2 = "f8e5m2"
    float8_e5m2fnuz = "float8_e5m2fnuz"
    uint8 = "u8"
    float8_e4m3b15 = "float8_e4m3b15"


class ReduceOp(Enum):
    """Reduction operators; the value is the emulator's name. NOP is the operator of the plan: a sum."""

    SUM = "sum"
    MIN = "min"
    NOP = "nop"


class PacketType(Enum):
    """Formats of packets. A plan takes the same time with both: the emulator has one."""

    LL8 = 8
    LL16 = 16


class CollectiveBufferMode(Enum):
    """Whether a collective's operand lies in its result."""

    Any = "any"
    InPlace = "in place"
    OutOfPlace = "out of place"


class CommResult(IntEnum):
    """The answer of `Algorithm.execute`: what is wrong raises, so it is always the first."""

    CommSuccess = 0
    CommUnhandledCudaError = 1
    CommSystemError = 2
    CommInternalError = 3
    CommInvalidArgument = 4
    CommInvalidUsage = 5
    CommRemoteError = 6
    CommInProgress = 7
    CommNumResults = 8


class ErrorCode(IntEnum):
    """Kinds of errors."""

    SystemError = 0
    InternalError = 1
    RemoteError = 2
    InvalidUsage = 3
    Timeout = 4
    Aborted = 5
    ExecutorError = 6


class DeviceType(Enum):
    """Where memory is."""

    Unknown = 0
    CPU = 1
    GPU = 2


class Transport(Enum):
    """Ways between two ranks; the emulator's are the links of its topology."""

    Unknown = 0
    CudaIpc = 1
    IB0 = 2
    IB1 = 3
    IB2 = 4
    IB3 = 5
    IB4 = 6
    IB5 = 7
    IB6 = 8
    IB7 = 9
    Ethernet = 10
    Nvls = 11
