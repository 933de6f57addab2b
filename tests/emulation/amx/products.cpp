// SPDX-License-Identifier: MIT
// Products of sources that may be rounded to bf16, beside a loop in double over the rounded sources: around the edges
// of tiles, of panels and of blocks of k, over types, layouts and addends. A line for each product has the hash of its
// bits, by which two builds of the packed product are compared.

#include "ggml.h"
#include "ggml-cpu.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

enum what_t { PLAIN, ADDED, ROW, ROW_AND_LAST, DENORMALS, NOT_FINITE };

struct product {
    ggml_op   op;
    ggml_type type0, type1;
    int64_t   m, n, k;
    bool      transposed; // OUT_PROD: src1
    what_t    what = PLAIN;
};

static uint32_t state = 1;

static float uniform() {
    state = state*1664525u + 1013904223u;
    return (float) (int32_t) state/2147483648.0f;
}

static ggml_tensor * make(ggml_context * ctx, ggml_type type, int64_t ne0, int64_t ne1, float scale) {
    ggml_tensor * t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    std::vector<float> x(ne0*ne1);
    for (float & v : x) {
        v = scale*uniform();
    }
    if (type == GGML_TYPE_F32) {
        memcpy(t->data, x.data(), x.size()*sizeof(float));
    } else {
        ggml_quantize_chunk(type, x.data(), t->data, 0, ne1, ne0, nullptr);
    }
    return t;
}

// an element as the product reads it
static double value(const ggml_tensor * t, int64_t i0, int64_t i1) {
    const char * p = (const char *) t->data + i0*t->nb[0] + i1*t->nb[1];
    float x;
    switch (t->type) {
        case GGML_TYPE_F32:  x = *(const float *) p; break;
        case GGML_TYPE_F16:  x = ggml_fp16_to_fp32(*(const ggml_fp16_t *) p); break;
        case GGML_TYPE_BF16: x = ggml_bf16_to_fp32(*(const ggml_bf16_t *) p); break;
        default: {
            std::vector<float> row(t->ne[0]);
            ggml_get_type_traits(t->type)->to_float((const char *) t->data + i1*t->nb[1], row.data(), t->ne[0]);
            x = row[i0];
        }
    }
    x = ggml_bf16_to_fp32(ggml_fp32_to_bf16(x));
    return std::fpclassify(x) == FP_SUBNORMAL ? 0.0 : x;
}

static ggml_tensor * rounded(ggml_tensor * t) {
    ggml_prec_set_src(t, GGML_PREC_BF16, 0);
    ggml_prec_set_src(t, GGML_PREC_BF16, 1);
    return t;
}

static bool run(const product & c) {
    const bool mul_mat = c.op == GGML_OP_MUL_MAT;

    ggml_init_params params = { 64u << 20, nullptr, false };
    ggml_context * ctx = ggml_init(params);

    const float scale = c.what == DENORMALS ? 0x1p-126f : 1.0f;

    ggml_tensor * a = make(ctx, c.type0, mul_mat ? c.k : c.n, mul_mat ? c.n : c.k, scale);
    ggml_tensor * b = make(ctx, c.type1, mul_mat || c.transposed ? c.k : c.m, mul_mat || c.transposed ? c.m : c.k, 1.0f);
    if (c.what == NOT_FINITE) {
        ((float *) b->data)[(c.m/2)*c.k + c.k/2] = NAN;
        ((float *) b->data)[(c.m/3)*c.k + c.k - 1] = INFINITY;
    }
    if (c.transposed) {
        b = ggml_transpose(ctx, b);
    }
    ggml_tensor * row  = make(ctx, GGML_TYPE_F32, c.n, 1, 1.0f);
    ggml_tensor * more = make(ctx, GGML_TYPE_F32, c.n, c.m, 1.0f);

    ggml_tensor * dst = rounded(mul_mat ? ggml_mul_mat(ctx, a, b) : ggml_out_prod(ctx, a, b));
    if (c.what == ADDED) {
        dst = ggml_add(ctx, more, dst);
    }
    if (c.what == ROW || c.what == ROW_AND_LAST) {
        dst = ggml_add(ctx, dst, row);
    }
    if (c.what == ROW_AND_LAST) {
        dst = ggml_add(ctx, dst, more);
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, dst);

    // columns of the sources, as doubles
    std::vector<double> x(c.n*c.k), y(c.m*c.k);
    for (int64_t k = 0; k < c.k; ++k) {
        for (int64_t i = 0; i < c.n; ++i) {
            x[i*c.k + k] = mul_mat ? value(a, k, i) : value(a, i, k);
        }
        for (int64_t i = 0; i < c.m; ++i) {
            y[i*c.k + k] = mul_mat ? value(b, k, i) : value(b, i, k);
        }
    }

    bool     ok   = true;
    uint64_t hash = 0;
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        ggml_cplan plan = ggml_graph_plan(graph, n_threads, nullptr);
        std::vector<uint8_t> work(plan.work_size + 1, 0xff);
        plan.work_data = work.data();
        for (int64_t i = 0; i < c.m*c.n; ++i) {
            ((float *) dst->data)[i] = 42.0f;
        }
        ggml_graph_compute(graph, &plan);

        uint64_t h = 14695981039346656037ull;
        for (int64_t i1 = 0; i1 < c.m; ++i1) {
            for (int64_t i0 = 0; i0 < c.n; ++i0) {
                const float got = ((const float *) dst->data)[i1*c.n + i0];
                double sum = 0.0, size = 0.0;
                for (int64_t k = 0; k < c.k; ++k) {
                    const double term = x[i0*c.k + k]*y[i1*c.k + k];
                    sum  += term;
                    size += std::fabs(term);
                }
                sum += c.what == ROW   || c.what == ROW_AND_LAST ? ((const float *) row->data)[i0] : 0.0f;
                sum += c.what == ADDED || c.what == ROW_AND_LAST ? ((const float *) more->data)[i1*c.n + i0] : 0.0f;

                // each of the k sums is rounded once, by half a unit of what it can be at most
                ok = ok && (std::isnan(sum) ? std::isnan(got) : std::isinf(sum) ? got == (float) sum
                        : std::fabs(got - sum) <= (size + 2.0)*0x1p-24*(c.k + 3));
                // below the normal numbers there is nothing
                ok = ok && (c.what != DENORMALS || got == 0.0f || std::fabs(got) >= 0x1p-126f);

                uint32_t bits = 0x7fc00000; // any NaN
                if (!std::isnan(got)) {
                    memcpy(&bits, &got, sizeof(bits));
                }
                h = (h ^ bits)*1099511628211ull;
            }
        }
        ok   = ok && (n_threads == 1 || h == hash);
        hash = h;
    }
    ggml_free(ctx);

    printf("%s %-8s %s x %s m %d n %d k %d%s what %d %016llx\n", ok ? "ok  " : "FAIL", ggml_op_name(c.op), ggml_type_name(c.type0),
            ggml_type_name(c.type1), (int) c.m, (int) c.n, (int) c.k, c.transposed ? " transposed" : "", c.what, (unsigned long long) hash);
    return ok;
}

int main() {
    const ggml_op MM = GGML_OP_MUL_MAT, OP = GGML_OP_OUT_PROD;
    const ggml_type F32 = GGML_TYPE_F32, F16 = GGML_TYPE_F16, BF16 = GGML_TYPE_BF16;

    std::vector<product> all;
    for (ggml_op op : { MM, OP }) {
        for (int64_t m : { 16, 17, 31, 32, 33, 65 }) {
            all.push_back({ op, F32, F32, m, 65, 67, false });
        }
        for (int64_t n : { 16, 17, 31, 32, 33, 47 }) {
            all.push_back({ op, F32, F32, 67, n, 70, false });
        }
        for (int64_t k : { 31, 32, 33, 64, 257, 1537 }) {
            all.push_back({ op, F32,  F32, 50, 49, k, false });
            all.push_back({ op, BF16, F32, 50, 49, k, false });
        }
        for (what_t what : { ADDED, ROW, ROW_AND_LAST, DENORMALS }) {
            all.push_back({ op, F32, F32, 47, 50, 100, false, what });
            all.push_back({ op, F32, F32, 64, 64, 1600, false, what });
        }
        all.push_back({ op, F16,  F32,  61, 53, 300, false });
        all.push_back({ op, BF16, BF16, 61, 53, 300, false });
    }
    for (int64_t k : { 1, 2, 31, 67, 300 }) {
        all.push_back({ OP, F32,  F32, 191, 203, k, true });
        all.push_back({ OP, BF16, F32, 191, 203, k, false });
    }
    all.push_back({ OP, GGML_TYPE_Q8_0, F32, 60,  96, 200, true });
    all.push_back({ MM, GGML_TYPE_Q8_0, F32, 260, 64, 256, false });
    all.push_back({ MM, F32, F32, 70, 50, 99, false, NOT_FINITE });

    int failed = 0;
    for (const product & c : all) {
        failed += !run(c);
    }
    printf("%d of %d failed\n", failed, (int) all.size());
    return failed != 0;
}
