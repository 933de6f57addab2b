// SPDX-License-Identifier: MIT
// Cases of attention and its gradient: in f32, and on tensor cores, whose kernels look at the mask by tiles of 64 x 64.
#include "cases.hpp"

#include <cmath>

namespace emu {

namespace {

enum class masked {
    no,
    causal,
    causal_batches, // one for each batch
    numbers,        // any, the same for all heads: what a slope does nothing to is 0 and -inf
    numbers_heads,  // any, others for each head and batch
    tiles,          // tiles of columns: small numbers above 0, below 0, one number among zeros, one number among -inf
    tiles_heads,    // for each head and batch other tiles that are open, hidden or mixed
};

struct attention_case {
    const char * name;
    int64_t dk, dv, n_q, n_kv, n_head, n_head_kv, ne3;
    masked    mask     = masked::causal;
    bool      sinks    = false;
    float     max_bias = 0.0f;
    float     softcap  = 0.0f;
    ggml_type type     = GGML_TYPE_F32;
    layout    l        = layout::permuted;
};

// f16 [n_kv, n_q, ne2, ne3] of the numbers f(matrix, row, column)
template <typename F>
ggml_tensor * mask_of(builder & b, const attention_case & a, int64_t ne2, int64_t ne3, F f) {
    std::vector<float> v;
    v.reserve(a.n_kv*a.n_q*ne2*ne3);
    for (int64_t i = 0; i < ne2*ne3; ++i) {
        for (int64_t row = 0; row < a.n_q; ++row) {
            for (int64_t col = 0; col < a.n_kv; ++col) {
                v.push_back(f(i, row, col));
            }
        }
    }
    return b.values(GGML_TYPE_F16, { a.n_kv, a.n_q, ne2, ne3 }, v);
}

ggml_tensor * attention_mask(builder & b, const attention_case & a) {
    switch (a.mask) {
        case masked::no:
            return nullptr;
        case masked::causal:
            return b.causal(a.n_kv, a.n_q);
        case masked::causal_batches:
            return b.causal(a.n_kv, a.n_q, 1, a.ne3);
        case masked::numbers:
            return b.real({ a.n_kv, a.n_q, 1, 1 }, -2.0f, 2.0f, layout::contiguous, GGML_TYPE_F16);
        case masked::numbers_heads:
            return b.real({ a.n_kv, a.n_q, a.n_head, a.ne3 }, -2.0f, 2.0f, layout::contiguous, GGML_TYPE_F16);
        case masked::tiles:
            return mask_of(b, a, 1, 1, [&](int64_t, int64_t row, int64_t col) {
                const float few = 0.1f + 0.7f*(float) ((3*row + 5*col) % 8)/8.0f;
                switch (col/64) {
                    case 0:  return few;
                    case 1:  return -few;
                    case 2:  return row == a.n_q - 1 && col == 191 ? 8.0f : 0.0f;
                    default: return row == 0 && col == 192 ? 8.0f : -INFINITY;
                }
            });
        case masked::tiles_heads:
            return mask_of(b, a, a.n_head, a.ne3, [&](int64_t i, int64_t row, int64_t col) {
                const bool hidden = i == 1 ? col > row + a.n_kv - a.n_q : i == 2 ? col < 64 : i == 3 && col >= 64;
                return hidden ? -INFINITY : 0.0f;
            });
    }
    return nullptr;
}

// the gradient of the result has heads before rows, and lies as the other sources do where their strides are odd
ggml_tensor * attention_back(builder & b, const attention_case & a) {
    ggml_tensor * grad = b.real({ a.dv, a.n_head, a.n_q, a.ne3 }, -1.0f, 1.0f, a.l >= layout::odd_start ? a.l : layout::contiguous);
    ggml_tensor * q    = b.real({ a.dk, a.n_q, a.n_head, a.ne3 }, -1.0f, 1.0f, a.l);
    ggml_tensor * k    = b.real({ a.dk, a.n_kv, a.n_head_kv, a.ne3 }, -1.0f, 1.0f, a.l, a.type);
    ggml_tensor * v    = b.real({ a.dv, a.n_kv, a.n_head_kv, a.ne3 }, -1.0f, 1.0f, a.l, a.type);
    ggml_tensor * mask = attention_mask(b, a);
    ggml_tensor * sink = a.sinks ? b.real({ a.n_head, 1, 1, 1 }) : nullptr;
    // any tensor of its shape does: the gradient is a function of it, too
    ggml_tensor * out  = b.real({ a.dv, a.n_head, a.n_q, a.ne3 });
    return ggml_flash_attn_ext_back(b.ctx, grad, q, k, v, mask, sink, out, 1.0f/std::sqrt((float) a.dk), a.max_bias, a.softcap);
}

ggml_tensor * attention_of(builder & b, const attention_case & a) {
    ggml_tensor * q    = b.real({ a.dk, a.n_q, a.n_head, a.ne3 }, -2.0f, 2.0f, a.l);
    ggml_tensor * k    = b.real({ a.dk, a.n_kv, a.n_head_kv, a.ne3 }, -2.0f, 2.0f, a.l);
    ggml_tensor * v    = b.real({ a.dv, a.n_kv, a.n_head_kv, a.ne3 }, -1.0f, 1.0f, a.l);
    ggml_tensor * mask = attention_mask(b, a);
    ggml_tensor * attn = ggml_flash_attn_ext(b.ctx, q, k, v, mask, 1.0f/std::sqrt((float) a.dk), a.max_bias, a.softcap);
    ggml_flash_attn_ext_add_sinks(attn, a.sinks ? b.real({ a.n_head, 1, 1, 1 }) : nullptr);
    return attn;
}

// How the gradient's last source comes from attention.
enum class forward {
    kept,   // it is its result: what the forward has left of each row may be read
    copied, // a copy of its result: everything is computed from q and k
    viewed,
};

void may_round(ggml_tensor * op, int n) {
    for (int i = 0; i < n; ++i) {
        ggml_prec_set_src(op, GGML_PREC_BF16, i);
    }
}

// attention and its gradient; other_q: the gradient is that of a q which the forward has not seen
ggml_tensor * attention_both(
        builder & b, const attention_case & a, const std::vector<forward> & from, int n_round, int n_round_back,
        float scale_back = 1.0f, bool other_q = false) {
    ggml_tensor * attn = attention_of(b, a);
    may_round(attn, n_round);
    ggml_tensor * q    = other_q ? b.real({ a.dk, a.n_q, a.n_head, a.ne3 }, -2.0f, 2.0f, a.l) : attn->src[0];
    ggml_tensor * grad = b.real({ a.dv, a.n_head, a.n_q, a.ne3 }, -1.0f, 1.0f, a.l >= layout::odd_start ? a.l : layout::contiguous);

    ggml_tensor * result = nullptr;
    for (const forward f : from) {
        ggml_tensor * out  = f == forward::kept ? attn : f == forward::copied ? ggml_dup(b.ctx, attn) : ggml_reshape(b.ctx, attn, attn);
        ggml_tensor * back = ggml_flash_attn_ext_back(b.ctx, grad, q, attn->src[1], attn->src[2], attn->src[3], attn->src[4], out,
            scale_back/std::sqrt((float) a.dk), a.max_bias, a.softcap);
        may_round(back, n_round_back);
        result = result ? ggml_sub(b.ctx, result, back) : back;
    }
    return result;
}

// The log-sums of rows that the forward leaves behind its result: against the CPU, and beside those that are computed again,
// whose bits the gradient must have. The kernels are counted: it is read, or it is not.
void kept_log_sums(table & t, const std::vector<attention_case> & cases) {
    for (const attention_case & a : cases) {
        if (a.type != GGML_TYPE_F32) {
            continue;
        }
        op_case & c = t.add("FLASH_ATTN_EXT_BACK", std::string("kept-") + a.name, [=](builder & b) {
            return attention_both(b, a, { forward::kept }, 0, 0);
        });
        c.max_nmse = 1e-9;
        c.only     = "CUDA";
        for (const int n : { 0, 4 }) {
            const std::string prefix = n ? "bf16-kept-as-computed-" : "kept-as-computed-";
            op_case & same = t.add("FLASH_ATTN_EXT_BACK", prefix + a.name, [=](builder & b) {
                return attention_both(b, a, { forward::kept, forward::copied }, n ? 3 : 0, n);
            });
            same.max_nmse = 0.0;
            same.only     = "CUDA";
        }
    }

    // the forward computes: classes of tiles, 3 roundings in bf16; the gradient: D, dk and dv, dq, and the same in bf16
    const attention_case a = { "", 64, 64, 70, 70, 2, 2, 2 };
    const auto counted = [&](
            const char * name, int n_round, int n_round_back, uint64_t launches, forward from = forward::kept, float scale = 1.0f,
            bool other_q = false) {
        op_case & c = t.add("FLASH_ATTN_EXT_BACK", name, [=](builder & b) {
            return attention_both(b, a, { from }, n_round, n_round_back, scale, other_q);
        });
        c.launches = launches;
        c.only     = "CUDA";
        c.max_nmse = n_round || n_round_back ? 8*2.7e-6 : 1e-9; // what is rounded twice is off by twice as much
    };
    counted("launches",                0, 0, 1 + 3);
    counted("launches-view",           0, 0, 1 + 4, forward::viewed);
    counted("launches-other-scale",    0, 0, 1 + 4, forward::kept, 0.5f);
    counted("launches-other-q",        0, 0, 1 + 4, forward::kept, 1.0f, true);
    counted("launches-bf16",           3, 4, 5 + 7);
    counted("launches-bf16-other-q",   3, 4, 5 + 8, forward::kept, 1.0f, true);
    counted("launches-bf16-after-f32", 0, 4, 1 + 8);
    counted("launches-f32-after-bf16", 3, 0, 5 + 4);
}

// Nothing is taken whose mask leaves rows or columns out: heads of 32, which no kernel of ggml's takes either, and those of 64
// with keys in f16, which are ggml's kernels' alone.
void too_small_masks(table & t) {
    struct head { int64_t size; ggml_type type; };
    struct mask { const char * name; int64_t ne0, ne1; };
    for (head h : { head { 32, GGML_TYPE_F32 }, head { 64, GGML_TYPE_F16 } }) {
        for (mask m : { mask { "mask-of-few-rows", 40, 39 }, mask { "mask-of-few-columns", 39, 40 } }) {
            op_case & c = t.add("FLASH_ATTN_EXT", std::string(m.name) + (h.size == 64 ? "-f16" : ""), [=](builder & b) {
                ggml_tensor * q = b.real({ h.size, 40, 2, 1 });
                ggml_tensor * k = b.real({ h.size, 40, 2, 1 }, -1.0f, 1.0f, layout::contiguous, h.type);
                ggml_tensor * v = b.real({ h.size, 40, 2, 1 }, -1.0f, 1.0f, layout::contiguous, h.type);
                ggml_tensor * mask = b.real({ m.ne0, m.ne1, 1, 1 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_F16);
                return ggml_flash_attn_ext(b.ctx, q, k, v, mask, 0.2f, 0.0f, 0.0f);
            });
            c.supported = false;
            c.only      = "CUDA";
        }
    }
}

} // namespace

void attention(table & t) {
    const std::vector<attention_case> cases = {
        { "causal",      64,  64,  70,  70,  2, 2, 2 },
        { "no-mask",     64,  64,  33,  65,  2, 2, 1, masked::no },
        { "heads",       64,  64,  40,  40,  4, 2, 2, masked::causal_batches },
        { "masks",       64,  64,  70,  40,  4, 2, 2, masked::numbers_heads },
        { "tiles",       32,  32,  64,  256, 1, 1, 1, masked::tiles },
        { "tiles-heads", 32,  32,  64,  128, 2, 1, 2, masked::tiles_heads },
        { "longer-kv",   32,  32,  20,  150, 2, 1, 1 },
        { "one-token",   64,  64,  1,   37,  2, 2, 1 },
        { "hidden-rows", 64,  64,  90,  20,  1, 1, 1 },
        { "dk-dv",       40,  72,  35,  35,  2, 1, 1 },
        { "d128",        128, 128, 36,  36,  2, 2, 1 },
        { "d128-tiles",  128, 128, 100, 100, 1, 1, 1 },
        { "whole-64",    64,  64,  128, 128, 1, 1, 1, masked::no },
        { "whole-128",   128, 128, 128, 128, 1, 1, 1, masked::no },
        { "d80",         80,  80,  36,  36,  1, 1, 1 },
        { "d256",        256, 256, 20,  20,  1, 1, 1 },
        { "sinks",       64,  64,  40,  40,  2, 2, 2, masked::causal, true },
        { "alibi",       64,  64,  40,  40,  6, 2, 1, masked::numbers, false, 8.0f },
        { "softcap",     64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 5.0f },
        { "f16",         64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F16 },
        { "bf16",        64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_BF16 },
        { "contiguous",  64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::contiguous },
        { "odd-start",   40,  40,  20,  20,  2, 1, 2, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::odd_start },
        { "odd-1",       40,  40,  20,  20,  2, 1, 2, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::odd_1 },
        { "odd-2",       40,  40,  20,  20,  2, 1, 2, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::odd_2 },
        { "odd-3",       40,  40,  20,  20,  2, 1, 2, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::odd_3 },
        { "odd",         40,  40,  20,  20,  2, 1, 2, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::odd },
    };
    for (const attention_case & a : cases) {
        t.add("FLASH_ATTN_EXT_BACK", a.name, [=](builder & b) { return attention_back(b, a); }).max_nmse = 1e-9;
    }

    // A result is off by what a weight and v are rounded by, and a weight by what its score is off by, as it stands: a score's
    // mean square is 16/9 here, and it is a product of two rounded numbers. 2.7e-6: see below.
    for (const attention_case & a : cases) {
        if (a.type != GGML_TYPE_F32) {
            continue;
        }
        t.add("FLASH_ATTN_EXT", a.name, [=](builder & b) { return attention_of(b, a); }).only = "CUDA";
        op_case & c = t.add("FLASH_ATTN_EXT", std::string("bf16-") + a.name, [=](builder & b) {
            ggml_tensor * attn = attention_of(b, a);
            for (int i = 0; i < 3; ++i) {
                ggml_prec_set_src(attn, GGML_PREC_BF16, i);
            }
            return attn;
        });
        c.max_nmse = a.dk <= 128 ? (2 + 2*16.0/9)*2.7e-6 : 1e-10;
        c.min_nmse = a.dk <= 128 ? 1e-6 : 0.0;
        c.only     = "CUDA";
    }
    too_small_masks(t);

    // On tensor cores, and in tiles of bf16 on Metal. A number that is rounded to bf16 is off by an error whose mean square, over its own, is 2^-16/3*0.54 =
    // 2.7e-6 (mantissas that are evenly spread by their logarithm). dv is a product of two rounded numbers; dq and dk are of
    // four: do and v, then the gradient of the score and k or q. What the weights are off by is less: scores are near 0.
    std::vector<attention_case> rounded = {
        { "causal",      64,  64,  70,  70,  2, 2, 2 },
        { "long",        64,  64,  192, 192, 1, 1, 1 },
        { "long-gqa",    128, 128, 130, 130, 4, 2, 1 },
        { "no-mask",     64,  64,  33,  65,  2, 2, 1, masked::no },
        { "whole-tiles", 64,  64,  64,  128, 2, 1, 1, masked::no },
        { "heads",       64,  64,  40,  40,  4, 2, 2, masked::causal_batches },
        { "masks",       64,  64,  70,  40,  4, 2, 2, masked::numbers_heads },
        { "tiles",       32,  32,  64,  256, 1, 1, 1, masked::tiles },
        { "tiles-heads", 32,  32,  64,  128, 2, 1, 2, masked::tiles_heads },
        { "longer-kv",   32,  32,  20,  150, 2, 1, 1 },
        { "one-token",   64,  64,  1,   37,  2, 2, 1 },
        { "hidden-rows", 64,  64,  90,  20,  1, 1, 1 },
        { "dk-dv",       40,  72,  35,  35,  2, 1, 1 },
        { "d128",        128, 128, 36,  36,  2, 2, 1 },
        { "d96",         96,  96,  70,  70,  1, 1, 1 },
        { "sinks",       64,  64,  40,  40,  2, 2, 2, masked::causal, true },
        { "alibi",       64,  64,  40,  40,  6, 2, 1, masked::numbers, false, 8.0f },
        { "softcap",     64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 5.0f },
        { "f16",         64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F16 },
        { "bf16",        64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_BF16, layout::contiguous },
        { "contiguous",  64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_F32, layout::contiguous },
        { "q8_0",        64,  64,  40,  40,  2, 2, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_Q8_0, layout::contiguous },
        // not taken on CUDA: heads too large, no whole vectors, or bf16 that lies as it cannot be copied; the kernel in f32 runs
        { "d256",        256, 256, 20,  20,  1, 1, 1 },
        { "d36",         36,  36,  20,  20,  1, 1, 1 },
        { "bf16-odd",    40,  40,  20,  20,  2, 1, 1, masked::causal, false, 0.0f, 0.0f, GGML_TYPE_BF16, layout::odd_start },
    };
    for (const attention_case & a : cases) {
        if (a.l >= layout::odd_start) {
            rounded.push_back(a);
        }
    }
    for (const attention_case & a : rounded) {
        for (const char * device : { "CUDA", "Metal" }) {
            const bool metal = device[0] == 'M';
            const bool taken = metal || (a.dk%8 == 0 && a.dk <= 128 && (a.type != GGML_TYPE_BF16 || a.l == layout::contiguous));
            if (metal && a.type == GGML_TYPE_Q8_0) {
                continue;
            }
            op_case & c = t.add("FLASH_ATTN_EXT_BACK", std::string("bf16-") + a.name, [=](builder & b) {
                ggml_tensor * back = attention_back(b, a);
                for (int i = 0; i < 4; ++i) {
                    ggml_prec_set_src(back, GGML_PREC_BF16, i);
                }
                return back;
            });
            c.max_nmse = taken ? 4*2.7e-6 : 1e-9;
            c.min_nmse = taken ? 1e-6 : 0.0;
            c.only     = device;
        }
    }
    kept_log_sums(t, cases);

    // permission for three of four
    t.add("FLASH_ATTN_EXT_BACK", "bf16-but-for-v", [](builder & b) {
        ggml_tensor * back = attention_back(b, { "", 64, 64, 40, 40, 2, 2, 1 });
        for (int i = 0; i < 3; ++i) {
            ggml_prec_set_src(back, GGML_PREC_BF16, i);
        }
        return back;
    }).max_nmse = 1e-9;

    // All values of a head are one row, which is the result, too: dq and dk are 0 if D is formed of the same numbers as the
    // gradients of the weights are. Keys are so large that what is left would be seen beside dv.
    op_case & c = t.add("FLASH_ATTN_EXT_BACK", "bf16-one-value", [](builder & b) {
        std::vector<float> row;
        for (int i = 0; i < 64; ++i) {
            row.push_back((float) (i*i % 61 - 30)/32.0f);
        }
        ggml_tensor * grad = b.real({ 64, 2, 70, 1 });
        ggml_tensor * q    = b.real({ 64, 70, 2, 1 }, -1e-3f, 1e-3f);
        ggml_tensor * k    = b.real({ 64, 70, 2, 1 }, -1e3f, 1e3f);
        ggml_tensor * v    = b.values(GGML_TYPE_F32, { 64, 70, 2, 1 }, row);
        ggml_tensor * out  = b.values(GGML_TYPE_F32, { 64, 2, 70, 1 }, row);
        ggml_tensor * back = ggml_flash_attn_ext_back(b.ctx, grad, q, k, v, nullptr, nullptr, out, 0.125f, 0.0f, 0.0f);
        for (int i = 0; i < 4; ++i) {
            ggml_prec_set_src(back, GGML_PREC_BF16, i);
        }
        return back;
    });
    c.max_nmse = 4*2.7e-6;
}

} // namespace emu
