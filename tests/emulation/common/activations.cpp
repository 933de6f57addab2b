// SPDX-License-Identifier: MIT
#include "backs.hpp"

#include <cmath>

namespace emu {

namespace {

using shape = builder::shape;

// what the CPU looks up in a table of f16
ggml_tensor * gelu(ggml_context * c, ggml_tensor * x) {
    ggml_tensor * inner = ggml_mul(c, x, ggml_scale_bias(c, ggml_sqr(c, x), 0.79788456f*0.044715f, 0.79788456f));
    return ggml_mul(c, ggml_scale(c, x, 0.5f), ggml_scale_bias(c, ggml_tanh(c, inner), 1.0f, 1.0f));
}

// the forwards that the series computes with the digits of f32
void tanhs(table & t) {
    const std::vector<float> far = { -100.0f, 100.0f, -9.0f, 9.0f, -3.0f, 3.0f, -1e-4f, 1e-4f, 1e-30f, 0.0f, -0.0f };
    const shape ne = { (int64_t) far.size(), 5, 3, 2 };
    t.add("UNARY", "TANH", [=](builder & b) { return ggml_tanh(b.ctx, b.real({ 513, 5, 3, 2 }, -5.0f, 5.0f)); });
    t.add("UNARY", "TANH-small", [=](builder & b) { return ggml_tanh(b.ctx, b.real({ 513, 2, 1, 1 }, -1e-3f, 1e-3f)); });
    t.add("UNARY", "TANH-far", [=](builder & b) { return ggml_tanh(b.ctx, b.values(GGML_TYPE_F32, ne, far)); });
    t.add("UNARY", "TANH-endless", [=](builder & b) {
        return ggml_tanh(b.ctx, b.values(GGML_TYPE_F32, { 3, 2, 1, 1 }, { -INFINITY, INFINITY, NAN }));
    });
    t.add("UNARY", "GELU", [=](builder & b) { return ggml_gelu(b.ctx, b.real({ 513, 5, 3, 2 }, -3.0f, 3.0f)); })
        .on_cpu = [=](builder & b) { return gelu(b.ctx, b.real({ 513, 5, 3, 2 }, -3.0f, 3.0f)); };
    t.add("UNARY", "GELU-far", [=](builder & b) { return ggml_gelu(b.ctx, b.values(GGML_TYPE_F32, ne, far)); })
        .on_cpu = [=](builder & b) { return gelu(b.ctx, b.values(GGML_TYPE_F32, ne, far)); };
    t.add("GLU", "GEGLU", [=](builder & b) {
        ggml_tensor * x = b.real({ 513, 5, 3, 2 }, -3.0f, 3.0f);
        return ggml_geglu_split(b.ctx, x, b.real({ 513, 5, 3, 2 }));
    }).on_cpu = [=](builder & b) {
        ggml_tensor * x = gelu(b.ctx, b.real({ 513, 5, 3, 2 }, -3.0f, 3.0f));
        return ggml_mul(b.ctx, x, b.real({ 513, 5, 3, 2 }));
    };
    // three ops that CUDA computes in one
    t.add("SCALE", "softcap", [=](builder & b) {
        return ggml_scale(b.ctx, ggml_tanh(b.ctx, ggml_scale(b.ctx, b.real({ 513, 5, 3, 2 }, -99.0f, 99.0f), 1.0f/50.0f)), 50.0f);
    });
}

} // namespace

void activations(table & t) {
    struct { const char * name; back f; } gelus[] = {
        { "GELU-",       [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_gelu_back(c, g, x); } },
        { "GELU_QUICK-", [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_gelu_quick_back(c, g, x); } },
        { "GELU_ERF-",   [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_gelu_erf_back(c, g, x); } },
    };
    for (auto & a : gelus) {
        back_cases(t, "GELU_BACK", a.name, -6.0f, 6.0f, elementwise_shapes, any_rows, a.f);
        t.add("GELU_BACK", std::string(a.name) + "far", [f = a.f](builder & b) {
            ggml_tensor * g = b.real({ 8, 2, 1, 1 });
            return f(b.ctx, g, b.values(GGML_TYPE_F32, { 8, 2, 1, 1 }, { -INFINITY, INFINITY, -1e30f, 1e30f, -20.0f, 20.0f, 0.0f, -0.0f }));
        });
    }

    const ggml_unary_op ops[] = {
        GGML_UNARY_OP_TANH, GGML_UNARY_OP_SIGMOID, GGML_UNARY_OP_ELU, GGML_UNARY_OP_HARDSWISH, GGML_UNARY_OP_HARDSIGMOID,
    };
    for (ggml_unary_op op : ops) {
        const std::string n = std::string(ggml_unary_op_name(op)) + "-";
        const back f = [op](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_unary_back(c, g, x, op); };
        back_cases(t, "UNARY_BACK", n, -5.0f, 5.0f, { elementwise_shapes[0], elementwise_shapes[3] }, any_rows, f);
        t.add("UNARY_BACK", n + "far", [f](builder & b) {
            ggml_tensor * g = b.real({ 8, 2, 1, 1 });
            return f(b.ctx, g, b.values(GGML_TYPE_F32, { 8, 2, 1, 1 }, { -INFINITY, INFINITY, -100.0f, 100.0f, -3.0f, 3.0f, 0.0f, NAN }));
        });
    }
    back_cases(t, "UNARY_BACK", "LEAKY_RELU-", -2.0f, 2.0f, { elementwise_shapes[0] }, any_rows, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_leaky_relu_back(c, g, x, 0.1f);
    });
    back_cases(t, "UNARY_BACK", "CLAMP-", -2.0f, 2.0f, { elementwise_shapes[0] }, any_rows, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_clamp_back(c, g, x, -0.5f, 1.0f);
    });
    back_cases(t, "UNARY_BACK", "XIELU-", -2.0f, 2.0f, { elementwise_shapes[0] }, any_rows, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_xielu_back(c, g, x, 0.8f, 0.7f, 0.5f, -1e-6f);
    });

    // where the slope jumps, and the numbers next to it
    struct kink { const char * name; std::vector<float> at; back f; };
    const auto unary = [](ggml_unary_op op) { return [op](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_unary_back(c, g, x, op); }; };
    for (const kink & k : { kink { "CLAMP-", { -0.5f, 1.0f }, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_clamp_back(c, g, x, -0.5f, 1.0f); } },
                            kink { "LEAKY_RELU-", { 0.0f, -0.0f }, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_leaky_relu_back(c, g, x, 0.1f); } },
                            kink { "XIELU-", { 0.0f, -1e-6f }, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) { return ggml_xielu_back(c, g, x, 0.8f, 0.7f, 0.5f, -1e-6f); } },
                            kink { "ELU-", { 0.0f, -0.0f }, unary(GGML_UNARY_OP_ELU) },
                            kink { "HARDSWISH-", { -3.0f, 3.0f }, unary(GGML_UNARY_OP_HARDSWISH) },
                            kink { "HARDSIGMOID-", { -3.0f, 3.0f }, unary(GGML_UNARY_OP_HARDSIGMOID) } }) {
        std::vector<float> v = { NAN, -INFINITY, INFINITY };
        for (float x : k.at) {
            v.insert(v.end(), { std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY) });
        }
        t.add("UNARY_BACK", std::string(k.name) + "kinks", [=](builder & b) {
            ggml_tensor * g = b.real({ (int64_t) v.size(), 3, 1, 1 }, 0.5f, 1.0f);
            return k.f(b.ctx, g, b.values(GGML_TYPE_F32, { (int64_t) v.size(), 3, 1, 1 }, v));
        });
    }

    for (int i = 0; i <= (int) GGML_GLU_OP_SWIGLU_CLAMP; ++i) {
        const ggml_glu_op op = (ggml_glu_op) i;
        const std::string n = std::string(ggml_glu_op_name(op)) + "-";
        const bool limited = op == GGML_GLU_OP_SWIGLU_OAI || op == GGML_GLU_OP_SWIGLU_CLAMP;
        const auto f = [op](ggml_context * c, ggml_tensor * g, ggml_tensor * x, ggml_tensor * y) {
            return op == GGML_GLU_OP_SWIGLU_OAI   ? ggml_swiglu_oai_back(c, g, x, y, 1.702f, 2.0f) :
                   op == GGML_GLU_OP_SWIGLU_CLAMP ? ggml_swiglu_clamp_back(c, g, x, y, 2.0f) : ggml_glu_back(c, g, x, y, op, false);
        };
        for (layout l : { layout::contiguous, layout::rows, layout::permuted }) {
            t.add("GLU_BACK", n + "split-" + name_of(l), [=](builder & b) {
                const shape ne = { 37, 5, 3, 2 };
                ggml_tensor * g = b.real(ne, -1.0f, 1.0f, l);
                ggml_tensor * x = b.real(ne, -4.0f, 4.0f, l);
                return f(b.ctx, g, x, b.real(ne, -4.0f, 4.0f, l));
            });
        }
        if (limited) {
            continue;
        }
        for (bool swapped : { false, true }) {
            for (layout l : { layout::contiguous, layout::rows }) {
                op_case & c = t.add("GLU_BACK", n + (swapped ? "swapped-" : "halves-") + name_of(l), [=](builder & b) {
                    ggml_tensor * g = b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, l);
                    return ggml_glu_back(b.ctx, g, b.real({ 74, 5, 3, 2 }, -12.0f, 12.0f, l), nullptr, op, swapped);
                });
                c.inplace = l == layout::contiguous && swapped ? 1 : -1;
            }
        }
    }

    tanhs(t);
}

} // namespace emu
