# SPDX-License-Identifier: MIT
"""Mistakes in products: scratch memory, quantized sources by tiles, rounding to TF32."""

from __future__ import annotations

from .mistake import Mistake

__all__ = ["PRODUCTS"]

PRODUCTS = {
    "rows of logits without the gaps between them": Mistake(
        source="ggml-cuda",
        right="prefer_f32_output = has_gaps || cc",
        wrong="prefer_f32_output = cc",
        case="MUL_MAT/padded-f16",
        said="normalized|past the end|is nan|is -nan",
    ),
    "gaps between the rows of results of quantized weights": Mistake(
        source="ggml-cuda",
        right="!ggml_is_contiguous(op) && (ggml_is_quantized(a->type) || ",
        wrong="!ggml_is_contiguous(op) && (",
        case="MUL_MAT/padded-q8_0",
        said="supports_op says yes",
    ),
    "scratch memory that is not given back in reverse order": Mistake(
        source="out-prod",
        right=(
            "    ggml_cuda_pool_alloc<T> src1_alloc(ctx.pool());\n"
            "    ggml_cuda_pool_alloc<T> src0_alloc(ctx.pool());"
        ),
        wrong=(
            "    ggml_cuda_pool_alloc<T> src0_alloc(ctx.pool());\n"
            "    ggml_cuda_pool_alloc<T> src1_alloc(ctx.pool());"
        ),
        case="OUT_PROD/matrix-may-round-bf16",
        said="pool_addr",
    ),
    # quantized sources by tiles
    "the first tile alone": Mistake(
        source="out-prod",
        right="k0 < ne01; k0 += rows",
        wrong="k0 < 1; k0 += rows",
        case="OUT_PROD/tiles-q4_K",
        said="normalized",
    ),
    "each tile instead of all before": Mistake(
        source="out-prod",
        right="k0 == 0 ? &beta : &one",
        wrong="&beta",
        case="OUT_PROD/tiles-q8_0",
        said="normalized",
    ),
    "the first tile without what is there": Mistake(
        source="out-prod",
        right="k0 == 0 ? &beta : &one",
        wrong="k0 == 0 ? std::array<float, 1>{ 0.0f }.data() : &one",
        case="OUT_PROD/tiles-batch-transposed-added",
        said="normalized",
    ),
    "a last tile that is whole": Mistake(
        source="out-prod",
        right="std::min(rows, ne01 - k0)",
        wrong="rows",
        case="OUT_PROD/tiles-q6_K",
        said="normalized|is nan|is -nan|past the end",
    ),
    "the tiles of the first matrix": Mistake(
        source="out-prod",
        right=" + i02*nb02 + i03*nb03;",
        wrong=" + i03*nb03;",
        case="OUT_PROD/tiles-heads-contiguous",
        said="normalized",
    ),
    "the products of the first of a group": Mistake(
        source="out-prod",
        right="const int64_t i2 = i02*dps2;",
        wrong="const int64_t i2 = i02;",
        case="OUT_PROD/tiles-heads-contiguous",
        said="normalized|is nan|is -nan",
    ),
    "a whole block of 256 of MXFP4": Mistake(
        source="convert",
        right="dequantize_block_mxfp4<<<nb, 32, 0, stream>>>(vx, y, nb32);",
        wrong="dequantize_block_mxfp4<<<nb, 32, 0, stream>>>(vx, y, 8*nb);",
        case="OUT_PROD/mxfp4-480x38",
        said="past the end of src0",
    ),
    # sources that may be rounded to TF32
    "TF32 by the permission of one source": Mistake(
        source="cublas-rounding",
        kernel="out-prod",
        right="ggml_get_op_params_i32(product, 3) >= GGML_PREC_TF32",
        wrong="true",
        case="OUT_PROD/one-may-round-tf32-1x1",
        said="normalized",
    ),
    "TF32 for the next matmul": Mistake(
        source="cublas-rounding",
        kernel="out-prod",
        right="        set(false);",
        wrong="",
        case="OUT_PROD/after-tf32-1x1",
        said="normalized",
    ),
    "the permission for TF32 left out": Mistake(
        source="out-prod",
        right="rounding(handle, dst, type);",
        wrong="rounding(handle, dst, GGML_TYPE_BF16);",
        case="OUT_PROD/may-round-tf32-4x3",
        said="normalized",
    ),
    # an odd number of classes: whole vectors, then the rest
    "one product for all classes": Mistake(
        source="cublas-rounding",
        kernel="out-prod",
        right="rounded && extent >= 1024",
        wrong="false",
        case="OUT_PROD/terms-may-round-tf32-1029",
        said="launched 1 kernels, expected 2",
    ),
    "few classes in two products": Mistake(
        source="cublas-rounding",
        kernel="out-prod",
        right="extent >= 1024",
        wrong="extent >= 1000",
        case="OUT_PROD/terms-may-round-tf32-1023",
        said="launched 2 kernels, expected 1",
    ),
    "the rest left out": Mistake(
        source="cublas-rounding",
        kernel="out-prod",
        right="    if (whole < extent) {",
        wrong="    if (false) {",
        case="OUT_PROD/terms-may-round-tf32-1029",
        said="launched 1 kernels, expected 2",
    ),
    "rest of a long sum in the place of it": Mistake(
        source="out-prod",
        right="k0 == 0 ? &beta : &one, dst_d",
        wrong="&beta, dst_d",
        case="OUT_PROD/many-terms-may-round-bf16",
        said="normalized|is nan|is -nan",
    ),
    "rest of the rows in the place of the first": Mistake(
        source="ggml-cuda",
        right="dst_ptr + i0*(cu_data_type",
        wrong="dst_ptr + 0*(cu_data_type",
        case="MUL_MAT/many-rows-may-round-bf16",
        said="normalized|is nan|is -nan",
    ),
    "the whole vectors without what is there": Mistake(
        source="out-prod",
        right="k0 == 0 ? &beta : &one, dst_d,",
        wrong="k0 == 0 ? &zero : &one, dst_d,",
        case="OUT_PROD/terms-may-round-tf32-1029-added",
        said="normalized",
    ),
    "the rest from other terms": Mistake(
        source="out-prod",
        right="b.data + k0*(b.transposed ? 1 : b.ld)*sizeof(T), cuda_type",
        wrong="b.data + k0*sizeof(T), cuda_type",
        case="OUT_PROD/terms-may-round-tf32-1029",
        said="normalized",
    ),
    "two sums without leave to round": Mistake(
        source="out-prod",
        right="type != GGML_TYPE_F32 || rounding.may_round",
        wrong="true",
        case="OUT_PROD/terms-one-may-round-tf32-1029",
        said="launched 2 kernels, expected 1",
    ),
    "the rest of the rows over the first": Mistake(
        source="ggml-cuda",
        right="(float       *)  dst_ptr + i0, ldc",
        wrong="(float       *)  dst_ptr, ldc",
        case="MUL_MAT/classes-may-round-tf32-1029-padded",
        said="is nan|is -nan",
    ),
    "two products without leave to round": Mistake(
        source="ggml-cuda",
        right="ggml_cuda_cublas_by_vectors(ne01, rounding.may_round,",
        wrong="ggml_cuda_cublas_by_vectors(ne01, true,",
        case="MUL_MAT/classes-f32-1029",
        said="launched 2 kernels, expected 1",
    ),
    "the gradient of logits in rows without gaps": Mistake(
        source="cross-entropy-rows",
        right="dst    + row*stride_d",
        wrong="dst    + row*nclasses",
        case="OUT_PROD/head-may-round-tf32",
        said="normalized|is nan|is -nan",
    ),
}
