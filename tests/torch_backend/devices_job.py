"""Operations on tensors of two devices, as a script makes them: what torch raises, and what it takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

device, host = torch.ones(3, device="cuda"), torch.ones(3)
square, plain = torch.ones(3, 3, device="cuda"), torch.ones(3, 3)
number, index = torch.tensor(2.0), torch.tensor([0, 1])


def put(x: Tensor, at: object, values: Tensor | float) -> None:
    x[at] = values  # type: ignore[index]


def total() -> None:
    x = torch.tensor(0.0)
    x += device.sum()


def packed(lengths: Tensor) -> object:
    return torch._VF._pack_padded_sequence(square[None], lengths, True)


def loaded() -> Tensor:
    data = torch.utils.data.DataLoader([(torch.ones(3), 1)])
    return next(iter(data))[0] + device


SAME = "Expected all tensors to be on the same device"
TWO = f"{SAME}, but found at least two devices, cuda:0 and cpu!"
REFUSED: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "add": (RuntimeError, TWO, lambda: device + host),
    "add, the host first": (RuntimeError, TWO, lambda: host + device),
    "in place on the host": (RuntimeError, TWO, lambda: host.add_(device)),
    "a total on the host": (RuntimeError, TWO, total),
    "two devices": (RuntimeError, "cuda:0 and cuda:1!", lambda: device + device.to("cuda:1")),
    "mm": (RuntimeError, "but got mat2 is on cpu", lambda: square @ plain),
    "einsum": (RuntimeError, SAME, lambda: torch.einsum("ij,jk", square, plain)),
    "a module on the host": (RuntimeError, SAME, lambda: nn.Linear(3, 3)(square)),
    "an input on the host": (RuntimeError, "mat1 is on cpu", lambda: nn.Linear(3, 3).cuda()(plain)),
    "cat": (RuntimeError, "in method wrapper_CUDA_cat", lambda: torch.cat([device, host])),
    "where": (RuntimeError, TWO, lambda: torch.where(device > 0, device, host)),
    "host by device indices": (RuntimeError, "indices should be either on cpu", lambda: host[index.cuda()]),
    "values of the host": (RuntimeError, TWO, lambda: put(device, index, host[:2])),
    "embedding": (RuntimeError, "wrapper_CUDA__index_select", lambda: nn.Embedding(4, 4).cuda()(index)),
    "targets": (RuntimeError, "got target is on cpu", lambda: functional.cross_entropy(square, torch.arange(3))),
    "convolution": (
        RuntimeError,
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
        lambda: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2)),
    ),
    "gather": (RuntimeError, "got index is on cpu", lambda: square.gather(0, torch.zeros(1, 3, dtype=torch.long))),
    "a mask": (RuntimeError, "self and mask", lambda: device.masked_fill(host > 0, 0.0)),
    "a mask in place": (RuntimeError, "self and mask", lambda: device.masked_fill_(host > 0, 0.0)),
    "equal": (RuntimeError, SAME, lambda: torch.equal(device, host)),
    "lengths": (RuntimeError, "should be a 1D CPU int64 tensor", lambda: packed(torch.tensor([3]).cuda())),
    "a loader's batch": (RuntimeError, TWO, loaded),
    "made of the host's": (RuntimeError, TWO, lambda: torch.sin(torch.arange(3).float())[None] + square),
    "from NumPy": (RuntimeError, TWO, lambda: torch.from_numpy(np.ones(3)) + device),
    "numpy": (TypeError, "can't convert cuda:0 device type tensor to numpy", device.numpy),
    "asarray": (TypeError, "Use Tensor.cpu() to copy", lambda: np.asarray(device)),
    "pin_memory": (RuntimeError, "only dense CPU tensors can be pinned", device.pin_memory),
}
TAKEN: dict[str, Callable[[], object]] = {
    "a number of the host": lambda: device + number,
    "where with a number": lambda: torch.where(device > 0, device, number),
    "indices of the host": lambda: device[index],
    "a mask of the host": lambda: device[host > 0],
    "a number put where a mask of the host is": lambda: put(device.clone(), host > 0, number),
    "a Python number put there": lambda: put(device.clone(), host > 0, 1.0),
    "a number put": lambda: put(device.clone(), index, number),
    "a copy": lambda: put(device.clone(), slice(2), host[:2]),
    "copy_": lambda: device.clone().copy_(host),
    "one_hot": lambda: functional.one_hot(index.cuda()) + index.cuda()[:, None],
    "forced numpy": lambda: device.numpy(force=True),
    "lengths of the host": lambda: packed(torch.tensor([3])),
    "lengths of a loss": lambda: functional.ctc_loss(
        torch.ones(5, 1, 4).log_softmax(2).cuda(), torch.tensor([[1, 2]]).cuda(), torch.tensor([5]), torch.tensor([2])
    ),
    "like": lambda: torch.zeros_like(device) + device.new_zeros(3),
}
for name, (kind, words, call) in REFUSED.items():
    try:
        call()
    except kind as error:
        assert words in str(error) and "AHBM-X136" in str(error), (name, error)
    else:
        raise AssertionError(f"{name} is taken")
for call in TAKEN.values():
    call()
leaf = torch.ones(3, requires_grad=True)
(leaf.cuda() * 2).sum().backward()
assert leaf.grad is not None and leaf.grad.device.type == "cpu" and (leaf.grad == 2).all()
moved = torch.ones(3, device="cuda", requires_grad=True)
(moved.cpu() * 2).sum().backward()
assert moved.grad is not None and moved.grad.device.type == "cuda"
print("all as torch does")
