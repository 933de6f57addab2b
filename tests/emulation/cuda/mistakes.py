# SPDX-License-Identifier: MIT
"""What a careless change would do to a kernel, and what the harness must say to it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MISTAKES", "Mistake"]


class Mistake(NamedTuple):
    """A change of a kernel's text, each `right` in it to `wrong`.

    Attributes:
        source: the file that has the text, without .cu or .cuh.
        right: the text.
        wrong: what it is changed to.
        case: the op, or the case of it, that must fail.
        said: a pattern of what its line must say.
        kernel: the file that includes `source`, where that is a header.
    """

    source: str
    right: str
    wrong: str
    case: str
    said: str
    kernel: str = ""


MISTAKES = {
    "no barrier after the sums": Mistake(
        source="cumsum-back",
        right=("            s_sum[warp_id] = sum;\n        }\n        __syncthreads();"),
        wrong=("            s_sum[warp_id] = sum;\n        }"),
        case="CUMSUM_BACK",
        said="other bits|normalized|is nan",
    ),
    "no barrier before the next round": Mistake(
        source="cumsum-back",
        right=("            dst[i] = before + sum;\n        }\n        __syncthreads();"),
        wrong=("            dst[i] = before + sum;\n        }"),
        case="CUMSUM_BACK",
        said="other bits|normalized|is nan",
    ),
    "a barrier that some threads miss": Mistake(
        source="cumsum-back",
        right=("        __syncthreads();\n\n        float before"),
        wrong=(
            "        if (i >= 0) {\n            __syncthreads();\n        }\n\n        float before"
        ),
        case="CUMSUM_BACK",
        said="threads wait for others|different barriers",
    ),
    "a read past the end": Mistake(
        source="elementwise-back",
        right="if (i >= n) {",
        wrong="if (i > n) {",
        case="GELU_BACK",
        said="past the end of",
        kernel="gelu-back",
    ),
    "a write past the end": Mistake(
        source="sum-sqr",
        right="        *dst = (float) total;",
        wrong="        dst[1] = dst[0] = (float) total;",
        case="SUM_SQR",
        said="written .* past the end of result",
    ),
    "an element that is not written": Mistake(
        source="norm-back",
        right="        dst[col*sd.s0] = r*(g - d*k);",
        wrong=("        if (col > 0) {\n            dst[col*sd.s0] = r*(g - d*k);\n        }"),
        case="NORM_BACK",
        said="is nan|is -nan",
    ),
    "strides that are not used": Mistake(
        source="l2-norm-back",
        right="grad[col*sg.s0] - x[col*sx.s0]*k",
        wrong="grad[col] - x[col]*k",
        case="L2_NORM_BACK",
        said="normalized|is nan|is -nan|past the end",
    ),
    "an order that is not fixed": Mistake(
        source="conv2d-dw-back",
        right=("    if (threadIdx.x == 0) {\n        dst[i] = sum;\n    }"),
        wrong=(
            "    if (threadIdx.x == 0) {\n"
            "        dst[i] = 0.0f;\n"
            "    }\n"
            "    __syncthreads();\n"
            "    atomicAdd(dst + i, sum/256.0f*(threadIdx.x%2 ? 1.001f : 0.999f));"
        ),
        case="CONV_2D_DW_BACK",
        said="other bits",
    ),
    "too much shared memory": Mistake(
        source="fattn-back",
        right="    __shared__ float w_s[FATTN_TRAIN_TILE*FATTN_TRAIN_PAD];",
        wrong="    __shared__ float w_s[3*FATTN_TRAIN_TILE*FATTN_TRAIN_PAD];",
        case="FLASH_ATTN_EXT_BACK",
        said="static shared memory are too many",
    ),
    "a copy that is not waited for": Mistake(
        source="fattn-back-mma",
        right=("        cp_async_wait_all();\n        __syncthreads(); // this tile"),
        wrong="        __syncthreads(); // this tile",
        case="FLASH_ATTN_EXT_BACK/bf16-long",
        said="is nan|is -nan",
    ),
    "a tile that is overwritten while it is read": Mistake(
        source="fattn-back-mma",
        right=("            load(it_next, buf ^ 1);\n        }\n\n        fattn_bf16_c w "),
        wrong=("            load(it_next, buf);\n        }\n\n        fattn_bf16_c w "),
        case="FLASH_ATTN_EXT_BACK/bf16-long",
        said="other bits|normalized|is nan|is -nan",
    ),
    "registers of a product in another order": Mistake(
        source="fattn-train-bf16",
        right=(
            "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], "
            "w0.x[3]));\n"
            "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], "
            "w1.x[1]));"
        ),
        wrong=(
            "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], "
            "w0.x[3]));\n"
            "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], "
            "w1.x[1]));"
        ),
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="normalized",
        kernel="fattn-back-mma",
    ),
    "tensor cores where f32 is asked for": Mistake(
        source="fattn-back-mma",
        right="ggml_get_op_params_i32(dst, 3 + i) < GGML_PREC_BF16",
        wrong="false",
        case="FLASH_ATTN_EXT_BACK/causal",
        said="normalized",
    ),
    "a block of too many threads": Mistake(
        source="dropout",
        right="<<<num_blocks, CUDA_DROPOUT_BLOCK_SIZE,",
        wrong="<<<num_blocks, 8*CUDA_DROPOUT_BLOCK_SIZE,",
        case="DROPOUT",
        said="block of 1 to 1024 threads",
    ),
    "an assertion that supports_op does not know": Mistake(
        source="cross-entropy-rows",
        right="    GGML_ASSERT(logits->nb[0] == sizeof(float));",
        wrong="    GGML_ASSERT(ggml_is_contiguous(logits));",
        case="CROSS_ENTROPY_ROWS",
        said="GGML_ASSERT",
    ),
    # attention
    "only the first columns of a head made smaller": Mistake(
        source="fattn-f32",
        right="acc[c][i][j] *= f;",
        wrong="if (c == 0) acc[c][i][j] *= f;",
        case="FLASH_ATTN_EXT/d128-tiles",
        said="normalized",
    ),
    "the sink of another head": Mistake(
        source="fattn-f32",
        right="sum += expf(sinks[h] - max);",
        wrong="sum += expf(sinks[0] - max);",
        case="FLASH_ATTN_EXT/sinks",
        said="normalized",
    ),
    "no slope": Mistake(
        source="fattn-f32",
        right="    const float slope = fattn_train_slope(p, h);",
        wrong="    const float slope = 1.0f;",
        case="FLASH_ATTN_EXT/alibi",
        said="normalized",
    ),
    "no slope in bf16": Mistake(
        source="fattn-f32",
        right="    const float   slope = fattn_train_slope(p, h);",
        wrong="    const float   slope = 1.0f;",
        case="FLASH_ATTN_EXT/bf16-alibi",
        said="normalized",
    ),
    "no slope in the gradient": Mistake(
        source="fattn-back",
        right="fattn_train_slope(p, h)",
        wrong="1.0f",
        case="FLASH_ATTN_EXT_BACK/alibi",
        said="normalized",
    ),
    "no slope in the gradient in bf16": Mistake(
        source="fattn-back-mma",
        right="fattn_train_slope(p, h)",
        wrong="1.0f",
        case="FLASH_ATTN_EXT_BACK/bf16-alibi",
        said="normalized",
    ),
    "the slope of another head of the group": Mistake(
        source="fattn-back-mma",
        right=("const float   slope = fattn_train_slope(p, h);\n        const half *  mask_h"),
        wrong=("const float   slope = fattn_train_slope(p, h0);\n        const half *  mask_h"),
        case="FLASH_ATTN_EXT_BACK/bf16-alibi",
        said="normalized",
    ),
    "the mask of another head of the group": Mistake(
        source="fattn-back-mma",
        right="mask_h = fattn_bf16_mask_of(mask, p, h, b);",
        wrong="mask_h = fattn_bf16_mask_of(mask, p, h0, b);",
        case="FLASH_ATTN_EXT_BACK/bf16-masks",
        said="normalized",
    ),
    "a gradient without the softcap": Mistake(
        source="fattn-back-mma",
        right="(ds[j].x[e] - D_i)*f;",
        wrong="(ds[j].x[e] - D_i)*p.scale;",
        case="FLASH_ATTN_EXT_BACK/bf16-softcap",
        said="normalized",
    ),
    "a gradient whose heads and rows are not swapped": Mistake(
        source="fattn-back-mma",
        right="    std::swap(x[0].s1, x[0].s2);",
        wrong="    ;",
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="normalized",
    ),
    "a row too many": Mistake(
        source="fattn-back-mma",
        right="row < n && col < d",
        wrong="row <= n && col < d",
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="past the end of result",
    ),
    # tiles of columns that are copied while the last ones are multiplied
    "no barrier before a tile": Mistake(
        source="fattn-f32",
        right=("        cp_async_wait_all();\n        __syncthreads(); // this tile"),
        wrong=("        cp_async_wait_all();\n        // this tile"),
        case="FLASH_ATTN_EXT/bf16-causal",
        said="other bits|normalized|is nan|is -nan",
    ),
    "a barrier before the copies are there": Mistake(
        source="fattn-f32",
        right=("        cp_async_wait_all();\n        __syncthreads(); // this tile"),
        wrong="        __syncthreads(); cp_async_wait_all(); // this tile",
        case="FLASH_ATTN_EXT/bf16-causal",
        said="other bits|normalized|is nan|is -nan",
    ),
    "no barrier before a tile of the gradient": Mistake(
        source="fattn-back-mma",
        right=("        cp_async_wait_all();\n        __syncthreads(); // this tile"),
        wrong=("        cp_async_wait_all();\n        // this tile"),
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="other bits|normalized|is nan|is -nan",
    ),
    "one buffer for the logarithms of two tiles": Mistake(
        source="fattn-back-mma",
        right="l_s[buf*cols + c] = c0",
        wrong="l_s[c] = c0",
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="other bits|normalized|is nan|is -nan",
    ),
    # what the mask does to a tile
    "tiles by another head and batch": Mistake(
        source="fattn-train-bf16",
        right="classes[((b % p.mask_ne3*p.mask_ne2 + h % p.mask_ne2)",
        wrong="classes[((b % p.mask_ne3 + h % p.mask_ne2)",
        case="FLASH_ATTN_EXT/bf16-tiles-heads",
        said="normalized",
        kernel="fattn-f32",
    ),
    "tiles by another head and batch in the gradient": Mistake(
        source="fattn-train-bf16",
        right="classes[((b % p.mask_ne3*p.mask_ne2 + h % p.mask_ne2)",
        wrong="classes[((b % p.mask_ne3 + h % p.mask_ne2)",
        case="FLASH_ATTN_EXT_BACK/bf16-tiles-heads",
        said="normalized",
        kernel="fattn-back-mma",
    ),
    "small numbers of a mask taken for 0": Mistake(
        source="fattn-train-bf16",
        right="some |= m != 0.0f;",
        wrong="some |= m < -1.0f;",
        case="FLASH_ATTN_EXT/bf16-tiles",
        said="normalized",
        kernel="fattn-f32",
    ),
    "numbers above 0 taken for 0": Mistake(
        source="fattn-train-bf16",
        right="some |= m != 0.0f;",
        wrong="some |= m < 0.0f;",
        case="FLASH_ATTN_EXT/bf16-tiles",
        said="normalized",
        kernel="fattn-f32",
    ),
    "one number among zeros not seen": Mistake(
        source="fattn-train-bf16",
        right="e < FATTN_BF16_TILE*FATTN_BF16_TILE; e +=",
        wrong="e < FATTN_BF16_TILE*FATTN_BF16_TILE - 1; e +=",
        case="FLASH_ATTN_EXT/bf16-tiles",
        said="normalized",
        kernel="fattn-f32",
    ),
    "one number among hidden ones not seen": Mistake(
        source="fattn-train-bf16",
        right="for (int e = threadIdx.x; e <",
        wrong="for (int e = threadIdx.x + 1; e <",
        case="FLASH_ATTN_EXT/bf16-tiles",
        said="normalized",
        kernel="fattn-f32",
    ),
    "tiles counted by half tiles": Mistake(
        source="fattn-f32",
        right="(int64_t) it*cols/FATTN_BF16_TILE)",
        wrong="(int64_t) it)",
        case="FLASH_ATTN_EXT/bf16-d128-tiles",
        said="normalized|is nan|is -nan|past the end",
    ),
    "tiles counted by half tiles in the gradient": Mistake(
        source="fattn-back-mma",
        right="fattn_bf16_class(classes, p, h, b, blockIdx.x, it*cols/FATTN_BF16_TILE)",
        wrong="fattn_bf16_class(classes, p, h, b, blockIdx.x, it)",
        case="FLASH_ATTN_EXT_BACK/bf16-long-gqa",
        said="normalized|is nan|is -nan|past the end",
    ),
    "a mask with too few rows": Mistake(
        source="fattn-f32",
        right=" || mask->ne[1] < q->ne[1]",
        wrong="",
        case="FLASH_ATTN_EXT/mask-of-few-rows",
        said="past the end of src3",
    ),
    "a mask with too few columns": Mistake(
        source="fattn-f32",
        right="mask->ne[0] < k->ne[1] || ",
        wrong="",
        case="FLASH_ATTN_EXT/mask-of-few-columns",
        said="past the end of src3",
    ),
    # vectors of 16 bytes where there are none
    "vectors wherever sources lie": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="true;",
        case="FLASH_ATTN_EXT/bf16-odd",
        said="no multiple of 16",
        kernel="fattn-f32",
    ),
    "vectors wherever sources begin": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;",
        case="FLASH_ATTN_EXT/bf16-odd-start",
        said="no multiple of 16",
        kernel="fattn-f32",
    ),
    "vectors whatever stride 1 is": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="(uintptr_t) t->data % 16 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;",
        case="FLASH_ATTN_EXT/bf16-odd-1",
        said="no multiple of 16",
        kernel="fattn-f32",
    ),
    "vectors whatever stride 2 is": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s3 % 4 == 0;",
        case="FLASH_ATTN_EXT/bf16-odd-2",
        said="no multiple of 16",
        kernel="fattn-f32",
    ),
    "vectors whatever stride 3 is": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0;",
        case="FLASH_ATTN_EXT/bf16-odd-3",
        said="no multiple of 16",
        kernel="fattn-f32",
    ),
    "vectors wherever the gradient lies": Mistake(
        source="fattn-train-bf16",
        right=("(uintptr_t) t->data % 16 == 0 && s.s1 % 4 == 0 && s.s2 % 4 == 0 && s.s3 % 4 == 0;"),
        wrong="true;",
        case="FLASH_ATTN_EXT_BACK/bf16-odd-1",
        said="no multiple of 16",
        kernel="fattn-back-mma",
    ),
    "an element of no vector read twice": Mistake(
        source="fattn-train-bf16",
        right="xi[6], xi[7]",
        wrong="xi[6], xi[6]",
        case="FLASH_ATTN_EXT/bf16-odd-1",
        said="normalized",
        kernel="fattn-f32",
    ),
    "copies of bf16 wherever it begins": Mistake(
        source="fattn-train-bf16",
        right="ggml_is_contiguous(t) && (uintptr_t) t->data % 16 == 0",
        wrong="ggml_is_contiguous(t)",
        case="FLASH_ATTN_EXT_BACK/bf16-bf16-odd",
        said="no multiple of 16",
        kernel="fattn-back-mma",
    ),
    # rows and experts
    "rows cleared that are added to": Mistake(
        source="get-rows-back",
        right="if (!acc) {",
        wrong="if (true) {",
        case="GET_ROWS_BACK/added",
        said="normalized",
    ),
    "rows added to in the first block of columns": Mistake(
        source="get-rows-back",
        right="float sum = acc ?",
        wrong="float sum = acc && col < 256 ?",
        case="GET_ROWS_BACK/added-lists",
        said="normalized",
    ),
    "rows added from the last to the first": Mistake(
        source="get-rows-back",
        right="&& j0 + t < i",
        wrong="&& j0 + t > i",
        case="GET_ROWS_BACK/random",
        said="normalized",
    ),
    "an expert that does not exist": Mistake(
        source="mul-mat-id-back",
        right="if (e < 0 || e >= n_as) {",
        wrong="if (e < 0) {",
        case="MUL_MAT_ID_BACK/no-such-expert-b1",
        said="past the end of",
    ),
    "an expert before the first": Mistake(
        source="mul-mat-id-back",
        right="if (e < 0 || e >= n_as) {",
        wrong="if (e >= n_as) {",
        case="MUL_MAT_ID_BACK/no-such-expert-b1",
        said="access|normalized|is nan|is -nan",
    ),
    "rows with gaps taken for rows without": Mistake(
        source="softmax",
        right=" || !ggml_is_contiguous(t)",
        wrong="",
        case="SOFT_MAX_BACK/rows",
        said="supports_op says yes",
    ),
}
