// SPDX-License-Identifier: MIT
// MUL_MAT and OUT_PROD of shapes, types, strides, broadcasts and summands that the bytes choose,
// against a plain double loop. The bits must not depend on the number of threads.

#include "ggml.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static uint64_t state;

static float uniform() {
    state = state*6364136223846793005ull + 1442695040888963407ull;
    return (float) (int32_t) (state >> 32)/2147483648.0f;
}

// Each tensor has memory of its own, so that what lies beside it is watched.
static std::vector<void *> memory;

static void fill(ggml_tensor * t) {
    t->data = malloc(ggml_nbytes(t));
    memory.push_back(t->data);

    const int64_t n = ggml_nelements(t);

    std::vector<float> x(n);
    for (float & v : x) {
        v = uniform();
    }
    if (t->type == GGML_TYPE_F32) {
        memcpy(t->data, x.data(), n*sizeof(float));
    } else {
        const std::vector<float> importance(t->ne[0], 1.0f);
        ggml_quantize_chunk(t->type, x.data(), t->data, 0, ggml_nrows(t), t->ne[0], importance.data());
    }
}

// A tensor of these extents: a part of a longer one, with dimensions that lie in another order.
static ggml_tensor * make(ggml_context * ctx, FuzzedDataProvider & in, ggml_type type, const int64_t ne[4], bool may_transpose) {
    int order[4] = { 0, 1, 2, 3 }; // dimension i of the result is order[i] in memory
    const int fixed = may_transpose && type == GGML_TYPE_F32 ? 0 : 1;
    if (in.ConsumeBool()) {
        for (int i = 3; i > fixed; --i) {
            std::swap(order[i], order[in.ConsumeIntegralInRange<int>(fixed, i)]);
        }
    }
    int64_t whole[4];
    size_t  offset = 0;
    const bool cut = in.ConsumeBool();
    for (int i = 0; i < 4; ++i) {
        whole[order[i]] = ne[i];
    }
    int64_t before[4] = { 0, 0, 0, 0 };
    int64_t stored[4];
    for (int i = 0; i < 4; ++i) {
        const int64_t unit = i == 0 ? ggml_blck_size(type) : 1;
        before[i] = cut ? unit*in.ConsumeIntegralInRange<int>(0, 2) : 0;
        stored[i] = whole[i] + before[i] + (cut ? unit*in.ConsumeIntegralInRange<int>(0, 2) : 0);
    }
    ggml_tensor * t = ggml_new_tensor(ctx, type, 4, stored);
    fill(t);
    for (int i = 0; i < 4; ++i) {
        offset += before[i]/(i == 0 ? ggml_blck_size(type) : 1)*t->nb[i];
    }
    t = ggml_view_4d(ctx, t, whole[0], whole[1], whole[2], whole[3], t->nb[1], t->nb[2], t->nb[3], offset);
    // axis i of the memory becomes axis p[i] of the result
    int p[4];
    for (int i = 0; i < 4; ++i) {
        p[order[i]] = i;
    }
    return ggml_permute(ctx, t, p[0], p[1], p[2], p[3]);
}

// Element (row r, k) of a matrix; kd is the dimension that is summed over.
static double value(const std::vector<float> & x, const ggml_tensor * t, int kd, int64_t r, int64_t k, int64_t i2, int64_t i3) {
    const int64_t i0 = kd == 0 ? k : r;
    const int64_t i1 = kd == 0 ? r : k;
    return x[((i3*t->ne[2] + i2)*t->ne[1] + i1)*t->ne[0] + i0];
}

static std::vector<float> numbers(const ggml_tensor * t) {
    std::vector<float> out(ggml_nelements(t));
    float * to = out.data();

    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1, to += t->ne[0]) {
                const char * row = (const char *) t->data + i1*t->nb[1] + i2*t->nb[2] + i3*t->nb[3];
                if (t->type == GGML_TYPE_F32) {
                    for (int64_t i0 = 0; i0 < t->ne[0]; ++i0) {
                        to[i0] = *(const float *) (row + i0*t->nb[0]);
                    }
                } else {
                    ggml_get_type_traits(t->type)->to_float(row, to, t->ne[0]);
                }
            }
        }
    }
    return out;
}

static void compute(ggml_cgraph * graph, int n_threads) {
    ggml_cplan plan = ggml_graph_plan(graph, n_threads, nullptr);

    // what the work buffer held before must not matter, be it NaN; its end is watched
    std::vector<uint8_t> work(plan.work_size, 0xff);
    plan.work_data = work.data();
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
        abort();
    }
}

static void clear(ggml_context * ctx) {
    ggml_free(ctx);
    for (void * p : memory) {
        free(p);
    }
    memory.clear();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const ggml_type types0[] = {
        GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
        GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
        GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q5_K, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4,
    };
    static const ggml_type types1[] = { GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 };

    FuzzedDataProvider in(data, size);
    state = in.ConsumeIntegral<uint16_t>();
    const bool mul_mat = in.ConsumeBool();
    const ggml_type type0 = in.PickValueInArray(types0);
    const ggml_type type1 = mul_mat ? in.PickValueInArray(types1) : GGML_TYPE_F32;
    const int64_t block = ggml_blck_size(type0);
    // extents around the edges of tiles, now and then long
    const auto extent = [&](int most) {
        return (int64_t) in.ConsumeIntegralInRange<int>(1, in.ConsumeIntegral<uint8_t>() < 16 ? most : 70);
    };
    int64_t m = extent(300);
    int64_t n = extent(300);
    int64_t k = extent(1700);
    if (block > 1) {
        int64_t & row = mul_mat ? k : n; // what a row of src0 holds
        row = (row + block - 1)/block*block;
    }
    const int64_t b2 = in.ConsumeIntegralInRange<int>(1, 3);
    const int64_t b3 = in.ConsumeIntegralInRange<int>(1, 2);
    const int64_t r2 = in.ConsumeIntegralInRange<int>(1, 3);
    const int64_t r3 = in.ConsumeIntegralInRange<int>(1, 2);
    if (m*n*k*b2*b3*r2*r3 > 400000) {
        return -1; // too slow to say much
    }
    const int64_t ne0[4] = { mul_mat ? k : n, mul_mat ? n : k, b2,    b3    };
    const int64_t ne1[4] = { mul_mat ? k : m, mul_mat ? m : k, b2*r2, b3*r3 };

    ggml_init_params params = { 1u << 18, nullptr, true };
    ggml_context * ctx = ggml_init(params);

    ggml_tensor * src0 = make(ctx, in, type0, ne0, false);
    ggml_tensor * src1 = make(ctx, in, type1, ne1, !mul_mat);
    ggml_tensor * dst  = mul_mat ? ggml_mul_mat(ctx, src0, src1) : ggml_out_prod(ctx, src0, src1);
    static ggml_backend_t backend = ggml_backend_cpu_init();
    if (!ggml_backend_supports_op(backend, dst)) {
        clear(ctx);
        return -1;
    }
    const int rounded = in.ConsumeIntegralInRange<int>(0, 5);
    if (rounded == 0) {
        ggml_prec_set_src(dst, GGML_PREC_BF16, 0);
        ggml_prec_set_src(dst, GGML_PREC_BF16, 1);
    }
    ggml_tensor * result = dst;
    const auto own = [&](ggml_tensor * t) {
        t->data = malloc(ggml_nbytes(t));
        memory.push_back(t->data);
    };
    own(dst);
    ggml_tensor * row    = nullptr;
    ggml_tensor * last   = nullptr;
    if (in.ConsumeIntegralInRange<int>(0, 3) == 0) {
        row = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
        fill(row);
        result = ggml_add(ctx, result, row);
        own(result);
    }
    if (in.ConsumeIntegralInRange<int>(0, 3) == 0) {
        last = ggml_new_tensor(ctx, GGML_TYPE_F32, 4, dst->ne);
        fill(last);
        result = in.ConsumeBool() ? ggml_add(ctx, last, result) : ggml_add(ctx, result, last);
        own(result);
    }
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, 16, false);
    ggml_build_forward_expand(graph, result);

    const float * got = (const float *) result->data;
    const size_t bytes = ggml_nbytes(result);
    const int threads = in.ConsumeIntegral<uint8_t>() < 32 ? 3 : 1; // they wait for each other on few cores
    std::vector<uint8_t> first;
    memset(result->data, 0xff, bytes);
    compute(graph, 1);
    if (threads > 1) {
        first.assign((const uint8_t *) got, (const uint8_t *) got + bytes);
        memset(result->data, 0xff, bytes);
        compute(graph, threads);
        if (memcmp(first.data(), got, bytes) != 0) {
            fprintf(stderr, "product: the bits depend on the number of threads\n");
            abort();
        }
    }

    const std::vector<float> b = numbers(src0);
    const std::vector<float> a = numbers(src1);
    const int kd = mul_mat ? 0 : 1;
    const bool may_be_bf16 = rounded == 0 || type0 == GGML_TYPE_BF16 || type1 == GGML_TYPE_BF16;
    for (int64_t i3 = 0; i3 < dst->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < dst->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < m; ++i1) {
                for (int64_t i0 = 0; i0 < n; ++i0) {
                    double s = 0.0, sum = 0.0, sum_b = 0.0;
                    for (int64_t i = 0; i < k; ++i) {
                        const double x = value(a, src1, kd, i1, i, i2, i3);
                        const double y = value(b, src0, kd, i0, i, i2/r2, i3/r3);
                        s     += x*y;
                        sum   += std::fabs(x*y);
                        sum_b += std::fabs(y);
                    }
                    // f32 rounds each product and sum; other paths round src1 to bf16, f16 or 8 bits
                    double limit = 2e-6*(1.0 + sum);
                    if (may_be_bf16) {
                        limit += sum/100;
                    }
                    if (mul_mat && type0 == GGML_TYPE_F16) {
                        limit += sum/1000 + sum_b*1e-7; // half of f16's spacing, and its subnormal numbers
                    }
                    if (mul_mat && ggml_is_quantized(type0)) {
                        limit += sum_b/100;
                    }
                    s += (row ? ((const float *) row->data)[i0] : 0.0);
                    const int64_t at = ((i3*dst->ne[2] + i2)*m + i1)*n + i0;
                    s += (last ? ((const float *) last->data)[at] : 0.0);
                    if (!(std::fabs(got[at] - s) <= limit)) {
                        fprintf(stderr, "product: %s %s x %s m %d n %d k %d batch %dx%d repeat %dx%d: %g, not %g (limit %g)\n",
                                ggml_op_name(dst->op), ggml_type_name(type0), ggml_type_name(type1), (int) m, (int) n, (int) k,
                                (int) b2, (int) b3, (int) r2, (int) r3, got[at], s, limit);
                        abort();
                    }
                }
            }
        }
    }
    clear(ctx);
    return 0;
}
