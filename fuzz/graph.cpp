// SPDX-License-Identifier: MIT
// A random graph from bytes: it is built, differentiated, given memory and computed. Computed in
// memory that the allocator shares between results, and that was full of NaN, it has the same bits as
// with memory of its own for each result, which was full of zeros. An assertion while an op is made
// refuses what the bytes ask for; any later one, in the backward too, is a finding.

#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static jmp_buf refused;
static bool    may_refuse;

static void on_abort(const char * message) {
    if (may_refuse) {
        longjmp(refused, 1);
    }
    fprintf(stderr, "graph: %s\n", message);
}

struct graph {
    ggml_context * ctx  = nullptr;
    ggml_cgraph  * gf   = nullptr;
    ggml_tensor  * loss = nullptr;
    std::vector<ggml_tensor *> leaves;
    std::vector<ggml_tensor *> params;
};

struct maker {
    ggml_context             * ctx;
    FuzzedDataProvider       & in;
    graph                    & g;
    std::vector<ggml_tensor *> values;
    std::vector<bool>          used;

    int below(int n) { return in.ConsumeIntegralInRange<int>(0, n - 1); }

    ggml_tensor * leaf(int64_t n0, int64_t n1, int64_t n2, int64_t n3, ggml_type type = GGML_TYPE_F32) {
        ggml_tensor * t = ggml_new_tensor_4d(ctx, type, n0, n1, n2, n3);
        ggml_set_input(t);
        g.leaves.push_back(t);
        if (type == GGML_TYPE_F32 && in.ConsumeBool()) {
            ggml_set_param(t);
            g.params.push_back(t);
        }
        return t;
    }

    ggml_tensor * any() {
        const int i = (int) values.size() - 1 - below(std::min<int>(values.size(), 8));
        used[i] = true;
        return values[i];
    }

    ggml_tensor * dense() {
        ggml_tensor * t = any();
        return ggml_is_contiguous(t) && t->nb[0] == ggml_type_size(t->type) ? t : ggml_cont(ctx, t);
    }

    // one whose rows have no gaps between their elements
    ggml_tensor * rows() {
        ggml_tensor * t = any();
        return t->nb[0] == ggml_type_size(t->type) ? t : ggml_cont(ctx, t);
    }

    // one that can be repeated to x, or a new leaf
    ggml_tensor * repeats_to(const ggml_tensor * x) {
        for (int i = (int) values.size() - 1 - below(4); i >= 0; --i) {
            if (ggml_can_repeat(values[i], x)) {
                used[i] = true;
                return values[i]->nb[0] == sizeof(float) ? values[i] : ggml_cont(ctx, values[i]);
            }
        }
        return leaf(x->ne[0], 1, 1, 1);
    }

    void add(ggml_tensor * t) {
        if (ggml_nelements(t) > 2000) {
            t = ggml_mean(ctx, ggml_is_contiguous(t) ? t : ggml_cont(ctx, t));
        }
        values.push_back(t);
        used.push_back(false);
    }

    ggml_tensor * op();
};

ggml_tensor * maker::op() {
    switch (below(38)) {
        case 0:  return ggml_unary(ctx, dense(), (ggml_unary_op) below(GGML_UNARY_OP_XIELU));
        case 1:  return ggml_unary_inplace(ctx, dense(), (ggml_unary_op) below(GGML_UNARY_OP_XIELU));
        case 2:  { ggml_tensor * x = rows(); return ggml_add(ctx, x, repeats_to(x)); }
        case 3:  { ggml_tensor * x = rows(); return ggml_sub(ctx, x, repeats_to(x)); }
        case 4:  { ggml_tensor * x = rows(); return ggml_mul(ctx, x, repeats_to(x)); }
        case 5:  { ggml_tensor * x = dense(); return ggml_add_inplace(ctx, x, repeats_to(x)); }
        case 6:  { ggml_tensor * x = rows(); return ggml_div(ctx, x, ggml_scale_bias(ctx, ggml_sqr(ctx, repeats_to(x)), 1.0f, 0.5f)); }
        case 7:  return ggml_scale_bias(ctx, dense(), 0.5f, 0.1f);
        case 8:  return ggml_scale_inplace(ctx, dense(), -0.5f);
        case 9:  return ggml_clamp(ctx, ggml_dup(ctx, dense()), -0.5f, 0.5f);
        case 10: return ggml_sum_rows(ctx, rows());
        case 11: return ggml_mean(ctx, dense());
        case 12: return ggml_cumsum(ctx, dense());
        case 13: return ggml_norm(ctx, dense(), 1e-3f);
        case 14: return ggml_rms_norm(ctx, dense(), 1e-3f);
        case 15: return ggml_rms_norm_inplace(ctx, dense(), 1e-3f);
        case 16: return ggml_l2_norm(ctx, dense(), 1e-3f);
        case 17: return ggml_soft_max_ext(ctx, dense(), nullptr, 0.7f, 0.0f);
        case 18: return ggml_soft_max_inplace(ctx, dense());
        case 19: { // a product with a leaf, or with a value that fits
            ggml_tensor * x = rows();
            ggml_tensor * w = leaf(x->ne[0], 1 + below(20), 1, 1);
            return below(4) ? ggml_mul_mat(ctx, w, ggml_cont(ctx, x)) : ggml_mul_mat(ctx, ggml_cont(ctx, x), w);
        }
        case 20: {
            ggml_tensor * x = dense();
            return ggml_out_prod(ctx, leaf(1 + below(20), x->ne[1], 1, 1), x);
        }
        case 21: {
            int p[4] = { 0, 1, 2, 3 };
            for (int i = 3; i > 0; --i) {
                std::swap(p[i], p[below(i + 1)]);
            }
            return ggml_permute(ctx, any(), p[0], p[1], p[2], p[3]);
        }
        case 22: return ggml_transpose(ctx, any());
        case 23: return ggml_cont(ctx, any());
        case 24: {
            ggml_tensor * x = dense();
            return below(2) ? ggml_reshape_2d(ctx, x, x->ne[0]*x->ne[1], x->ne[2]*x->ne[3])
                            : ggml_reshape_4d(ctx, x, x->ne[0], 1, x->ne[1]*x->ne[2], x->ne[3]);
        }
        case 25: { // a part; VIEW's gradient asks for a contiguous source, of which the Python layer makes a copy
            ggml_tensor * x = dense();
            int64_t ne[4];
            size_t offset = 0;
            for (int i = 0; i < 4; ++i) {
                ne[i]   = 1 + below((int) x->ne[i]);
                offset += below((int) (x->ne[i] - ne[i] + 1))*x->nb[i];
            }
            return ggml_view_4d(ctx, x, ne[0], ne[1], ne[2], ne[3], x->nb[1], x->nb[2], x->nb[3], offset);
        }
        case 26: {
            ggml_tensor * x = rows();
            const int dim = below(4);
            int64_t ne[4] = { x->ne[0], x->ne[1], x->ne[2], x->ne[3] };
            ne[dim] = 1 + below(3);
            return ggml_concat(ctx, x, below(2) ? leaf(ne[0], ne[1], ne[2], ne[3]) : x, dim);
        }
        case 27: {
            ggml_tensor * x = rows();
            return ggml_repeat_4d(ctx, x, x->ne[0]*(1 + below(2)), x->ne[1]*(1 + below(2)), x->ne[2], x->ne[3]);
        }
        case 28: return ggml_pad(ctx, dense(), below(3), below(3), below(2), 0);
        case 29: return ggml_roll(ctx, dense(), below(3), -below(3), below(2), 0);
        case 30: { // rows of a matrix
            ggml_tensor * x = dense();
            x = ggml_reshape_2d(ctx, x, x->ne[0], ggml_nrows(x));
            ggml_tensor * ids = leaf(1 + below(5), 1, 1, 1, GGML_TYPE_I32);
            ids->op_params[0] = (int32_t) x->ne[1]; // for `fill`
            return ggml_get_rows(ctx, x, ids);
        }
        case 31: {
            ggml_tensor * x = dense();
            const ggml_glu_op op = (ggml_glu_op) below(GGML_GLU_OP_GEGLU_QUICK + 1);
            if (op == GGML_GLU_OP_SWIGLU_OAI) {
                return ggml_swiglu_oai(ctx, x, ggml_dup(ctx, x), 1.7f, 7.0f);
            }
            return x->ne[0] % 2 == 0 && below(2) ? ggml_glu(ctx, x, op, below(2)) : ggml_glu_split(ctx, x, ggml_scale(ctx, x, 2.0f), op);
        }
        case 32: {
            ggml_tensor * x = dense();
            if (x->ne[0] % 2) {
                return ggml_sqr(ctx, x);
            }
            ggml_tensor * positions = leaf(x->ne[2], 1, 1, 1, GGML_TYPE_I32);
            positions->op_params[0] = 100;
            return ggml_rope(ctx, x, positions, (int) x->ne[0], below(2) ? GGML_ROPE_TYPE_NEOX : 0);
        }
        case 33: {
            ggml_tensor * q = dense();
            ggml_tensor * k = leaf(q->ne[0], 1 + below(6), 1, q->ne[3]);
            ggml_tensor * v = leaf(1 + below(6), k->ne[1], 1, q->ne[3]);
            return ggml_flash_attn_ext(ctx, q, k, v, nullptr, 0.5f, 0.0f, below(2) ? 2.0f : 0.0f);
        }
        case 34: {
            ggml_tensor * x = dense();
            if (x->ne[0] < 2 || x->ne[1] < 2) {
                return ggml_dup(ctx, x);
            }
            switch (below(4)) {
                case 0:  return ggml_pool_2d(ctx, x, below(2) ? GGML_OP_POOL_AVG : GGML_OP_POOL_MAX, 2, 2, 1 + below(2), 1, 0, 0);
                case 1:  return ggml_upscale(ctx, x, 2, (ggml_scale_mode) below(2));
                case 2:  return ggml_conv_2d(ctx, leaf(2, 1 + below(2), x->ne[2], 1 + below(3)), x, 1 + below(2), 1, below(2), 0, 1, 1);
                default: return ggml_conv_2d_dw_direct(ctx, leaf(2, 2, 1, x->ne[2]), x, 1, 1, below(2), below(2), 1, 1);
            }
        }
        case 35: { // a part of x is set, or added to
            ggml_tensor * x = dense();
            ggml_tensor * part = leaf(1 + below((int) x->ne[0]), 1 + below((int) x->ne[1]), 1, 1);
            const size_t offset = below((int) (x->ne[0] - part->ne[0] + 1))*x->nb[0] + below((int) (x->ne[1] - part->ne[1] + 1))*x->nb[1];
            return below(2) ? ggml_acc(ctx, x, part, x->nb[1], x->nb[2], x->nb[3], offset)
                            : ggml_set(ctx, x, part, x->nb[1], x->nb[2], x->nb[3], offset);
        }
        case 36: {
            ggml_tensor * x = dense();
            return x->ne[0] == x->ne[1] && below(2) ? ggml_tri(ctx, x, (ggml_tri_type) below(4)) : ggml_diag_mask_zero(ctx, x, below(3));
        }
        default: {
            ggml_tensor * x = dense();
            x = ggml_reshape_2d(ctx, x, x->ne[0], ggml_nrows(x));
            ggml_tensor * labels = leaf(x->ne[1], 1, 1, 1, GGML_TYPE_I32);
            labels->op_params[0] = (int32_t) x->ne[0];
            return ggml_cross_entropy_rows(ctx, x, labels, -100);
        }
    }
}

// Builds the graph; false when an op cannot be made of what the bytes say.
static bool build(const uint8_t * data, size_t size, graph & g) {
    FuzzedDataProvider in(data, size);
    maker m { g.ctx, in, g, {}, {} };

    may_refuse = true;
    if (setjmp(refused)) {
        may_refuse = false;
        return false;
    }
    const int n_leaves = 1 + m.below(4);
    for (int i = 0; i < n_leaves; ++i) {
        m.add(m.leaf(1 + m.below(6), 1 + m.below(5), 1 + m.below(3), 1 + m.below(2)));
    }
    const int n_ops = 1 + m.below(40);
    for (int i = 0; i < n_ops; ++i) {
        m.add(m.op());
    }
    for (size_t i = 0; i < m.values.size(); ++i) {
        if (!m.used[i]) {
            ggml_tensor * part = ggml_mean(m.ctx, ggml_cont(m.ctx, ggml_reshape_1d(m.ctx, ggml_cont(m.ctx, m.values[i]), ggml_nelements(m.values[i]))));
            g.loss = g.loss ? ggml_add(m.ctx, g.loss, part) : part;
        }
    }
    g.gf = ggml_new_graph_custom(m.ctx, 4096, true);
    ggml_set_loss(g.loss);
    ggml_build_forward_expand(g.gf, g.loss);
    may_refuse = false;

    // the Python layer asks for gradients only of what the loss depends on
    std::vector<ggml_tensor *> reached;
    for (ggml_tensor * p : g.params) {
        for (int i = 0; i < ggml_graph_n_nodes(g.gf); ++i) {
            if (ggml_graph_node(g.gf, i) == p) {
                reached.push_back(p);
                break;
            }
        }
    }
    g.params = reached;
    if (!reached.empty()) {
        ggml_build_backward_expand(g.ctx, g.gf, nullptr);
        for (ggml_tensor * p : reached) {
            if (ggml_tensor * grad = ggml_graph_get_grad(g.gf, p)) {
                ggml_set_output(grad);
                ggml_build_forward_expand(g.gf, grad);
            }
        }
        ggml_set_input(ggml_graph_get_grad_acc(g.gf, g.loss));
        ggml_set_output(ggml_graph_get_grad_acc(g.gf, g.loss));
    }
    ggml_set_output(g.loss);
    return true;
}

static void fill(const graph & g, int before) {
    // what memory held before must not matter
    for (int i = 0; i < ggml_graph_n_nodes(g.gf); ++i) {
        ggml_tensor * t = ggml_graph_node(g.gf, i);
        if (!t->view_src && t->op != GGML_OP_NONE) {
            memset(t->data, before, ggml_nbytes(t));
        }
    }
    uint32_t state = 1;
    for (ggml_tensor * t : g.leaves) {
        if (!t->data) {
            continue; // nothing reads it
        }
        for (int64_t i = 0; i < ggml_nelements(t); ++i) {
            state = state*1664525u + 1013904223u;
            if (t->type == GGML_TYPE_I32) {
                ((int32_t *) t->data)[i] = (int32_t) ((state >> 8) % (uint32_t) t->op_params[0]);
            } else {
                ((float *) t->data)[i] = (float) (state >> 8)/8388608.0f - 1.0f;
            }
        }
    }
    if (!g.params.empty()) {
        ggml_tensor * start = ggml_graph_get_grad_acc(g.gf, g.loss);
        if (start->data) { // else everything is piecewise constant, and nothing reads it
            *(float *) start->data = 1.0f;
        }
    }
}

static std::vector<float> compute(const graph & g, ggml_backend_t backend, int before) {
    fill(g, before);
    if (ggml_backend_graph_compute(backend, g.gf) != GGML_STATUS_SUCCESS) {
        abort();
    }
    std::vector<float> out(1, *(const float *) g.loss->data);
    for (ggml_tensor * p : g.params) {
        const ggml_tensor * grad = ggml_graph_get_grad(g.gf, p);
        if (!grad) {
            continue; // everything between is piecewise constant
        }
        for (int64_t i = 0; i < ggml_nelements(grad); ++i) {
            int64_t at[4];
            ggml_unravel_index(grad, i, &at[0], &at[1], &at[2], &at[3]);
            out.push_back(*(const float *) ((const char *) grad->data + at[0]*grad->nb[0] + at[1]*grad->nb[1] + at[2]*grad->nb[2] + at[3]*grad->nb[3]));
        }
    }
    return out;
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    ggml_set_abort_callback(on_abort);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, size > 0 && data[0] < 16 ? 2 : 1);

    const ggml_init_params params = { 8u << 20, nullptr, true };
    graph own, shared;
    own.ctx    = ggml_init(params);
    shared.ctx = ggml_init(params);

    if (build(data, size, own) && build(data, size, shared)) {
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(own.ctx, backend);
        const std::vector<float> want = compute(own, backend, 0);

        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        if (!ggml_gallocr_alloc_graph(galloc, shared.gf)) {
            abort();
        }
        const std::vector<float> got = compute(shared, backend, 0xff); // NaN
        for (size_t i = 0; i < want.size(); ++i) {
            if (!(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))) {
                fprintf(stderr, "graph: number %zu of %zu is %g in shared memory, %g in its own\n", i, want.size(), got[i], want[i]);
                for (int k = 0; k < ggml_graph_n_nodes(own.gf); ++k) {
                    const ggml_tensor * t = ggml_graph_node(own.gf, k);
                    fprintf(stderr, "  %s [%d, %d, %d, %d]%s\n", ggml_op_desc(t), (int) t->ne[0], (int) t->ne[1], (int) t->ne[2], (int) t->ne[3], t->view_src ? " view" : "");
                }
                abort();
            }
        }
        ggml_gallocr_free(galloc);
        ggml_backend_buffer_free(buffer);
    }
    ggml_free(own.ctx);
    ggml_free(shared.ctx);
    return 0;
}
