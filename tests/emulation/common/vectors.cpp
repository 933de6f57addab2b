// SPDX-License-Identifier: MIT
// Rows of whole vectors that begin anywhere: ggml's kernels for Metal read and write four elements at once.
#include "cases.hpp"

namespace emu {

namespace {

using shape = builder::shape;

op_case & add(table & t, const char * op, const std::string & name, std::function<ggml_tensor * (builder &)> build) {
    op_case & c = t.add(op, "vectors-" + name, std::move(build));
    c.only = "Metal";
    return c;
}

void rows(table & t, layout l) {
    const std::string s = name_of(l);
    const shape ne = { 36, 5, 3, 2 };

    add(t, "SQR",      s, [=](builder & b) { return ggml_sqr(b.ctx, b.real(ne, -1.0f, 1.0f, l)); });
    add(t, "SUM_ROWS", s, [=](builder & b) { return ggml_sum_rows(b.ctx, b.real(ne, -1.0f, 1.0f, l)); });
    add(t, "MEAN",     s, [=](builder & b) { return ggml_mean(b.ctx, b.real(ne, -1.0f, 1.0f, l)); });
    add(t, "L2_NORM",  s, [=](builder & b) { return ggml_l2_norm(b.ctx, b.real(ne, -1.0f, 1.0f, l), 1e-6f); });
    add(t, "NORM",     s, [=](builder & b) { return ggml_norm(b.ctx, b.real(ne, -1.0f, 1.0f, l), 1e-6f); });
    add(t, "MUL", "of-norm-" + s, [=](builder & b) {
        return ggml_mul(b.ctx, ggml_rms_norm(b.ctx, b.real(ne), 1e-6f), b.real({ 36, 1, 1, 1 }, -1.0f, 1.0f, l));
    });
    for (bool first : { true, false }) {
        add(t, "ADD", s + (first ? "-a" : "-b"), [=](builder & b) {
            ggml_tensor * x = b.real(ne, -1.0f, 1.0f, first ? l : layout::contiguous);
            return ggml_add(b.ctx, x, b.real(ne, -1.0f, 1.0f, first ? layout::contiguous : l));
        });
        if (l != layout::odd_start) {
            continue; // SOFT_MAX is of contiguous tensors
        }
        add(t, "SOFT_MAX", s + (first ? "-x" : "-mask"), [=](builder & b) {
            ggml_tensor * x = b.real(ne, -1.0f, 1.0f, first ? l : layout::contiguous);
            ggml_tensor * m = b.real({ 36, 5, 1, 1 }, -1.0f, 1.0f, first ? layout::contiguous : l);
            return ggml_soft_max_ext(b.ctx, x, m, 0.5f, 0.0f);
        });
    }
}

void products(table & t, layout l, bool first, ggml_type type) {
    const std::string s = std::string(name_of(l)) + (first ? "-a-" : "-b-") + ggml_type_name(type);
    const auto product = [=](builder & b, int64_t k, int64_t m, int64_t n) {
        ggml_tensor * x = b.real({ k, m, 2, 1 }, -1.0f, 1.0f, first ? l : layout::contiguous, type);
        return ggml_mul_mat(b.ctx, x, b.real({ k, n, 2, 1 }, -1.0f, 1.0f, first ? layout::contiguous : l));
    };
    // a row, a few, and a matrix
    for (const auto & [k, n] : { std::pair<int64_t, int64_t> { 36, 1 }, { 256, 3 }, { 64, 33 }, { 512, 7 } }) {
        op_case & c = add(t, "MUL_MAT", std::to_string(k) + "x" + std::to_string(n) + "-" + s, [=, k = k, n = n](builder & b) {
            return product(b, k, 40, n);
        });
        c.max_nmse = 1e-6;
    }
}

} // namespace

void vectors(table & t) {
    for (layout l : { layout::odd_start, layout::odd_1 }) {
        rows(t, l);
        products(t, l, true,  GGML_TYPE_F32);
        products(t, l, false, GGML_TYPE_F32);
        products(t, l, true,  GGML_TYPE_F16);
        products(t, l, false, GGML_TYPE_F16);
        // only kernels of vectors
        add(t, "MUL_MAT", std::string("q8_0-") + name_of(l), [=](builder & b) {
            return ggml_mul_mat(b.ctx, b.real({ 64, 5, 1, 1 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_Q8_0), b.real({ 64, 3, 1, 1 }, -1.0f, 1.0f, l));
        }).supported = false;
        add(t, "FLASH_ATTN_EXT", name_of(l), [=](builder & b) {
            ggml_tensor * q = b.real({ 32, 5, 2, 1 }, -1.0f, 1.0f, l);
            return ggml_flash_attn_ext(b.ctx, q, b.real({ 32, 8, 2, 1 }), b.real({ 32, 8, 2, 1 }), nullptr, 0.2f, 0.0f, 0.0f);
        }).supported = false;
    }
    // the kernel reads a second row, where there is none
    add(t, "MUL_MAT", "one-row", [](builder & b) {
        return ggml_mul_mat(b.ctx, b.real({ 36, 1, 1, 1 }, -1.0f, 1.0f, layout::odd_1), b.real({ 36, 3, 1, 1 }));
    });
}

} // namespace emu
