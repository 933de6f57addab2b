# SPDX-License-Identifier: MIT
"""What a careless change would do to the Metal backend, and what the harness must say to it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MISTAKES", "Mistake"]


class Mistake(NamedTuple):
    """A change of a file's text, each `right` in it to `wrong`.

    Attributes:
        source: the kernel file, without .metal, or the host's file.
        right: the text.
        wrong: what it is changed to.
        case: the op, or the case of it, that must fail.
        said: a pattern of what its line must say.
        kernels: the kernel files that the case needs, where the change is the host's.
        fast: planted in each run; the others by the slow tests.
    """

    source: str
    right: str
    wrong: str
    case: str
    said: str
    kernels: tuple[str, ...] = ()
    fast: bool = False


MISTAKES = {
    # the host
    "scratch memory behind a view": Mistake(
        source="ggml-metal.cpp",
        right="if (op->view_src && ggml_backend_metal_buffer_type_get_alloc_size(",
        wrong="if (false && ggml_backend_metal_buffer_type_get_alloc_size(",
        case="OUT_PROD/long-added",
        said="supports_op says yes|no tensor of the op",
        kernels=("out_prod",),
    ),
    "moments that nobody waits for": Mistake(
        source="ggml-metal-common.cpp",
        right="return tensor->op == GGML_OP_OPT_STEP_ADAMW && (i == 2 || i == 3);",
        wrong="return false;",
        case="OPT_STEP_ADAMW/moment-read-after",
        said="no barrier before it",
        kernels=("unary", "binbcast", "misc"),
    ),
    "a vector at any address": Mistake(
        source="ggml-metal-train.cpp",
        right=" && bid.offs%size == 0;",
        wrong=";",
        case="OUT_PROD/vectors-odd-start-f32",
        said="no multiple of 16",
        kernels=("out_prod",),
    ),
    "a vector in rows of any length": Mistake(
        source="ggml-metal-train.cpp",
        right="t->nb[other]%size == 0 && ",
        wrong="",
        case="OUT_PROD/vectors-odd-1-f32",
        said="no multiple of 16",
        kernels=("out_prod",),
    ),
    "terms at any distance": Mistake(
        source="ggml-metal-train.cpp",
        right="(distance != 0 && d != n*distance)",
        wrong="false",
        case="REPEAT_BACK/vectors-permuted",
        said="normalized|is nan|is -nan|order of the threads",
        kernels=("rows_back",),
        fast=True,
    ),
    "vectors by their extent alone": Mistake(
        source="ggml-metal-device.cpp",
        right="ggml_metal_has_vectors(op->src[0]) && ggml_metal_has_vectors(op->src[1])"
        " && ggml_metal_has_vectors(op);",
        wrong="op->src[0]->ne[0] % 4 == 0 && op->src[1]->ne[0] % 4 == 0;",
        case="ADD/vectors-odd-start-b",
        said="no multiple of 16",
        kernels=("binbcast",),
        fast=True,
    ),
    "products by vectors anywhere": Mistake(
        source="ggml-metal-device.cpp",
        right="ggml_metal_has_vectors(op->src[0]) && ggml_metal_has_vectors(op->src[1])"
        ' ? "_4" : "";',
        wrong='ne00 % 4 == 0 ? "_4" : "";',
        case="MUL_MAT/vectors-36x1-odd-start-b-f32",
        said="no multiple of 16",
        kernels=("mul_mv",),
    ),
    "a gain at any address": Mistake(
        source="ggml-metal-fusion.cpp",
        right="(src1 && !ggml_metal_has_vectors(src1))",
        wrong="false",
        case="MUL/vectors-of-norm-odd-start",
        said="no multiple of 16",
        kernels=("norm", "binbcast"),
    ),
    "a node that reads another twice": Mistake(
        source="ggml-metal-fusion.cpp",
        right="ggml_metal_fusion_n_inner(nodes, j) != 1",
        wrong="false",
        case="ADD/row-of-itself",
        said="normalized|is nan|is -nan",
        kernels=("binbcast",),
        fast=True,
    ),
    "a bias that is left out": Mistake(
        source="ggml-metal-fusion.cpp",
        right=" || ggml_get_op_params_f32(scale, 1) != 0.0f",
        wrong="",
        case="SCALE/row-norm-and-bias",
        said="normalized",
        kernels=("norm", "unary"),
        fast=True,
    ),
    # ggml's kernels
    "rows that are not written yet": Mistake(
        source="solve_tri",
        right="idx < r ? sh0_cur[idx] * dst_ptr[idx*K] : 0.0f;",
        wrong="sh0_cur[idx] * dst_ptr[idx*K] * (idx < r);",
        case="SOLVE_TRI/nan-37",
        said="is nan|is -nan",
        fast=True,
    ),
    "lanes that do not wait": Mistake(
        source="solve_tri",
        right="simdgroup_barrier(mem_flags::mem_device);",
        wrong="",
        case="SOLVE_TRI/nan-37",
        said="order of the threads",
    ),
    "what is left out times 0": Mistake(
        source="tri",
        right="_ggml_vec_tri_cmp<ttype>(i0, i1) ? src_row[i0] : static_cast<T>(0);",
        wrong="static_cast<T>(_ggml_vec_tri_cmp<ttype>(i0, i1)) * src_row[i0];",
        case="TRI/nan",
        said="is nan|is -nan",
        fast=True,
    ),
    # what context.cpp watches
    "more than the registers hold": Mistake(
        source="fa_back",
        right="simdgroup_float8x8 dv[V ? DMAX/8 : 1];",
        wrong="simdgroup_float8x8 dv[DMAX/8];",
        case="FLASH_ATTN_EXT_BACK/d256",
        said="more matrices than a thread has registers for",
    ),
    "a write past the end": Mistake(
        source="rows_back",
        right="        if (i < args.ne) {",
        wrong="        if (i <= args.ne) {",
        case="GET_ROWS_BACK/ends",
        said="writes beyond its tensors",
        fast=True,
    ),
    "an element that is not written": Mistake(
        source="norm_back",
        right="        dx[i] = args.eps*(dy[i] - sum)*y[i];",
        wrong="        if (i > 0) {\n            dx[i] = args.eps*(dy[i] - sum)*y[i];\n        }",
        case="SOFT_MAX_BACK",
        said="leaves elements unwritten",
        fast=True,
    ),
    "no barrier before a list is read": Mistake(
        source="rows_back",
        right=(
            "            list[before + place] = i;\n"
            "        }\n\n"
            "        threadgroup_barrier(mem_flags::mem_threadgroup);"
        ),
        wrong="            list[before + place] = i;\n        }",
        case="GET_ROWS_BACK/one-row",
        said="unwritten|order of the threads",
        fast=True,
    ),
    # sums by vectors
    "terms after the last four": Mistake(
        source="rows_back",
        right="for (; r < args.nr; r += nsl) {",
        wrong="for (; r < 0; r += nsl) {",
        case="REPEAT_BACK/columns-36",
        said="normalized",
        fast=True,
    ),
    "numbers behind the last vector": Mistake(
        source="sum",
        right="for (int64_t j = i; j < args.ne; ++j) {",
        wrong="for (int64_t j = i; j < i; ++j) {",
        case="SUM_SQR/37x5x3x2",
        said="normalized",
        fast=True,
    ),
    # products
    "matrices of b that are not transposed": Mistake(
        source="out_prod",
        right="64*(k*(N_OP_N/8) + ns/8 + i), 8, 0, true);",
        wrong="64*(k*(N_OP_N/8) + ns/8 + i), 8, 0, false);",
        case="OUT_PROD/vectors-f32",
        said="normalized",
    ),
    "matrices of b in the order of a's": Mistake(
        source="out_prod",
        right="64*((ns/8 + i)*(N_OP_K/8) + k)",
        wrong="64*(k*(N_OP_N/8) + ns/8 + i)",
        case="OUT_PROD/vectors-transposed-f32",
        said="normalized",
    ),
    "rows of a beyond the last": Mistake(
        source="out_prod",
        right="r < k1 ? op_load4<T>(",
        wrong="true ? op_load4<T>(",
        case="OUT_PROD/vectors-f32",
        said="is nan|is -nan|access|normalized",
    ),
    # attention
    "no slope": Mistake(
        source="fa_back",
        right="u + slope*m : u;",
        wrong="u + m : u;",
        case="FLASH_ATTN_EXT_BACK/alibi",
        said="normalized",
    ),
    "the slope of heads that are no power of two": Mistake(
        source="fa_back",
        right="2*(h - args.n_head_log2) + 1",
        wrong="h + 1",
        case="FLASH_ATTN_EXT_BACK/alibi",
        said="normalized",
    ),
    "the mask of another head": Mistake(
        source="fa_back",
        right="(h%args.ne_mask2)*args.nb_mask2",
        wrong="0*args.nb_mask2",
        case="FLASH_ATTN_EXT_BACK/masks",
        said="normalized",
    ),
    "a gradient that is not rounded in D": Mistake(
        source="fa_back",
        right="(float) (S) g[c]*o[c]",
        wrong="g[c]*o[c]",
        case="FLASH_ATTN_EXT_BACK/bf16-one-value",
        said="normalized",
    ),
    "permission for some of the sources": Mistake(
        source="ggml-metal-train.cpp",
        right="    for (int i = 0; i < 4; ++i) {\n        if (ggml_get_op_params_i32(op, 3 + i)",
        wrong="    for (int i = 0; i < 3; ++i) {\n        if (ggml_get_op_params_i32(op, 3 + i)",
        case="FLASH_ATTN_EXT_BACK/bf16-but-for-v",
        said="normalized",
        kernels=("fa_back",),
    ),
    "a mask of any address in vectors": Mistake(
        source="ggml-metal-train.cpp",
        right="(!op->src[4] || ggml_metal_has_vectors(op->src[4]))",
        wrong="true",
        case="FLASH_ATTN_EXT_BACK/causal",
        said="no multiple of 8|normalized|is nan",
        kernels=("fa_back",),
    ),
    "products of half of the rows": Mistake(
        source="fa_back",
        right="64*(FA_T/8*k + 2*(sgitg/2) + i), 8, 0, true);",
        wrong="64*(FA_T/8*k + i), 8, 0, true);",
        case="FLASH_ATTN_EXT_BACK/d128",
        said="normalized",
    ),
    "the mask of another batch": Mistake(
        source="fa_back",
        right="(b%args.ne_mask3)*args.nb_mask3",
        wrong="0*args.nb_mask3",
        case="FLASH_ATTN_EXT_BACK/tiles-heads",
        said="normalized",
    ),
    "one number among hidden ones not seen": Mistake(
        source="fa_back",
        right="for (int e = tid; e < FA_TT; e += FA_NTH) {\n        const int i = i0 + e/FA_T;",
        wrong="for (int e = tid + 1; e < FA_TT; e += FA_NTH) {\n        const int i = i0 + e/FA_T;",
        case="FLASH_ATTN_EXT_BACK/tiles",
        said="normalized",
    ),
    # rows, experts, volumes
    "rows added from the last to the first": Mistake(
        source="rows_back",
        right="(x + list[k]*args.nb01))[c]",
        wrong="(x + list[n - 1 - k]*args.nb01))[c]",
        case="GET_ROWS_BACK/random",
        said="normalized",
    ),
    "rows of the first block alone": Mistake(
        source="rows_back",
        right="            float sum = y[c];",
        wrong="            float sum = 0.0f;",
        case="GET_ROWS_BACK/added",
        said="normalized",
    ),
    "an expert that does not exist, in no list": Mistake(
        source="out_prod",
        right="match = (id >= 0 && id < args.n_as ? id : args.n_as) == e;",
        wrong="match = id == e;",
        case="MUL_MAT_ID_BACK/no-such-expert-b2",
        said="access|unwritten|normalized|beyond",
    ),
    "an expert before the first, counted": Mistake(
        source="out_prod",
        right="less += id >= 0 && id < e;",
        wrong="less += id < e;",
        case="MUL_MAT_ID_BACK/no-such-expert-as1",
        said="unwritten|normalized|beyond",
    ),
    "the product of an expert that does not exist": Mistake(
        source="out_prod",
        right="const int k1 = (int) tgpig.z < args.n_as ? args.nm : 0;",
        wrong="const int k1 = args.nm;",
        case="MUL_MAT_ID_BACK/no-such-expert-b2",
        said="unwritten|normalized|is nan|is -nan|order of the threads",
    ),
    "the depth of a kernel by its width": Mistake(
        source="image_back",
        right="(kd*args.k[1] + kh)*args.k[0] + kw];",
        wrong="(kd*args.k[0] + kh)*args.k[0] + kw];",
        case="IM2COL_3D_BACK",
        said="normalized",
    ),
    "a row that does not exist": Mistake(
        source="rows_back",
        right="int earlier = row < 0 || row >= args.ne1;",
        wrong="int earlier = row < 0 || row > args.ne1;",
        case="GET_ROWS_BACK/no-such-row",
        said="writes beyond its tensors",
    ),
    "no gradient at the lower bound": Mistake(
        source="act_back",
        right="args.p[0] <= x &&",
        wrong="args.p[0] < x &&",
        case="UNARY_BACK/CLAMP-kinks",
        said="normalized",
    ),
    "no gradient at the upper bound": Mistake(
        source="act_back",
        right="&& x <= args.p[1]",
        wrong="&& x < args.p[1]",
        case="UNARY_BACK/CLAMP-kinks",
        said="normalized",
    ),
    # vectors where there are none
    "vectors in rows of any length": Mistake(
        source="mul_mm",
        right="device packed_float4 * D4 = (device packed_float4 *) D;",
        wrong="device float4 * D4 = (device float4 *) D;",
        case="MUL_MAT/edges",
        said="no multiple of 16",
    ),
    "a number of 32 bits among those of 16": Mistake(
        source="mul_mv",
        right="qh_16[0] | (uint32_t) qh_16[1] << 16;",
        wrong="*(device const uint32_t *) qb_curr->qh;",
        case="MUL_MAT/q5_0-by-2",
        said="no multiple of 4",
    ),
}
