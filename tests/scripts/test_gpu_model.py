# SPDX-License-Identifier: MIT
"""The model of a step on a GPU counts what is launched; no time is judged."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.build import compiler, default_tree

ROOT = Path(__file__).parents[2]
LAYERS, EMBD, VOCAB, BATCH, SEQ = 1, 32, 67, 2, 16
SMALL = {"layers": LAYERS, "embd": EMBD, "heads": 2, "vocab": VOCAB, "batch": BATCH, "seq": SEQ}
EMULATED = {"cc": 90, "sms": 132, "shared_kib": 227, "memory_gib": 80}


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module of the benchmarks' harness by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return lambda name: importlib.import_module(f"harness.{name}")


def tensor(at: int, *ne: int, type: str = "f32") -> dict[str, Any]:
    extents = [*ne, 1, 1, 1, 1][:4]
    n = extents[0] * extents[1] * extents[2] * extents[3]
    return {
        "op": "NONE",
        "type": type,
        "ne": extents,
        "at": at,
        "bytes": n * {"f32": 4, "bf16": 2, "i32": 4}[type],
    }


def node(op: str, result: Any, *sources: Any, key: str = "node") -> dict[str, Any]:
    return {key: op, "name": "", "result": result, "sources": list(sources)}


def kernel(name: str, blocks: int, threads: int, *operands: tuple[int, int]) -> dict[str, Any]:
    return {
        "kernel": name,
        "grid": [blocks, 1, 1],
        "block": [threads, 1, 1],
        "shared": 0,
        "operands": [list(o) for o in operands],
    }


def product(m: int, n: int, k: int, type: str, **more: Any) -> dict[str, Any]:
    found = {"product": "gemm", "m": m, "n": n, "k": k, "batch": 1, "type": type}
    return {
        **found,
        "type_result": "f32",
        "tf32": False,
        "adds": False,
        "aligned": True,
        **more,
    }


def test_a_matmul_whose_source_is_rounded_in_scratch_memory(harness: Any) -> None:
    w, x, y = tensor(1000, 32, 64), tensor(20000, 32, 8), tensor(50000, 64, 8)
    events = [
        node("MUL_MAT", y, w, x),
        {"scratch": 64 * 32 * 2, "at": 90000},
        kernel("convert_unary_cont_vec4<src_t, dst_t>", 2, 256, (1000, 0), (90000, 1)),
        product(64, 8, 32, "bf16"),
    ]
    convert, gemm = harness("launches").launches(events, vocab=67)
    assert (convert.bytes, convert.converted) == (64 * 32 * 6, 64 * 32 * 6)
    assert (convert.part, convert.kind, convert.operations) == ("products", "vector", 0)
    assert gemm.bytes == 2 * (64 * 32 + 32 * 8) + 4 * 64 * 8
    assert (gemm.operations, gemm.unit, gemm.converted) == (2 * 64 * 8 * 32, "bf16", 0)
    (added,) = harness("launches").launches([events[0], product(64, 8, 32, "f32", adds=True)], 67)
    assert added.bytes == 4 * (64 * 32 + 32 * 8) + 2 * 4 * 64 * 8
    assert added.unit == "f32"


def test_only_tensor_cores_need_whole_vectors(harness: Any) -> None:
    logits = node("MUL_MAT", tensor(1, 67, 8), tensor(9000, 32, 67), tensor(30000, 32, 8))
    kinds = {}
    for name, more in {"bf16": {}, "f32": {}, "tf32": {"type": "f32", "tf32": True}}.items():
        events = [logits, product(67, 8, 32, "bf16" if name == "bf16" else "f32", aligned=False)]
        events[1].update(more)
        (found,) = harness("launches").launches(events, vocab=67)
        assert (found.part, found.unit) == ("head", name)
        kinds[name] = found.kind
    assert kinds == {
        "bf16": "unaligned product",
        "f32": "product",
        "tf32": "unaligned product",
    }


def test_a_chain_of_ops_in_one_kernel_that_also_rounds(harness: Any) -> None:
    x, w, b = tensor(1000, 32, 8), tensor(4000, 32), tensor(5000, 32)
    norm, mul, add = tensor(10000, 32, 8), tensor(10000, 32, 8), tensor(20000, 32, 8)
    copy = tensor(30000, 32, 8, type="bf16")
    operands = ((1000, 0), (4000, 0), (5000, 0), (20000, 1), (30000, 1))
    events = [
        node("NORM", norm, x),
        kernel("norm_mul_add_f32<WARP_SIZE>", 8, 32, *operands),
        node("MUL", mul, norm, w, key="fused"),
        node("ADD", add, mul, b, key="fused"),
        node("CPY", copy, add, key="fused"),
    ]
    (one,) = harness("launches").launches(events, vocab=67)
    assert (one.op, one.part) == ("NORM+MUL+ADD+CPY", "norms")
    # x is read, its norm with gain and bias is written in both types; nothing else moves
    assert one.bytes == 4 * (256 + 32 + 32 + 256) + 2 * 256
    assert one.converted == 2 * 256


def test_a_copy_and_the_sums_of_its_source_in_one_kernel(harness: Any) -> None:
    x, copy = tensor(1000, 32, 8), tensor(5000, 32, 8, type="bf16")
    events = [
        node("CPY", copy, x),
        kernel("sum_columns_f32<true, false, false>", 1, 256, (1000, 0), (9000, 1), (5000, 1)),
        node("VIEW", copy, copy, key="fused"),
        node("REPEAT_BACK", tensor(9000, 32), x, key="fused"),
    ]
    (one,) = harness("launches").launches(events, vocab=67)
    assert (one.op, one.part) == ("CPY+REPEAT_BACK", "elementwise")
    assert one.bytes == 4 * (256 + 32) + 2 * 256
    assert one.converted == 2 * 256


def test_the_gradient_of_attention_over_its_sources(harness: Any) -> None:
    heads = 8 * 16 * 2  # numbers of q, of k and of v
    q, k, v = (tensor(at, 8, 16, 2) for at in (10000, 10064, 10128))  # parts of one tensor
    grad, mask = tensor(30000, 8, 2, 16), tensor(40000, 16, 16)
    out = {**tensor(50000, 8, 2, 16), "behind": 4 * 16 * 2}
    packed, whole = tensor(60000, 3 * heads), tensor(10000, 8, 6, 16)
    rounded = tensor(50000, 8, 6, 16, type="bf16")  # over the result
    log_sums, scratch = 50000 + 4 * heads, 90000
    events = [
        node("FLASH_ATTN_EXT_BACK", packed, grad, q, k, v, mask, out),
        {"scratch": 4 * 16 * 2, "at": scratch},
        {"scratch": 2 * heads, "at": 91000},
        kernel(
            "fattn_back_dots<true, true>", 1, 256, (30000, 0), (50000, 0), (90000, 1), (91000, 1)
        ),
        kernel("fattn_bf16<D, only_l>", 1, 128, (40000, 0), (log_sums, 1)),
        *(
            kernel(f"fattn_back_mma_grad<D, cols, {kv}>", 1, 128, (log_sums, 0), (scratch, 0), *to)
            for kv, to in {
                "true": ((10064, 1), (10128, 1), (50032, 1), (50064, 1)),
                "false": ((10000, 1), (50000, 1)),
            }.items()
        ),
        node("VIEW", packed, packed, key="fused"),
        node("FILL", whole, whole, key="fused"),
        node("ACC", whole, whole, packed, key="fused"),
        node("CPY", rounded, whole, key="fused"),
    ]
    dots, sums, both, one = harness("launches").launches(events, vocab=67)
    assert {each.op for each in (dots, sums, both, one)} == {"FLASH_ATTN_EXT_BACK+FILL+ACC+CPY"}
    rows = 4 * 16 * 2
    # the result of attention, and not what is rounded over it
    assert (dots.bytes, dots.converted) == (4 * heads * 2 + rows + 2 * heads, 2 * heads)
    assert sums.bytes == mask["bytes"] + rows + 2 * 2 * heads  # q and k
    assert (both.operations, one.operations) == (4 * sums.operations, 3 * sums.operations)
    # l, D, four sources in bf16, and each gradient in both types
    assert (both.bytes, both.converted) == (2 * rows + 8 * heads + 2 * 6 * heads, 4 * heads)
    assert (one.bytes, one.converted) == (2 * rows + 8 * heads + 6 * heads, 2 * heads)


def test_what_moves_where_it_is(harness: Any) -> None:
    step = [tensor(at, 100) for at in (1000, 2000, 3000, 4000)]
    update = node("OPT_STEP_ADAMW", step[0], *step, tensor(9000, 7))
    operands = ((1000, 1), (2000, 0), (3000, 1), (4000, 1), (9000, 0))
    (adamw,) = harness("launches").launches(
        [update, kernel("opt_step_adamw_f32", 1, 256, *operands)], vocab=67
    )
    # weights and both moments are read and written, the gradient and seven numbers are read
    assert (adamw.bytes, adamw.part) == (4 * (7 * 100 + 7), "optimizer")
    table, ids, rows = tensor(1000, 32, 67), tensor(50000, 8, type="i32"), tensor(60000, 32, 8)
    (rows_read,) = harness("launches").launches(
        [node("GET_ROWS", rows, table, ids), kernel("kernel", 8, 32, (1000, 0), (60000, 1))], 67
    )
    assert (rows_read.bytes, rows_read.part) == (2 * 4 * 32 * 8, "embedding")


def test_steps_of_many_parameters_in_one_kernel(harness: Any) -> None:
    numbers = tensor(9000, 8)
    steps = [[tensor(1000 * at + i, n) for i in range(4)] for at, n in ((1, 100), (2, 30))]
    events = [
        node("OPT_STEP_ADAMW", steps[0][0], *steps[0], numbers),
        kernel("opt_steps_adamw_f32", 2, 256),
        node("NONE", numbers, key="fused"),
        node("OPT_STEP_ADAMW", steps[1][0], *steps[1], numbers, key="fused"),
    ]
    (one,) = harness("launches").launches(events, vocab=67)
    assert (one.op, one.part) == ("OPT_STEP_ADAMW", "optimizer")
    assert one.bytes == 4 * (7 * 100 + 8 + 7 * 30 + 8)


def test_an_argument_where_nothing_lies(harness: Any) -> None:
    x = tensor(1000, 32)
    events = [node("SCALE", x, x), kernel("scale_f32", 1, 32, (77, 0))]
    with pytest.raises(ValueError, match="SCALE has an argument at 77, where no tensor lies"):
        harness("launches").launches(events, vocab=67)


def test_the_time_of_a_launch(harness: Any) -> None:
    gpus, launch = harness("gpus"), harness("launches").Launch
    h100, m1 = gpus.GPUS["h100"], gpus.GPUS["m1"]
    copy = launch("k", "CPY", "conversions", "f32", "vector", 132, 24 * 10**8, 0, 0)
    # 2.4 GB at 2.4 TB/s
    assert gpus.seconds(copy, h100) == pytest.approx(1e-3 + gpus.LAUNCH_S, rel=0.01)
    gemm = launch("g", "MUL_MAT", "products", "bf16", "product", 0, 10**6, 0, 10**12)
    assert gpus.seconds(gemm, h100) == pytest.approx(1e12 / (0.65 * 989.4e12), rel=0.01)
    # Apple's GPUs have no other unit for bf16
    assert gpus.seconds(gemm, m1) == pytest.approx(1e12 / (0.65 * 2.6e12), rel=0.01)
    # half of the multiprocessors have a block
    half = dataclasses.replace(copy, blocks=66)
    assert gpus.seconds(half, h100) == pytest.approx(2e-3 + gpus.LAUNCH_S, rel=0.01)
    sums = gpus.sums([copy, gemm, copy], h100, "op")
    assert list(sums) == ["CPY", "MUL_MAT"]
    assert gpus.total(sums).launches == 3


def test_what_a_threadgroup_does_is_counted_on_metal(harness: Any) -> None:
    a, b, y = tensor(1000, 64, 32), tensor(20000, 128, 32), tensor(50000, 64, 128)
    event = kernel("kernel_out_prod_f32_f32", 2, 128, (1000, 0), (20000, 0), (50000, 1))
    event["counts"] = {"products": 512, "banks": 1000, "segments": 500}
    events = [node("OUT_PROD", y, a, b), event, {"command buffer": 1}]
    (one,) = harness("launches").launches(events, vocab=67)
    assert (one.kind, one.part, one.unit) == ("product", "products", "f32")
    assert one.operations == 2 * 64 * 128 * 32 == 2 * 8**3 * one.products
    assert one.accesses == 1500
    assert harness("launches").graphs(events) == 1
    # bf16 is multiplied by the same units
    attention = kernel("kernel_fa_back_q_f32_d64_as_bf16", 1, 128)
    q = tensor(1000, 32, 16, 2, 1)
    (back,) = harness("launches").launches(
        [node("FLASH_ATTN_EXT_BACK", q, q, q, q, q), attention], 67
    )
    assert (back.kind, back.unit) == ("tiles", "f32")


def test_the_time_of_what_is_counted(harness: Any) -> None:
    gpus, launch = harness("gpus"), harness("launches").Launch
    m1 = gpus.GPUS["m1"]
    assert m1.tflop_s["f32"] == pytest.approx(2.6, rel=0.01)
    # 8 cores, 1.28 GHz: a second of products, which hide accesses that take as long
    n = round(8 * 1.28e9 / 4 * gpus.COUNTED)
    accesses = round(8 * 1.28e9 / gpus.ACCESS_CLOCKS)
    product = launch("k", "OUT_PROD", "products", "f32", "product", 8, 0, 0, 1, n, accesses)
    assert gpus.seconds(product, m1) == pytest.approx(1.0, rel=1e-3)
    conflicts = dataclasses.replace(product, accesses=2 * accesses)
    assert gpus.seconds(conflicts, m1) == pytest.approx(2.0, rel=1e-3)
    # three of eight cores have a threadgroup
    few = dataclasses.replace(product, blocks=3)
    assert gpus.seconds(few, m1) == pytest.approx(8 / 3, rel=1e-3)
    many = dataclasses.replace(product, blocks=1000)
    assert gpus.seconds(many, gpus.GPUS["m3max"]) < gpus.seconds(product, m1) / 5


needs_cuda = pytest.mark.skipif(
    sys.platform != "linux"
    or compiler() is None
    or not (default_tree() / "src" / "ggml-cuda" / "fattn-back.cu").exists(),
    reason="needs Linux, a C++ compiler and the patched ggml",
)


@pytest.mark.slow
@needs_cuda
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_chains_of_a_step_of_gpt2(harness: Any, dtype: str) -> None:
    """Their ops are neighbours in the step, and no result lies over a source of its chain."""
    spec = harness("model").Spec(batch=16, seq=1024, layers=2, dtype=dtype)
    events = harness("traced_step").read(spec.to_dict(), EMULATED, fused=True, passes=True)
    found = harness("launches").launches(events, spec.vocab)
    kernels = Counter(one.op for one in found if one.kernel.startswith(("norm_back", "sum_col")))
    norm = "REPEAT_BACK+MUL+REPEAT_BACK+NORM_BACK"
    rounded = "" if dtype == "f32" else "+CPY"
    # of the sums, of their chunks and of the gradient of x; only the last norm has no residual
    expected = {f"{norm}+ADD": 3 * 4, norm: 3, f"GELU_BACK{rounded}+REPEAT_BACK": 2 * 2}
    # in bf16 the gradient of q, k and v is rounded where it is computed
    rest = {"REPEAT_BACK": 2 * 2, "CPY+REPEAT_BACK": 2 * 4}
    alone = {"REPEAT_BACK": 2 * 6} if dtype == "f32" else rest
    assert kernels == Counter(expected | alone)


@pytest.mark.slow
@needs_cuda
@pytest.mark.parametrize("dtype", ["f32", "tf32", "bf16"])
def test_the_head_of_an_odd_number_of_classes(harness: Any, dtype: str) -> None:
    """Tensor cores get whole vectors but for the last classes; in f32 it is one matmul each."""
    vocab, rest = 1029, 5
    spec = harness("model").Spec(**{**SMALL, "vocab": vocab}, dtype=dtype)
    events = harness("traced_step").read(spec.to_dict(), EMULATED, fused=True, passes=True)
    found = harness("launches").launches(events, vocab)
    head = [one for one in found if one.part == "head" and one.op in ("MUL_MAT", "OUT_PROD")]
    whole = 2 * BATCH * SEQ * EMBD * vocab
    assert sum(one.operations for one in head) == 3 * whole
    left = [one.operations for one in head if one.kind == "unaligned product"]
    # the logits, and the gradient of what they are computed from
    assert left == ([] if dtype == "f32" else 2 * [whole * rest // vocab])
    (back,) = (e for e in events if e.get("node") == "CROSS_ENTROPY_ROWS_BACK")
    assert back["result"]["type"] == ("bf16" if dtype == "bf16" else "f32")
    over_logits = back["result"]["at"] == back["sources"][1]["at"]
    assert over_logits == (dtype != "bf16")


@pytest.mark.slow
@needs_cuda
@pytest.mark.parametrize("dtype", ["f32", "tf32", "bf16"])
def test_a_step_of_a_small_model(harness: Any, dtype: str) -> None:
    spec = harness("model").Spec(**SMALL, dtype=dtype)
    counted, read = harness("launches"), harness("traced_step").read
    events = {on: read(spec.to_dict(), EMULATED, fused=on, passes=on) for on in (True, False)}
    steps = {on: counted.launches(events[on], VOCAB) for on in events}
    tokens, weights = BATCH * SEQ, 12 * EMBD**2 * LAYERS + VOCAB * EMBD
    shapes = [shape for _, shape, _ in harness("model").parameters(spec)]
    updated = []
    for on, found in steps.items():
        gemms = [one for one in found if one.kernel.startswith("gemm")]
        # a matmul forward, two backward
        assert sum(one.operations for one in gemms) == 6 * tokens * weights
        assert {one.unit for one in gemms} == {dtype}
        updates = [one for one in found if one.op == "OPT_STEP_ADAMW"]
        # fused, one launch updates up to 64 parameters
        assert len(updates) == (1 if on else len(shapes))
        updated.append(sum(one.bytes for one in updates))
        attention = [one for one in found if one.part == "attention"]
        # scores and results forward; backward seven matmuls, of which two are scores again
        whole = 2 * EMBD * SEQ * SEQ * BATCH * LAYERS
        causal = whole * (SEQ + 1) // (2 * SEQ)
        assert sum(one.operations for one in attention) == 9 * causal
        # dq, dk and dv are parts of the gradient of one tensor
        backs = {one.op for one in attention if one.op.startswith("FLASH_ATTN_EXT_BACK")}
        parts = "FLASH_ATTN_EXT_BACK+FILL+ACC" + ("+CPY" if dtype == "bf16" else "")
        assert backs == {parts if on else "FLASH_ATTN_EXT_BACK"}
    assert updated[0] == updated[1]
    after, before = steps[True], steps[False]
    # forward up to the loss, gradients, update
    assert counted.graphs(events[True]) == 3
    assert sum(one.bytes for one in after) < sum(one.bytes for one in before)
    assert len(after) < len(before)
    converted = [sum(one.converted for one in found) for found in (after, before)]
    assert converted[0] < converted[1] if dtype == "bf16" else converted == [0, 0]


@pytest.mark.slow
@needs_cuda
def test_fusions_and_passes_spare_a_third_of_the_launches_of_gpt2(harness: Any) -> None:
    spec = harness("model").Spec(batch=16, seq=1024, dtype="bf16")
    model, h100 = importlib.import_module("gpu_model"), harness("gpus").GPUS["h100"]
    after, before = (model.step(spec, h100, fused=on, passes=on)[0] for on in (True, False))
    assert len(after) <= 2 / 3 * len(before)
    converted = [sum(one.converted for one in found) for found in (after, before)]
    assert converted[0] <= 0.4 * converted[1]


@pytest.mark.slow
@needs_cuda
@pytest.mark.parametrize(("memory_gib", "parts"), [(80, 1), (24, 3), (16, 4), (2, 8)])
def test_a_head_has_few_parts_where_a_gpu_has_memory(
    harness: Any, memory_gib: int, parts: int
) -> None:
    spec = harness("model").Spec(layers=1, batch=16, seq=1024, dtype="bf16")
    events = harness("traced_step").read(
        spec.to_dict(), {**EMULATED, "memory_gib": memory_gib}, fused=True, passes=True
    )
    found = harness("launches").launches(events, spec.vocab)
    assert sum(one.op == "CROSS_ENTROPY_ROWS" for one in found) == parts


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux"
    or compiler() is None
    or not (default_tree() / "src" / "ggml-metal" / "kernels" / "fa_back.metal").exists(),
    reason="needs Linux, a C++ compiler and the patched ggml",
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_step_of_a_small_model_on_metal(harness: Any, dtype: str) -> None:
    spec = harness("model").Spec(**{**SMALL, "embd": 64}, dtype=dtype)
    counted, read = harness("launches"), harness("traced_step").read
    emulated = harness("gpus").GPUS["m1"].emulated
    found = counted.launches(read(spec.to_dict(), emulated, fused=True, passes=True), VOCAB)
    tokens, weights = BATCH * SEQ, 12 * 64**2 * LAYERS + VOCAB * 64
    of_matmuls = [one for one in found if one.kind == "product"]
    assert sum(one.operations for one in of_matmuls) == 6 * tokens * weights
    # 16 x 32 x 64 of the result are multiplied at least, what lies beyond its end included
    for one in of_matmuls:
        assert 2 * 8**3 * one.products >= one.operations
        assert one.accesses > 0
    assert any("bf16" in one.kernel for one in of_matmuls) == (dtype == "bf16")
    shapes = [shape for _, shape, _ in harness("model").parameters(spec)]
    assert sum(one.op == "OPT_STEP_ADAMW" for one in found) == len(shapes)
    # three launches for the gradient of attention: the last is of heads of k and v
    backs = [one.kernel for one in found if one.op == "FLASH_ATTN_EXT_BACK" and one.products]
    assert [name.split("_f32")[0] for name in backs] == ["kernel_fa_back_q", "kernel_fa_back_kv"]
