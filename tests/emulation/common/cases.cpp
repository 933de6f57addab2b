// SPDX-License-Identifier: MIT
// Shapes: all extents different, rows longer than a block of threads and shorter than a warp, sizes of one, operands that
// are views of larger tensors, permuted or broadcast, and more rows than a grid has blocks along y.
#include "cases.hpp"

#include <cmath>
#include <utility>

namespace emu {

namespace {

using shape = builder::shape;

std::string name_of(shape ne) {
    std::string s = std::to_string(ne[0]);
    for (int i = 1; i < 4; ++i) {
        s += "x" + std::to_string(ne[i]);
    }
    return s;
}

using emu::name_of;

// f(grad, x) -> dx, elementwise or along rows
using back = std::function<ggml_tensor * (ggml_context *, ggml_tensor *, ggml_tensor *)>;

void back_cases(table & t, const char * op, const std::string & name, float lo, float hi, std::vector<shape> shapes,
        std::vector<layout> layouts, back f) {
    for (shape ne : shapes) {
        t.add(op, name + name_of(ne), [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return f(b.ctx, grad, b.real(ne, lo, hi));
        });
    }
    const shape ne = { 37, 5, 3, 2 };
    for (layout l : layouts) {
        t.add(op, name + "x-" + name_of(l), [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return f(b.ctx, grad, b.real(ne, lo, hi, l));
        });
        t.add(op, name + "grad-" + name_of(l), [=](builder & b) {
            ggml_tensor * grad = b.real(ne, -1.0f, 1.0f, l);
            return f(b.ctx, grad, b.real(ne, lo, hi));
        });
    }
    for (int k = 0; k < 2; ++k) {
        t.add(op, name + "over-src" + std::to_string(k), [=](builder & b) {
            ggml_tensor * grad = b.real({ 300, 3, 2, 1 });
            return f(b.ctx, grad, b.real({ 300, 3, 2, 1 }, lo, hi));
        }).inplace = k;
    }
}

const std::vector<shape>  elementwise_shapes = { { 37, 5, 3, 2 }, { 1, 1, 1, 1 }, { 1024, 3, 1, 1 }, { 513, 2, 1, 1 } };
const std::vector<shape>  row_shapes = { { 37, 5, 3, 2 }, { 1, 7, 1, 1 }, { 1024, 3, 1, 1 }, { 1500, 2, 1, 2 }, { 4097, 1, 1, 1 } };
const std::vector<layout> any_strides = { layout::rows, layout::permuted, layout::transposed, layout::odd };
const std::vector<layout> any_rows    = { layout::rows, layout::permuted, layout::odd };

void norms(table & t) {
    back_cases(t, "NORM_BACK", "", -2.0f, 3.0f, row_shapes, any_strides, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_norm_back(c, g, x, 1e-5f);
    });
    back_cases(t, "NORM_BACK", "offset-", 99.0f, 101.0f, { { 768, 4, 1, 1 } }, {}, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_norm_back(c, g, x, 1e-5f);
    });
    t.add("NORM_BACK", "many-rows", [](builder & b) {
        ggml_tensor * g = b.real({ 3, 70000, 1, 1 });
        return ggml_norm_back(b.ctx, g, b.real({ 3, 70000, 1, 1 }), 1e-2f);
    }).slow = true;
    // no rows of one element: their gradient is 0, and all else is rounding
    back_cases(t, "L2_NORM_BACK", "", -2.0f, 2.0f, { { 37, 5, 3, 2 }, { 1024, 3, 1, 1 }, { 1500, 2, 1, 2 }, { 4097, 1, 1, 1 } }, any_strides, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_l2_norm_back(c, g, x, 1e-6f);
    });
    back_cases(t, "L2_NORM_BACK", "small-", -2.0f, 2.0f, { { 64, 4, 1, 1 } }, {}, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_l2_norm_back(c, g, x, 100.0f);
    });
}

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
}

void losses(table & t) {
    for (int64_t nc : { 1, 10, 1000, 5003 }) {
        for (layout l : { layout::contiguous, layout::rows }) {
            const std::string n = std::to_string(nc) + "-" + name_of(l);
            t.add("CROSS_ENTROPY_ROWS", n, [=](builder & b) {
                ggml_tensor * x = b.real({ nc, 7, 1, 1 }, -10.0f, 10.0f, l);
                return ggml_cross_entropy_rows(b.ctx, x, b.values(GGML_TYPE_I32, { 7, 1, 1, 1 }, { 0, (float) (nc - 1), -100, (float) (nc/2), -1, (float) nc, 0 }), -100);
            });
            op_case & c = t.add("CROSS_ENTROPY_ROWS_BACK", n, [=](builder & b) {
                ggml_tensor * g = b.real({ 7, 1, 1, 1 });
                ggml_tensor * x = b.real({ nc, 7, 1, 1 }, -10.0f, 10.0f, l);
                return ggml_cross_entropy_rows_back(b.ctx, g, x, b.values(GGML_TYPE_I32, { 7, 1, 1, 1 }, { 0, (float) (nc - 1), -100, (float) (nc/2), -1, (float) nc, 0 }), -100);
            });
            c.inplace = l == layout::contiguous && nc == 1000 ? 1 : -1;
            if (nc == 1) {
                break;
            }
        }
    }
    const std::vector<float> masked = { -INFINITY, 1.0f, 500.0f, -INFINITY, -3.0f };
    t.add("CROSS_ENTROPY_ROWS", "masked", [=](builder & b) {
        ggml_tensor * x = b.values(GGML_TYPE_F32, { 300, 3, 1, 1 }, masked);
        return ggml_cross_entropy_rows(b.ctx, x, b.values(GGML_TYPE_I32, { 3, 1, 1, 1 }, { 1, 2, 4 }), -100);
    });
    t.add("CROSS_ENTROPY_ROWS_BACK", "masked", [=](builder & b) {
        ggml_tensor * g = b.real({ 3, 1, 1, 1 });
        ggml_tensor * x = b.values(GGML_TYPE_F32, { 300, 3, 1, 1 }, masked);
        return ggml_cross_entropy_rows_back(b.ctx, g, x, b.values(GGML_TYPE_I32, { 3, 1, 1, 1 }, { 1, 2, 4 }), -100);
    });
    t.add("CROSS_ENTROPY_LOSS_BACK", "300x7", [](builder & b) {
        ggml_tensor * g = b.real({ 1, 1, 1, 1 });
        ggml_tensor * x = b.real({ 300, 7, 1, 1 }, -3.0f, 3.0f);
        return ggml_cross_entropy_loss_back(b.ctx, g, x, b.real({ 300, 7, 1, 1 }, 0.0f, 0.01f));
    });
}

void elementwise(table & t) {
    for (float p : { 0.0f, 0.1f, 0.5f }) {
        for (shape ne : { shape { 37, 5, 3, 2 }, shape { 1, 1, 1, 1 }, shape { 4096, 1, 1, 1 } }) {
            t.add("DROPOUT", "p" + std::to_string((int) (10*p)) + "-" + name_of(ne), [=](builder & b) {
                ggml_tensor * x = b.real(ne);
                return ggml_dropout(b.ctx, x, p, b.values(GGML_TYPE_I32, { 2, 1, 1, 1 }, { 12345, 77 }), 3);
            });
        }
    }
    for (layout l : any_strides) {
        t.add("DROPOUT", std::string("x-") + name_of(l), [=](builder & b) {
            ggml_tensor * x = b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, l);
            return ggml_dropout(b.ctx, x, 0.3f, b.values(GGML_TYPE_I32, { 2, 1, 1, 1 }, { -5, 1 }), 0);
        });
    }
    t.add("DROPOUT", "over-src0", [](builder & b) {
        ggml_tensor * x = b.real({ 301, 7, 1, 1 });
        return ggml_dropout(b.ctx, x, 0.3f, b.values(GGML_TYPE_I32, { 2, 1, 1, 1 }, { 1, 2 }), 0);
    }).inplace = 0;

    for (shape ne : { shape { 37, 5, 3, 2 }, shape { 1, 3, 1, 1 }, shape { 1500, 2, 1, 1 } }) {
        t.add("CUMSUM_BACK", name_of(ne), [=](builder & b) { return ggml_cumsum_back(b.ctx, b.real(ne)); });
    }
    for (layout l : any_rows) {
        t.add("CUMSUM_BACK", name_of(l), [=](builder & b) { return ggml_cumsum_back(b.ctx, b.real({ 300, 5, 3, 2 }, -1.0f, 1.0f, l)); });
    }
    t.add("CUMSUM_BACK", "over-src0", [](builder & b) { return ggml_cumsum_back(b.ctx, b.real({ 600, 3, 1, 1 })); }).inplace = 0;

    for (shape ne : { shape { 37, 5, 3, 2 }, shape { 1, 1, 1, 1 }, shape { 70001, 1, 1, 1 } }) {
        t.add("SUM_SQR", name_of(ne), [=](builder & b) { return ggml_sum_sqr(b.ctx, b.real(ne)); });
    }
    for (layout l : any_strides) {
        t.add("SUM_SQR", name_of(l), [=](builder & b) { return ggml_sum_sqr(b.ctx, b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, l)); });
    }
}

void optimizers(table & t) {
    for (int n : { 7, 8 }) {
        for (int64_t ne : { 1, 1000 }) {
            t.add("OPT_STEP_ADAMW", std::to_string(ne) + (n == 8 ? "-factor" : ""), [=](builder & b) {
                const shape s = { ne, 3, 1, 1 };
                ggml_tensor * w = b.real(s);
                ggml_set_param(w);
                ggml_tensor * g = b.real(s);
                ggml_tensor * m = b.real(s);
                ggml_tensor * v = b.real(s, 0.0f, 1.0f);
                b.also(m);
                b.also(v);
                return ggml_opt_step_adamw(b.ctx, w, g, m, v,
                    b.values(GGML_TYPE_F32, { n, 1, 1, 1 }, { 1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f, 1.3f, 1.2f, 0.37f }));
            });
            t.add("OPT_STEP_SGD", std::to_string(ne) + (n == 8 ? "-factor" : ""), [=](builder & b) {
                const shape s = { ne, 3, 1, 1 };
                ggml_tensor * w = b.real(s);
                ggml_set_param(w);
                ggml_tensor * g = b.real(s);
                return ggml_opt_step_sgd(b.ctx, w, g, b.values(GGML_TYPE_F32, { n - 5, 1, 1, 1 }, { 1e-2f, 0.1f, 0.37f }));
            });
        }
    }
    t.add("OPT_STEP_SGD", "rows", [](builder & b) {
        ggml_tensor * w = b.real({ 37, 3, 1, 1 });
        ggml_set_param(w);
        ggml_tensor * g = b.real({ 37, 3, 1, 1 }, -1.0f, 1.0f, layout::rows);
        return ggml_opt_step_sgd(b.ctx, w, g, b.values(GGML_TYPE_F32, { 2, 1, 1, 1 }, { 1e-2f, 0.1f }));
    }).supported = false;
}

void parts(table & t) {
    for (layout l : { layout::contiguous, layout::rows, layout::permuted }) { // the CPU's takes no transposed one
        for (bool inplace : { false, true }) {
            t.add("ACC", std::string(name_of(l)) + (inplace ? "-inplace" : ""), [=](builder & b) {
                ggml_tensor * x = b.real({ 50, 9, 4, 3 });
                ggml_tensor * y = b.real({ 17, 5, 3, 2 }, -1.0f, 1.0f, l);
                return (inplace ? ggml_acc_inplace : ggml_acc)(b.ctx, x, y, x->nb[1], x->nb[2], x->nb[3], 3*x->nb[0] + 2*x->nb[1] + x->nb[3]);
            });
        }
    }
    t.add("ACC", "whole", [](builder & b) {
        ggml_tensor * x = b.real({ 37, 5, 3, 2 });
        ggml_tensor * y = b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, layout::permuted);
        return ggml_acc(b.ctx, x, y, x->nb[1], x->nb[2], x->nb[3], 0);
    });

    struct repeat { const char * name; shape from; shape to; };
    for (repeat r : { repeat { "broadcast", { 37, 10, 6, 4 }, { 37, 5, 3, 2 } }, repeat { "bias", { 37, 100, 5, 1 }, { 37, 1, 1, 1 } },
                      repeat { "scalar", { 37, 10, 3, 2 }, { 1, 1, 1, 1 } }, repeat { "rows", { 300, 7, 3, 1 }, { 1, 7, 3, 1 } },
                      repeat { "tiled", { 74, 10, 3, 2 }, { 37, 5, 3, 2 } }, repeat { "same", { 37, 5, 3, 2 }, { 37, 5, 3, 2 } },
                      repeat { "long-bias", { 5, 3000, 1, 1 }, { 5, 1, 1, 1 } }, repeat { "channels", { 12, 11, 7, 3 }, { 1, 1, 7, 1 } } }) {
        t.add("REPEAT_BACK", r.name, [=](builder & b) {
            return ggml_repeat_back(b.ctx, b.real(r.from), ggml_new_tensor(b.ctx, GGML_TYPE_F32, 4, r.to.data()));
        });
        t.add("REPEAT_BACK", std::string(r.name) + "-permuted", [=](builder & b) {
            return ggml_repeat_back(b.ctx, b.real(r.from, -1.0f, 1.0f, layout::permuted), ggml_new_tensor(b.ctx, GGML_TYPE_F32, 4, r.to.data()));
        });
    }
}

void rows(table & t) {
    const auto get_rows_back = [&t](const char * name, int64_t nc, int64_t n_vocab, int64_t n, std::vector<float> ids, int lo, int hi) -> op_case & {
        op_case & c = t.add("GET_ROWS_BACK", name, [=](builder & b) {
            ggml_tensor * g = b.real({ nc, n, 1, 1 });
            ggml_tensor * r = ids.empty() ? b.whole({ n, 1, 1, 1 }, lo, hi) : b.values(GGML_TYPE_I32, { n, 1, 1, 1 }, ids);
            return ggml_get_rows_back(b.ctx, g, r, ggml_new_tensor_2d(b.ctx, GGML_TYPE_F32, nc, n_vocab));
        });
        c.max_nmse = 0.0; // added in the order of i, here and there
        return c;
    };
    get_rows_back("random",     37, 50,   300, {}, 0, 50);
    get_rows_back("one-row",    64, 9,    200, { 4 }, 0, 0);
    get_rows_back("rare",       33, 3000, 20,  {}, 0, 3000);
    get_rows_back("ends",       5,  7,    4,   { 0, 6, 6, 0 }, 0, 0);
    get_rows_back("long-rows",  1030, 11, 40,  {}, 0, 11);
    get_rows_back("one-token",  8,  100,  1,   { 99 }, 0, 0);
    get_rows_back("many-tokens", 4, 1000, 9000, {}, 0, 1000);
    get_rows_back("vocabulary", 3, 70000, 50,  {}, 65000, 70000).slow = true;

    // added to what is there
    t.add("GET_ROWS_BACK", "added", [](builder & b) {
        ggml_tensor * g = b.real({ 37, 300, 1, 1 });
        ggml_tensor * r = b.whole({ 300, 1, 1, 1 }, 0, 50);
        return ggml_get_rows_back_acc(b.ctx, g, r, b.real({ 37, 50, 1, 1 }));
    }).max_nmse = 0.0;
    t.add("GET_ROWS_BACK", "added-lists", [](builder & b) {
        ggml_tensor * g = b.real({ 300, 9, 3, 2 }, -1.0f, 1.0f, layout::rows);
        ggml_tensor * r = b.whole({ 9, 3, 2, 1 }, 0, 5);
        return ggml_get_rows_back_acc(b.ctx, g, r, b.real({ 300, 5, 3, 2 }));
    }).max_nmse = 0.0;

    for (float max_bias : { 0.0f, 8.0f }) { // the slopes are in the weights
        back_cases(t, "SOFT_MAX_BACK", max_bias == 0.0f ? "" : "alibi-", 0.0f, 0.1f, row_shapes, {}, [max_bias](ggml_context * c, ggml_tensor * g, ggml_tensor * y) {
            return ggml_soft_max_ext_back(c, g, y, 0.3f, max_bias);
        });
    }
    op_case & rows = t.add("SOFT_MAX_BACK", "rows", [](builder & b) {
        ggml_tensor * g = b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, layout::rows);
        return ggml_soft_max_ext_back(b.ctx, g, b.real({ 37, 5, 3, 2 }), 0.3f, 0.0f);
    });
    rows.supported = false;
    rows.only      = "CUDA";
}

void products(table & t) {
    struct out_prod { const char * name; shape a; shape b; bool transposed; };
    const out_prod shapes[] = {
        { "matrix",      { 37, 20, 1, 1 }, { 29, 20, 1, 1 }, false },
        { "transposed",  { 37, 20, 1, 1 }, { 29, 20, 1, 1 }, true },
        { "one-row",     { 37, 1, 1, 1 },  { 29, 1, 1, 1 },  false },
        { "batch",       { 17, 9, 3, 2 },  { 11, 9, 3, 2 },  false },
        { "heads",       { 17, 9, 2, 1 },  { 11, 9, 6, 2 },  false },
        { "batch-transposed", { 17, 9, 3, 2 }, { 11, 9, 3, 2 }, true },
    };
    for (const out_prod & s : shapes) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
            if (ggml_is_quantized(type) && s.transposed) {
                continue;
            }
            t.add("OUT_PROD", std::string(s.name) + "-" + ggml_type_name(type), [=](builder & b) {
                shape ne = s.a;
                if (ggml_is_quantized(type)) {
                    ne[0] = 64;
                }
                ggml_tensor * x = b.real(ne, -1.0f, 1.0f, layout::contiguous, type);
                return ggml_out_prod(b.ctx, x, b.real(s.b, -1.0f, 1.0f, s.transposed ? layout::transposed : layout::contiguous));
            }).max_nmse = type == GGML_TYPE_F32 ? 1e-10 : 1e-4; // the other source is rounded, too
        }
    }
    for (layout l : any_rows) {
        t.add("OUT_PROD", std::string("views-") + name_of(l), [=](builder & b) {
            ggml_tensor * x = b.real({ 17, 9, 3, 2 }, -1.0f, 1.0f, l);
            return ggml_out_prod(b.ctx, x, b.real({ 11, 9, 3, 2 }, -1.0f, 1.0f, l));
        });
    }
    for (int prec : { (int) GGML_PREC_BF16, (int) GGML_PREC_F16 }) {
        for (const out_prod & s : shapes) {
            t.add("OUT_PROD", std::string(s.name) + (prec == GGML_PREC_BF16 ? "-may-round-bf16" : "-may-round-f16"), [=](builder & b) {
                ggml_tensor * x = b.real(s.a);
                ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real(s.b, -1.0f, 1.0f, s.transposed ? layout::transposed : layout::contiguous));
                ggml_prec_set_src(p, (ggml_prec) prec, 0);
                ggml_prec_set_src(p, (ggml_prec) prec, 1);
                return p;
            }).max_nmse = 1e-4;
        }
    }
    // f32 stays f32: as f16 these would be infinite or 0. What may be rounded to bf16 keeps its range.
    struct range { const char * name; float hi; };
    struct mul_mat { const char * name; shape a, b; };
    const mul_mat products[] = {
        { "tiles",  { 64, 128, 1, 1 }, { 64, 96, 1, 1 } },
        { "edges",  { 64, 70, 2, 1 },  { 64, 45, 4, 3 } },
        { "odd-k",  { 37, 70, 1, 1 },  { 37, 45, 1, 1 } },
    };
    for (range r : { range { "", 1.0f }, range { "-large", 1e6f }, range { "-small", 1e-10f } }) {
        for (const mul_mat & m : products) {
            for (int prec : { (int) GGML_PREC_UNDEFINED, (int) GGML_PREC_BF16 }) {
                t.add("MUL_MAT", std::string(m.name) + r.name + (prec == GGML_PREC_BF16 ? "-may-round-bf16" : ""), [=](builder & b) {
                    ggml_tensor * x = b.real(m.a, -r.hi, r.hi);
                    ggml_tensor * p = ggml_mul_mat(b.ctx, x, b.real(m.b));
                    ggml_prec_set_src(p, (ggml_prec) prec, 0);
                    ggml_prec_set_src(p, (ggml_prec) prec, 1);
                    return p;
                }).max_nmse = prec == GGML_PREC_BF16 ? 1e-4 : 1e-10;
            }
        }
        for (int prec : { (int) GGML_PREC_UNDEFINED, (int) GGML_PREC_BF16 }) {
            t.add("OUT_PROD", std::string("range") + r.name + (prec == GGML_PREC_BF16 ? "-may-round-bf16" : ""), [=](builder & b) {
                ggml_tensor * x = b.real({ 70, 37, 1, 1 }, -r.hi, r.hi);
                ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real({ 67, 37, 1, 1 }));
                ggml_prec_set_src(p, (ggml_prec) prec, 0);
                ggml_prec_set_src(p, (ggml_prec) prec, 1);
                return p;
            }).max_nmse = prec == GGML_PREC_BF16 ? 1e-4 : 1e-10;
        }
    }
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
        for (int prec : { (int) GGML_PREC_BF16, (int) GGML_PREC_F16 }) {
            t.add("OUT_PROD", std::string(ggml_type_name(type)) + (prec == GGML_PREC_BF16 ? "-may-round-bf16" : "-may-round-f16"), [=](builder & b) {
                ggml_tensor * x = b.real({ 96, 37, 2, 1 }, -1.0f, 1.0f, layout::contiguous, type);
                ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real({ 67, 37, 2, 3 }, -1.0f, 1.0f, layout::transposed));
                ggml_prec_set_src(p, (ggml_prec) prec, 0);
                ggml_prec_set_src(p, (ggml_prec) prec, 1);
                return p;
            }).max_nmse = 1e-4;
        }
    }
    t.add("MUL_MAT", "may-round-f16", [](builder & b) {
        ggml_tensor * x = b.real({ 64, 70, 2, 1 });
        ggml_tensor * p = ggml_mul_mat(b.ctx, x, b.real({ 64, 45, 4, 3 }));
        ggml_prec_set_src(p, GGML_PREC_F16, 0);
        ggml_prec_set_src(p, GGML_PREC_F16, 1);
        return p;
    }).max_nmse = 1e-4;
    for (bool product_first : { true, false }) {
        t.add("OUT_PROD", product_first ? "added-left" : "added-right", [=](builder & b) {
            ggml_tensor * sum = b.real({ 37, 29, 1, 1 });
            ggml_tensor * x = b.real({ 37, 20, 1, 1 });
            ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real({ 29, 20, 1, 1 }));
            return product_first ? ggml_add(b.ctx, p, sum) : ggml_add_inplace(b.ctx, sum, p);
        });
    }
}

void pictures(table & t) {
    struct pool { int k0, k1, s0, s1, p0, p1; };
    for (ggml_op_pool op : { GGML_OP_POOL_MAX, GGML_OP_POOL_AVG }) {
        const std::string n = op == GGML_OP_POOL_MAX ? "max-" : "avg-";
        for (pool p : { pool { 2, 2, 2, 2, 0, 0 }, pool { 3, 2, 2, 1, 1, 1 }, pool { 3, 3, 1, 2, 1, 0 } }) {
            const std::string s = n + std::to_string(p.k0) + std::to_string(p.k1) + std::to_string(p.s0) + std::to_string(p.s1) + std::to_string(p.p0) + std::to_string(p.p1);
            t.add("POOL_2D_BACK", s, [=](builder & b) {
                const int64_t w = 19, h = 12;
                ggml_tensor * g = b.real({ (w + 2*p.p0 - p.k0)/p.s0 + 1, (h + 2*p.p1 - p.k1)/p.s1 + 1, 3, 2 });
                return ggml_pool_2d_back(b.ctx, g, b.real({ w, h, 3, 2 }), op, p.k0, p.k1, p.s0, p.s1, p.p0, p.p1);
            });
            t.add("POOL_1D_BACK", s, [=](builder & b) {
                const int64_t w = 41;
                ggml_tensor * g = b.real({ (w + 2*p.p0 - p.k0)/p.s0 + 1, 5, 3, 2 });
                return ggml_pool_1d_back(b.ctx, g, b.real({ w, 5, 3, 2 }), op, p.k0, p.s0, p.p0);
            });
        }
    }
    t.add("POOL_2D_BACK", "ties", [](builder & b) {
        ggml_tensor * g = b.real({ 4, 4, 2, 1 });
        return ggml_pool_2d_back(b.ctx, g, b.values(GGML_TYPE_F32, { 8, 8, 2, 1 }, { 1.0f }), GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0);
    });

    struct conv { int64_t kw, kh; int s0, s1, p0, p1, d0, d1; };
    for (conv c : { conv { 3, 3, 1, 1, 1, 1, 1, 1 }, conv { 3, 2, 2, 1, 0, 1, 1, 2 }, conv { 1, 1, 1, 1, 0, 0, 1, 1 }, conv { 5, 3, 3, 2, 2, 0, 1, 1 } }) {
        const std::string s = std::to_string(c.kw) + std::to_string(c.kh) + "-" + std::to_string(c.s0) + std::to_string(c.s1) + std::to_string(c.p0) +
            std::to_string(c.p1) + std::to_string(c.d0) + std::to_string(c.d1);
        const int64_t w = 13, h = 10;
        const int64_t ow = (w + 2*c.p0 - c.d0*(c.kw - 1) - 1)/c.s0 + 1;
        const int64_t oh = (h + 2*c.p1 - c.d1*(c.kh - 1) - 1)/c.s1 + 1;
        t.add("IM2COL_BACK", s, [=](builder & b) {
            ggml_tensor * g = b.real({ 3*c.kw*c.kh, ow, oh, 2 });
            ggml_tensor * k = b.real({ c.kw, c.kh, 3, 4 });
            int64_t ne[4] = { w, h, 3, 2 };
            return ggml_im2col_back(b.ctx, g, k, ne, c.s0, c.s1, c.p0, c.p1, c.d0, c.d1, true);
        });
        t.add("IM2COL_BACK", "1d-" + s, [=](builder & b) {
            ggml_tensor * g = b.real({ 3*c.kw, ow, 2, 1 });
            ggml_tensor * k = b.real({ c.kw, 3, 4, 1 });
            int64_t ne[4] = { w, 3, 2, 1 };
            return ggml_im2col_back(b.ctx, g, k, ne, c.s0, 0, c.p0, 0, c.d0, 0, false);
        });
        t.add("CONV_2D_DW_BACK", "input-" + s, [=](builder & b) {
            ggml_tensor * g = b.real({ ow, oh, 3, 2 });
            return ggml_conv_2d_dw_back_input(b.ctx, g, b.real({ c.kw, c.kh, 1, 3 }), w, h, c.s0, c.s1, c.p0, c.p1, c.d0, c.d1);
        });
        t.add("CONV_2D_DW_BACK", "kernel-" + s, [=](builder & b) {
            ggml_tensor * g = b.real({ ow, oh, 3, 2 });
            return ggml_conv_2d_dw_back_kernel(b.ctx, g, b.real({ w, h, 3, 2 }), c.kw, c.kh, c.s0, c.s1, c.p0, c.p1, c.d0, c.d1);
        });
        t.add("IM2COL_3D_BACK", s, [=](builder & b) {
            const int64_t od = (6 + 2*1 - 1*(2 - 1) - 1)/2 + 1;
            ggml_tensor * g = b.real({ 3*c.kw*c.kh*2, ow, oh, 2*od });
            ggml_tensor * k = b.real({ c.kw, c.kh, 2, 3*4 });
            int64_t ne[4] = { w, h, 6, 2*3 };
            return ggml_im2col_3d_back(b.ctx, g, k, ne, 3, c.s0, c.s1, 2, c.p0, c.p1, 1, c.d0, c.d1, 1);
        });
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
            t.add("IM2COL_3D", s + "-" + ggml_type_name(type), [=](builder & b) {
                ggml_tensor * k = b.real({ c.kw, c.kh, 2, 3*4 });
                ggml_tensor * x = b.real({ w, h, 6, 2*3 });
                return ggml_im2col_3d(b.ctx, k, x, 3, c.s0, c.s1, 2, c.p0, c.p1, 1, c.d0, c.d1, 1, type);
            });
        }
    }
    t.add("CONV_2D_DW_BACK", "input-f16-kernel", [](builder & b) {
        ggml_tensor * g = b.real({ 11, 8, 3, 2 }, -1.0f, 1.0f, layout::permuted);
        return ggml_conv_2d_dw_back_input(b.ctx, g, b.real({ 3, 3, 1, 3 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_F16), 13, 10, 1, 1, 0, 0, 1, 1);
    });

    for (layout l : any_strides) {
        t.add("CONV_2D_DW_BACK", std::string("input-") + name_of(l), [=](builder & b) {
            ggml_tensor * g = b.real({ 11, 8, 3, 2 }, -1.0f, 1.0f, l);
            return ggml_conv_2d_dw_back_input(b.ctx, g, b.real({ 3, 3, 1, 3 }, -1.0f, 1.0f, l), 13, 10, 1, 1, 0, 0, 1, 1);
        });
        t.add("CONV_2D_DW_BACK", std::string("kernel-") + name_of(l), [=](builder & b) {
            ggml_tensor * g = b.real({ 41, 38, 3, 2 }, -1.0f, 1.0f, l);
            return ggml_conv_2d_dw_back_kernel(b.ctx, g, b.real({ 43, 40, 3, 2 }, -1.0f, 1.0f, l), 3, 3, 1, 1, 0, 0, 1, 1);
        });
    }
    for (layout l : any_rows) {
        for (ggml_op_pool op : { GGML_OP_POOL_MAX, GGML_OP_POOL_AVG }) {
            t.add("POOL_1D_BACK", std::string(op == GGML_OP_POOL_MAX ? "max-" : "avg-") + name_of(l), [=](builder & b) {
                ggml_tensor * g = b.real({ 150, 5, 3, 2 }, -1.0f, 1.0f, l);
                return ggml_pool_1d_back(b.ctx, g, b.real({ 300, 5, 3, 2 }, -1.0f, 1.0f, l), op, 3, 2, 1);
            });
        }
    }
    t.add("POOL_1D_BACK", "ties", [](builder & b) {
        ggml_tensor * g = b.real({ 8, 2, 1, 1 });
        return ggml_pool_1d_back(b.ctx, g, b.values(GGML_TYPE_F32, { 8, 2, 1, 1 }, { 1.0f }), GGML_OP_POOL_MAX, 3, 1, 1);
    });

    struct up { const char * name; uint32_t mode; };
    for (up u : { up { "nearest", GGML_SCALE_MODE_NEAREST }, up { "bilinear", GGML_SCALE_MODE_BILINEAR },
                  up { "bilinear-corners", GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ALIGN_CORNERS },
                  up { "bilinear-antialias", GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ANTIALIAS },
                  up { "bicubic", GGML_SCALE_MODE_BICUBIC } }) {
        for (bool down : { false, true }) {
            t.add("UPSCALE_BACK", std::string(u.name) + (down ? "-down" : "-up"), [=](builder & b) {
                ggml_tensor * g = b.real(down ? shape { 5, 4, 3, 2 } : shape { 17, 11, 6, 4 });
                return ggml_upscale_back(b.ctx, g, 9, 7, 3, 2, u.mode);
            });
        }
    }
    // the ratios of diffusion models and of odd sizes, one element, and rows longer than a block has threads
    struct sizes { const char * name; shape from, to; };
    for (sizes z : { sizes { "double", { 13, 9, 2, 2 }, { 26, 18, 2, 2 } }, sizes { "third", { 27, 12, 2, 1 }, { 9, 4, 2, 1 } },
                     sizes { "one", { 1, 1, 3, 1 }, { 7, 5, 3, 1 } }, sizes { "to-one", { 7, 5, 3, 1 }, { 1, 1, 3, 1 } },
                     sizes { "long", { 300, 3, 1, 1 }, { 450, 2, 1, 1 } } }) {
        for (up u : { up { "nearest", GGML_SCALE_MODE_NEAREST }, up { "bilinear", GGML_SCALE_MODE_BILINEAR },
                      up { "bilinear-corners", GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ALIGN_CORNERS },
                      up { "bilinear-antialias", GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ANTIALIAS },
                      up { "bicubic-corners", GGML_SCALE_MODE_BICUBIC | GGML_SCALE_FLAG_ALIGN_CORNERS } }) {
            t.add("UPSCALE_BACK", std::string(u.name) + "-" + z.name, [=](builder & b) {
                return ggml_upscale_back(b.ctx, b.real(z.to), z.from[0], z.from[1], z.from[2], z.from[3], u.mode);
            });
        }
    }
    t.add("UPSCALE_BACK", "transposed", [](builder & b) {
        return ggml_upscale_back(b.ctx, b.real({ 17, 11, 3, 2 }, -1.0f, 1.0f, layout::transposed), 9, 7, 3, 2, GGML_SCALE_MODE_BILINEAR);
    });
}

void experts(table & t) {
    for (float hi : { 1.0f, 1e6f, 1e-10f }) {
        for (int prec : { (int) GGML_PREC_UNDEFINED, (int) GGML_PREC_BF16 }) {
            const std::string n = hi > 1.0f ? "large" : hi < 1.0f ? "small" : "plain";
            t.add("MUL_MAT_ID", n + (prec == GGML_PREC_BF16 ? "-may-round-bf16" : ""), [=](builder & b) {
                ggml_tensor * as = b.real({ 64, 70, 4, 1 }, -hi, hi);
                ggml_tensor * x  = b.real({ 64, 1, 90, 1 });
                ggml_tensor * p  = ggml_mul_mat_id(b.ctx, as, x, b.values(GGML_TYPE_I32, { 2, 90, 1, 1 }, { 0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 3, 1, 0, 3 }));
                ggml_prec_set_src(p, (ggml_prec) prec, 0);
                ggml_prec_set_src(p, (ggml_prec) prec, 1);
                return p;
            }).max_nmse = prec == GGML_PREC_BF16 ? 1e-4 : 1e-10;
        }
    }
    for (int64_t nb : { 1, 2 }) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0 }) {
            t.add("MUL_MAT_ID_BACK", "b" + std::to_string(nb) + "-" + ggml_type_name(type), [=](builder & b) {
                ggml_tensor * g  = b.real({ 37, 2, 9, 1 });
                ggml_tensor * as = b.real({ 64, 37, 4, 1 }, -1.0f, 1.0f, layout::contiguous, type);
                ggml_tensor * x  = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 64, nb, 9);
                return ggml_mul_mat_id_back_b(b.ctx, g, as, x, b.whole({ 2, 9, 1, 1 }, 0, 4));
            });
        }
        t.add("MUL_MAT_ID_BACK", "as" + std::to_string(nb), [=](builder & b) {
            ggml_tensor * g  = b.real({ 37, 2, 9, 1 });
            ggml_tensor * as = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 30, 37, 4);
            ggml_tensor * x  = b.real({ 30, nb, 9, 1 });
            return ggml_mul_mat_id_back_as(b.ctx, g, as, x, b.whole({ 2, 9, 1, 1 }, 0, 4));
        });
    }
    // more pairs than a block has threads, more of an expert than a tile has columns, experts that none has chosen
    for (int64_t nb : { 1, 3 }) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q4_0 }) {
            t.add("MUL_MAT_ID_BACK", "many-b" + std::to_string(nb) + "-" + ggml_type_name(type), [=](builder & b) {
                ggml_tensor * g  = b.real({ 70, 3, 111, 1 });
                ggml_tensor * as = b.real({ 96, 70, 6, 1 }, -1.0f, 1.0f, layout::contiguous, type);
                ggml_tensor * x  = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 96, nb, 111);
                return ggml_mul_mat_id_back_b(b.ctx, g, as, x, b.whole({ 3, 111, 1, 1 }, 1, 4));
            });
        }
        t.add("MUL_MAT_ID_BACK", "many-as" + std::to_string(nb), [=](builder & b) {
            ggml_tensor * g  = b.real({ 70, 3, 111, 1 });
            ggml_tensor * as = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 67, 70, 6);
            ggml_tensor * x  = b.real({ 67, nb, 111, 1 });
            return ggml_mul_mat_id_back_as(b.ctx, g, as, x, b.whole({ 3, 111, 1, 1 }, 1, 4));
        });
    }
    for (layout l : any_rows) {
        t.add("MUL_MAT_ID_BACK", std::string("b-") + name_of(l), [=](builder & b) {
            ggml_tensor * g  = b.real({ 37, 2, 9, 1 }, -1.0f, 1.0f, l);
            ggml_tensor * as = b.real({ 30, 37, 4, 1 }, -1.0f, 1.0f, layout::rows);
            ggml_tensor * x  = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 30, 1, 9);
            return ggml_mul_mat_id_back_b(b.ctx, g, as, x, b.whole({ 2, 9, 1, 1 }, 0, 4));
        });
        t.add("MUL_MAT_ID_BACK", std::string("as-") + name_of(l), [=](builder & b) {
            ggml_tensor * g  = b.real({ 37, 2, 9, 1 }, -1.0f, 1.0f, l);
            ggml_tensor * as = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 30, 37, 4);
            ggml_tensor * x  = b.real({ 30, 2, 9, 1 }, -1.0f, 1.0f, l);
            return ggml_mul_mat_id_back_as(b.ctx, g, as, x, b.whole({ 2, 9, 1, 1 }, 0, 4));
        });
    }
}

// Pairs whose expert is none of the 4: to the gradients they add nothing, as if theirs were 0. The CPU ends the process.
void no_such_experts(table & t) {
    const std::vector<float> ids = { 0, 4, 1, -1, 2147483520.0f, 3, 2, -2147483648.0f, 0 };
    const auto sources = [=](builder & b, bool there) {
        std::vector<float> g(37*2*9);
        std::vector<float> e(2*9);
        for (size_t p = 0; p < e.size(); ++p) {
            const float id   = ids[p%ids.size()];
            const bool  none = id < 0.0f || id >= 4.0f;
            e[p] = there && none ? 0.0f : id;
            for (size_t m = 0; m < 37; ++m) {
                g[p*37 + m] = there && none ? 0.0f : std::sin((float) (p*37 + m));
            }
        }
        ggml_tensor * grad = b.values(GGML_TYPE_F32, { 37, 2, 9, 1 }, g);
        return std::make_pair(grad, b.values(GGML_TYPE_I32, { 2, 9, 1, 1 }, e));
    };
    for (int64_t nb : { 1, 2 }) {
        const auto back_b = [=](builder & b, bool there) {
            const auto [g, e] = sources(b, there);
            ggml_tensor * as = b.real({ 64, 37, 4, 1 });
            return ggml_mul_mat_id_back_b(b.ctx, g, as, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 64, nb, 9), e);
        };
        const auto back_as = [=](builder & b, bool there) {
            const auto [g, e] = sources(b, there);
            ggml_tensor * x = b.real({ 64, nb, 9, 1 });
            return ggml_mul_mat_id_back_as(b.ctx, g, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 64, 37, 4), x, e);
        };
        t.add("MUL_MAT_ID_BACK", "no-such-expert-b" + std::to_string(nb), [=](builder & b) { return back_b(b, false); })
            .on_cpu = [=](builder & b) { return back_b(b, true); };
        t.add("MUL_MAT_ID_BACK", "no-such-expert-as" + std::to_string(nb), [=](builder & b) { return back_as(b, false); })
            .on_cpu = [=](builder & b) { return back_as(b, true); };
    }
}

std::function<ggml_tensor * (builder &)> rotated(decltype(&ggml_rope_ext) rope, int mode, layout l) {
    return [=](builder & b) {
        ggml_tensor * x   = b.real({ 48, 5, 7, 3 }, -1.0f, 1.0f, l);
        ggml_tensor * pos = b.whole({ 7, 1, 1, 1 }, 0, 100);
        // 40 of 48 are turned, as extended contexts do it
        return rope(b.ctx, x, pos, nullptr, 40, mode, 64, 10000.0f, 1.4f, 0.7f, 1.2f, 32.0f, 1.0f);
    };
}

void rotations(table & t) {
    for (int mode : { GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX }) {
        for (layout l : { layout::contiguous, layout::rows, layout::permuted }) {
            const std::string name = std::string(mode == GGML_ROPE_TYPE_NEOX ? "neox-" : "normal-") + name_of(l);
            t.add("ROPE", name, rotated(ggml_rope_ext, mode, l));
            t.add("ROPE_BACK", name, rotated(ggml_rope_ext_back, mode, l));
        }
    }
}

} // namespace

std::vector<op_case> op_cases() {
    table t;
    norms(t);
    activations(t);
    losses(t);
    elementwise(t);
    optimizers(t);
    parts(t);
    rows(t);
    products(t);
    pictures(t);
    experts(t);
    no_such_experts(t);
    rotations(t);
    attention(t);
    return t.cases;
}

} // namespace emu
