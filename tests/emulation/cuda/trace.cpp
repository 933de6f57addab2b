// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include "../common/nodes.hpp"

#include <ggml.h>
#include <ggml-impl.h>

#include <sys/mman.h>

namespace emu {

namespace {

FILE * file() {
    static FILE * f = trace_file("PYGGML_EMULATED_TRACE");
    return f;
}

} // namespace

bool traced() {
    return file() != nullptr;
}

void * unbacked(size_t n) {
    void * p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void free_unbacked(void * p, size_t n) {
    munmap(p, n);
}

void note_kernel(const char * kernel, const launch_config & c, std::initializer_list<operand> operands) {
    std::string all;
    for (const operand & o : operands) {
        if (o.p) {
            all += (all.empty() ? "[" : ", [") + std::to_string((uintptr_t) o.p) + (o.written ? ", 1]" : ", 0]");
        }
    }
    fprintf(file(), "{\"kernel\": %s, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %zu, \"operands\": [%s]}\n",
        quoted(kernel).c_str(), c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z, c.shared, all.c_str());
}

void note_product(const product & p) {
    const auto number = [](const char * name, int64_t n) { return quoted(name) + ": " + std::to_string(n) + ", "; };
    const auto text   = [](const char * name, const char * s) { return quoted(name) + ": " + quoted(s) + ", "; };
    const auto truth  = [](const char * name, bool b) { return quoted(name) + (b ? ": true" : ": false"); };
    const std::string s = "{" + text("product", p.name) + number("m", p.m) + number("n", p.n) + number("k", p.k) +
        number("batch", p.batch) + text("type", p.type) + text("type_result", p.type_result) +
        truth("tf32", p.tf32) + ", " + truth("adds", p.adds) + ", " + truth("aligned", p.aligned) + "}\n";
    fputs(s.c_str(), file());
}

void note_bytes(const char * what, size_t n) {
    fprintf(file(), "{\"%s\": %zu}\n", what, n);
}

// what ../build.py writes into ggml's own files asks for these

void note_scratch(const void * p, size_t n) {
    if (traced()) {
        fprintf(file(), "{\"scratch\": %zu, \"at\": %llu}\n", n, (unsigned long long) (uintptr_t) p);
    }
}

void at_node(const ggml_cgraph * graph, int i) {
    if (traced()) {
        note_node(file(), "node", graph->nodes[i]);
    }
}

void and_nodes(const ggml_cgraph * graph, int i, int n) {
    for (int k = i + 1; traced() && k <= i + n; ++k) {
        note_node(file(), "fused", graph->nodes[k]);
    }
}

} // namespace emu
