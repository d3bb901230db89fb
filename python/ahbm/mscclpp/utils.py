"""`mscclpp.utils`: torch's types as MSCCL++'s."""

from __future__ import annotations

from ahbm.errors import DistributedError
from ahbm.mscclpp.types import DataType

__all__ = ["torch_dtype_to_mscclpp_dtype"]


def torch_dtype_to_mscclpp_dtype(dtype: object) -> DataType:
    """The type of a torch dtype. Raises DistributedError (AHBM-X131) for one that MSCCL++ does not have."""
    name = str(dtype).rpartition("torch.")[2]
    if name not in DataType.__members__:
        raise DistributedError("AHBM-X131", f"MSCCL++ has no type {dtype}")
    return DataType[name]
