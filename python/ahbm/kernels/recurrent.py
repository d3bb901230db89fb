"""Recurrent layers as cuDNN runs them: a product of all inputs, then a product and a kernel of elements a time step."""

from __future__ import annotations

from ahbm.kernels.model import Call, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.rules import rule

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates by cuDNN's mode: RNN of ReLU or tanh, LSTM, GRU."""


@rule("_cudnn_rnn", "_cudnn_rnn_backward")
def _cudnn(call: Call) -> list[Kernel]:
    """`_cudnn_rnn(input, weights, stride, buffer, hx, cx, mode, hidden, projections, layers, batch_first, dropout,
    train, bidirectional, ...)`; backward has its buffer, output and gradients before `mode`."""
    back = call.name.endswith("backward")
    at = 10 if back else 6
    x = call.need(0)
    mode, hidden, layers = (int(call.number(i)) for i in (at, at + 1, at + 3))
    first, bidirectional = bool(call.arg(at + 4, False)), bool(call.arg(at + 7, False))
    if len(x.shape) != 3 or mode not in GATES or not hidden:
        raise Unknown(call.name)
    steps, batch = (x.shape[1], x.shape[0]) if first else x.shape[:2]
    return layered(call, x, steps, batch, hidden, layers, 1 + bidirectional, GATES[mode], back=back)


def layered(
    call: Call,
    x: Tensor,
    steps: int,
    batch: int,
    hidden: int,
    layers: int,
    directions: int,
    gates: int,
    *,
    back: bool = False,
) -> list[Kernel]:
    """The kernels of all layers, forward or backward."""
    found: list[Kernel] = []
    for layer in range(layers):
        wide = x.shape[-1] if not layer else hidden * directions
        for _ in range(directions):
            found += _layer(call, x.dtype, steps, batch, wide, hidden, gates, back=back)
    return found


def _layer(
    call: Call, dtype: str, steps: int, batch: int, wide: int, hidden: int, gates: int, *, back: bool
) -> list[Kernel]:
    def times(m: int, k: int, n: int) -> list[Kernel]:
        nbytes = (m * k + k * n + m * n) * Tensor((), dtype).itemsize
        arithmetic = call.arithmetic(Tensor((), dtype), convolves=True)
        return [kernel("product", 1, m, n, k, 0, 0, nbytes=nbytes, operations=2 * m * n * k, arithmetic=arithmetic)]

    size = Tensor((), dtype).itemsize
    cells = kernel("pointwise", batch * hidden, nbytes=batch * hidden * size * (2 * gates + 3))
    if not back:
        step = [*times(batch, hidden, gates * hidden), cells]
        return [*times(steps * batch, wide, gates * hidden), *step * steps]
    step = [cells, *times(batch, gates * hidden, hidden)]
    rows = steps * batch
    return [
        *step * steps,
        *times(rows, gates * hidden, wide),
        *times(gates * hidden, rows, wide),
        *times(gates * hidden, rows, hidden),
        kernel("reduce", 1, rows, gates * hidden, nbytes=rows * gates * hidden * size),
    ]
