"""CUDA graphs of a device that is not there: a replay does what the captured lines do, on the same memory."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import nn

FAKE = "fake" in sys.argv
shown = [0]


def net() -> nn.Module:
    """The same weights every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()


def trained(graphed: bool) -> list[float]:
    """Losses of some steps."""
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = torch.zeros(5, 4, device="cuda")
    random = torch.Generator().manual_seed(1)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(given).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    graph = torch.cuda.CUDAGraph()
    loss = given
    if graphed:
        with torch.cuda.graph(graph):
            loss = step()
    for number in range(4):
        given.copy_(torch.randn(5, 4, generator=random))
        if graphed:
            graph.replay()
        else:
            optimizer.zero_grad(set_to_none=number == 0)
            loss = step()
        losses.append(loss.item())
        if graphed:
            for each in model.parameters():
                each.grad.zero_()
    return losses


def raises(act: Any) -> None:
    """Something that the host waits for, in a capture."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            act()
    except torch.AcceleratorError as error:
        assert "not permitted when stream is capturing" in str(error)
    else:
        raise AssertionError(act)
    assert not torch.cuda.is_current_stream_capturing()


# Without data, a replay takes time alone: what it writes is not known.
assert trained(graphed=True) == (4 * [1.0] if FAKE else trained(graphed=False))
x = torch.ones(3, device="cuda")
for act in (lambda: x.sum().item(), lambda: x.cpu(), torch.cuda.synchronize, lambda: torch.tensor(1.0, device="cuda")):
    raises(act)

model = net()
graphed = torch.cuda.make_graphed_callables(net(), (torch.randn(5, 4, device="cuda", requires_grad=True),))
given = torch.randn(5, 4, device="cuda")
ends = [each(given) for each in (model, graphed)]
for end in ends:
    end.square().sum().backward()
if not FAKE:
    assert torch.equal(*ends)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), graphed.parameters(), strict=True))

graph = torch.cuda.CUDAGraph()
state = torch.get_rng_state()
with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
    assert torch.cuda.is_current_stream_capturing()
    drawn = torch.rand(3, device="cuda")
    x.add_(1)
    inner = x * 2
    view = inner[1:]
assert torch.equal(torch.get_rng_state(), state)
try:
    copy.deepcopy(graph)
except TypeError as error:
    assert str(error) == "cannot pickle 'CUDAGraph' object"
else:
    raise AssertionError("a graph was copied")
if not FAKE:
    assert x.tolist() == [1, 1, 1], "a capture changes nothing"
    graph.replay()
    first = drawn.clone()
    graph.replay()
    assert x.tolist() == [3, 3, 3] and view.tolist() == [6, 6] and not torch.equal(first, drawn)
print("all is there")
