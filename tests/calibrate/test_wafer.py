"""A wafer-scale mesh against closed forms.

An algorithm takes max(C, E / N + L) + (2 T_R + 1) D cycles: C wavelets at the busiest processor, E hops of wavelets
over N links, L hops from end to end, D operations that wait for each other. T_R, the cycles of a ramp between a
processor and the network, is 2. The form is that of Luczynski et al., "Near-optimal wafer-scale reduce" (HPDC 2024),
which states errors below 4 % against the wafer. A chain of P processors reduces B wavelets in B + (2 T_R + 2)(P - 1)
cycles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ahbm

if TYPE_CHECKING:
    from collections.abc import Callable

    from ahbm._core import Tl

CYCLE_NS = 1 / 0.85
RAMP = 2
WAVELET = 4


def chain(t_ptr: int, n_elem: int, sip_rank: int, kind: int, w: int, h: int, *, tl: Tl) -> None:
    """Reduces the first row towards its first processor, a wavelet at a time."""
    if sip_rank >= w:
        return
    for at in range(n_elem):
        here = t_ptr + WAVELET * at
        value = tl.load(here, shape=(1,), dtype="f32")
        if sip_rank < w - 1:
            value = value + tl.recv(dir="global_E", shape=(1,), dtype="f32")
        if sip_rank > 0:
            tl.send(dir="global_W", src=value)
        else:
            tl.store(here, value)


def chain_both_ways(t_ptr: int, n_elem: int, sip_rank: int, kind: int, w: int, h: int, *, tl: Tl) -> None:
    """Reduces the first row towards its first processor and spreads the result, a wavelet at a time."""
    if sip_rank >= w:
        return
    last = sip_rank == w - 1
    for at in range(n_elem):
        value = tl.load(t_ptr + WAVELET * at, shape=(1,), dtype="f32")
        if not last:
            value = value + tl.recv(dir="global_E", shape=(1,), dtype="f32")
        if sip_rank > 0:
            tl.send(dir="global_W", src=value)
        else:
            tl.store(t_ptr + WAVELET * at, value)
    for at in range(n_elem):
        if sip_rank > 0:
            value = tl.recv(dir="global_W", shape=(1,), dtype="f32")
            tl.store(t_ptr + WAVELET * at, value)
        else:
            value = tl.load(t_ptr + WAVELET * at, shape=(1,), dtype="f32")
        if not last:
            tl.send(dir="global_E", src=value)


def round_the_mesh(t_ptr: int, n_elem: int, sip_rank: int, kind: int, w: int, h: int, *, tl: Tl) -> None:
    """A ring through all processors, each beside the next: up and down the columns but for the first row, which leads
    back."""
    ring = [(x, y) for x in range(w) for y in (range(1, h) if x % 2 == 0 else range(h - 1, 0, -1))]
    ring += [(x, 0) for x in reversed(range(w))]
    order = [y * w + x for x, y in ring]
    ranks, place = len(order), order.index(sip_rank)
    after, before = tl.peer(sip=order[(place + 1) % ranks], cube=0), tl.peer(sip=order[place - 1], cube=0)
    chunk = n_elem // ranks

    def part(number: int) -> int:
        return t_ptr + WAVELET * chunk * (number % ranks)

    for step in range(2 * (ranks - 1)):
        tl.send(dir=after, src=tl.load(part(place - step), shape=(chunk,), dtype="f32"))
        here = part(place - step - 1)
        value = tl.recv(dir=before, shape=(chunk,), dtype="f32")
        if step < ranks - 1:
            value = tl.load(here, shape=(chunk,), dtype="f32") + value
        tl.store(here, value)


def cycles(
    wavelets: int, w: int, kernel: Callable[..., None] = chain, collective: str = "reduce", *, data: bool = False
) -> float:
    found = ahbm.run(
        collective,
        ahbm.algorithm(kernel, collective=collective, kernel_args=lambda world_size, n_elem, **_: (n_elem,)),
        "wafer_mesh_16x16",
        bytes_per_rank=WAVELET * wavelets,
        dtype="f32",
        data=data,
        overrides={"system.sips.count": w * w, "system.sips.w": w, "system.sips.h": w, "n_slots": 64},
    )
    assert not found.wrong
    return found.latency_ns / CYCLE_NS


@pytest.mark.parametrize("w", [4, 8, 16])
@pytest.mark.parametrize("wavelets", [1, 16, 256])
def test_a_chain_takes_the_time_of_its_closed_form(w: int, wavelets: int) -> None:
    assert cycles(wavelets, w) == pytest.approx(wavelets + (2 * RAMP + 2) * (w - 1), rel=0.04, abs=1.01)


@pytest.mark.parametrize("w", [4, 8, 16])
@pytest.mark.parametrize("wavelets", [1, 16, 256])
def test_a_chain_there_and_back_takes_twice_its_closed_form(w: int, wavelets: int) -> None:
    found = cycles(wavelets, w, chain_both_ways, "all_reduce")
    # The first processor sends a sum on only when it has the last one.
    assert found == pytest.approx(2 * (wavelets + (2 * RAMP + 2) * (w - 1)), rel=0.04, abs=2.01)


@pytest.mark.parametrize("w", [4, 8])
@pytest.mark.parametrize("chunk", [32, 64, 256])
def test_a_ring_through_the_mesh_takes_the_time_of_its_closed_form(w: int, chunk: int) -> None:
    ranks = w * w
    steps = 2 * (ranks - 1)
    # Each processor receives `chunk` wavelets in every step, over a link of its own to the next one.
    form = max(steps * chunk, steps * chunk + steps) + (2 * RAMP + 1) * steps
    found = cycles(ranks * chunk, w, round_the_mesh, "all_reduce", data=w == 4)
    assert found == pytest.approx(form, rel=0.04)


@pytest.mark.parametrize(("dst", "hops"), [(1, 1), (15, 15), (255, 30)])
def test_a_message_takes_a_cycle_for_each_wavelet(dst: int, hops: int) -> None:
    found = ahbm.run("send_recv", topology="wafer_mesh_16x16", bytes_per_rank=4096, src=0, dst=dst, data=False)
    assert found.latency_ns >= 1024 * CYCLE_NS
    # The ramps are paid at every hop, where the wafer pays them once: far messages come out late by as much.
    late = hops * (2 * RAMP + 1) * CYCLE_NS + hops * 16 / 3.4
    assert found.latency_ns <= 1024 * CYCLE_NS + late + 1


@pytest.mark.parametrize(("name", "gbs"), [("tpu_v4_4x4x4", 50), ("tpu_v5p_4x4x4", 100)])
def test_a_ring_round_a_torus_takes_the_time_of_its_law(name: str, gbs: float) -> None:
    nbytes, ranks = 1 << 26, 64
    found = ahbm.run("all_reduce", "ring_allreduce", name, bytes_per_rank=nbytes, data=False)
    least = 2 * (ranks - 1) * 1000 + 2 * (ranks - 1) / ranks * nbytes / gbs
    assert least * 0.999 <= found.latency_ns <= 1.6 * least
