// SPDX-License-Identifier: MIT
// What a product with quantized weights rounds its other source to: blocks of whole numbers and a scale. The scale of a block
// that has a NaN or an infinity is NaN, as the CPU's, and the others have the largest of their numbers divided by 127.
#include "../common/fibers.hpp"
#include "runtime.hpp"

#include <ggml-cuda/quantize.cuh>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr int n      = 512; // elements of a row
constexpr int n_rows = 3;
constexpr int padded = 512;

int n_failed = 0;

void check(bool ok, const std::string & what) {
    printf("%s %s\n", ok ? "ok" : "FAIL", what.c_str());
    n_failed += !ok;
}

struct device_memory {
    void * data = nullptr;

    explicit device_memory(size_t size) {
        if (cudaMalloc(&data, size) != cudaSuccess) {
            throw emu::kernel_error("no memory");
        }
    }
    ~device_memory() { cudaFree(data); }
};

// one odd number in a row of others: at each place of a block in turn, by rows
std::vector<float> numbers(float odd) {
    std::vector<float> x(n*n_rows);
    for (int i = 0; i < n*n_rows; ++i) {
        x[i] = std::sin(0.7f*i);
    }
    x[0*n +  64]      = odd;
    x[1*n + 191]      = odd;
    x[2*n + n - 32/2] = odd;
    return x;
}

// the scale of `size` elements, which one rounds with is `inverse`: by a division, or as the reciprocal of one
bool is_right(float d, const float * x, int size, bool half, bool inverse) {
    float max = 0.0f;
    for (int i = 0; i < size; ++i) {
        if (!std::isfinite(x[i])) {
            return std::isnan(d);
        }
        max = std::fmax(max, std::fabs(x[i]));
    }
    float want = inverse ? 1.0f/(127.0f/max) : max/127.0f;
    if (half) {
        want = ggml_fp16_to_fp32(ggml_fp32_to_fp16(want));
    }
    return d == want;
}

bool rows_are_right(const std::vector<float> & x) {
    device_memory from(x.size()*sizeof(float)), to(padded*n_rows/QK8_1*sizeof(block_q8_1));
    memcpy(from.data, x.data(), x.size()*sizeof(float));
    quantize_row_q8_1_cuda((const float *) from.data, nullptr, to.data, GGML_TYPE_Q4_0, n, n, n*n_rows, n*n_rows, padded, n_rows, 1, 1, nullptr);
    const block_q8_1 * y = (const block_q8_1 *) to.data;
    bool right = emu::check_allocations().empty();
    for (int i = 0; i < n*n_rows; i += QK8_1) {
        right = right && is_right(__low2float(y[i/QK8_1].ds), &x[i], QK8_1, true, false);
    }
    return right;
}

bool tiles_are_right(const std::vector<float> & x, ggml_type type) {
    device_memory from(x.size()*sizeof(float)), to(padded*n_rows/QK8_1_MMQ*sizeof(block_q8_1_mmq));
    memcpy(from.data, x.data(), x.size()*sizeof(float));
    quantize_mmq_q8_1_cuda((const float *) from.data, nullptr, to.data, type, n, n, n*n_rows, n*n_rows, padded, n_rows, 1, 1, nullptr);
    const block_q8_1_mmq * y = (const block_q8_1_mmq *) to.data;
    bool right = emu::check_allocations().empty();
    for (int row = 0; row < n_rows; ++row) {
        for (int i = 0; i < n; i += QK8_1_MMQ) {
            const block_q8_1_mmq & block = y[i/QK8_1_MMQ*n_rows + row];
            const float * values = &x[row*n + i];
            for (int j = 0; j < QK8_1_MMQ; j += 32) {
                switch (mmq_get_q8_1_ds_layout(type)) {
                    case MMQ_Q8_1_DS_LAYOUT_D4:
                        right = right && is_right(block.d4[j/32], values + j, 32, false, true);
                        break;
                    case MMQ_Q8_1_DS_LAYOUT_DS4:
                        right = right && is_right(__low2float(block.ds4[j/32]), values + j, 32, true, true);
                        break;
                    default: // for 64 elements
                        right = right && (j%64 || is_right(__half2float(block.d2s6[j/64]), values + j, 64, true, true));
                        break;
                }
            }
        }
    }
    return right;
}

} // namespace

int main() {
    const float infinity = std::numeric_limits<float>::infinity();
    const struct { const char * name; float value; } odd[] = {
        { "a number", 0.5f }, { "NaN", NAN }, { "-NaN", -NAN }, { "infinity", infinity }, { "-infinity", -infinity },
    };
    try {
        for (const auto & o : odd) {
            const std::vector<float> x = numbers(o.value);
            check(rows_are_right(x), std::string("rows with ") + o.name);
            for (ggml_type type : { GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q2_K }) {
                check(tiles_are_right(x, type), std::string("tiles beside ") + ggml_type_name(type) + " with " + o.name);
            }
        }
    } catch (const emu::kernel_error & e) {
        check(false, e.what());
    }
    return n_failed ? 1 : 0;
}
