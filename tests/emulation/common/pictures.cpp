// SPDX-License-Identifier: MIT
#include "backs.hpp"

namespace emu {

using shape = builder::shape;

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
    // indices are computed in f32
    for (bool down : { false, true }) {
        op_case & c = t.add("UPSCALE_BACK", down ? "too-many-elements" : "too-many-results", [=](builder & b) {
            const int64_t n = 1 << 24;
            ggml_tensor * grad = ggml_new_tensor_2d(b.ctx, GGML_TYPE_F32, down ? n/2 : n, 1);
            return ggml_upscale_back(b.ctx, grad, down ? n : n/2, 1, 1, 1, GGML_SCALE_MODE_NEAREST);
        });
        c.supported = false;
        c.only      = "CUDA";
    }
    t.add("UPSCALE_BACK", "transposed", [](builder & b) {
        return ggml_upscale_back(b.ctx, b.real({ 17, 11, 3, 2 }, -1.0f, 1.0f, layout::transposed), 9, 7, 3, 2, GGML_SCALE_MODE_BILINEAR);
    });
}

} // namespace emu
