// SPDX-License-Identifier: MIT
// Cases of products whose f32 sources may be rounded to TF32, and of results with padded rows.
#include "cases.hpp"

#include <string>
#include <vector>

namespace emu {

namespace {

using shape = builder::shape;

ggml_tensor * may_round(ggml_tensor * product, int permissions) {
    for (int i = 0; i < permissions; ++i) {
        ggml_prec_set_src(product, GGML_PREC_TF32, i);
    }
    return product;
}

// with rows at multiples of 128 bytes, as a program may pad them
ggml_tensor * padded(ggml_tensor * t) {
    t->nb[1] = GGML_PAD(t->ne[0]*t->nb[0], 128);
    t->nb[2] = t->nb[3] = t->ne[1]*t->nb[1];
    return t;
}

// Both sources may be rounded to TF32, only one of them, or those of the product before.
void permissions(table & t) {
    enum leave { both, one, before };
    struct product { const char * name; bool out; shape a, b; };
    const product products[] = {
        { "MUL_MAT",  false, { 64, 70, 1, 1 }, { 64, 45, 1, 1 } },
        { "MUL_MAT",  false, { 64, 70, 2, 1 }, { 64, 45, 2, 1 } },
        { "MUL_MAT",  false, { 64, 70, 2, 1 }, { 64, 45, 4, 3 } },
        { "OUT_PROD", true,  { 70, 37, 1, 1 }, { 67, 37, 1, 1 } },
        { "OUT_PROD", true,  { 70, 37, 2, 1 }, { 67, 37, 2, 1 } },
        { "OUT_PROD", true,  { 70, 37, 2, 1 }, { 67, 37, 4, 3 } },
    };
    for (const product & p : products) {
        for (leave l : { both, one, before }) {
            const char * name = l == both ? "may-round-tf32-" : l == one ? "one-may-round-tf32-" : "after-tf32-";
            op_case & c = t.add(p.name, name + std::to_string(p.b[2]) + "x" + std::to_string(p.b[3]), [=](builder & b) {
                ggml_tensor * x = b.real(p.a);
                ggml_tensor * y = b.real(p.b);
                const auto multiply = p.out ? ggml_out_prod : ggml_mul_mat;
                ggml_tensor * r = multiply(b.ctx, x, y);
                ggml_prec_set_src(r, GGML_PREC_TF32, 0);
                ggml_prec_set_src(r, l == one ? GGML_PREC_F32 : GGML_PREC_TF32, 1);
                if (l == before) {
                    b.next(r);
                    return multiply(b.ctx, x, y);
                }
                return r;
            });
            c.max_nmse = l == both ? 1e-6 : 1e-10;
            c.min_nmse = l == both ? 1e-9 : 0.0;
            c.only     = "CUDA";
        }
    }
}

// As many classes as logits have, as rows or as terms of a sum: whole vectors of them in one product, then the rest in another.
// The numbers are whole ones and a part of 2^12 more, which TF32 drops: then the CPU, which multiplies the whole ones, must have
// the same bits. Without leave the product is one of f32.
void many_classes(table & t) {
    const auto numbers = [](builder & b, shape ne, bool more, int64_t seed) {
        std::vector<float> v;
        for (int64_t i = 0; i < 211; ++i) {
            v.push_back((float) ((i + seed)*i % 17 - 6)*(more ? 1.0f + 1.0f/4096 : 1.0f));
        }
        return b.values(GGML_TYPE_F32, ne, v);
    };
    for (int64_t n : { 1023, 1024, 1029 }) {
        for (int permissions : { 0, 1, 2 }) {
            const std::string name = std::string(permissions == 0 ? "f32" : permissions == 1 ? "one-may-round-tf32" : "may-round-tf32") + "-" + std::to_string(n);
            const auto set = [=](op_case & c, const std::function<ggml_tensor * (builder &, bool)> & build) {
                c.build    = [=](builder & b) { return build(b, true); };
                c.on_cpu   = [=](builder & b) { return build(b, permissions < 2); };
                c.max_nmse = permissions == 2 ? 0.0 : 1e-12;
                c.launches = permissions == 2 && n == 1029 ? 2 : 1;
                c.only     = "CUDA";
            };
            for (bool pad : { false, true }) {
                set(t.add("MUL_MAT", "classes-" + name + (pad ? "-padded" : ""), nullptr), [=](builder & b, bool more) {
                    ggml_tensor * x = numbers(b, { 32, n, 1, 1 }, more, 1);
                    ggml_tensor * p = may_round(ggml_mul_mat(b.ctx, x, numbers(b, { 32, 24, 1, 1 }, more, 3)), permissions);
                    return pad ? padded(p) : p;
                });
            }
            for (bool transposed : { false, true }) {
                for (bool added : { false, true }) {
                    const std::string how = std::string(transposed ? "-transposed" : "") + (added ? "-added" : "");
                    set(t.add("OUT_PROD", "terms-" + name + how, nullptr), [=](builder & b, bool more) {
                        ggml_tensor * x = numbers(b, { 24, n, 1, 1 }, more, 1);
                        ggml_tensor * y = transposed ? ggml_transpose(b.ctx, numbers(b, { n, 16, 1, 1 }, more, 3)) : numbers(b, { 16, n, 1, 1 }, more, 3);
                        ggml_tensor * p = may_round(ggml_out_prod(b.ctx, x, y), permissions);
                        return added ? ggml_add_inplace(b.ctx, numbers(b, { 24, 16, 1, 1 }, false, 5), p) : p;
                    });
                }
            }
        }
    }
}

// A head as a step has it: logits with padded rows, their gradient over them, and what is computed from it.
void head(table & t) {
    for (int permissions : { 0, 2 }) {
        op_case & c = t.add("OUT_PROD", std::string("head-") + (permissions ? "may-round-tf32" : "f32"), nullptr);
        const auto build = [=](builder & b, bool pad) {
            ggml_tensor * w = b.real({ 32, 1029, 1, 1 });
            ggml_tensor * x = b.real({ 32, 24, 1, 1 });
            ggml_tensor * labels = b.whole({ 24, 1, 1, 1 }, 0, 1029);
            ggml_tensor * logits = may_round(ggml_mul_mat(b.ctx, w, x), permissions);
            ggml_tensor * back = ggml_cross_entropy_rows_back(b.ctx, b.real({ 24, 1, 1, 1 }), logits, labels, -100);
            if (pad) {
                padded(logits);
                padded(back);
            }
            b.lies_over(back, logits);
            b.next(back);
            b.also(may_round(ggml_out_prod(b.ctx, x, back), permissions)); // the gradient of w
            return may_round(ggml_out_prod(b.ctx, w, ggml_transpose(b.ctx, back)), permissions); // that of x
        };
        c.build    = [=](builder & b) { return build(b, true); };
        c.on_cpu   = [=](builder & b) { return build(b, false); };
        c.max_nmse = permissions ? 1e-6 : 1e-10;
        c.min_nmse = permissions ? 1e-9 : 0.0;
        c.launches = permissions ? 6 : 4;
        c.only     = "CUDA";
    }
}

// Logits of weights in other types, as of a model that is only adapted.
void padded_rows(table & t) {
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0 }) {
        for (ggml_prec prec : { GGML_PREC_F32, GGML_PREC_BF16 }) {
            for (int64_t rows : { 24, 12, 4 }) { // few rows are for kernels of ggml's own
                const std::string name = std::string("padded-") + ggml_type_name(type) + (prec == GGML_PREC_F32 ? "" : "-may-round") +
                    (rows == 24 ? "" : "-" + std::to_string(rows));
                const auto build = [=](builder & b, bool pad) {
                    ggml_tensor * w = b.real({ 32, 1029, 1, 1 }, -1.0f, 1.0f, layout::contiguous, type);
                    ggml_tensor * p = ggml_mul_mat(b.ctx, w, b.real({ 32, rows, 1, 1 }));
                    ggml_prec_set_src(p, prec, 0);
                    ggml_prec_set_src(p, prec, 1);
                    return pad ? padded(p) : p;
                };
                op_case & c = t.add("MUL_MAT", name, [=](builder & b) { return build(b, true); });
                c.on_cpu    = [=](builder & b) { return build(b, false); };
                c.max_nmse  = 2e-5;
                c.supported = !ggml_is_quantized(type); // other kernels compute those
                c.only      = "CUDA";
            }
        }
    }
    // gaps between matrices
    op_case & c = t.add("MUL_MAT", "padded-matrices", [](builder & b) {
        ggml_tensor * p = padded(ggml_mul_mat(b.ctx, b.real({ 32, 1029, 1, 1 }), b.real({ 32, 24, 3, 1 })));
        p->nb[2] *= 2;
        p->nb[3] = p->ne[2]*p->nb[2];
        return p;
    });
    c.supported = false;
    c.only      = "CUDA";
}

} // namespace

void tf32(table & t) {
    permissions(t);
    many_classes(t);
    head(t);
    padded_rows(t);
}

} // namespace emu
