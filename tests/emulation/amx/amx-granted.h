// SPDX-License-Identifier: MIT
// In place of ggml's file of this name: the tile instructions as loops, for any CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define GGML_AMX_CODE

static inline bool ggml_amx_is_granted() {
    return true;
}

namespace emulated {

struct tiles {
    bool     configured = false;
    uint8_t  rows[8];
    uint16_t bytes[8]; // of a row
    uint8_t  data[8][16][64];
};

inline thread_local tiles t;

inline void require(bool ok, const char * what) {
    if (!ok) {
        printf("FAIL %s\n", what);
        fflush(stdout);
        _Exit(1);
    }
}

inline void load_config(const void * p) {
    const uint8_t * c = (const uint8_t *) p;
    require((uintptr_t) p % 64 == 0 && c[0] == 1 && c[1] == 0, "configuration");
    for (int i = 0; i < 8; ++i) {
        memcpy(&t.bytes[i], c + 16 + 2*i, 2);
        t.rows[i] = c[48 + i];
        require(t.rows[i] <= 16 && t.bytes[i] <= 64 && t.bytes[i] % 4 == 0, "shape of a tile");
    }
    memset(t.data, 0, sizeof(t.data));
    t.configured = true;
}

inline void release() { t.configured = false; }

inline void zero(int i) {
    require(t.configured, "tiles without a configuration");
    memset(t.data[i], 0, sizeof(t.data[i]));
}

inline void load(int i, const void * p, int64_t stride) {
    zero(i);
    for (int r = 0; r < t.rows[i]; ++r) {
        memcpy(t.data[i][r], (const char *) p + r*stride, t.bytes[i]);
    }
}

inline void store(int i, void * p, int64_t stride) {
    require(t.configured, "tiles without a configuration");
    for (int r = 0; r < t.rows[i]; ++r) {
        memcpy((char *) p + r*stride, t.data[i][r], t.bytes[i]);
    }
}

// denormals are zero, read and written, with their sign
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

inline float bf16(const uint8_t * p) {
    uint16_t h;
    memcpy(&h, p, 2);
    const uint32_t u = (uint32_t) h << 16;
    float x;
    memcpy(&x, &u, 4);
    return flushed(x);
}

// Source: Intel, Software Developer's Manual, volume 2B, TDPBF16PS.
inline void dpbf16(int c, int a, int b) {
    require(t.configured && t.bytes[a] == 4*t.rows[b] && t.rows[a] == t.rows[c] && t.bytes[b] == t.bytes[c], "shapes of a product");
    for (int m = 0; m < t.rows[c]; ++m) {
        for (int n = 0; n < t.bytes[c]/4; ++n) {
            float sum[2] = { 0.0f, 0.0f };
            for (int k = 0; k < t.rows[b]; ++k) {
                for (int i = 0; i < 2; ++i) {
                    sum[i] = flushed(std::fma(bf16(t.data[a][m] + 4*k + 2*i), bf16(t.data[b][k] + 4*n + 2*i), sum[i]));
                }
            }
            float x;
            memcpy(&x, t.data[c][m] + 4*n, 4);
            x = flushed(flushed(x) + flushed(sum[0] + sum[1]));
            memcpy(t.data[c][m] + 4*n, &x, 4);
        }
    }
}

} // namespace emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated::load_config
#define _tile_release    emulated::release
#define _tile_zero       emulated::zero
#define _tile_loadd      emulated::load
#define _tile_stored     emulated::store
#define _tile_dpbf16ps   emulated::dpbf16
