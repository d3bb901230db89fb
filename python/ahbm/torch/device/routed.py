"""What torch's C++, or a library's, chooses by where a tensor is in truth: chosen here by where it says that it is."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing import reductions
from torch.utils import checkpoint

from ahbm.kernels import attention
from ahbm.torch.device import described, kernels, marks, native
from ahbm.torch.replacing import replace

_HOST = torch.device("cpu")


def install() -> None:
    """Puts all this in torch's place."""
    _recurrent()
    _attention()
    _policies()
    _exchange()
    _queues()
    _linear_algebra()
    _truncated()
    _scripts()
    _exports()
    native.when_imported(("safetensors._safetensors_rust",), _safetensors)
    native.when_imported(("torch.distributed.tensor.experimental._context_parallel._attention",), _context_parallel)


def _recurrent() -> None:
    """cuDNN wants the weights of a layer in one piece; the host's kernels do not, and each stays where it is."""

    def flatten_parameters(self: Any) -> None:
        """Nothing to do."""

    torch.nn.RNNBase.flatten_parameters = flatten_parameters
    core: Any = torch._C._nn
    own = core.pad_sequence

    @functools.wraps(own)
    def pad_sequence(sequences: Any, *args: Any, **kw: Any) -> torch.Tensor:
        """What C++ makes of nothing is where the sequences are."""
        parts = list(sequences)
        before = kernels.placing.to
        if parts and isinstance(parts[0], torch.Tensor) and (index := marks.where(parts[0])) is not None:
            kernels.placing.to = index
        try:
            out: torch.Tensor = own(parts, *args, **kw)
            return out
        finally:
            kernels.placing.to = before

    core.pad_sequence = pad_sequence


_ATTENTION = ("flash", "mem_efficient", "math", "cudnn", "overrideable")


def _attention() -> None:
    """A script allows kernels of attention that the host does not have: then the host's own may run."""
    core: Any = torch._C
    setters = {name: getattr(core, f"_set_sdp_use_{name}") for name in _ATTENTION}
    getters = {name: _getter(core, name) for name in _ATTENTION}
    allowed = {name: bool(get()) for name, get in getters.items() if get is not None}

    def use(name: str, on: bool) -> None:
        allowed[name] = bool(on)
        fused = any(on for other, on in allowed.items() if other != "math")
        setters["flash"](fused)
        setters["math"](fused or allowed["math"])

    for name in _ATTENTION:
        setattr(core, f"_set_sdp_use_{name}", functools.partial(use, name))
        if getters[name] is not None:
            setattr(core, getters[name].__name__, functools.partial(allowed.__getitem__, name))

    def can(name: str) -> Callable[..., bool]:
        return lambda params, debug=False: allowed[name] and params.query.dtype in (torch.half, torch.bfloat16)

    core._can_use_flash_attention = can("flash")
    core._can_use_cudnn_attention = can("cudnn")
    core._can_use_mem_efficient_attention = lambda params, debug=False: allowed["mem_efficient"]
    core._is_flash_attention_available = lambda: True
    native.when_imported(("torch.nested._internal.sdpa",), _nested_attention)


def _policies() -> None:
    """A policy of what a checkpoint keeps is asked of the attention that a GPU would run, not of the host's."""
    aten, make = torch.ops.aten, checkpoint.create_selective_checkpoint_contexts
    host = aten._scaled_dot_product_flash_attention_for_cpu.default
    fused = {name: getattr(aten, f"_scaled_dot_product_{name}_attention").default for name in attention.BACKENDS}

    def run(op: Any, given: Any, named: Any) -> Any:
        if op is not host or marks.where(given[0]) is None:
            return op
        q, k, v = given[:3]
        return fused.get(described.attention(q, k, v, named.get("attn_mask")), op)

    @functools.wraps(make)
    def create(*args: Any, **kw: Any) -> Any:
        first, again = make(*args, **kw)
        asked = first.policy_fn
        first.policy_fn = lambda ctx, op, *given, **named: asked(ctx, run(op, given, named), *given, **named)
        return first, again

    replace(make, create)


def _nested_attention(module: Any) -> None:
    math = torch.nn.attention.SDPBackend.MATH
    module._select_sdp_backend = lambda *args: math


def _context_parallel(module: Any) -> None:
    """Its rings are made of the fused kernels of GPUs."""
    hint = "split the sequence by the script's own calls, or run it on GPUs"
    replace(
        module.context_parallel,
        functools.wraps(module.context_parallel)(
            native.refusing("torch.distributed.tensor.experimental.context_parallel", hint)
        ),
    )


def _getter(core: Any, name: str) -> Any:
    return getattr(core, f"_get_{name}_sdp_enabled", None)


_exported: dict[int, int] = {}
"""Addresses of what was given away as capsules of DLPack, and the devices."""


def _exchange() -> None:
    """DLPack: memory that is given away and taken back stays on its device."""
    tensor: Any = torch.Tensor
    gives, takes = tensor.__dlpack__, torch.utils.dlpack.from_dlpack
    gives_old = torch.utils.dlpack.to_dlpack
    core: Any = torch._C
    imports = core._from_dlpack

    def note(x: torch.Tensor) -> None:
        index = marks.where(x)
        address = torch._C.TensorBase.data_ptr(x)
        if index is None:
            _exported.pop(address, None)
        elif address:
            _exported[address] = index

    @functools.wraps(gives)
    def __dlpack__(x: torch.Tensor, **kw: Any) -> Any:
        note(x)
        if marks.where(x) is not None:
            kw.pop("dl_device", None)
            kw["stream"] = None
        before, marks.honest[0] = marks.honest[0], threading.get_ident()
        try:
            return gives(x, **kw)
        finally:
            marks.honest[0] = before

    def to_dlpack(x: torch.Tensor) -> Any:
        note(x)
        return gives_old(x)

    def from_capsule(capsule: Any, *args: Any, **kw: Any) -> torch.Tensor:
        out: torch.Tensor = imports(capsule, *args, **kw)
        index = _exported.get(torch._C.TensorBase.data_ptr(out))
        return out if index is None else marks.put(out, index)

    @functools.wraps(takes)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if not isinstance(ext_tensor, torch.Tensor):
            index = marks.index_of(device)
            out = takes(ext_tensor, device=None if index is not None else device, copy=copy)
            return out if index is None else out.to(torch.device(marks.KIND, index))
        out = from_capsule(ext_tensor.__dlpack__(max_version=(1, 0)))
        wanted = ext_tensor.device if device is None else torch.device(device)
        if wanted != ext_tensor.device:
            if copy is False:
                raise ValueError(
                    f"cannot move DLPack tensor from device {ext_tensor.device} to {wanted} without copying"
                )
            return out.to(wanted)
        return out.clone() if copy else out

    tensor.__dlpack__ = __dlpack__
    core._from_dlpack = from_capsule
    for module in (torch.utils.dlpack, torch):
        module.from_dlpack = from_dlpack
        if hasattr(module, "to_dlpack"):
            module.to_dlpack = to_dlpack


def _queues() -> None:
    """Tensors that go to another process go as shared memory of the host, and arrive with their device."""
    table: Any = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind, reduces in list(table.items()):
        if getattr(reduces, "__module__", "") == reductions.__name__ and "event" not in reduces.__name__:
            table[kind] = _carrying(reduces)


def _carrying(reduces: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduces)
    def reduce(x: Any) -> Any:
        held = x._untyped_storage if isinstance(x, torch.storage.TypedStorage) else x
        index = marks.of_storage(held) if isinstance(held, torch.UntypedStorage) else None
        before, marks.plain.on = marks.plain.on, True
        try:
            found = reduces(x)
        finally:
            marks.plain.on = before
        return found if index is None else (_arrived, (index, *found[:2]))

    return reduce


def _arrived(index: int, rebuild: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    out = rebuild(*given)
    marks.mark(out, index)
    return out


def _linear_algebra() -> None:
    """cuSOLVER's names of methods choose a kernel of the device; the host has one."""
    linalg: Any = torch.linalg
    for name in ("svd", "svdvals"):
        setattr(linalg, name, _without_driver(getattr(linalg, name)))


def _without_driver(function: Callable[..., Any]) -> Callable[..., Any]:
    def decomposition(A: torch.Tensor, *args: Any, driver: str | None = None, **kw: Any) -> Any:
        if driver is not None and marks.where(A) is not None:
            if driver not in ("gesvd", "gesvdj", "gesvda"):
                raise RuntimeError(
                    f"torch.linalg.svd: unknown svd driver {driver}, please see documentation for options."
                )
            driver = None
        return function(A, *args, driver=driver, **kw) if driver is not None else function(A, *args, **kw)

    return functools.wraps(function)(decomposition)


def _truncated() -> None:
    """Numbers that are drawn again until all are within bounds: those that are not there are none that are not."""
    init: Any = torch.nn.init
    own = getattr(init, "_no_grad_trunc_normal_", None)
    if own is None:
        return

    @functools.wraps(own)
    def trunc_normal_(tensor: torch.Tensor, mean: float, std: float, *args: Any, **kw: Any) -> torch.Tensor:
        if not isinstance(tensor, FakeTensor):
            out: torch.Tensor = own(tensor, mean, std, *args, **kw)
            return out
        with torch.no_grad():
            return tensor.normal_(mean, std)

    init._no_grad_trunc_normal_ = trunc_normal_


_WHERE = "ahbm_device"


def _scripts() -> None:
    """Files of TorchScript: C++ reads them to the host, and their tensors are put where they are wanted."""
    saves, loads = torch.jit.save, torch.jit.load

    def load(f: Any, map_location: Any = None, _extra_files: Any = None, **kw: Any) -> Any:
        index = marks.index_of(map_location)
        place = {_WHERE: ""}
        files = {**(_extra_files or {}), **place}
        module = loads(f, _HOST if map_location is None else _host(map_location), files, **kw)
        where = files.pop(_WHERE)
        if _extra_files is not None:
            _extra_files.update(files)
        if map_location is None and where:
            index = int(where)
        return module if index is None else module.to(torch.device(marks.KIND, index))

    def save(m: Any, f: Any, _extra_files: Any = None) -> Any:
        first = next((x for x in (*m.parameters(), *m.buffers())), None)
        index = None if first is None else marks.where(first)
        if index is not None:
            _extra_files = {**(_extra_files or {}), _WHERE: str(index)}
        return saves(m, f, _extra_files)

    replace(loads, functools.wraps(loads)(load))
    replace(saves, functools.wraps(saves)(save))


def _host(device: Any) -> Any:
    return device if marks.index_of(device) is None else _HOST


def _exports() -> None:
    """A graph is traced where tensors say that they are on the host; what it makes bears the device afterwards."""
    for name in ("export", "draft_export"):
        if hasattr(torch.export, name):
            replace(getattr(torch.export, name), _traced(getattr(torch.export, name)))
    fake = torch._subclasses.fake_tensor.FakeTensor
    makes = fake.__new__

    def __new__(cls: Any, fake_mode: Any, elem: Any, device: Any, *args: Any, **kw: Any) -> Any:
        # C++ asks a tensor of no data for its device, and then the driver for a stream, which ends the process.
        return makes(cls, fake_mode, elem, _host(device), *args, **kw)

    fake.__new__ = __new__


def _traced(export: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(export)
    def traced(mod: Any, *args: Any, **kw: Any) -> Any:
        given = [*mod.parameters(), *mod.buffers(), *torch.utils._pytree.tree_leaves((args, kw))]
        found = (marks.where(x) for x in given if isinstance(x, torch.Tensor))
        index = next((at for at in found if at is not None), None)
        if index is None:
            return export(mod, *args, **kw)
        before, marks.honest[0] = marks.honest[0], threading.get_ident()
        try:
            program = export(mod, *args, **kw)
        finally:
            marks.honest[0] = before
        for graph in (part for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)):
            for node in graph.graph.nodes:
                if node.kwargs.get("device") == _HOST and "assert" not in str(node.target):
                    node.kwargs = {**node.kwargs, "device": torch.device(marks.KIND, index)}
            graph.recompile()
        return program

    return traced


def _safetensors(module: Any) -> None:
    """Files of safetensors: its own core reads to the host."""
    opens = module.safe_open

    class safe_open:
        """The library's own, on devices that are not there."""

        def __init__(self, filename: Any, framework: str, device: Any = "cpu", **kw: Any) -> None:
            self._index = marks.index_of(device) if framework in ("pt", "torch", "pytorch") else None
            self._file = opens(filename, framework, "cpu" if self._index is not None else device, **kw)

        def __enter__(self) -> Any:
            self._file.__enter__()
            return self

        def __exit__(self, *args: Any) -> Any:
            return self._file.__exit__(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def _put(self, x: Any) -> Any:
            if self._index is None or not isinstance(x, torch.Tensor):
                return x
            return x.to(torch.device(marks.KIND, self._index))

        def get_tensor(self, name: str) -> Any:
            """A tensor of the file."""
            return self._put(self._file.get_tensor(name))

        def get_tensors(self, *args: Any, **kw: Any) -> Any:
            """All tensors of the file."""
            found = self._file.get_tensors(*args, **kw)
            if isinstance(found, dict):
                return {name: self._put(x) for name, x in found.items()}
            return [self._put(x) for x in found]

        def get_slice(self, name: str) -> Any:
            """A tensor that is read by parts."""
            return _Slice(self._file.get_slice(name), self._put)

    class _Slice:
        def __init__(self, part: Any, put: Callable[[Any], Any]) -> None:
            self._part, self._put = part, put

        def __getattr__(self, name: str) -> Any:
            return getattr(self._part, name)

        def __getitem__(self, at: Any) -> Any:
            return self._put(self._part[at])

    module.safe_open = safe_open
