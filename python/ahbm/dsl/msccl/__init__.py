"""MSCCLang: what upstream's `msccl.language` exports, with what it leaks.

`collectives`, `routines`, `topologies`, `programs` are upstream's modules; `synthesis_collectives` is its
`msccl.collectives`. A program that is lowered by `XML()` becomes a plan with the lines of its author.

Raises `ProgramError` (AHBM-A2xx), which is also the exception that upstream raises.
"""

import functools
import heapq
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn
from xml.etree import ElementTree as ET

from ahbm._core import Ref
from ahbm._core import msccl_chunk as chunk
from ahbm.dsl.msccl import collectives
from ahbm.dsl.msccl.chunks import Buffer, BufferSlice, Chunk, ReduceChunk
from ahbm.dsl.msccl.policies import ChunkInstruction, Instruction, ReplicationPolicy, ThreadblockPolicy
from ahbm.dsl.msccl.program import XML, Check, MSCCLProgram, Print, create_scratch
from ahbm.dsl.msccl.refusals import here, refuse

__all__ = [
    "ET",
    "XML",
    "Buffer",
    "BufferSlice",
    "Check",
    "Chunk",
    "ChunkInstruction",
    "ChunkRef",
    "Enum",
    "Instruction",
    "MSCCLProgram",
    "Print",
    "ReduceChunk",
    "Ref",
    "ReplicationPolicy",
    "ThreadblockPolicy",
    "chunk",
    "collectives",
    "create_scratch",
    "dataclass",
    "defaultdict",
    "field",
    "functools",
    "heapq",
    "sys",
]

ChunkRef = Ref

_UNSERVED = ("Op", "Program", "Gpu", "Threadblock", "InstructionDAG", "ir_to_xml", "MSCCLPPProgram", "Json")


def __getattr__(name: str) -> NoReturn:
    if name in _UNSERVED:
        message = f"{name} is upstream's own representation of a program, which is not served"
        refuse("AttributeError", "AHBM-A211", message, origin=here(), hint="`XML()` and `ahbm.open()` give the plan")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
