"""A module of MSCCL++ up to v0.7.0, whose programs hold references to chunks. They are refused by name."""

from __future__ import annotations

from ahbm.dsl.mscclpp.internal.faults import refuse_chunk_references

refuse_chunk_references(__name__)
