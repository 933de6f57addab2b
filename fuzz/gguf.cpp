// SPDX-License-Identifier: MIT
// Reads bytes as a GGUF file through each of ggml's readers, looks at all that was read, writes it
// and reads it again. The last byte chooses the reader; the rest is the file. Every abort, also a
// GGML_ASSERT, is a finding: a file decides alone what is read.

#include "ggml.h"
#include "gguf.h"
#include "ggml-impl.h" // gguf_write_to_buf

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

static void silent(ggml_log_level, const char *, void *) {}

static uint64_t sum; // of all bytes seen, so that no read is optimised away

static void look(const void * data, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        sum += ((const uint8_t *) data)[i];
    }
}

static void check(bool condition, const char * what) {
    if (!condition) {
        fprintf(stderr, "gguf: %s\n", what);
        abort();
    }
}

static size_t element_size(gguf_type type) {
    switch (type) {
        case GGUF_TYPE_UINT8: case GGUF_TYPE_INT8: case GGUF_TYPE_BOOL:       return 1;
        case GGUF_TYPE_UINT16: case GGUF_TYPE_INT16:                          return 2;
        case GGUF_TYPE_UINT32: case GGUF_TYPE_INT32: case GGUF_TYPE_FLOAT32:  return 4;
        case GGUF_TYPE_UINT64: case GGUF_TYPE_INT64: case GGUF_TYPE_FLOAT64:  return 8;
        default:                                                             return 0;
    }
}

static void look_at_value(const gguf_context * gguf, int64_t i) {
    const gguf_type type = gguf_get_kv_type(gguf, i);

    check(gguf_type_name(type) != nullptr, "a type without a name was read");
    switch (type) {
        case GGUF_TYPE_UINT8:   sum += gguf_get_val_u8(gguf, i);                 break;
        case GGUF_TYPE_INT8:    sum += gguf_get_val_i8(gguf, i);                 break;
        case GGUF_TYPE_UINT16:  sum += gguf_get_val_u16(gguf, i);                break;
        case GGUF_TYPE_INT16:   sum += gguf_get_val_i16(gguf, i);                break;
        case GGUF_TYPE_UINT32:  sum += gguf_get_val_u32(gguf, i);                break;
        case GGUF_TYPE_INT32:   sum += gguf_get_val_i32(gguf, i);                break;
        case GGUF_TYPE_FLOAT32: sum += gguf_get_val_f32(gguf, i) > 0;            break;
        case GGUF_TYPE_UINT64:  sum += gguf_get_val_u64(gguf, i);                break;
        case GGUF_TYPE_INT64:   sum += gguf_get_val_i64(gguf, i);                break;
        case GGUF_TYPE_FLOAT64: sum += gguf_get_val_f64(gguf, i) > 0;            break;
        case GGUF_TYPE_BOOL:    sum += gguf_get_val_bool(gguf, i);               break;
        case GGUF_TYPE_STRING:  sum += strlen(gguf_get_val_str(gguf, i));        break;
        case GGUF_TYPE_ARRAY: {
            const gguf_type of = gguf_get_arr_type(gguf, i);
            const size_t    n  = gguf_get_arr_n(gguf, i);
            if (of == GGUF_TYPE_STRING) {
                for (size_t j = 0; j < n; ++j) {
                    sum += strlen(gguf_get_arr_str(gguf, i, j));
                }
            } else {
                look(gguf_get_arr_data(gguf, i), n*element_size(of));
            }
        } break;
        default: break;
    }
    if (type != GGUF_TYPE_STRING && type != GGUF_TYPE_ARRAY) {
        look(gguf_get_val_data(gguf, i), element_size(type));
    }
}

static void look_at_tensors(const gguf_context * gguf, ggml_context * ctx, bool data) {
    ggml_tensor * t = ctx ? ggml_get_first_tensor(ctx) : nullptr;

    if (t && data) {
        t = ggml_get_next_tensor(ctx, t); // the first one holds the data of all
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
        const char * name = gguf_get_tensor_name(gguf, i);
        check(gguf_find_tensor(gguf, name) == i, "a tensor is not found by its name");
        const int64_t * ne = gguf_get_tensor_ne(gguf, i);
        for (int d = 0; d < GGML_MAX_DIMS; ++d) {
            check(ne[d] >= 0, "a negative extent was read");
        }
        const size_t size = gguf_get_tensor_size(gguf, i);
        check(gguf_get_tensor_offset(gguf, i) % gguf_get_alignment(gguf) == 0, "a tensor is not aligned");
        if (t) {
            check(strcmp(t->name, name) == 0, "the tensors of the context are others than the file's");
            check(t->type == gguf_get_tensor_type(gguf, i) && ggml_nbytes(t) == size, "a tensor has another size");
            if (data) {
                look(t->data, size);
            }
            t = ggml_get_next_tensor(ctx, t);
        }
    }
}

static gguf_context * buffer(const void * data, size_t size, gguf_init_params params) {
    // A copy of its own: what is read behind its end is reported.
    std::vector<uint8_t> copy((const uint8_t *) data, (const uint8_t *) data + size);
    return gguf_init_from_buffer(copy.data(), copy.size(), params);
}

// What was read, written by each of ggml's writers, is the same when it is read again.
static void round_trip(const gguf_context * gguf, ggml_context * ctx, bool only_meta, uint8_t mode) {
    std::set<std::string> keys;
    for (int64_t i = 0; i < gguf_get_n_kv(gguf); ++i) {
        // A key or a name is cut at its first NUL, and then equals others.
        if (!keys.insert(gguf_get_key(gguf, i)).second || !*gguf_get_key(gguf, i)) {
            return;
        }
    }
    gguf_context * copy = gguf_init_empty();
    gguf_set_kv(copy, gguf);
    // gguf_add_tensor places tensors by the alignment of the context, which is the default's.
    bool placed = gguf_get_alignment(gguf) == GGUF_DEFAULT_ALIGNMENT;
    for (ggml_tensor * t = ctx ? ggml_get_first_tensor(ctx) : nullptr; t && placed; t = ggml_get_next_tensor(ctx, t)) {
        if (!only_meta && !t->data) {
            continue; // all tensors are empty: there are no data, for which the writer asks its caller
        }
        if (gguf_find_tensor(gguf, t->name) >= 0 && gguf_find_tensor(copy, t->name) < 0) {
            gguf_add_tensor(copy, t);
            if (!only_meta) {
                gguf_set_tensor_data(copy, t->name, t->data);
            }
        }
    }
    std::vector<uint8_t> written;
    if (!only_meta) {
        std::vector<int8_t> bytes;
        gguf_write_to_buf(copy, bytes, false);
        written.assign(bytes.begin(), bytes.end());
    }
    if (mode & 1) {
        char * data = nullptr;
        size_t size = 0;
        FILE * file = open_memstream(&data, &size);
        check(gguf_write_to_file_ptr(copy, file, only_meta), "could not be written");
        fclose(file);
        check(only_meta || (written.size() == size && !memcmp(written.data(), data, size)), "the file has other bytes than the buffer");
        written.assign(data, data + size);
        free(data);
    } else if (only_meta) {
        written.resize(gguf_get_meta_size(copy));
        gguf_get_meta_data(copy, written.data());
    }
    gguf_context * again = buffer(written.data(), written.size(), { true, nullptr });
    check(again != nullptr, "what was written is not read");
    check(gguf_get_n_kv(again) == gguf_get_n_kv(copy), "keys were lost");
    check(gguf_get_n_tensors(again) == gguf_get_n_tensors(copy), "tensors were lost");
    for (int64_t i = 0; i < gguf_get_n_kv(copy); ++i) {
        check(strcmp(gguf_get_key(copy, i), gguf_get_key(again, i)) == 0, "a key became another");
        check(gguf_get_kv_type(copy, i) == gguf_get_kv_type(again, i), "a value's type became another");
        look_at_value(again, i);
    }
    look_at_tensors(again, nullptr, false);
    gguf_free(again);
    if (gguf_get_n_tensors(copy) > 0 && gguf_get_tensor_size(copy, 0) < 1u << 30) { // those behind it move
        const std::string name = gguf_get_tensor_name(copy, 0);
        gguf_set_tensor_type(copy, name.c_str(), mode & 1 ? GGML_TYPE_F16 : GGML_TYPE_F64);
        look_at_tensors(copy, nullptr, false);
    }
    if (gguf_get_n_kv(copy) > 0) {
        const std::string key = gguf_get_key(copy, 0);
        check(gguf_remove_key(copy, key.c_str()) == 0 && gguf_find_key(copy, key.c_str()) == -1, "a key is not removed");
    }
    gguf_free(copy);
}

struct bytes {
    const uint8_t * data;
    size_t          size;
};

static size_t give(void * userdata, void * output, uint64_t offset, size_t len) {
    const bytes & from = *(const bytes *) userdata;

    if (offset >= from.size) {
        return 0;
    }
    const size_t n = std::min<uint64_t>(len, from.size - offset);
    memcpy(output, from.data + offset, n);
    return n;
}

static gguf_context * read(const uint8_t * data, size_t size, uint8_t mode, gguf_init_params params) {
    switch (mode >> 3 & 3) {
        case 0:
            return buffer(data, size, params);
        case 1: { // from the middle of a file
            const std::vector<uint8_t> before(mode >> 5, 'x');
            std::vector<uint8_t> all(before);
            all.insert(all.end(), data, data + size);
            all.push_back(0); // there are no empty files in memory
            FILE * file = fmemopen(all.data(), all.size() - 1 + (all.size() == 1), "rb");
            fseek(file, (long) before.size(), SEEK_SET);
            gguf_context * gguf = gguf_init_from_file_ptr(file, params);
            fclose(file);
            return gguf;
        }
        case 2: {
            if (mode >> 5 != 0) { // seldom: files take long
                return buffer(data, size, params);
            }
            char path[] = "/tmp/pyggml-fuzz-XXXXXX";
            const int fd = mkstemp(path);
            check(fd >= 0 && write(fd, data, size) == (ssize_t) size, "no temporary file");
            close(fd);
            gguf_context * gguf = gguf_init_from_file(path, params);
            // the writer pads to the alignment that the file asks for, which may be 2 GiB
            if (gguf && gguf_get_alignment(gguf) <= 4096) {
                check(gguf_write_to_file(gguf, path, true), "could not be written");
            }
            unlink(path);
            check(gguf_init_from_file(path, params) == nullptr, "a file that is not there was read");
            return gguf;
        }
        default: { // in chunks, from a source that may end before what it says
            bytes from = { data, size };
            const uint64_t said = mode >> 5 & 1 ? size + 100 : size;
            return gguf_init_from_callback(give, &from, mode >> 6, said, params);
        }
    }
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    ggml_log_set(silent, nullptr);
    // what a caller gets wrong
    const gguf_init_params none = { true, nullptr };
    check(gguf_init_from_file_ptr(nullptr, none) == nullptr, "no file was read");
    check(gguf_init_from_buffer(nullptr, 0, none) == nullptr, "no bytes were read");
    check(gguf_init_from_callback(nullptr, nullptr, 0, 8, none) == nullptr, "no source was read");
    int ends[2];
    check(pipe(ends) == 0, "no pipe");
    FILE * from = fdopen(ends[0], "rb");
    check(gguf_init_from_file_ptr(from, none) == nullptr, "a pipe, which has no positions, was read");
    fclose(from);
    close(ends[1]);

    // a disk that is full
    gguf_context * gguf = gguf_init_empty();
    gguf_set_val_str(gguf, "key", "text");
    gguf_set_val_u32(gguf, "number", 3);
    check(!gguf_write_to_file(gguf, "/nowhere/file", true), "written where no folder is");
    std::vector<char> disk(gguf_get_meta_size(gguf));
    for (size_t size = 1; size <= disk.size(); ++size) {
        FILE * file = fmemopen(disk.data(), size, "wb");
        setvbuf(file, nullptr, _IONBF, 0);
        check(gguf_write_to_file_ptr(gguf, file, true) == (size == disk.size()), "what does not fit was written");
        fclose(file);
    }
    gguf_free(gguf);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const uint8_t mode = data[--size];
    const bool with_ctx = mode & 2;
    const bool no_alloc = mode & 4;
    ggml_context * ctx = nullptr;
    gguf_context * gguf = read(data, size, mode, { no_alloc, with_ctx ? &ctx : nullptr });

    if (gguf) {
        check(gguf_get_version(gguf) != 0, "no version");
        check(gguf_get_data_offset(gguf) > 0, "no offset of data");
        for (int64_t i = 0; i < gguf_get_n_kv(gguf); ++i) {
            look(gguf_get_key(gguf, i), strlen(gguf_get_key(gguf, i)));
            look_at_value(gguf, i);
        }
        look_at_tensors(gguf, ctx, !no_alloc);
        round_trip(gguf, ctx, no_alloc, mode);
    }
    gguf_free(gguf);
    ggml_free(ctx);
    return 0;
}
