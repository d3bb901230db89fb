"""Files of tensors without data (`--fake`).

`torch.save` writes the sizes of tensors without data, and their data where it is known. Such a file is no checkpoint
for others: torch refuses it, as its tensors name a function of this module. `torch.load` reads these files and all
others; it maps files to memory, so that a checkpoint takes none.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ahbm.base.logs import notice
from ahbm.errors import UnsupportedError
from ahbm.torch.device import marks, native, values

_WANTED = "_ahbm_wanted"
_HOLLOW = "_ahbm_hollow"
_PICKLED = "_ahbm_pickled"


class Held:
    """A storage without data, as a file has it."""

    def __init__(self, nbytes: int, index: int | None, data: torch.Tensor | None) -> None:
        self.nbytes, self.index, self.data = nbytes, index, data
        self.made: Any = None
        self.beside: Any = None

    def __reduce__(self) -> Any:
        return tensor_without_data_storage, (self.nbytes, self.index, self.data)


def tensor_without_data_storage(nbytes: int, index: int | None, data: torch.Tensor | None) -> Held:
    """A storage of a file."""
    return Held(nbytes, index, data)


def tensor_without_data(
    held: Held, size: Any, stride: Any, offset: int, dtype: torch.dtype, grad: bool, parameter: bool
) -> Any:
    """A tensor of a file that was written where tensors have no data.

    Raises UnsupportedError (AHBM-U156) where they have."""
    mode = marks.fake[0]
    if mode is None:
        if held.data is None:
            raise UnsupportedError(
                "AHBM-U156",
                "a file that a run with --fake has written: its tensors have sizes and no data",
                hint="load it in a run with --fake, or write it in a run without",
            )
        out: Any = _view(held.data.untyped_storage(), size, stride, offset, dtype)
    else:
        if held.made is None:
            held.made = _storage(held.nbytes, held.index, None if held.data is None else held.data.untyped_storage())
        out = _fake_view(held.made, size, stride, offset, dtype)
    return torch.nn.Parameter(out, requires_grad=grad) if parameter else out.requires_grad_(grad)


def _view(storage: Any, size: Any, stride: Any, offset: int, dtype: torch.dtype) -> torch.Tensor:
    with torch._C._DisableTorchDispatch():
        empty = torch._C._VariableFunctions.empty(0, dtype=dtype, device="cpu")
        out: torch.Tensor = torch._C.TensorBase.set_(empty, storage, offset, size, stride)
    return out


def _storage(nbytes: int, index: int | None, beside: Any) -> Any:
    """A tensor whose storage is one without data, on a device."""
    with values.Faking(marks.fake[0]):
        whole = torch.ops.aten.empty.memory_format([nbytes], dtype=torch.uint8, device=torch.device("cpu"))
    if beside is not None:
        values.attach_storage(whole.untyped_storage(), beside)
    return marks.put(whole, index) if index is not None else whole


def _fake_view(whole: Any, size: Any, stride: Any, offset: int, dtype: torch.dtype) -> Any:
    with values.Faking(marks.fake[0]):
        out = torch.ops.aten.empty.memory_format([0], dtype=dtype, device=torch.device("cpu"))
        out.set_(whole.untyped_storage(), offset, tuple(size), tuple(stride))
    return out


def _reduce(x: Any, proto: Any) -> Any:
    held = marks.storage(x)
    beside = values.beside(held)
    pickled = held.__dict__.get(_PICKLED)
    if pickled is None or pickled.beside is not beside or pickled.nbytes != held.nbytes():
        data = None if beside is None else _view(beside, (beside.nbytes(),), (1,), 0, torch.uint8)
        # One object a storage, so that tensors which share memory share it in the file.
        pickled = held.__dict__[_PICKLED] = Held(held.nbytes(), marks.of_storage(held), data)
        pickled.beside = beside
        if data is None:
            notice("torch.save writes sizes and no data (--fake): only runs with --fake load such a file")
    parameter = isinstance(x, torch.nn.Parameter)
    arguments = (pickled, tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, x.requires_grad, parameter)
    return tensor_without_data, arguments


def _rebuilt(t: torch.Tensor) -> Any:
    """A tensor of a file, which has data on the host alone, and there if it is of integers."""
    held = t.untyped_storage()
    index = held.__dict__.get(_WANTED)
    if (index is None and not t.dtype.is_floating_point) or marks.fake[0] is None:
        return t
    whole = held.__dict__.get(_HOLLOW)
    if whole is None:
        whole = held.__dict__[_HOLLOW] = _storage(held.nbytes(), index, held)
    return _fake_view(whole, tuple(t.shape), t.stride(), t.storage_offset(), t.dtype)


def install() -> None:
    """Has torch's files know tensors without data."""
    fake: Any = FakeTensor
    fake.__reduce_ex__ = _reduce
    torch.serialization.add_safe_globals([tensor_without_data, tensor_without_data_storage])
    utils: Any = torch._utils
    for name in ("_rebuild_tensor", "_rebuild_tensor_v3"):
        makes = getattr(utils, name)

        def make(*args: Any, _makes: Any = makes) -> Any:
            before, values.real.on = values.real.on, True
            try:
                made = _makes(*args)
            finally:
                values.real.on = before
            return _rebuilt(made)

        setattr(utils, name, functools.wraps(makes)(make))
    loads = torch.load

    @functools.wraps(loads)
    def load(f: Any, *args: Any, **kw: Any) -> Any:
        if isinstance(f, str | os.PathLike) and kw.get("mmap") is None and zipfile.is_zipfile(f):
            kw["mmap"] = True
        before, _loading[0] = _loading[0], True
        try:
            return loads(f, *args, **kw)
        finally:
            _loading[0] = before

    torch.load = torch.serialization.load = load
    native.when_imported(("safetensors.torch",), _safetensors)


def _safetensors(module: Any) -> None:
    """Files of safetensors have names, types and sizes, and what is known; the rest is a hole, which reads as zeros."""
    saves, types = module.save_file, {dtype: name for name, dtype in module._TYPES.items()}

    @functools.wraps(saves)
    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        if not any(isinstance(x, FakeTensor) for x in tensors.values()):
            saves(tensors, filename, metadata=metadata)
            return
        notice("safetensors writes sizes, and zeros for what has no data (--fake)")
        header: dict[str, Any] = {"__metadata__": {**(metadata or {}), "ahbm": "without data"}}
        at = 0
        for name, x in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
            end = at + x.numel() * x.element_size()
            header[name] = {"dtype": types[x.dtype], "shape": list(x.shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(filename, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, x in tensors.items():
                known = values.data(x)
                if known is not None:
                    file.seek(8 + len(text) + header[name]["data_offsets"][0])
                    with torch._C._DisableTorchDispatch():
                        file.write(known.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            file.truncate(8 + len(text) + at)

    module.save_file = save_file


_loading = [False]


def install_storages() -> None:
    """Has storages of files stay where they are mapped; what they make up goes to the device."""
    storages: Any = torch.UntypedStorage
    for name in ("to", "cuda"):
        moves = getattr(storages, name)

        def move(held: Any, *args: Any, _moves: Any = moves, _name: str = name, **kw: Any) -> Any:
            if not _loading[0]:
                return _moves(held, *args, **kw)
            device = kw.get("device", args[0] if args else marks.KIND)
            index = marks.index_of(marks.KIND if device is None else device)
            if index is not None:
                held.__dict__[_WANTED] = index
            return held

        setattr(storages, name, move)
