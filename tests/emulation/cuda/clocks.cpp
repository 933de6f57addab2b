// SPDX-License-Identifier: MIT
// How long shared memory takes for what the warps of each kernel read and write of it. Kernels are compiled with
// -fsanitize=kernel-address, which calls a function before each access. The i-th access of each lane to shared memory is one
// instruction: for kernels whose lanes all have the same accesses.
//
// 32 banks of 4 bytes; words that lanes have in common are moved once. In a clock a lane has 4 bytes, so vectors of 16 are read
// by 8 lanes at once, and by 16 where each lane reads what the one reads whose number differs by 1, or by 2
// (forums.developer.nvidia.com/t/77228).
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace emu {

namespace {

constexpr int n_lanes = 32;
constexpr int n_banks = 32;

struct access {
    uintptr_t at;
    uint32_t  size;
    bool      is_store;
};

struct clocks {
    uint64_t launches = 0;
    uint64_t taken    = 0;
    uint64_t most     = 0; // where no pairs of lanes are served at once
};

std::map<std::string, clocks> of_kernels;
std::vector<std::vector<access>> threads; // of the block

void note(const void * p, size_t size, bool is_store) {
    if (!in_kernel() || !is_shared(p)) {
        return;
    }
    const size_t i = thread_in_block();
    if (threads.size() <= i) {
        threads.resize(i + 1);
    }
    threads[i].push_back({ (uintptr_t) p, (uint32_t) size, is_store });
}

// lanes that are served together wait for the bank of which they want the most words
uint64_t turns(const access * of, int lanes_at_once) {
    uint64_t sum = 0;
    for (int first = 0; first < n_lanes; first += lanes_at_once) {
        std::set<uintptr_t> words[n_banks];
        for (int i = first; i < first + lanes_at_once; ++i) {
            for (uintptr_t word = of[i].at/4; word < (of[i].at + of[i].size)/4; ++word) {
                words[word%n_banks].insert(word);
            }
        }
        size_t most = 0;
        for (const auto & bank : words) {
            most = std::max(most, bank.size());
        }
        sum += most;
    }
    return sum;
}

bool in_pairs(const access * of, int bit) {
    for (int i = 0; i < n_lanes; ++i) {
        if (of[i].at != of[i ^ bit].at) {
            return false;
        }
    }
    return true;
}

void after_block(const char * kernel, bool is_first) {
    clocks & sum = of_kernels[kernel];
    sum.launches += is_first;
    for (size_t w = 0; w < threads.size(); w += n_lanes) {
        for (size_t k = 0; k < threads[w].size(); ++k) {
            access of[n_lanes];
            for (int i = 0; i < n_lanes; ++i) {
                const auto & lane = threads.at(w + i);
                of[i] = lane.at(k); // throws where a lane has fewer accesses
                if (of[i].size != of[0].size || of[i].is_store != of[0].is_store || lane.size() != threads[w].size()) {
                    throw kernel_error("lanes have different accesses to shared memory");
                }
            }
            const int at_once = std::min<int>(n_lanes, n_lanes*4/of[0].size);
            const bool pairs = at_once < 16 && !of[0].is_store && (in_pairs(of, 1) || in_pairs(of, 2));
            sum.most  += turns(of, at_once);
            sum.taken += turns(of, pairs ? 16 : at_once);
        }
    }
    threads.clear();
}

const struct printed {
    printed() { watch_blocks(after_block); }
    ~printed() {
        for (const auto & kernel : of_kernels) {
            const clocks & c = kernel.second;
            printf("clocks %llu most %llu launches %llu: %s\n", (unsigned long long) c.taken, (unsigned long long) c.most,
                (unsigned long long) c.launches, kernel.first.c_str());
        }
    }
} prints;

} // namespace

} // namespace emu

#include "../common/accesses.hpp" // needs note
