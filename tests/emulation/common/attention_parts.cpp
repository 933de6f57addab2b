// SPDX-License-Identifier: MIT
// The gradient of attention whose q, k and v are heads of one tensor: they are parts of one gradient, zeros to which each is
// added, and may be rounded then. A device may compute that at once, also over the tensor itself.
#include "cases.hpp"

#include <ggml-train-impl.h>

#include <cmath>

namespace emu {

namespace {

struct parts_case {
    const char * name;
    int64_t d, n_tokens, n_head, n_head_kv, ne3;
    bool    rounds   = false; // products on tensor cores
    bool    in_place = true;  // the gradient lies over q, k and v
    bool    mask     = true;
    // of those that are no such parts
    bool    sinks    = false;
    bool    gap      = false; // v is added where k is
    float   zero     = 0.0f;
    bool    read     = false; // somebody else reads a part
    // the gradient lies over what is read until all of it is computed
    bool    on_mask  = false;
    bool    on_grad  = false;
    bool    on_heads = false; // q, k and v, rounded before
};

struct parts {
    ggml_tensor * grad;
    ggml_tensor * q;
    ggml_tensor * k;
    ggml_tensor * v;
    ggml_tensor * all; // [d, n_head + 2*n_head_kv, n_tokens, ne3]
    ggml_tensor * mask;
    ggml_tensor * sinks;
    ggml_tensor * out;
    ggml_tensor * room; // nullptr: the gradient has memory of its own
    ggml_tensor * rounded[3]; // nullptr: q, k and v are read in f32
};

ggml_tensor * heads_of(builder & b, ggml_tensor * all, int64_t first, int64_t n) {
    ggml_tensor * t = ggml_view_4d(b.ctx, all, all->ne[0], n, all->ne[2], all->ne[3], all->nb[1], all->nb[2], all->nb[3], first*all->nb[1]);
    return ggml_permute(b.ctx, t, 0, 2, 1, 3);
}

parts parts_of(builder & b, const parts_case & a) {
    parts p = {};
    p.all   = b.real({ a.d, a.n_head + 2*a.n_head_kv, a.n_tokens, a.ne3 });
    p.q     = heads_of(b, p.all, 0, a.n_head);
    p.k     = heads_of(b, p.all, a.n_head, a.n_head_kv);
    p.v     = heads_of(b, p.all, a.n_head + a.n_head_kv, a.n_head_kv);
    p.room  = a.in_place ? p.all : a.on_mask || a.on_grad ? b.real({ ggml_nelements(p.all), 1, 1, 1 }) : nullptr;
    p.grad  = b.real({ a.d, a.n_head, a.n_tokens, a.ne3 });
    p.mask  = a.mask ? b.causal(a.n_tokens, a.n_tokens) : nullptr;
    p.sinks = a.sinks ? b.real({ a.n_head, 1, 1, 1 }) : nullptr;
    p.out   = b.real({ a.d, a.n_head, a.n_tokens, a.ne3 });
    if (a.on_mask || a.on_grad) {
        b.lies_over(a.on_mask ? p.mask : p.grad, p.room);
    }
    return p;
}

// q, k and v in bf16. ggml's own functions take queries in f32: a pass over the graph puts these in their place.
void round_heads(builder & b, const parts_case & a, parts & p) {
    ggml_tensor * all = ggml_cast(b.ctx, p.all, GGML_TYPE_BF16);
    if (a.on_heads) {
        p.room = b.real({ ggml_nelements(p.all), 1, 1, 1 });
        b.lies_over(all, p.room);
    }
    b.next(all);
    p.rounded[0] = heads_of(b, all, 0, a.n_head);
    p.rounded[1] = heads_of(b, all, a.n_head, a.n_head_kv);
    p.rounded[2] = heads_of(b, all, a.n_head + a.n_head_kv, a.n_head_kv);
}

void read_rounded(ggml_tensor * op, const parts & p, int first) {
    for (int i = 0; i < 3; ++i) {
        op->src[first + i] = p.rounded[i] ? p.rounded[i] : op->src[first + i];
    }
}

void may_round(ggml_tensor * op, int n) {
    for (int i = 0; i < n; ++i) {
        ggml_prec_set_src(op, GGML_PREC_BF16, i);
    }
}

// one_by_one: by copies of the parts, which no device takes for the parts themselves
ggml_tensor * gradient_of(builder & b, const parts_case & a, const parts & p, bool one_by_one) {
    ggml_context * ctx = b.ctx;
    ggml_tensor * back = ggml_flash_attn_ext_back(ctx, p.grad, p.q, p.k, p.v, p.mask, p.sinks, p.out, 1.0f/std::sqrt((float) a.d), 0.0f, 0.0f);
    may_round(back, a.rounds ? 4 : 0);
    read_rounded(back, p, 1);

    ggml_tensor * part[3];
    size_t offset = 0;
    int    i      = 0;
    for (ggml_tensor * t : { p.q, p.k, p.v }) {
        const size_t row = t->ne[0]*sizeof(float);
        part[i] = ggml_permute(ctx, ggml_view_4d(ctx, back, t->ne[0], t->ne[1], t->ne[2], t->ne[3], row, t->ne[1]*row,
            t->ne[2]*t->ne[1]*row, offset), 0, 2, 1, 3);
        if (one_by_one) {
            part[i] = ggml_cont(ctx, part[i]);
        }
        offset += GGML_PAD(ggml_nelements(t), GGML_FLASH_ATTN_EXT_BACK_PAD)*sizeof(float);
        i++;
    }
    for (ggml_tensor * t : part) {
        b.next(t); // as where a graph gets its gradients
    }
    ggml_tensor * all = ggml_fill(ctx, p.all, a.zero);
    if (p.room && !one_by_one) {
        b.lies_over(all, p.room);
    }
    // v first, as gradients come
    const int64_t first[3] = { 0, a.n_head, a.gap ? a.n_head : a.n_head + a.n_head_kv };
    for (const int j : { 2, 1, 0 }) {
        all = ggml_acc_inplace(ctx, all, part[j], all->nb[1], all->nb[2], all->nb[3], first[j]*all->nb[1]);
    }
    if (a.read) {
        b.also(all);
        return ggml_cont(ctx, part[0]);
    }
    return all;
}

// the bits of the ops one by one
void same_bits(table & t, const parts_case & a, bool rounded) {
    op_case & c = t.add("FLASH_ATTN_EXT_BACK", std::string("parts-as-one-by-one-") + a.name, [=](builder & b) {
        const parts p = parts_of(b, a);
        ggml_tensor * want = gradient_of(b, a, p, true);
        b.next(want);
        if (!rounded) {
            return ggml_sub(b.ctx, want, gradient_of(b, a, p, false));
        }
        ggml_tensor * want16 = ggml_cast(b.ctx, ggml_cast(b.ctx, want, GGML_TYPE_BF16), GGML_TYPE_F32);
        b.next(want16);
        ggml_tensor * have   = gradient_of(b, a, p, false);
        ggml_tensor * have16 = ggml_cast(b.ctx, ggml_cast(b.ctx, have, GGML_TYPE_BF16), GGML_TYPE_F32);
        b.also(ggml_sub(b.ctx, want16, have16));
        return ggml_sub(b.ctx, want, have);
    });
    c.max_nmse = 0.0;
    c.only     = "CUDA";
}

// against the CPU, and the kernels that run
void counted(table & t, const parts_case & a, uint64_t launches) {
    op_case & c = t.add("FLASH_ATTN_EXT_BACK", std::string("parts-") + a.name, [=](builder & b) {
        return gradient_of(b, a, parts_of(b, a), false);
    });
    c.max_nmse = a.rounds ? 4*2.7e-6 : 1e-9;
    c.launches = launches;
    c.only     = "CUDA";
}

// The gradient of what was rounded before: that of what the kernels round themselves, in three kernels fewer.
void rounded_before(table & t, const parts_case & a, uint64_t launches) {
    op_case & same = t.add("FLASH_ATTN_EXT_BACK", std::string("parts-rounded-before-") + a.name, [=](builder & b) {
        parts p = parts_of(b, a);
        ggml_tensor * want = gradient_of(b, a, p, false);
        b.next(want);
        round_heads(b, a, p);
        return ggml_sub(b.ctx, want, gradient_of(b, a, p, false));
    });
    same.on_cpu = [=](builder & b) {
        ggml_tensor * grad = gradient_of(b, a, parts_of(b, a), false);
        return ggml_sub(b.ctx, grad, grad);
    };
    same.max_nmse = 0.0;
    same.launches = launches;
    same.only     = "CUDA";
}

// As in a step: the result of attention lies where the rounded gradient will be, with what the forward keeps behind it.
void step(table & t, const char * name, bool one_by_one, bool over, uint64_t launches) {
    const parts_case a = { "", 64, 70, 3, 3, 2, true };
    op_case & c = t.add("FLASH_ATTN_EXT_BACK", name, [=](builder & b) {
        parts p = parts_of(b, a);
        p.out = ggml_flash_attn_ext(b.ctx, p.q, p.k, p.v, p.mask, 1.0f/8, 0.0f, 0.0f);
        may_round(p.out, 3);
        ggml_tensor * rounded = ggml_cast(b.ctx, gradient_of(b, a, p, one_by_one), GGML_TYPE_BF16);
        if (over) {
            ggml_tensor * room = b.real({ ggml_nelements(p.all), 1, 1, 1 });
            b.lies_over(p.out, room);
            b.lies_over(rounded, room);
        }
        return rounded;
    });
    c.max_nmse = 9*2.7e-6; // once more
    c.launches = launches;
    c.only     = "CUDA";
}

// what attention of rounded heads differs by from that of heads that the kernels round
ggml_tensor * forward_of(builder & b, bool rounds) {
    const parts_case a = { "", 64, 70, 4, 2, 2, true, false };
    parts p = parts_of(b, a);
    ggml_tensor * out[2];
    for (ggml_tensor *& o : out) {
        o = ggml_flash_attn_ext(b.ctx, p.q, p.k, p.v, p.mask, 1.0f/8, 0.0f, 0.0f);
        may_round(o, 3);
        read_rounded(o, p, 0);
        b.next(o);
        if (rounds && o == out[0]) {
            round_heads(b, a, p);
        }
    }
    return ggml_sub(b.ctx, out[0], out[1]);
}

ggml_tensor * refused(builder & b, bool back, bool odd) {
    const parts_case a = { "", 64, 40, 2, 2, 1, odd, false };
    parts p = parts_of(b, a);
    if (odd) {
        ggml_tensor * all = b.real({ 64, 2, 41, 1 }, -1.0f, 1.0f, layout::contiguous, GGML_TYPE_BF16);
        for (ggml_tensor *& t : p.rounded) {
            t = ggml_permute(b.ctx, ggml_view_4d(b.ctx, all, 64, 2, 40, 1, all->nb[1], all->nb[2], all->nb[3], 8), 0, 2, 1, 3);
        }
    } else {
        round_heads(b, a, p);
    }
    if (back) {
        return gradient_of(b, a, p, false);
    }
    ggml_tensor * out = ggml_flash_attn_ext(b.ctx, p.q, p.k, p.v, p.mask, 1.0f/8, 0.0f, 0.0f);
    may_round(out, odd ? 3 : 0);
    read_rounded(out, p, 0);
    return out;
}

} // namespace

void attention_parts(table & t) {
    const std::vector<parts_case> cases = {
        { "elsewhere",      64,  70, 2, 2, 2, false, false },
        { "in-place",       64,  70, 2, 2, 2 },
        { "gqa",            32,  40, 4, 2, 2 },
        { "no-mask",        80,  33, 2, 2, 1, false, true, false },
        { "bf16-elsewhere", 64,  70, 2, 2, 2, true, false },
        { "bf16-in-place",  64,  70, 2, 2, 2, true },
        { "bf16-gqa",       128, 70, 4, 2, 1, true },
        { "bf16-no-mask",   40,  33, 2, 2, 2, true, true, false },
    };
    for (const parts_case & a : cases) {
        same_bits(t, a, a.rounds);
        // the gradient; rounded, 3 roundings and the classes of tiles besides
        counted(t, a, a.rounds ? 8 - !a.mask : 4);
    }
    // FILL and three ACC by themselves
    counted(t, { "sinks", 64, 40, 2, 2, 2, false, false, true, true }, 4 + 1 + 4);
    counted(t, { "gap",   64, 40, 2, 2, 2, false, false, true, false, true }, 4 + 4);
    counted(t, { "ones",  64, 40, 2, 2, 2, false, false, true, false, false, 1.0f }, 4 + 4);
    counted(t, { "read",  64, 40, 2, 2, 2, false, false, true, false, false, 0.0f, true }, 4 + 4 + 1);
    counted(t, { "on-mask",      64, 40, 2, 2, 2, false, false, true, false, false, 0.0f, false, true }, 4 + 4);
    counted(t, { "on-grad",      64, 40, 2, 2, 2, false, false, true, false, false, 0.0f, false, false, true }, 4 + 4);
    counted(t, { "bf16-on-mask", 64, 40, 2, 2, 2, true,  false, true, false, false, 0.0f, false, true }, 8 + 4);
    // rounded before
    counted(t, { "bf16-on-grad", 64, 40, 2, 2, 2, true,  false, true, false, false, 0.0f, false, false, true }, 8);

    // 8 kernels, the rounding, 5 and the difference; with FILL and three ACC, where those would write what is read
    for (const parts_case & a : cases) {
        if (a.rounds) {
            rounded_before(t, a, 8 + 1 + 5 + 1 - 2*!a.mask);
        }
    }
    rounded_before(t, { "on-heads", 64, 40, 2, 2, 2, true, false, true, false, false, 0.0f, false, false, false, true }, 8 + 1 + 5 + 4 + 1);
    // as much for the forward: 5 kernels, 2
    op_case & forward = t.add("FLASH_ATTN_EXT", "bf16-rounded-before", [](builder & b) { return forward_of(b, true); });
    forward.on_cpu   = [](builder & b) { return forward_of(b, false); };
    forward.max_nmse = 0.0;
    forward.launches = 5 + 1 + 2 + 1;
    forward.only     = "CUDA";
    // the permission is missing, or a row of heads begins in the middle of a vector
    for (const bool back : { false, true }) {
        for (const bool odd : { false, true }) {
            op_case & c = t.add(back ? "FLASH_ATTN_EXT_BACK" : "FLASH_ATTN_EXT", odd ? "bf16-odd-heads" : "bf16-heads-in-f32",
                [=](builder & b) { return refused(b, back, odd); });
            c.supported = false;
            c.only      = "CUDA";
        }
    }

    // the forward, 5 kernels; the gradient, 7, with what is rounded; all one by one: 3 CONT, FILL, 3 ACC, CPY
    step(t, "step",                 false, false, 5 + 7);
    step(t, "step-over",            false, true,  5 + 7);
    step(t, "step-over-one-by-one", true,  true,  5 + 7 + 8);
}

} // namespace emu
