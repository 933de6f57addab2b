// SPDX-License-Identifier: MIT
#include "nodes.hpp"

#include <ggml-backend.h>

#include <cstdint>
#include <cstdlib>

namespace emu {

namespace {

std::string described(const ggml_tensor * t) {
    std::string s = "{\"op\": " + quoted(ggml_op_desc(t)) + ", \"type\": " + quoted(ggml_type_name(t->type)) + ", \"ne\": [";
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        s += (i ? ", " : "") + std::to_string(t->ne[i]);
    }
    // of a view with gaps: what it has, not what it spans
    const size_t n = ggml_row_size(t->type, t->ne[0])*ggml_nrows(t);
    s += "], \"at\": " + std::to_string((uintptr_t) t->data) + ", \"bytes\": " + std::to_string(n);
    // what a kernel keeps behind the result
    const size_t all = t->buffer && !t->view_src ? ggml_backend_buffer_get_alloc_size(t->buffer, t) : n;
    return s + (all > n ? ", \"behind\": " + std::to_string(all - n) : "") + "}";
}

} // namespace

std::string quoted(const char * s) {
    std::string r = "\"";
    for (; *s; ++s) {
        if (*s == '"' || *s == '\\') {
            r += '\\';
        }
        r += *s;
    }
    return r + "\"";
}

void note_node(FILE * file, const char * what, const ggml_tensor * t) {
    std::string src;
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        if (t->src[i]) {
            src += (src.empty() ? "" : ", ") + described(t->src[i]);
        }
    }
    fprintf(file, "{\"%s\": %s, \"name\": %s, \"result\": %s, \"sources\": [%s]}\n", what, quoted(ggml_op_desc(t)).c_str(),
        quoted(t->name).c_str(), described(t).c_str(), src.c_str());
}

FILE * trace_file(const char * variable) {
    const char * path = getenv(variable);
    FILE *       f    = path ? fopen(path, "w") : nullptr;
    if (path && !f) {
        fprintf(stderr, "%s: %s cannot be written\n", variable, path);
        abort();
    }
    if (f) {
        setvbuf(f, nullptr, _IOLBF, 1 << 16);
    }
    return f;
}

} // namespace emu
