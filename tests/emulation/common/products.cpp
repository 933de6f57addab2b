// SPDX-License-Identifier: MIT
// Cases of products and of their gradients: of matrices, of quantized ones by tiles, and of experts.
#include "cases.hpp"

#include <cmath>
#include <utility>

namespace emu {

namespace {

using shape = builder::shape;

const std::vector<layout> any_rows = { layout::rows, layout::permuted, layout::odd };

void matrices(table & t) {
    struct out_prod { const char * name; shape a; shape b; bool transposed; };
    const out_prod shapes[] = {
        { "matrix",      { 37, 20, 1, 1 }, { 29, 20, 1, 1 }, false },
        { "transposed",  { 37, 20, 1, 1 }, { 29, 20, 1, 1 }, true },
        { "one-row",     { 37, 1, 1, 1 },  { 29, 1, 1, 1 },  false },
        { "one-column",  { 37, 1, 2, 1 },  { 29, 1, 4, 3 },  true },
        { "batch",       { 17, 9, 3, 2 },  { 11, 9, 3, 2 },  false },
        { "heads",       { 17, 9, 2, 1 },  { 11, 9, 6, 2 },  false },
        { "batch-transposed", { 17, 9, 3, 2 }, { 11, 9, 3, 2 }, true },
        // more than a tile of Metal's, in whole vectors
        { "vectors",            { 72, 36, 1, 1 }, { 68, 36, 2, 1 }, false },
        { "vectors-transposed", { 72, 36, 1, 1 }, { 68, 36, 2, 1 }, true },
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
    // as many numbers as whole vectors have, at addresses of none
    for (layout l : { layout::odd_start, layout::odd_1, layout::odd_2, layout::odd_3, layout::odd }) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
            op_case & c = t.add("OUT_PROD", std::string("vectors-") + name_of(l) + "-" + ggml_type_name(type), [=](builder & b) {
                ggml_tensor * x = b.real({ 72, 20, 3, 2 }, -1.0f, 1.0f, l, type);
                return ggml_out_prod(b.ctx, x, b.real({ 8, 20, 3, 2 }, -1.0f, 1.0f, l));
            });
            c.max_nmse = type == GGML_TYPE_F32 ? 1e-10 : 1e-4;
            c.only     = "Metal";
        }
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
    // as many classes as logits have: whole vectors of them first
    for (bool added : { false, true }) {
        t.add("OUT_PROD", std::string("many-terms-may-round-bf16") + (added ? "-added" : ""), [=](builder & b) {
            ggml_tensor * x = b.real({ 24, 1029, 1, 1 });
            ggml_tensor * y = b.real({ 16, 1029, 1, 1 }, -1.0f, 1.0f, layout::transposed);
            ggml_tensor * p = ggml_out_prod(b.ctx, x, y);
            ggml_prec_set_src(p, GGML_PREC_BF16, 0);
            ggml_prec_set_src(p, GGML_PREC_BF16, 1);
            return added ? ggml_add(b.ctx, p, b.real({ 24, 16, 1, 1 })) : p;
        }).max_nmse = 1e-4;
    }
    t.add("MUL_MAT", "many-rows-may-round-bf16", [](builder & b) {
        ggml_tensor * x = b.real({ 32, 1029, 1, 1 });
        ggml_tensor * p = ggml_mul_mat(b.ctx, x, b.real({ 32, 24, 1, 1 }));
        ggml_prec_set_src(p, GGML_PREC_BF16, 0);
        ggml_prec_set_src(p, GGML_PREC_BF16, 1);
        return p;
    }).max_nmse = 1e-4;
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
    // few columns, for which Metal has kernels of their own
    for (int64_t n : { 2, 5, 6, 8, 9, 13, 16, 17 }) {
        for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
            op_case & c = t.add("MUL_MAT", "columns-" + std::to_string(n) + "-" + ggml_type_name(type), [=](builder & b) {
                ggml_tensor * x = b.real({ 128, 70, 2, 1 }, -1.0f, 1.0f, layout::contiguous, type);
                return ggml_mul_mat(b.ctx, x, b.real({ 128, n, 4, 1 }));
            });
            c.max_nmse = type == GGML_TYPE_F32 ? 1e-10 : 1e-6; // the CPU rounds the other source, too
            c.only     = "Metal";
        }
    }
    // Sums of products of small whole numbers: exact where nothing but the sources is rounded.
    for (bool batches : { false, true }) {
        op_case & c = t.add("MUL_MAT", batches ? "whole-batches-may-round-bf16" : "whole-may-round-bf16", [=](builder & b) {
            std::vector<float> v;
            for (int i = 0; i < 211; ++i) {
                v.push_back((float) (i*i % 17 - 6));
            }
            ggml_tensor * x = b.values(GGML_TYPE_F32, { 64, 70, batches ? 2 : 1, 1 }, v);
            ggml_tensor * p = ggml_mul_mat(b.ctx, x, b.values(GGML_TYPE_F32, { 64, 45, batches ? 4 : 1, batches ? 3 : 1 }, v));
            ggml_prec_set_src(p, GGML_PREC_BF16, 0);
            ggml_prec_set_src(p, GGML_PREC_BF16, 1);
            return p;
        });
        c.max_nmse = 0.0;
        c.only     = "CUDA";
    }
    // CUDA's are ggml's own; the CPU rounds the other source to q8_0
    for (int64_t n : { 2, 45 }) {
        op_case & c = t.add("MUL_MAT", "q5_0-by-" + std::to_string(n), [=](builder & b) {
            ggml_tensor * x = b.real({ 96, 70, 2, 1 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_Q5_0);
            return ggml_mul_mat(b.ctx, x, b.real({ 96, n, 2, 1 }));
        });
        c.max_nmse = 1e-4;
        c.only     = "Metal";
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

void tiles_of_quantized(table & t) {
    // More of a quantized source than a tile of CUDA's has, which is of 2 KiB here: tiles of several rows, of which the last one
    // has fewer, and of one row that is larger.
    struct quantized { ggml_type type; const char * only; };
    for (quantized q : { quantized { GGML_TYPE_Q4_0, "" }, { GGML_TYPE_Q4_1, "" }, { GGML_TYPE_Q5_0, "" }, { GGML_TYPE_Q5_1, "" }, { GGML_TYPE_Q8_0, "" },
                         { GGML_TYPE_Q2_K, "" }, { GGML_TYPE_Q3_K, "" }, { GGML_TYPE_Q4_K, "" }, { GGML_TYPE_Q5_K, "" }, { GGML_TYPE_Q6_K, "" },
                         { GGML_TYPE_IQ4_NL, "" }, { GGML_TYPE_IQ4_XS, "" }, { GGML_TYPE_Q1_0, "CUDA" }, { GGML_TYPE_Q2_0, "CUDA" },
                         { GGML_TYPE_IQ1_M, "CUDA" }, { GGML_TYPE_IQ2_S, "CUDA" }, { GGML_TYPE_IQ3_XXS, "CUDA" }, { GGML_TYPE_IQ3_S, "CUDA" },
                         { GGML_TYPE_MXFP4, "CUDA" }, { GGML_TYPE_NVFP4, "CUDA" } }) {
        for (bool may_round : { false, true }) {
            op_case & c = t.add("OUT_PROD", std::string("tiles-") + ggml_type_name(q.type) + (may_round ? "-may-round-bf16" : ""), [=](builder & b) {
                const int64_t n = ggml_blck_size(q.type);
                ggml_tensor * x = b.real({ n < 256 ? 3*n : n, 37, 1, 1 }, -1.0f, 1.0f, layout::contiguous, q.type);
                ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real({ 29, 37, 1, 1 }, -1.0f, 1.0f, layout::transposed));
                if (may_round) {
                    ggml_prec_set_src(p, GGML_PREC_BF16, 0);
                    ggml_prec_set_src(p, GGML_PREC_BF16, 1);
                }
                return p;
            });
            c.max_nmse = may_round ? 1e-4 : 1e-10;
            c.only     = q.only;
        }
    }
    // no whole number of 256, which is what CUDA's kernel for it takes at a time
    op_case & mxfp4 = t.add("OUT_PROD", "mxfp4-480x38", [](builder & b) {
        ggml_tensor * x = b.real({ 480, 38, 1, 1 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_MXFP4);
        ggml_tensor * p = ggml_out_prod(b.ctx, x, b.real({ 7, 38, 1, 1 }));
        ggml_prec_set_src(p, GGML_PREC_BF16, 0);
        ggml_prec_set_src(p, GGML_PREC_BF16, 1);
        return p;
    });
    mxfp4.max_nmse = 1e-4;
    mxfp4.only     = "CUDA";
    struct tiles { const char * name; shape a, b; };
    for (const tiles & s : { tiles { "batch", { 96, 21, 3, 2 }, { 11, 21, 3, 2 } }, tiles { "heads", { 96, 21, 2, 1 }, { 11, 21, 6, 2 } },
                             tiles { "one-matrix", { 96, 21, 1, 1 }, { 11, 21, 3, 2 } }, tiles { "long-row", { 1024, 5, 1, 1 }, { 7, 5, 2, 1 } } }) {
        for (layout l : { layout::contiguous, layout::transposed, layout::rows }) {
            for (bool add : { false, true }) {
                t.add("OUT_PROD", std::string("tiles-") + s.name + "-" + name_of(l) + (add ? "-added" : ""), [=](builder & b) {
                    ggml_tensor * x = b.real(s.a, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_Q8_0);
                    ggml_tensor * y = b.real(s.b, -1.0f, 1.0f, l);
                    return add ? ggml_out_prod_acc(b.ctx, x, y, b.real({ s.a[0], s.b[0], s.b[2], s.b[3] })) : ggml_out_prod(b.ctx, x, y);
                });
            }
        }
    }
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

// Lists by expert: CUDA sorts the pairs by 1024 and by digits of 8 bits, and its tiles have 64 x 64 elements of 32 terms.
void lists_of_experts(table & t) {
    struct lists { const char * name; int64_t k, m, n_as, n_used, n_tokens; std::vector<float> ids; };
    const lists shapes[] = {
        { "one",       1,   1,  1,   1, 1,    { 0 } },
        { "blocks",    11,  7,  6,   3, 700,  {} },          // more pairs than a block sorts
        { "digits",    8,   5,  300, 2, 150,  {} },          // more experts than a digit has values; most have one pair, or none
        { "all",       70,  67, 4,   2, 111,  { 2 } },       // of one expert, which a token names twice
        { "some",      65,  66, 5,   3, 90,   { 4, 1, 1 } }, // the others have none: the first, the last but one
        { "whole",     64,  64, 2,   2, 64,   { 0, 1 } },    // whole tiles
        { "four",      130, 33, 3,   4, 45,   {} },
    };
    for (const lists & s : shapes) {
        const auto ids = [=](builder & b) {
            const shape ne = { s.n_used, s.n_tokens, 1, 1 };
            return s.ids.empty() ? b.whole(ne, 0, (int) s.n_as) : b.values(GGML_TYPE_I32, ne, s.ids);
        };
        // rows of b: one of a token, half as many as pairs, as many
        std::vector<int64_t> nbs = { 1 };
        if (s.n_used%4 == 0) {
            nbs.push_back(s.n_used/2);
        }
        if (s.n_used > 1) {
            nbs.push_back(s.n_used);
        }
        for (int64_t nb : nbs) {
            t.add("MUL_MAT_ID_BACK", std::string("lists-") + s.name + "-b" + std::to_string(nb), [=](builder & b) {
                ggml_tensor * g  = b.real({ s.m, s.n_used, s.n_tokens, 1 });
                ggml_tensor * as = b.real({ s.k, s.m, s.n_as, 1 });
                return ggml_mul_mat_id_back_b(b.ctx, g, as, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, s.k, nb, s.n_tokens), ids(b));
            });
            t.add("MUL_MAT_ID_BACK", std::string("lists-") + s.name + "-as" + std::to_string(nb), [=](builder & b) {
                ggml_tensor * g = b.real({ s.m, s.n_used, s.n_tokens, 1 });
                ggml_tensor * x = b.real({ s.k, nb, s.n_tokens, 1 });
                return ggml_mul_mat_id_back_as(b.ctx, g, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, s.k, s.m, s.n_as), x, ids(b));
            });
        }
    }
}

void ids_of_experts(table & t) {
    for (layout l : { layout::rows, layout::transposed }) { // the ids of a token, or of a place, are not neighbours
        t.add("MUL_MAT_ID_BACK", std::string("ids-") + name_of(l) + "-b", [=](builder & b) {
            ggml_tensor * g  = b.real({ 7, 3, 50, 1 });
            ggml_tensor * as = b.real({ 11, 7, 5, 1 });
            return ggml_mul_mat_id_back_b(b.ctx, g, as, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 11, 1, 50), b.whole({ 3, 50, 1, 1 }, 0, 5, l));
        });
        t.add("MUL_MAT_ID_BACK", std::string("ids-") + name_of(l) + "-as", [=](builder & b) {
            ggml_tensor * g = b.real({ 7, 3, 50, 1 });
            ggml_tensor * x = b.real({ 11, 3, 50, 1 });
            return ggml_mul_mat_id_back_as(b.ctx, g, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 11, 7, 5), x, b.whole({ 3, 50, 1, 1 }, 0, 5, l));
        });
    }
    op_case & many = t.add("MUL_MAT_ID_BACK", "more-experts-than-blocks", [](builder & b) { // of a grid along z
        ggml_tensor * g = b.real({ 2, 2, 100, 1 });
        ggml_tensor * x = b.real({ 3, 1, 100, 1 });
        return ggml_mul_mat_id_back_as(b.ctx, g, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 3, 2, 65600), x, b.whole({ 2, 100, 1, 1 }, 65400, 65600));
    });
    many.slow = true;
    many.only = "CUDA";
}

// Pairs whose expert is none of the 4: to the gradients they add nothing, as if theirs were 0. The CPU ends the process.
void no_such_experts(table & t) {
    struct missing { const char * name; int64_t n_tokens; std::vector<float> ids; };
    const missing all[] = {
        { "",      9,   { 0, 4, 1, -1, 2147483520.0f, 3, 2, -2147483648.0f, 0 } },
        { "many-", 600, { 0, 4, 1, -1, 2147483520.0f, 3, 2, -2147483648.0f, 0 } },
        { "first-", 9,  { -1, 3 } }, // of each token the first
        { "all-",  9,   { 4 } },
    };
    for (const missing & s : all) {
        const int64_t n_tokens = s.n_tokens;
        const auto sources = [=](builder & b, bool there) {
            const std::vector<float> & ids = s.ids;
            std::vector<float> g(37*2*n_tokens);
            std::vector<float> e(2*n_tokens);
            for (size_t p = 0; p < e.size(); ++p) {
                const float id   = ids[p%ids.size()];
                const bool  none = id < 0.0f || id >= 4.0f;
                e[p] = there && none ? 0.0f : id;
                for (size_t m = 0; m < 37; ++m) {
                    g[p*37 + m] = there && none ? 0.0f : std::sin((float) (p*37 + m));
                }
            }
            ggml_tensor * grad = b.values(GGML_TYPE_F32, { 37, 2, n_tokens, 1 }, g);
            return std::make_pair(grad, b.values(GGML_TYPE_I32, { 2, n_tokens, 1, 1 }, e));
        };
        for (int64_t nb : { 1, 2 }) {
            const auto back_b = [=](builder & b, bool there) {
                const auto [g, e] = sources(b, there);
                ggml_tensor * as = b.real({ 64, 37, 4, 1 });
                return ggml_mul_mat_id_back_b(b.ctx, g, as, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 64, nb, n_tokens), e);
            };
            const auto back_as = [=](builder & b, bool there) {
                const auto [g, e] = sources(b, there);
                ggml_tensor * x = b.real({ 64, nb, n_tokens, 1 });
                return ggml_mul_mat_id_back_as(b.ctx, g, ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 64, 37, 4), x, e);
            };
            t.add("MUL_MAT_ID_BACK", std::string("no-such-expert-") + s.name + "b" + std::to_string(nb), [=](builder & b) { return back_b(b, false); })
                .on_cpu = [=](builder & b) { return back_b(b, true); };
            t.add("MUL_MAT_ID_BACK", std::string("no-such-expert-") + s.name + "as" + std::to_string(nb), [=](builder & b) { return back_as(b, false); })
                .on_cpu = [=](builder & b) { return back_as(b, true); };
        }
    }
}

} // namespace

void products(table & t) {
    matrices(t);
    tiles_of_quantized(t);
    experts(t);
    lists_of_experts(t);
    ids_of_experts(t);
    no_such_experts(t);
}

} // namespace emu
