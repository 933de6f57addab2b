// SPDX-License-Identifier: MIT
// Shapes: all extents different, rows longer than a block of threads and shorter than a warp, sizes of one, operands that
// are views of larger tensors, permuted or broadcast, and more rows than a grid has blocks along y.
#include "backs.hpp"

#include <cmath>

namespace emu {

namespace {

using shape = builder::shape;


void norms(table & t) {
    back_cases(t, "NORM_BACK", "", -2.0f, 3.0f, row_shapes, any_strides, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_norm_back(c, g, x, 1e-5f);
    });
    back_cases(t, "NORM_BACK", "offset-", 99.0f, 101.0f, { { 768, 4, 1, 1 } }, {}, [](ggml_context * c, ggml_tensor * g, ggml_tensor * x) {
        return ggml_norm_back(c, g, x, 1e-5f);
    });
    // columns are counted in 32 bits
    for (bool l2 : { false, true }) {
        op_case & c = t.add(l2 ? "L2_NORM_BACK" : "NORM_BACK", "too-many-columns", [=](builder & b) {
            ggml_tensor * x = ggml_new_tensor_1d(b.ctx, GGML_TYPE_F32, (int64_t) 1 << 31);
            ggml_tensor * g = ggml_new_tensor_1d(b.ctx, GGML_TYPE_F32, (int64_t) 1 << 31);
            return l2 ? ggml_l2_norm_back(b.ctx, g, x, 1e-5f) : ggml_norm_back(b.ctx, g, x, 1e-5f);
        });
        c.supported = false;
        c.only      = "CUDA";
    }
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
    t.add("SUM_SQR", "odd-start", [](builder & b) { return ggml_sum_sqr(b.ctx, b.real({ 70001, 1, 1, 1 }, -1.0f, 1.0f, layout::odd_start)); });
    for (layout l : any_strides) {
        t.add("SUM_SQR", name_of(l), [=](builder & b) { return ggml_sum_sqr(b.ctx, b.real({ 37, 5, 3, 2 }, -1.0f, 1.0f, l)); });
    }
}

// A parameter with its gradient and its moments; ne may be no multiple of what a thread takes.
ggml_tensor * adamw(builder & b, int64_t ne, ggml_tensor * pars, ggml_tensor * g) {
    ggml_tensor * w = b.real({ ne, 1, 1, 1 });
    ggml_set_param(w);
    ggml_tensor * m = b.real({ ne, 1, 1, 1 });
    ggml_tensor * v = b.real({ ne, 1, 1, 1 }, 0.0f, 1.0f);
    ggml_tensor * step = ggml_opt_step_adamw(b.ctx, w, g, m, v, pars);
    b.also(step);
    b.also(m);
    b.also(v);
    return step;
}

// The steps of many parameters in a row, which CUDA does in one kernel: more than it holds, of several groups.
void many_steps(table & t) {
    for (int n : { 7, 8 }) {
        t.add("OPT_STEP_ADAMW", std::string("many") + (n == 8 ? "-factor" : ""), [=](builder & b) {
            const int64_t sizes[] = { 1, 3, 1024, 4, 1025, 1000, 4099 };
            ggml_tensor * pars[2];
            for (float decay : { 0.0f, 0.1f }) {
                pars[decay > 0.0f] = b.values(GGML_TYPE_F32, { n, 1, 1, 1 }, { 1e-2f, 0.9f, 0.99f, 1e-8f, decay, 1.3f, 1.2f, 0.37f });
            }
            ggml_tensor * last = nullptr;
            for (int i = 0; i < 70; ++i) {
                const int64_t ne = sizes[i % 7];
                last = adamw(b, ne, pars[i % 2], b.real({ ne, 1, 1, 1 }, -1.0f, 1.0f, i % 3 ? layout::contiguous : layout::odd_start));
            }
            return last;
        });
    }
    t.add("OPT_STEP_ADAMW", "many-that-read-each-other", [](builder & b) {
        ggml_tensor * pars = b.values(GGML_TYPE_F32, { 7, 1, 1, 1 }, { 1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f, 1.3f, 1.2f });
        ggml_tensor * last = b.real({ 2100, 1, 1, 1 });
        for (int i = 0; i < 4; ++i) {
            last = adamw(b, 2100, pars, last);
        }
        return last;
    });
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
    t.add("OPT_STEP_ADAMW", "moment-read-after", [](builder & b) {
        const shape s = { 1000, 3, 1, 1 };
        ggml_tensor * w = b.real(s);
        ggml_set_param(w);
        ggml_tensor * g = b.real(s);
        ggml_tensor * m = b.real(s);
        ggml_tensor * v = b.real(s, 0.0f, 1.0f);
        ggml_tensor * step = ggml_opt_step_adamw(b.ctx, w, g, m, v,
            b.values(GGML_TYPE_F32, { 7, 1, 1, 1 }, { 1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f, 1.3f, 1.2f }));
        return ggml_add(b.ctx, step, ggml_add(b.ctx, ggml_add(b.ctx, m, m), v));
    });
    many_steps(t);
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
    op_case & columns = t.add("ACC", "transposed", [](builder & b) {
        ggml_tensor * x = b.real({ 50, 9, 4, 3 });
        ggml_tensor * y = b.real({ 17, 5, 3, 2 }, -1.0f, 1.0f, layout::transposed);
        return ggml_acc(b.ctx, x, y, x->nb[1], x->nb[2], x->nb[3], 3*x->nb[0]);
    });
    columns.only   = "CUDA";
    columns.on_cpu = [](builder & b) {
        ggml_tensor * x = b.real({ 50, 9, 4, 3 });
        ggml_tensor * y = b.real({ 17, 5, 3, 2 }, -1.0f, 1.0f, layout::transposed);
        return ggml_acc(b.ctx, x, ggml_cont(b.ctx, y), x->nb[1], x->nb[2], x->nb[3], 3*x->nb[0]);
    };
    // y ends before x does along each axis alone, and along all of them
    for (shape ne : { shape { 36, 5, 3, 2 }, shape { 37, 4, 3, 2 }, shape { 37, 5, 2, 2 }, shape { 37, 5, 3, 1 }, shape { 36, 4, 2, 1 } }) {
        t.add("ACC", "first-" + name_of(ne), [=](builder & b) {
            ggml_tensor * x = b.real({ 37, 5, 3, 2 });
            return ggml_acc(b.ctx, x, b.real(ne), x->nb[1], x->nb[2], x->nb[3], 0);
        });
    }
    // along an axis where y has one element there is no stride: of a large tensor it would not fit in the parameter
    for (shape ne : { shape { 20, 4, 2, 1 }, shape { 20, 4, 1, 1 }, shape { 20, 1, 1, 1 } }) {
        t.add("ACC", "no-strides-" + name_of(ne), [=](builder & b) {
            ggml_tensor * x = b.real({ 37, 5, 3, 2 });
            const auto nb = [&](int i) { return ne[i] > 1 ? x->nb[i] : 0; };
            return ggml_acc(b.ctx, x, b.real(ne), nb(1), nb(2), nb(3), 5*x->nb[0]);
        });
    }
    // y's axes in another order than those of x, as those of the heads of a row
    for (bool last : { false, true }) {
        t.add("ACC", last ? "axes-3-1-2" : "axes-2-1", [=](builder & b) {
            ggml_tensor * x = b.real({ 40, 9, 3, 2 });
            const size_t head = 8*x->nb[0];
            return last ? ggml_acc(b.ctx, x, b.real({ 7, 2, 4, 8 }), x->nb[3], head, x->nb[1], 8*x->nb[0] + x->nb[2]) :
                ggml_acc(b.ctx, x, b.real({ 7, 8, 4, 2 }), x->nb[1], head, x->nb[3], 8*x->nb[0] + x->nb[2]);
        });
    }
    // rows of more columns than a block has threads, and as many rows as it takes of short ones
    for (shape ne : { shape { 300, 3, 2, 2 }, shape { 257, 1, 1, 1 }, shape { 32, 17, 1, 1 }, shape { 100, 5, 2, 1 }, shape { 1, 33, 1, 1 } }) {
        t.add("ACC", "rows-of-" + name_of(ne), [=](builder & b) {
            ggml_tensor * x = b.real({ 310, 40, 2, 2 });
            return ggml_acc_inplace(b.ctx, x, b.real(ne), x->nb[1], x->nb[2], x->nb[3], 7*x->nb[0] + 5*x->nb[1]);
        });
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
                      repeat { "long-bias", { 5, 3000, 1, 1 }, { 5, 1, 1, 1 } }, repeat { "channels", { 12, 11, 7, 3 }, { 1, 1, 7, 1 } },
                      repeat { "positions", { 36, 5, 7, 1 }, { 36, 5, 1, 1 } }, repeat { "vectors", { 36, 10, 6, 4 }, { 36, 1, 1, 1 } },
                      repeat { "wide-bias", { 2080, 9, 1, 1 }, { 2080, 1, 1, 1 } } }) {
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
    get_rows_back("many-tokens", 4, 1000, 4100, {}, 0, 1000);
    get_rows_back("vocabulary", 3, 70000, 50,  {}, 65000, 70000).slow = true;
    // where CUDA sorts: parts of blocks (1024 tokens) that are full or not, digits of 8 bits, terms that are added by four
    for (int64_t n : { 1023, 1024, 1025, 2049 }) {
        get_rows_back(("tokens-" + std::to_string(n)).c_str(), 3, 17, n, {}, 0, 17);
    }
    get_rows_back("one-digit",    3, 255,   1500, {}, 0, 255);
    get_rows_back("two-digits",   3, 256,   1500, {}, 0, 256);
    get_rows_back("three-digits", 2, 70000, 1100, {}, 0, 70000);
    get_rows_back("digits",       2, 66000, 1300, { 65791, 255, 256, 0, 65535, 65536, 511, 257, 65792, 1, 254 }, 0, 0);
    get_rows_back("one-row-of-all", 3, 300, 3001, { 256 }, 0, 0);
    op_case & million = get_rows_back("million-tokens", 1, 900, 1048577, {}, 0, 900); // more than 256 parts of 1024
    million.slow = true;
    million.only = "CUDA";
    t.add("GET_ROWS_BACK", "lists-of-blocks", [](builder & b) {
        ggml_tensor * g = b.real({ 5, 700, 3, 2 }, -1.0f, 1.0f, layout::permuted);
        ggml_tensor * r = b.whole({ 700, 3, 2, 1 }, 0, 11);
        return ggml_get_rows_back(b.ctx, g, r, ggml_new_tensor_4d(b.ctx, GGML_TYPE_F32, 5, 11, 3, 2));
    }).max_nmse = 0.0;
    for (layout l : { layout::rows, layout::transposed }) { // the row numbers of a list, or of a token, are not neighbours
        t.add("GET_ROWS_BACK", std::string("lists-") + name_of(l), [=](builder & b) {
            ggml_tensor * g = b.real({ 5, 70, 3, 2 });
            ggml_tensor * r = b.whole({ 70, 3, 2, 1 }, 0, 11, l);
            return ggml_get_rows_back(b.ctx, g, r, ggml_new_tensor_4d(b.ctx, GGML_TYPE_F32, 5, 11, 3, 2));
        }).max_nmse = 0.0;
    }
    t.add("GET_ROWS_BACK", "lists-of-one-row", [](builder & b) { // runs of the same row that end with their list
        ggml_tensor * g = b.real({ 5, 7, 3, 2 });
        ggml_tensor * r = b.values(GGML_TYPE_I32, { 7, 3, 2, 1 }, { 2 });
        return ggml_get_rows_back(b.ctx, g, r, ggml_new_tensor_4d(b.ctx, GGML_TYPE_F32, 5, 3, 3, 2));
    }).max_nmse = 0.0;

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

    // Rows that do not exist: their gradients go nowhere, as if they were 0 and of row 0. The CPU ends the process.
    // 255 or 256 rows: a number behind them is the last one of a digit, or needs another
    struct missing { int64_t lists; int64_t n_vocab; };
    for (missing m : { missing { 1, 5 }, { 6, 5 }, { 1, 255 }, { 1, 256 } }) {
        for (bool acc : { false, true }) {
            const int64_t lists   = m.lists;
            const int64_t n_vocab = m.n_vocab;
            const auto build = [=](builder & b, bool there) {
                const float last   = (float) n_vocab - 1.0f;
                const float rows[] = { 0, last + 1.0f, last, -1, 2147483520.0f, last - 1.0f, 0, -2147483648.0f, 2, last + 2.0f, 0 };
                std::vector<float> g;
                std::vector<float> r;
                for (int64_t i = 0; i < 9*lists; ++i) {
                    const float row  = rows[i%11];
                    const bool  none = row < 0.0f || row > last;
                    r.push_back(there && none ? 0.0f : row);
                    for (int64_t c = 0; c < 100; ++c) {
                        g.push_back(there && none ? 0.0f : std::sin((float) (i*100 + c)));
                    }
                }
                const int64_t ne2 = lists == 1 ? 1 : 3;
                const int64_t ne3 = lists/ne2;
                ggml_tensor * grad = b.values(GGML_TYPE_F32, { 100, 9, ne2, ne3 }, g);
                ggml_tensor * ids  = b.values(GGML_TYPE_I32, { 9, ne2, ne3, 1 }, r);
                return acc ? ggml_get_rows_back_acc(b.ctx, grad, ids, b.real({ 100, n_vocab, ne2, ne3 })) :
                    ggml_get_rows_back(b.ctx, grad, ids, ggml_new_tensor_4d(b.ctx, GGML_TYPE_F32, 100, n_vocab, ne2, ne3));
            };
            const std::string of = n_vocab > 5 ? "-of-" + std::to_string(n_vocab) : lists > 1 ? "-lists" : "";
            op_case & c = t.add("GET_ROWS_BACK", "no-such-row" + of + (acc ? "-added" : ""),
                [=](builder & b) { return build(b, false); });
            c.on_cpu   = [=](builder & b) { return build(b, true); };
            c.max_nmse = 0.0;
        }
    }

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

// weights of attention without the fused op
void soft_maxes(table & t) {
    struct soft_max { const char * name; shape ne; shape mask; float max_bias; bool sinks; };
    const soft_max cases[] = {
        { "plain",      { 37, 5, 3, 2 },   { 0, 0, 0, 0 },    0.0f, false },
        { "one",        { 1, 3, 2, 1 },    { 0, 0, 0, 0 },    0.0f, false },
        { "warp",       { 32, 5, 2, 1 },   { 32, 5, 1, 1 },   0.0f, false },
        { "block",      { 1024, 3, 2, 1 }, { 1024, 3, 1, 1 }, 0.0f, false },
        { "long",       { 2500, 2, 1, 1 }, { 2500, 2, 1, 1 }, 0.0f, false },
        { "rows",       { 30000, 3, 1, 1 }, { 30000, 3, 1, 1 }, 0.0f, false }, // more than shared memory holds
        { "masked",     { 37, 5, 6, 2 },   { 37, 5, 1, 1 },   0.0f, false },
        { "masks",      { 37, 5, 6, 2 },   { 37, 5, 3, 2 },   0.0f, false },
        { "long-mask",  { 37, 5, 6, 2 },   { 37, 9, 1, 1 },   0.0f, false },
        { "alibi",      { 37, 5, 6, 2 },   { 37, 5, 1, 2 },   8.0f, false }, // six heads: no power of two
        { "sinks",      { 37, 5, 6, 2 },   { 37, 5, 1, 1 },   0.0f, true },
        { "all",        { 130, 5, 6, 2 },  { 130, 5, 2, 1 },  8.0f, true },
        { "sinks-only", { 37, 5, 6, 2 },   { 0, 0, 0, 0 },    0.0f, true },
    };
    for (const soft_max & s : cases) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
            if (!s.mask[0] && type == GGML_TYPE_F16) {
                continue;
            }
            const auto build = [=](builder & b) {
                ggml_tensor * x = b.real(s.ne, -8.0f, 8.0f);
                ggml_tensor * mask = nullptr;
                if (s.mask[0]) {
                    // numbers, and every third one -inf, but none of a row throughout
                    std::vector<float> v(s.mask[0]*s.mask[1]*s.mask[2]*s.mask[3]);
                    for (size_t i = 0; i < v.size(); ++i) {
                        v[i] = i%3 == 1 ? -INFINITY : std::sin((float) i);
                    }
                    mask = b.values(type, s.mask, v);
                }
                ggml_tensor * y = ggml_soft_max_ext(b.ctx, x, mask, 0.3f, s.max_bias);
                ggml_soft_max_add_sinks(y, s.sinks ? b.real({ s.ne[2], 1, 1, 1 }, -1.0f, 4.0f) : nullptr);
                return y;
            };
            const std::string name = std::string(s.name) + (s.mask[0] ? type == GGML_TYPE_F16 ? "-f16" : "-f32" : "");
            t.add("SOFT_MAX", name, build);
            if (name == "plain" || name == "all-f16") {
                t.add("SOFT_MAX", name + "-over-src0", build).inplace = 0;
            }
        }
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
    soft_maxes(t);
    products(t);
    tf32(t);
    pictures(t);
    rotations(t);
    attention(t);
    attention_parts(t);
    steps(t);
    chains(t);
    vectors(t);
    nonfinite(t);
    scratch(t);
    return t.cases;
}

} // namespace emu
