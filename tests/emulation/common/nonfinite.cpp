// SPDX-License-Identifier: MIT
// NaN and infinities through kernels that compare: fmax and fmin return the number that is not NaN. As the CPU has them, whose
// results tests/ops/test_nonfinite.py compares with float64.
#include "cases.hpp"

#include <cmath>

namespace emu {

namespace {

using shape = builder::shape;

// 23 numbers, so that a NaN stands at each place of a window and of a vector in turn
const std::vector<float> numbers = {
    0.5f, NAN, -1.5f, 2.0f, 0.25f, -INFINITY, 3.5f, -0.5f, 1.0f, 0.0f, -4.0f, INFINITY,
    -0.0f, 6.5f, -2.0f, 0.75f, -NAN, 9.0f, -0.125f, -3.0f, 3.0f, -7.0f, 1.75f,
};

ggml_tensor * row(builder & b, shape ne) {
    return b.values(GGML_TYPE_F32, ne, numbers);
}

} // namespace

void nonfinite(table & t) {
    const shape wide = { 12, 5, 3, 2 }; // whole vectors
    for (const shape & ne : { shape { 37, 5, 3, 2 }, wide }) {
        const std::string s = "nan-" + std::to_string(ne[0]);
        for (ggml_unary_op op : { GGML_UNARY_OP_RELU, GGML_UNARY_OP_STEP, GGML_UNARY_OP_SGN, GGML_UNARY_OP_HARDSIGMOID, GGML_UNARY_OP_HARDSWISH }) {
            t.add("UNARY", ggml_unary_op_name(op) + ("-" + s), [=](builder & b) { return ggml_unary(b.ctx, row(b, ne), op); });
        }
        t.add("LEAKY_RELU", s, [=](builder & b) { return ggml_leaky_relu(b.ctx, row(b, ne), 0.1f, false); });
        t.add("CLAMP",      s, [=](builder & b) { return ggml_clamp(b.ctx, row(b, ne), -1.0f, 2.5f); });
    }

    const auto gate = [](builder & b, float lo) { return b.real({ 37, 5, 3, 2 }, lo, 4.0f); };
    for (bool first : { true, false }) {
        const std::string s = first ? "-nan-a" : "-nan-b";
        // the other factor is not 0, and here above 0: the CPU's product is 0 where Metal's is -0
        const auto pair = [=](builder & b, float lo) {
            ggml_tensor * x = first ? row(b, { 37, 5, 3, 2 }) : gate(b, lo);
            ggml_tensor * y = first ? gate(b, lo) : row(b, { 37, 5, 3, 2 });
            return std::make_pair(x, y);
        };
        t.add("GLU", "SWIGLU_OAI" + s, [=](builder & b) {
            const auto p = pair(b, -4.0f);
            return ggml_swiglu_oai(b.ctx, p.first, p.second, 1.702f, 2.0f);
        });
        t.add("GLU_BACK", "SWIGLU_OAI" + s, [=](builder & b) {
            ggml_tensor * g = b.real({ 37, 5, 3, 2 }, 0.5f, 1.0f);
            const auto p = pair(b, -4.0f);
            return ggml_swiglu_oai_back(b.ctx, g, p.first, p.second, 1.702f, 2.0f);
        });
        t.add("GLU_BACK", "REGLU" + s, [=](builder & b) {
            ggml_tensor * g = b.real({ 37, 5, 3, 2 }, 0.5f, 1.0f);
            const auto p = pair(b, -4.0f);
            return ggml_glu_back(b.ctx, g, p.first, p.second, GGML_GLU_OP_REGLU, false);
        });
    }
    t.add("GLU", "REGLU-nan", [](builder & b) {
        ggml_tensor * x = b.values(GGML_TYPE_F32, { 37, 5, 3, 2 }, { 1.0f, NAN, -2.0f, 3.0f, 0.0f });
        return ggml_reglu_split(b.ctx, x, b.real({ 37, 5, 3, 2 }, 0.5f, 4.0f));
    });

    for (int64_t n : { 37, 1500 }) {
        t.add("L2_NORM", "nan-" + std::to_string(n), [=](builder & b) {
            std::vector<float> v(3*n, 0.5f);
            v[n + n/2] = NAN;
            return ggml_l2_norm(b.ctx, b.values(GGML_TYPE_F32, { n, 3, 1, 1 }, v), 1e-6f);
        });
    }

    struct pool { int k, s, p; };
    for (pool p : { pool { 2, 2, 0 }, pool { 3, 1, 1 }, pool { 9, 2, 1 } }) {
        const std::string s = "nan-" + std::to_string(p.k);
        const int64_t w = 19, h = 12;
        const int64_t ow = (w + 2*p.p - p.k)/p.s + 1;
        const int64_t oh = (h + 2*p.p - p.k)/p.s + 1;
        t.add("POOL_2D", s, [=](builder & b) {
            return ggml_pool_2d(b.ctx, row(b, { w, h, 3, 2 }), GGML_OP_POOL_MAX, p.k, p.k, p.s, p.s, p.p, p.p);
        });
        t.add("POOL_1D", s, [=](builder & b) {
            return ggml_pool_1d(b.ctx, row(b, { w, h, 3, 2 }), GGML_OP_POOL_MAX, p.k, p.s, p.p);
        });
        t.add("POOL_2D_BACK", s, [=](builder & b) {
            ggml_tensor * g = b.real({ ow, oh, 3, 2 });
            return ggml_pool_2d_back(b.ctx, g, row(b, { w, h, 3, 2 }), GGML_OP_POOL_MAX, p.k, p.k, p.s, p.s, p.p, p.p);
        });
        t.add("POOL_1D_BACK", s, [=](builder & b) {
            ggml_tensor * g = b.real({ ow, h, 3, 2 });
            return ggml_pool_1d_back(b.ctx, g, row(b, { w, h, 3, 2 }), GGML_OP_POOL_MAX, p.k, p.s, p.p);
        });
    }
    t.add("POOL_2D_BACK", "all-infinite", [](builder & b) {
        ggml_tensor * g = b.real({ 4, 4, 2, 1 });
        return ggml_pool_2d_back(b.ctx, g, b.values(GGML_TYPE_F32, { 8, 8, 2, 1 }, { -INFINITY }), GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0);
    });

    for (int64_t n : { 5, 70, 2300 }) {
        const std::string s = std::to_string(n);
        t.add("ARGMAX", "nan-" + s,      [=](builder & b) { return ggml_argmax(b.ctx, row(b, { n, 30, 1, 1 })); });
        t.add("ARGMAX", "ties-" + s,     [=](builder & b) {
            return ggml_argmax(b.ctx, b.values(GGML_TYPE_F32, { n, 30, 1, 1 }, { -0.0f, 0.0f, -1.0f, -3.0f, 0.0f, -2.0f, -INFINITY }));
        });
        t.add("ARGMAX", "infinite-" + s, [=](builder & b) { return ggml_argmax(b.ctx, b.values(GGML_TYPE_F32, { n, 3, 1, 1 }, { -INFINITY })); });
    }

    // what is not read must not be multiplied by 0: here it is NaN, on the device also what nobody has written yet
    t.add("TRI", "nan", [](builder & b) { return ggml_tri(b.ctx, row(b, { 23, 23, 2, 1 }), GGML_TRI_TYPE_LOWER); }).only = "Metal";
    for (int64_t n : { 3, 37 }) {
        t.add("SOLVE_TRI", "nan-" + std::to_string(n), [=](builder & b) {
            std::vector<float> v(n*n);
            for (int64_t i = 0; i < n*n; ++i) {
                v[i] = i%n > i/n ? NAN : i%n == i/n ? 1.5f : 0.01f*(i%7 - 3);
            }
            return ggml_solve_tri(b.ctx, b.values(GGML_TYPE_F32, { n, n, 2, 1 }, v), b.real({ 5, n, 2, 1 }), true, true, false);
        }).only = "Metal";
    }
}

} // namespace emu
