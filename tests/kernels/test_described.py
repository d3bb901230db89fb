"""The kernels of operations, by their shapes: no torch is needed."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm.kernels import Flags, Kernel, Tensor, arguments, describe
from ahbm.kernels.lists import CHUNK, launches
from ahbm.kernels.model import MOST
from ahbm.kernels.reductions import shared
from ahbm.kernels.rules import TABLE

HALF = "bfloat16"
MIB = 1 << 20


def x(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def last(*shape: int, dtype: str = HALF) -> Tensor:
    """A picture in channels_last."""
    n, c, h, w = shape
    return Tensor((n, c, h, w), dtype, (h * w * c, 1, w * c, c))


def kinds(found: tuple[Kernel, ...]) -> list[str]:
    return [each.kind for each in found]


ROW, MATRIX = x(768), x(64, 768)
HEADS = x(8, 12, 1024, 64, dtype=HALF)
INDEX = x(8, 1024, dtype="int64")
PICTURE = x(32, 64, 56, 56)
WEIGHT = x(128, 64, 3, 3)
CONVOLVES: tuple[Any, ...] = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
TABLE_OF_KERNELS: dict[str, tuple[str, tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "add": ("add", (MATRIX, MATRIX, 1), [("pointwise", 49152)]),
    "bias": ("add", (MATRIX, ROW, 1), [("broadcast", 49152)]),
    "number": ("mul", (MATRIX, 2.0), [("pointwise", 49152)]),
    "types": ("add", (MATRIX, x(64, 768, dtype=HALF), 1), [("cast", 49152)]),
    "columns": ("add", (MATRIX, x(64, 768, strides=(1, 64)), 1), [("strided", 49152, 1)]),
    "cast": ("copy_", (x(64, 768, dtype=HALF), MATRIX, False), [("cast", 49152)]),
    "transposing": ("copy_", (MATRIX, x(64, 768, strides=(1, 64)), False), [("strided", 49152, 1)]),
    "rows apart": ("copy_", (MATRIX, x(64, 768, strides=(1536, 1)), False), [("strided", 49152)]),
    "steep": ("gelu_backward", (MATRIX, MATRIX, "none"), [("pointwise", 49152, 2)]),
    "expanding": ("copy_", (MATRIX, x(64, 768, strides=(0, 1)), False), [("broadcast", 49152)]),
    "view": ("view", (MATRIX, (768, 64)), []),
    "zeros": ("fill_", (MATRIX, 0.0), [("fill", 49152)]),
    "random": ("normal_", (MATRIX, 0.0, 1.0, None), [("random", 49152)]),
    "dropout": ("native_dropout", (MATRIX, 0.1, True), [("random", 49152)]),
    "cat": ("cat", ((MATRIX, MATRIX), 0), [("pointwise", 98304)]),
    "cat of parts": ("cat", ((x(64, 768, strides=(1536, 1)),) * 2, 0), [("strided", 98304)]),
    "stack of many": ("stack", ((ROW,) * 150, 0), [("pointwise", 57600), ("pointwise", 57600)]),
    "sum": ("sum", (x(4096, 30), (1,), False, None), [("reduce", 4096, 30, 1)]),
    "bias gradient": ("sum", (x(8192, 768, dtype=HALF), (0,), True), [("fill", 132), ("reduce", 1, 8192, 768)]),
    "whole": ("mean", (x(64, 256), None), [("reduce", 1, 16384, 1)]),
    "large": ("mean", (x(4096, 4096), None), [("fill", 132), ("reduce", 1, 1 << 24, 1)]),
    "softmax": ("_softmax", (MATRIX, -1, False), [("softmax", 64, 768)]),
    "softmax back": (
        "_softmax_backward_data",
        (MATRIX, MATRIX, -1, "float32"),
        [("pointwise", 49152), ("softmax_backward", 64, 768)],
    ),
    "log softmax back": (
        "_log_softmax_backward_data",
        (MATRIX, MATRIX, -1, "float32"),
        [("softmax_backward", 64, 768)],
    ),
    "loss": ("nll_loss_forward", (MATRIX, x(64, dtype="int64"), None, 1, -100), [("loss", 64, 768)]),
    "loss back": (
        "nll_loss_backward",
        (x(), MATRIX, x(64, dtype="int64"), None, 1, -100, x()),
        [("fill", 49152), ("loss_backward", 64, 768)],
    ),
    "squares": ("mse_loss", (MATRIX, MATRIX, 0), [("pointwise", 49152)]),
    "layer norm": ("native_layer_norm", (MATRIX, (768,), ROW, ROW, 1e-5), [("norm", 64, 768)]),
    "layer norm back": (
        "native_layer_norm_backward",
        (MATRIX, MATRIX, (768,), x(64, 1), x(64, 1), ROW, ROW, (True, True, True)),
        [("norm_backward", 64, 768), ("norm_weights", 64, 768)],
    ),
    "layer norm back, input alone": (
        "native_layer_norm_backward",
        (MATRIX, MATRIX, (768,), x(64, 1), x(64, 1), ROW, ROW, (True, False, False)),
        [("norm_backward", 64, 768)],
    ),
    "rms norm": ("_fused_rms_norm", (MATRIX, (768,), ROW, 1e-5), [("norm", 64, 768)]),
    "group norm": (
        "native_group_norm",
        (PICTURE, x(64), x(64), 32, 64, 3136, 8, 1e-5),
        [("norm", 256, 25088), ("pointwise", 2048), ("broadcast", 6422528)],
    ),
    "batch norm": (
        "native_batch_norm",
        (PICTURE, x(64), x(64), x(64), x(64), True, 0.1, 1e-5),
        [("batch_norm", 32, 64, 3136, 0)],
    ),
    "batch norm of halves": (
        "native_batch_norm",
        (last(32, 64, 56, 56), x(64), x(64), x(64), x(64), True, 0.1, 1e-5),
        [("fill", 132), ("batch_norm", 32, 64, 3136, 1), ("pointwise", 64), ("batch_norm", 32, 64, 3136, 1)],
    ),
    "product": ("mm", (x(8192, 768, dtype=HALF), x(768, 768, dtype=HALF)), [("product", 1, 8192, 768, 768, 0, 0)]),
    "weights by columns": (
        "addmm",
        (x(768, dtype=HALF), x(8192, 768, dtype=HALF), x(768, 768, dtype=HALF, strides=(1, 768)), 1, 1),
        [("product", 1, 8192, 768, 768, 0, 1)],
    ),
    "large product": (
        "mm",
        (x(4096, 8192, dtype=HALF), x(8192, 8192, dtype=HALF)),
        [("fill", 1), ("product", 1, 4096, 8192, 8192, 0, 0)],
    ),
    "split": (
        "mm",
        (x(384, 16384, dtype=HALF, strides=(1, 384)), x(16384, 384, dtype=HALF)),
        [("product", 1, 384, 384, 16384, 1, 0), ("reduce", 1, 4, 147456)],
    ),
    "batch": ("bmm", (x(48, 128, 64), x(48, 64, 128)), [("product", 48, 128, 128, 64, 0, 0)]),
    "embedding": ("embedding", (x(50304, 768), INDEX, -1, False, False), [("gather", 8192, 768)]),
    "bag": (
        "_embedding_bag",
        (x(100000, 64), x(8192, dtype="int64"), x(2048, dtype="int64"), False, 0, False, None, False, -1),
        [("gather", 8192, 64)],
    ),
    "few embeddings back": (
        "embedding_dense_backward",
        (x(1024, 768), x(1024, dtype="int64"), 1024, -1, False),
        [("fill", 786432), ("embedding_backward", 1024, 768, 1024)],
    ),
    "index_add": ("index_add_", (x(10, 128), 0, x(64, dtype="int64"), x(64, 128), 1), [("scatter", 64, 128)]),
    "masked": ("masked_fill_", (MATRIX, x(64, 768, dtype="bool"), 0.0), [("pointwise", 49152)]),
    "topk": ("topk", (x(8192, 8), 2, -1, True, True), [("sort", 8192, 8), ("sort", 8192, 2)]),
    "scan": ("cumsum", (MATRIX, -1, None), [("scan", 64, 768)]),
    "pool": (
        "max_pool2d_with_indices",
        (PICTURE, (2, 2), (2, 2), (0, 0), (1, 1), False),
        [("pool", 1605632, 4, 0)],
    ),
    "convolution in f32": (
        "convolution",
        (PICTURE, WEIGHT, None, *CONVOLVES),
        [
            ("strided", 6422528),
            ("strided", 73728, 1),
            ("fill", 132),
            ("convolution", 32, 64, 128, 3136, 3136, 9, 1, 0, 0, 1),
            ("strided", 12845056),
        ],
    ),
    "convolution of halves": (
        "convolution",
        (last(8, 64, 56, 56), last(128, 64, 3, 3), None, *CONVOLVES),
        [("convolution", 8, 64, 128, 3136, 3136, 9, 1, 0, 1, 1)],
    ),
    "stride": (
        "convolution",
        (last(8, 64, 56, 56), last(128, 64, 3, 3), None, (2, 2), *CONVOLVES[1:]),
        [("convolution", 8, 64, 128, 3136, 784, 9, 1, 0, 1, 2)],
    ),
    "weights of a convolution": (
        "convolution_backward",
        (last(8, 128, 56, 56), last(8, 64, 56, 56), last(128, 64, 3, 3), (0,), *CONVOLVES, (False, True, False)),
        [("fill", 132), ("convolution", 8, 64, 128, 3136, 3136, 9, 1, 2, 1, 1), ("reduce", 1, 4, 73728)],
    ),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu",
        (HEADS, HEADS, HEADS, 0.0, True),
        [("fill", 1), ("attention", 8, 12, 1024, 1024, 64, 1, 2, 12)],
    ),
    "attention with dropout": (
        "_scaled_dot_product_flash_attention_for_cpu",
        (HEADS, HEADS, HEADS, 0.1, True),
        [("pointwise", 1), ("fill", 1), ("attention", 8, 12, 1024, 1024, 64, 1, 2, 12, 1)],
    ),
    "attention in f32": (
        "_scaled_dot_product_flash_attention_for_cpu",
        (HEADS._replace(dtype="float32"),) * 3,
        [("attention", 8, 12, 1024, 1024, 64, 0, 1, 12)],
    ),
    "attention of fewer keys": (
        "_scaled_dot_product_flash_attention_for_cpu",
        (HEADS, x(8, 4, 1024, 64, dtype=HALF), x(8, 4, 1024, 64, dtype=HALF)),
        [("fill", 1), ("attention", 8, 12, 1024, 1024, 64, 0, 2, 4)],
    ),
    "attention of wide heads": (
        "_scaled_dot_product_flash_attention_for_cpu",
        (x(2, 8, 512, 192, dtype=HALF),) * 3,
        [("attention", 2, 8, 512, 512, 192, 0, 0, 8)],
    ),
    "cells": (
        "_cudnn_rnn",
        (x(3, 8, 64), *[None] * 5, 2, 128, 0, 1, False, 0.0, True, False),
        [("product", 1, 24, 512, 64, 0, 0), *[("product", 1, 8, 512, 128, 0, 0), ("pointwise", 1024)] * 3],
    ),
}


@pytest.mark.parametrize("name", TABLE_OF_KERNELS)
def test_an_operation_is_the_kernels_that_cuda_launches(name: str) -> None:
    op, args, expected = TABLE_OF_KERNELS[name]
    found = describe(op, args)
    assert [(each.kind, *each.dims) for each in found] == expected


def test_no_torch_is_imported() -> None:
    import subprocess

    code = "import sys, ahbm.kernels; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


SIZES = st.integers(0, 70)
TYPES = st.sampled_from(("float32", HALF, "int64", "bool", "float64"))
SHAPES = st.lists(SIZES, max_size=5).map(tuple)
TENSORS = st.tuples(SHAPES, TYPES).map(lambda of: Tensor(*of))
ARGS: st.SearchStrategy[Any] = st.one_of(
    TENSORS,
    st.none(),
    st.integers(-3, 9),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.lists(TENSORS, max_size=4).map(tuple),
)


@given(
    st.sampled_from([*sorted(TABLE), "_foreach_add_", "add", "unheard_of"]),
    st.lists(ARGS, max_size=8).map(tuple),
    st.none() | st.lists(TENSORS, min_size=1, max_size=3).map(tuple),
)
def test_nothing_that_is_asked_raises(name: str, args: tuple[Any, ...], outs: tuple[Tensor, ...] | None) -> None:
    for each in describe(name, args, outs):
        assert len(each.dims) <= 10 and all(0 <= n <= MOST for n in each.dims)
        assert each.nbytes >= 0 and each.operations >= 0


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 512), st.sampled_from(("mm", "bmm")))
def test_a_product_has_its_operations_and_all_bytes(m: int, n: int, k: int, name: str) -> None:
    batch = (3,) if name == "bmm" else ()
    found = describe(name, (x(*batch, m, k), x(*batch, k, n)))
    many = 3 if batch else 1
    assert sum(each.operations for each in found) == 2 * many * m * n * k
    assert sum(each.nbytes for each in found) == 4 * many * (m * k + k * n + m * n)


def test_operations_that_torch_counts_are_shared_among_kernels() -> None:
    args = (last(8, 128, 56, 56), last(8, 64, 56, 56), last(128, 64, 3, 3), (0,), *CONVOLVES, (True, True, False))
    found = describe("convolution_backward", args, operations=1001)
    assert sorted(each.operations for each in found if each.operations) == [500, 501]


@given(st.lists(st.integers(0, 5 * CHUNK), max_size=300), st.integers(1, 5))
def test_launches_of_many_tensors_have_all_elements(sizes: list[int], depth: int) -> None:
    found = launches(sizes, depth)
    assert sum(elements for _, elements in found) == sum(sizes)
    assert all(elements <= 320 * CHUNK and tensors <= 110 for tensors, elements in found)


def test_many_tensors_take_as_many_launches_as_torch_has() -> None:
    layer = [1024 * 4096, 4096 * 1024, 1024 * 3072, 1024 * 1024, 1024, 1024, 4096, 3072]
    assert len(launches(layer * 28, 4)) == 18  # measured: AdamW of 350 million numbers on an H200
    assert len(launches([768] * 111, 1)) == 2 and len(launches([768] * 110, 1)) == 1
    assert launches([321 * CHUNK], 1) == [(1, 320 * CHUNK), (1, CHUNK)]


def test_blocks_share_an_output_where_there_are_few_outputs() -> None:
    assert shared(1, 8192, 768, 132) and shared(1, 1 << 24, 1, 132)
    assert not shared(4096, 2048, 1, 132) and not shared(1, 16384, 1, 132) and not shared(1, 8, 786432, 132)


def test_flags_choose_the_type_of_products_and_the_backend_of_attention() -> None:
    a = x(64, 64)
    types = [describe("mm", (a, a), flags=Flags(tf32_products=on))[0].arithmetic for on in (False, True)]
    assert types == ["f32", "tf32"]
    name = "_scaled_dot_product_flash_attention_for_cpu"
    flash = describe(name, (HEADS,) * 3, flags=Flags(attention=("flash", "math")))
    assert flash[0].dims[6] == 0
    plain = describe(name, (HEADS,) * 3, flags=Flags(attention=("math",)))
    assert kinds(plain) == ["pointwise", "pointwise", "fill", "product", "softmax", "fill", "product"]


def test_a_table_does_not_count_where_a_few_rows_are_touched() -> None:
    small, large = (describe("embedding", (x(rows, 64), INDEX)) for rows in (100_000, 10_000_000))
    assert small == large and small[0].nbytes == 8192 * (8 + 2 * 4 * 64)


def test_the_profiler_says_what_an_operation_was_given() -> None:
    facts = {
        "Input Dims": [[2304], [8192, 768], [768, 2304], [], []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"],
        "Input Strides": [[1], [768, 1], [1, 768], [], []],
        "Concrete Inputs": ["", "", "", "1", "1"],
    }
    args = arguments(facts)
    assert args is not None and args[3:] == (1, 1)
    found = describe("addmm", args)
    assert found[-1].dims == (1, 8192, 2304, 768, 0, 1) and found[-1].arithmetic == "f16"
    listed = {
        "Input Dims": [[[4, 4], [2, 4]], []],
        "Input type": ["TensorList", "Scalar"],
        "Concrete Inputs": ["", "0"],
    }
    assert describe("cat", arguments(listed) or ())[0].dims == (24,)
    assert arguments({"Input Dims": [[], []], "Input type": ["TensorList", "Scalar"]}) is None
    assert arguments({"name": "no shapes"}) is None
    masks = {"Input Dims": [[], []], "Input type": ["", "ScalarList"], "Concrete Inputs": ["", "[True, False]"]}
    assert arguments(masks) == (None, (True, False))
