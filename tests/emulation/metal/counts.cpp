// SPDX-License-Identifier: MIT
#include "counts.hpp"

#include "fibers.h"

#include <algorithm>
#include <array>

namespace emu {

namespace {

constexpr int n_banks      = 32;
constexpr int segment_size = 64;

struct access {
    uintptr_t at;
    uint32_t  size;
    bool      is_device;
    bool      is_store;
};

bool counting;
counts total;
std::vector<memory_range> threadgroup_memory;
std::vector<memory_range> device_memory;
std::vector<std::vector<access>> lanes; // of each thread, since its lanes waited

bool within(const std::vector<memory_range> & ranges, const char * p) {
    return std::any_of(ranges.begin(), ranges.end(), [p](const memory_range & r) { return r.first <= p && p < r.first + r.second; });
}

void note(const void * p, size_t size, bool is_store) {
    if (!counting) {
        return;
    }
    const bool is_device = within(device_memory, (const char *) p);
    if (!is_device && !within(threadgroup_memory, (const char *) p)) {
        return; // the arguments, and what is in registers
    }
    const size_t i = thread();
    if (lanes.size() <= i) {
        lanes.resize(i + 1);
    }
    lanes[i].push_back({ (uintptr_t) p, (uint32_t) size, is_device, is_store });
}

size_t distinct(std::vector<uintptr_t> & v) {
    std::sort(v.begin(), v.end());
    return std::unique(v.begin(), v.end()) - v.begin();
}

// what one instruction of these lanes takes
void add(const std::vector<access> & of) {
    if (of.empty()) {
        return;
    }
    static std::vector<uintptr_t> segments;
    static std::array<std::vector<uintptr_t>, n_banks> banks;
    if (of[0].is_device) {
        segments.clear();
        for (const access & a : of) {
            for (uintptr_t s = a.at/segment_size; s <= (a.at + a.size - 1)/segment_size; ++s) {
                segments.push_back(s);
            }
        }
        total.segments += distinct(segments);
        return;
    }
    for (auto & bank : banks) {
        bank.clear();
    }
    for (const access & a : of) {
        for (uintptr_t word = a.at/4; word <= (a.at + a.size - 1)/4; ++word) {
            banks[word%n_banks].push_back(word);
        }
    }
    size_t most = 0;
    for (auto & bank : banks) {
        most = std::max(most, distinct(bank));
    }
    total.banks += most;
}

} // namespace

void begin_counts(const std::vector<memory_range> & threadgroup, const std::vector<memory_range> & device) {
    threadgroup_memory = threadgroup;
    device_memory      = device;
    total              = {};
    lanes.clear();
    counting = true;
}

counts end_counts() {
    counting = false;
    return total;
}

void counted_lanes_wait(int first, int last) {
    if (!counting) {
        return;
    }
    static std::array<std::vector<access>, 4> kinds;
    last = std::min<int>(last, lanes.size());
    for (size_t k = 0, n = 1; k < n; ++k) {
        for (auto & of : kinds) {
            of.clear();
        }
        for (int i = first; i < last; ++i) {
            n = std::max(n, lanes[i].size());
            if (k < lanes[i].size()) {
                const access & a = lanes[i][k];
                kinds[2*a.is_device + a.is_store].push_back(a);
            }
        }
        for (const auto & of : kinds) {
            add(of);
        }
    }
    for (int i = first; i < last; ++i) {
        lanes[i].clear();
    }
}

void counted_product() {
    total.products += counting;
}

void count_matrix(const void * p, size_t size) {
    note(p, size, false);
}

} // namespace emu

#include "../common/accesses.hpp" // needs note
