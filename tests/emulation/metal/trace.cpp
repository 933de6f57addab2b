// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include "../common/nodes.hpp"
#include "counts.hpp"
#include "fibers.h"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>

namespace emu {

namespace {

FILE * file() {
    static FILE * f = trace_file("PYGGML_EMULATED_TRACE");
    return f;
}

struct group_run {
    const command * c;
    launch          l;
};

void run_thread(void * user, int i) {
    const group_run & r = *(const group_run *) user;
    launch l = r.l;
    l.index    = i;
    l.thread.x = i%l.threads.x;
    l.thread.y = i/l.threads.x%l.threads.y;
    l.thread.z = i/l.threads.x/l.threads.y;
    r.c->kernel->invoke(l);
}

size_t reach(const ggml_tensor * t) {
    return t->view_src ? ggml_nbytes(t) : ggml_backend_buft_get_alloc_size(t->buffer->buft, t);
}

counts count_group(const command & c, unsigned x, const std::vector<memory_range> & memory) {
    group_run r = { &c, {} };
    r.l.groups  = c.groups;
    r.l.threads = c.threads;
    r.l.group   = { x, 0, 0 };
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        r.l.buffer[i] = c.arguments[i].bytes.empty() ? c.arguments[i].data : (void *) c.arguments[i].bytes.data();
    }
    std::vector<std::vector<char>> shared;
    std::vector<memory_range> own;
    for (size_t i = 0; i < c.threadgroup_sizes.size(); ++i) {
        shared.emplace_back(c.threadgroup_sizes[i] + 256, (char) 0xff);
        r.l.threadgroup[i] = (void *) (((uintptr_t) shared.back().data() + 255)/256*256);
        own.emplace_back((const char *) r.l.threadgroup[i], c.threadgroup_sizes[i]);
    }
    begin_counts(own, memory);
    try {
        run_threadgroup(c.threads.x*c.threads.y*c.threads.z, run_thread, &r, false);
    } catch (const threadgroup_error & error) {
        GGML_ABORT("emulated Metal: %s: %s", c.kernel->name, error.what);
    }
    return end_counts();
}

// what makes two dispatches the same but for the addresses
std::string key_of(const command & c) {
    std::string key = c.kernel->name;
    const auto add = [&key](const void * p, size_t n) { key.append((const char *) p, n); };
    for (const constant_value & v : c.constants) {
        add(&v.index, sizeof(v.index));
        add(&v.value, sizeof(v.value));
    }
    add(&c.groups,  sizeof(c.groups));
    add(&c.threads, sizeof(c.threads));
    for (const argument & a : c.arguments) {
        add(a.bytes.data(), a.bytes.size());
    }
    return key;
}

// A threadgroup in the middle along x, or the two that are there, stands for all: what causal attention has to do grows
// or shrinks along x.
counts count_grid(const command & c, const std::vector<memory_range> & memory) {
    static std::map<std::string, counts> known;
    const auto [it, is_new] = known.emplace(key_of(c), counts {});
    if (is_new) {
        c.kernel->set_constants(c.constants);
        const unsigned last = c.groups.x - 1;
        const counts   one  = count_group(c, last/2, memory);
        const counts   two  = last%2 ? count_group(c, last - last/2, memory) : one;
        const double   half = 0.5*c.groups.x*c.groups.y*c.groups.z;
        it->second = { half*(one.products + two.products), half*(one.banks + two.banks), half*(one.segments + two.segments) };
    }
    return it->second;
}

std::string extents(const char * name, const uint3_pos & p) {
    return std::string(", \"") + name + "\": [" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + "]";
}

std::string operands(const command & c, const std::vector<const ggml_tensor *> & nodes) {
    const char * begin = (const char *) nodes.back()->data;
    const char * end   = begin + reach(nodes.back());
    std::vector<std::pair<const char *, bool>> found;
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        const char * p = c.arguments[i].data;
        if (!p) {
            continue;
        }
        if (i == 2 && strncmp(c.kernel->name, "kernel_bin_fuse", 15) == 0) {
            // the whole buffer, for the second operand of each of a chain; their offsets are arguments
            for (const ggml_tensor * t : nodes) {
                const ggml_tensor * b = t->src[1];
                if (std::find(nodes.begin(), nodes.end(), b) == nodes.end()) {
                    found.emplace_back((const char *) b->data, false);
                }
            }
            continue;
        }
        found.emplace_back(p, begin <= p && p < end);
    }
    std::string s;
    for (const auto & [p, written] : found) {
        s += (s.empty() ? "[" : ", [") + std::to_string((uintptr_t) p) + (written ? ", 1]" : ", 0]");
    }
    return ", \"operands\": [" + s + "]";
}

} // namespace

bool traced() { return file() != nullptr; }

void * unbacked(size_t n) {
    void * p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void free_unbacked(void * p, size_t n) { munmap(p, n); }

const kernel_entry * named_kernel(const char * name) {
    static std::map<std::string, kernel_entry> map;
    const auto it = map.emplace(name, kernel_entry {}).first;
    it->second.name = it->first.c_str();
    return &it->second;
}

void trace_nodes(const std::vector<const ggml_tensor *> & nodes, const std::vector<command> & commands) {
    std::vector<memory_range> memory;
    for (const ggml_tensor * t : nodes) {
        note_node(file(), t == nodes[0] ? "node" : "fused", t);
        memory.emplace_back((const char *) t->data, reach(t));
        for (const ggml_tensor * src : t->src) {
            if (src) {
                memory.emplace_back((const char *) src->data, ggml_nbytes(src));
            }
        }
        if (reach(t) > ggml_nbytes(t)) {
            fprintf(file(), "{\"scratch\": %zu, \"at\": %zu}\n", reach(t) - ggml_nbytes(t), (uintptr_t) t->data + ggml_nbytes(t));
        }
    }
    for (const command & c : commands) {
        if (c.is_barrier) {
            continue;
        }
        size_t shared = 0;
        for (size_t n : c.threadgroup_sizes) {
            shared += n;
        }
        std::string line = "{\"kernel\": " + quoted(c.kernel->name) + extents("grid", c.groups) + extents("block", c.threads) +
            ", \"shared\": " + std::to_string(shared) + operands(c, nodes);
        if (c.kernel->invoke) {
            const counts n = count_grid(c, memory);
            char text[160];
            snprintf(text, sizeof(text), ", \"counts\": {\"products\": %.0f, \"banks\": %.0f, \"segments\": %.0f}",
                n.products, n.banks, n.segments);
            line += text;
        }
        fprintf(file(), "%s}\n", line.c_str());
    }
}

void trace_buffer() { fprintf(file(), "{\"command buffer\": 1}\n"); }

} // namespace emu
