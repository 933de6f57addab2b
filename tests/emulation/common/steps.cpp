// SPDX-License-Identifier: MIT
// ggml's own kernels that training steps need beside those of the series. The gradients of SET, CONCAT and PAD are views,
// copies and ACC.
#include "cases.hpp"

namespace emu {

namespace {

using shape = builder::shape;

const shape               whole_shape = { 37, 5, 3, 2 };
const std::vector<layout> layouts     = { layout::rows, layout::permuted, layout::transposed, layout::odd };

void copies(table & t) {
    for (layout l : layouts) {
        t.add("CONT", name_of(l), [=](builder & b) { return ggml_cont(b.ctx, b.real(whole_shape, -1.0f, 1.0f, l)); }).max_nmse = 0;
    }
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }) {
        for (layout l : { layout::contiguous, layout::permuted, layout::transposed }) {
            if (type == GGML_TYPE_F32 && l == layout::contiguous) {
                continue; // memory copied by no kernel
            }
            t.add("CPY", std::string(ggml_type_name(type)) + "-" + name_of(l), [=](builder & b) {
                return ggml_cast(b.ctx, b.real(whole_shape, -1.0f, 1.0f, l), type);
            }).max_nmse = 0;
        }
    }
    for (bool inplace : { false, true }) {
        t.add("SET", inplace ? "part-inplace" : "part", [=](builder & b) {
            ggml_tensor * a = b.real(whole_shape);
            ggml_tensor * s = b.real({ 11, 3, 2, 1 });
            const size_t offset = 7*a->nb[0] + 1*a->nb[1] + 1*a->nb[2] + 1*a->nb[3];
            return (inplace ? ggml_set_inplace : ggml_set)(b.ctx, a, s, a->nb[1], a->nb[2], a->nb[3], offset);
        }).max_nmse = 0;
    }
    for (int dim = 0; dim < 4; ++dim) {
        for (layout l : { layout::contiguous, layout::permuted }) {
            if (dim == 3 && l == layout::contiguous) {
                continue; // the same
            }
            t.add("CONCAT", "axis" + std::to_string(dim) + "-" + name_of(l), [=](builder & b) {
                shape ne = whole_shape;
                ne[dim] = 4;
                ggml_tensor * a = b.real(whole_shape, -1.0f, 1.0f, l);
                return ggml_concat(b.ctx, a, b.real(ne), dim);
            }).max_nmse = 0;
        }
    }
    t.add("PAD", "behind", [](builder & b) { return ggml_pad(b.ctx, b.real(whole_shape), 3, 1, 0, 2); }).max_nmse = 0;
    t.add("PAD", "around", [](builder & b) { return ggml_pad_ext(b.ctx, b.real(whole_shape), 1, 2, 3, 0, 0, 1, 2, 2); }).max_nmse = 0;
    t.add("REPEAT", "all-axes", [](builder & b) { return ggml_repeat_4d(b.ctx, b.real(whole_shape), 74, 15, 3, 4); }).max_nmse = 0;
    t.add("GET_ROWS", "embedding", [](builder & b) {
        ggml_tensor * table = b.real({ 768, 50, 1, 1 });
        return ggml_get_rows(b.ctx, table, b.whole({ 129, 1, 1, 1 }, 0, 50));
    }).max_nmse = 0;
}

using binary = ggml_tensor * (*)(ggml_context *, ggml_tensor *, ggml_tensor *);

void arithmetic(table & t, const char * op, binary f) {
    for (shape ne : { shape { 37, 1, 1, 1 }, shape { 1, 5, 1, 2 }, shape { 37, 5, 3, 1 }, shape { 1, 1, 1, 1 }, whole_shape }) {
        std::string name = "by";
        for (int64_t n : ne) {
            name += "-" + std::to_string(n);
        }
        t.add(op, name, [=](builder & b) {
            ggml_tensor * x = b.real(whole_shape);
            return f(b.ctx, x, b.real(ne, 0.5f, 2.0f));
        });
    }
    for (layout l : { layout::rows, layout::permuted }) {
        t.add(op, name_of(l), [=](builder & b) {
            ggml_tensor * x = b.real(whole_shape, -1.0f, 1.0f, l);
            return f(b.ctx, x, b.real(whole_shape, 0.5f, 2.0f, l));
        });
    }
}

void sums(table & t) {
    arithmetic(t, "ADD", ggml_add);
    arithmetic(t, "SUB", ggml_sub);
    arithmetic(t, "MUL", ggml_mul);
    arithmetic(t, "DIV", ggml_div);
    for (shape ne : { whole_shape, shape { 4097, 3, 1, 1 } }) {
        const std::string name = std::to_string(ne[0]);
        t.add("SUM", name, [=](builder & b) { return ggml_sum(b.ctx, b.real(ne, 0.0f, 1.0f)); });
        t.add("SUM_ROWS", name, [=](builder & b) { return ggml_sum_rows(b.ctx, b.real(ne, 0.0f, 1.0f)); });
        t.add("MEAN", name, [=](builder & b) { return ggml_mean(b.ctx, b.real(ne, 0.0f, 1.0f)); });
    }
    t.add("SCALE", "factor", [](builder & b) { return ggml_scale(b.ctx, b.real(whole_shape), -2.5f); });
}

// What CUDA computes in one kernel: CPY rounds the result, which may be the sum's only reader, or not.
void fused(table & t) {
    for (shape ne : { whole_shape, shape { 768, 9, 1, 1 }, shape { 1500, 2, 1, 2 } }) {
        for (const char * how : { "alone", "rounded", "both" }) {
            const std::string name = "in-one-" + std::to_string(ne[0]) + "-" + how;
            t.add("NORM", name, [=](builder & b) {
                ggml_tensor * x = b.real(ne, -2.0f, 3.0f);
                ggml_tensor * y = ggml_mul(b.ctx, ggml_norm(b.ctx, x, 1e-5f), b.real({ ne[0], 1, 1, 1 }));
                y = ggml_add(b.ctx, y, b.real({ ne[0], 1, 1, 1 }));
                if (how[0] == 'a') {
                    return y;
                }
                ggml_tensor * z = ggml_cast(b.ctx, ggml_cast(b.ctx, y, GGML_TYPE_BF16), GGML_TYPE_F32);
                return how[0] == 'r' ? z : ggml_add(b.ctx, z, y);
            }).max_nmse = how[0] == 'a' ? 1e-10 : 1e-5; // a number may be rounded the other way
            t.add("ADD", name + "-gelu", [=](builder & b) {
                ggml_tensor * x = b.real(ne, -2.0f, 3.0f);
                ggml_tensor * h = ggml_add(b.ctx, x, b.real({ ne[0], 1, 1, 1 }));
                ggml_tensor * y = ggml_gelu(b.ctx, h);
                if (how[0] == 'a') {
                    return y;
                }
                ggml_tensor * z = ggml_cast(b.ctx, ggml_cast(b.ctx, y, GGML_TYPE_BF16), GGML_TYPE_F32);
                return ggml_add(b.ctx, z, how[0] == 'r' ? h : ggml_add(b.ctx, y, h));
            }).max_nmse = 1e-5;
            if (how[0] == 'a') {
                continue;
            }
            // NORM is kept for the gradient of the gain, or the product with the gain is read
            op_case & c = t.add("NORM", "in-one-" + std::to_string(ne[0]) + (how[0] == 'r' ? "-read" : "-product"), [=](builder & b) {
                ggml_tensor * n = ggml_norm(b.ctx, b.real(ne, -2.0f, 3.0f), 1e-5f);
                ggml_tensor * p = ggml_mul(b.ctx, n, b.real({ ne[0], 1, 1, 1 }));
                ggml_tensor * y = ggml_add(b.ctx, p, b.real({ ne[0], 1, 1, 1 }));
                ggml_tensor * z = ggml_cast(b.ctx, ggml_cast(b.ctx, y, GGML_TYPE_BF16), GGML_TYPE_F32);
                return ggml_add(b.ctx, z, how[0] == 'r' ? n : p);
            });
            c.max_nmse = 1e-5;
            c.slow     = how[0] == 'b' && ne[0] % 4 != 0; // op by op: ggml's copies take long to compile
            t.add("ADD", name + "-sum", [=](builder & b) {
                ggml_tensor * x = b.real(ne, -2.0f, 3.0f);
                ggml_tensor * h = ggml_add(b.ctx, x, b.real({ ne[0], 1, 1, 1 }));
                ggml_tensor * z = ggml_cast(b.ctx, ggml_cast(b.ctx, h, GGML_TYPE_BF16), GGML_TYPE_F32);
                return how[0] == 'r' ? z : ggml_add(b.ctx, z, h);
            });
        }
    }
}

// The gradients of a bias and of a gain: rows that chunks don't divide, and so few that there is one.
void columns(table & t) {
    for (shape ne : { shape { 36, 1003, 1, 1 }, shape { 132, 7, 3, 5 }, shape { 768, 9, 1, 1 } }) {
        const shape vector = { ne[0], 1, 1, 1 };
        const std::string name = "columns-" + std::to_string(ne[0]);
        t.add("REPEAT_BACK", name, [=](builder & b) { return ggml_repeat_back(b.ctx, b.real(ne), b.real(vector)); });
        t.add("REPEAT_BACK", name + "-multiplied", [=](builder & b) {
            ggml_tensor * x = b.real(ne);
            return ggml_repeat_back(b.ctx, ggml_mul(b.ctx, x, b.real(ne)), b.real(vector));
        }).only = "CUDA"; // which computes both in one kernel
    }
}

void normalized(table & t) {
    for (shape ne : { whole_shape, shape { 768, 9, 1, 1 }, shape { 1500, 2, 1, 2 } }) {
        const std::string name = std::to_string(ne[0]);
        t.add("NORM", name, [=](builder & b) { return ggml_norm(b.ctx, b.real(ne, -2.0f, 3.0f), 1e-5f); });
        t.add("RMS_NORM", name, [=](builder & b) { return ggml_rms_norm(b.ctx, b.real(ne, -2.0f, 3.0f), 1e-6f); });
        t.add("RMS_NORM_BACK", name, [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return ggml_rms_norm_back(b.ctx, grad, b.real(ne, -2.0f, 3.0f), 1e-6f);
        });
        t.add("SILU_BACK", name, [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return ggml_silu_back(b.ctx, grad, b.real(ne, -6.0f, 6.0f));
        });
    }
    for (layout l : { layout::rows, layout::odd }) {
        t.add("SILU_BACK", std::string("x-") + name_of(l), [=](builder & b) {
            ggml_tensor * grad = b.real({ 67, 9, 1, 1 });
            return ggml_silu_back(b.ctx, grad, b.real({ 67, 9, 1, 1 }, -6.0f, 6.0f, l));
        }).only = "CUDA"; // ggml's kernel for Metal takes contiguous sources
    }
    for (const char * only : { "CUDA", "Metal" }) {
        op_case & c = t.add("RMS_NORM_BACK", "x-rows", [](builder & b) {
            ggml_tensor * grad = b.real({ 67, 9, 1, 1 });
            return ggml_rms_norm_back(b.ctx, grad, b.real({ 67, 9, 1, 1 }, -2.0f, 3.0f, layout::rows), 1e-6f);
        });
        c.only      = only;
        c.supported = only != std::string("CUDA"); // ggml's kernel there takes contiguous sources
    }
    t.add("GROUP_NORM", "groups", [](builder & b) { return ggml_group_norm(b.ctx, b.real({ 7, 5, 12, 2 }), 4, 1e-5f); });
    t.add("GROUP_NORM", "uneven", [](builder & b) {
        return ggml_group_norm(b.ctx, b.real({ 7, 5, 11, 2 }), 4, 1e-5f);
    }).supported = false;
}

} // namespace

void steps(table & t) {
    copies(t);
    sums(t);
    normalized(t);
    fused(t);
    columns(t);
}

} // namespace emu
