// SPDX-License-Identifier: MIT
// ggml-metal-device.h without Metal: pipelines are compiled C++ functions, buffers are memory of the CPU, and an
// encoder records what it is told. ggml's own ggml-metal*.cpp call it, so what is recorded is the backend's geometry.
#include "emulated.h"

#include "ggml-impl.h"
#include "ggml-metal-device.h"
#include "ggml-metal-fusion.h"

#include "emulated-device.h"
#include "trace.hpp"

#include <cstdlib>
#include <cstring>
#include <map>

namespace emu {

static std::map<std::string, kernel_entry> & kernels() {
    static std::map<std::string, kernel_entry> map;
    return map;
}

void add_kernel(const kernel_entry & entry) {
    if (!kernels().emplace(entry.name, entry).second) {
        GGML_ABORT("two kernels are named %s", entry.name);
    }
}

const kernel_entry * find_kernel(const char * name) {
    const auto it = kernels().find(name);
    return it == kernels().end() ? nullptr : &it->second;
}

static std::vector<command> recorded;

std::vector<command> take_commands() {
    std::vector<command> res;
    res.swap(recorded);
    return res;
}

} // namespace emu

struct ggml_metal_cv {
    std::vector<emu::constant_value> values;
};

ggml_metal_cv_t ggml_metal_cv_init(void) { return new ggml_metal_cv; }
void ggml_metal_cv_free(ggml_metal_cv_t cv) { delete cv; }
void ggml_metal_cv_set_int16(ggml_metal_cv_t cv, int16_t value, int32_t idx) { cv->values.push_back({ idx, value }); }
void ggml_metal_cv_set_int32(ggml_metal_cv_t cv, int32_t value, int32_t idx) { cv->values.push_back({ idx, value }); }
void ggml_metal_cv_set_bool (ggml_metal_cv_t cv, bool    value, int32_t idx) { cv->values.push_back({ idx, value }); }

struct ggml_metal_pipeline {
    const emu::kernel_entry *        kernel = nullptr;
    std::vector<emu::constant_value> constants;
};

ggml_metal_pipeline_t ggml_metal_pipeline_init(void) { return new ggml_metal_pipeline; }
void ggml_metal_pipeline_free(ggml_metal_pipeline_t pipeline) { delete pipeline; }

// the most that the hardware has; a kernel that uses many registers may have less there
int ggml_metal_pipeline_max_theads_per_threadgroup(struct ggml_metal_pipeline_with_params) { return 1024; }

struct ggml_metal_library {
    ggml_metal_device_t    dev;
    ggml_metal_pipelines_t pipelines;
};

ggml_metal_library_t ggml_metal_library_init(ggml_metal_device_t dev) {
    return new ggml_metal_library { dev, ggml_metal_pipelines_init() };
}

ggml_metal_library_t ggml_metal_library_init_from_source(ggml_metal_device_t, const char *, bool) { return nullptr; }

void ggml_metal_library_free(ggml_metal_library_t lib) {
    ggml_metal_pipelines_free(lib->pipelines);
    delete lib;
}

ggml_metal_device_t ggml_metal_library_get_device(ggml_metal_library_t lib) { return lib->dev; }

struct ggml_metal_pipeline_with_params ggml_metal_library_get_pipeline(ggml_metal_library_t lib, const char * name) {
    ggml_metal_pipeline_with_params res = {};
    res.pipeline = ggml_metal_pipelines_get(lib->pipelines, name);
    return res;
}

struct ggml_metal_pipeline_with_params ggml_metal_library_compile_pipeline(
        ggml_metal_library_t lib, const char * base, const char * name, ggml_metal_cv_t cv) {
    ggml_metal_pipeline_with_params res = ggml_metal_library_get_pipeline(lib, name);
    const emu::kernel_entry * kernel = emu::find_kernel(base);
    if (!kernel && emu::traced()) {
        kernel = emu::named_kernel(base);
    }
    if (!kernel) {
        GGML_ABORT("%s is in none of the emulated files", base);
    }
    if (res.pipeline) {
        return res;
    }
    res.pipeline = ggml_metal_pipeline_init();
    res.pipeline->kernel = kernel;
    if (cv) {
        res.pipeline->constants = cv->values;
    }
    ggml_metal_pipelines_add(lib->pipelines, name, res.pipeline);
    return res;
}

struct ggml_metal_encoder {
    emu::command next;
};

ggml_metal_encoder_t ggml_metal_encoder_init(ggml_metal_cmd_buf_t, bool) { return new ggml_metal_encoder; }
void ggml_metal_encoder_free(ggml_metal_encoder_t encoder) { delete encoder; }
void ggml_metal_encoder_debug_group_push(ggml_metal_encoder_t, const char *) {}
void ggml_metal_encoder_debug_group_pop (ggml_metal_encoder_t) {}
void ggml_metal_encoder_end_encoding(ggml_metal_encoder_t) {}

void ggml_metal_encoder_set_pipeline(ggml_metal_encoder_t encoder, struct ggml_metal_pipeline_with_params pipeline) {
    // bindings outlive a pipeline on the hardware; here a kernel must set all that it reads
    encoder->next = {};
    encoder->next.kernel    = pipeline.pipeline->kernel;
    encoder->next.constants = pipeline.pipeline->constants;
}

static emu::argument & argument_at(ggml_metal_encoder_t encoder, int idx) {
    GGML_ASSERT(idx >= 0 && idx < 31);
    if ((int) encoder->next.arguments.size() <= idx) {
        encoder->next.arguments.resize(idx + 1);
    }
    emu::argument & a = encoder->next.arguments[idx];
    a = {};
    a.set = true;
    return a;
}

void ggml_metal_encoder_set_bytes(ggml_metal_encoder_t encoder, void * data, size_t size, int idx) {
    GGML_ASSERT(size <= 4096); // of setBytes
    argument_at(encoder, idx).bytes.assign((const char *) data, (const char *) data + size);
}

void ggml_metal_encoder_set_buffer(ggml_metal_encoder_t encoder, struct ggml_metal_buffer_id buffer, int idx) {
    argument_at(encoder, idx).data = (char *) buffer.metal + buffer.offs;
}

void ggml_metal_encoder_set_threadgroup_memory_size(ggml_metal_encoder_t encoder, size_t size, int idx) {
    GGML_ASSERT(size%16 == 0);
    GGML_ASSERT(idx >= 0 && idx < 4);
    auto & sizes = encoder->next.threadgroup_sizes;
    if ((int) sizes.size() <= idx) {
        sizes.resize(idx + 1);
    }
    sizes[idx] = size;
    size_t total = 0;
    for (size_t s : sizes) {
        total += s;
    }
    GGML_ASSERT(total <= emu::max_threadgroup_memory && "more threadgroup memory than the hardware has");
}

void ggml_metal_encoder_dispatch_threadgroups(
        ggml_metal_encoder_t encoder, int tg0, int tg1, int tg2, int tptg0, int tptg1, int tptg2) {
    GGML_ASSERT(tg0 > 0 && tg1 > 0 && tg2 > 0);
    GGML_ASSERT(tptg0 > 0 && tptg1 > 0 && tptg2 > 0 && tptg0*tptg1*tptg2 <= 1024);
    encoder->next.groups  = { (unsigned) tg0,   (unsigned) tg1,   (unsigned) tg2   };
    encoder->next.threads = { (unsigned) tptg0, (unsigned) tptg1, (unsigned) tptg2 };
    emu::recorded.push_back(encoder->next);
}

void ggml_metal_encoder_memory_barrier(ggml_metal_encoder_t) {
    emu::recorded.emplace_back();
    emu::recorded.back().is_barrier = true;
}

ggml_metal_device_t ggml_metal_device_init(int device, int) {
    ggml_metal_device * dev = new ggml_metal_device {};

    // an M1: what every Apple GPU has that ggml trains on; or a GPU of Intel or AMD
    const bool is_apple = !getenv("PYGGML_EMULATED_INTEL");
    auto & p = dev->props;
    p.device                     = device;
    p.device_virt                = device;
    snprintf(p.name, sizeof(p.name), "MTL%d", device);
    snprintf(p.desc, sizeof(p.desc), "emulated Metal device");
    p.max_buffer_size            = (size_t) (emu::traced() ? 1024 : 4) << 30;
    p.max_working_set_size       = p.max_buffer_size;
    p.max_theadgroup_memory_size = emu::max_threadgroup_memory;
    p.has_simdgroup_reduction    = true;
    p.has_simdgroup_mm           = is_apple;
    p.has_unified_memory         = true;
    p.has_bfloat                 = true;
    p.use_shared_buffers         = true;
    p.device_id                  = GGML_METAL_DEVICE_M1;
    p.gpu_family                 = is_apple ? 7 : 0;
    p.op_offload_min_batch_size  = 32;

    dev->finfo   = ggml_metal_fusion_info_init(getenv("GGML_METAL_FUSION_DISABLE") == nullptr, 0);
    dev->library = ggml_metal_library_init(dev);
    return dev;
}

void ggml_metal_device_free(ggml_metal_device_t dev) {
    ggml_metal_library_free(dev->library);
    ggml_metal_fusion_info_free(dev->finfo);
    delete dev;
}

const char * ggml_metal_device_id_token(enum ggml_metal_device_id) { return "GGML_METAL_DEVICE_M1"; }

void * ggml_metal_device_get_obj  (ggml_metal_device_t dev) { return dev; }
void * ggml_metal_device_get_queue(ggml_metal_device_t dev) { return dev; }

ggml_metal_library_t ggml_metal_device_get_library(ggml_metal_device_t dev) { return dev->library; }

const struct ggml_metal_device_props * ggml_metal_device_get_props(ggml_metal_device_t dev) { return &dev->props; }

struct ggml_metal_fusion_info * ggml_metal_device_get_fusion_info(ggml_metal_device_t dev) { return dev->finfo; }

void ggml_metal_device_get_memory(ggml_metal_device_t dev, size_t * free, size_t * total) {
    *free = *total = dev->props.max_working_set_size;
}

// nothing runs beside anything else: there is nothing to wait for
struct ggml_metal_event {};
ggml_metal_event_t ggml_metal_device_event_init(ggml_metal_device_t) { return new ggml_metal_event; }
void ggml_metal_device_event_free(ggml_metal_device_t, ggml_metal_event_t ev) { delete ev; }
void ggml_metal_device_event_synchronize(ggml_metal_device_t, ggml_metal_event_t) {}
void ggml_metal_event_encode_signal(ggml_metal_event_t, ggml_metal_cmd_buf_t) {}
void ggml_metal_event_encode_wait  (ggml_metal_event_t, ggml_metal_cmd_buf_t) {}

struct ggml_metal_buffer {
    char * data;
    size_t size;
    bool   owned;
};

ggml_metal_buffer_t ggml_metal_buffer_init(ggml_metal_device_t, size_t size, bool) {
    if (emu::traced()) {
        void * zeros = emu::unbacked(size);
        return zeros ? new ggml_metal_buffer { (char *) zeros, size, true } : nullptr;
    }
    void * data = nullptr;
    if (posix_memalign(&data, 4096, size + 4096) != 0) {
        return nullptr;
    }
    memset(data, 0xff, size + 4096);
    return new ggml_metal_buffer { (char *) data, size, true };
}

ggml_metal_buffer_t ggml_metal_buffer_map(ggml_metal_device_t, void * ptr, size_t size, size_t) {
    return new ggml_metal_buffer { (char *) ptr, size, false };
}

void ggml_metal_buffer_free(ggml_metal_buffer_t buf) {
    if (buf->owned && emu::traced()) {
        emu::free_unbacked(buf->data, buf->size);
    } else if (buf->owned) {
        free(buf->data);
    }
    delete buf;
}

void * ggml_metal_buffer_get_base (ggml_metal_buffer_t buf) { return buf->data; }
bool   ggml_metal_buffer_is_shared(ggml_metal_buffer_t)     { return true; }

void ggml_metal_buffer_memset_tensor(ggml_metal_buffer_t, struct ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    if (!emu::traced()) {
        memset((char *) t->data + offset, value, size);
    }
}

void ggml_metal_buffer_set_tensor(ggml_metal_buffer_t, struct ggml_tensor * t, const void * data, size_t offset, size_t size) {
    // no kernel does more or less work for what it finds in f32
    if (!emu::traced() || t->type != GGML_TYPE_F32) {
        memcpy((char *) t->data + offset, data, size);
    }
}

void ggml_metal_buffer_get_tensor(ggml_metal_buffer_t, const struct ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, (const char *) t->data + offset, size);
}

bool ggml_metal_buffer_cpy_tensor(ggml_metal_buffer_t, const struct ggml_tensor * src, struct ggml_tensor * dst) {
    if (emu::traced() && src->type == GGML_TYPE_F32) {
        return true;
    }
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

void ggml_metal_buffer_clear(ggml_metal_buffer_t buf, uint8_t value) {
    if (!emu::traced()) {
        memset(buf->data, value, buf->size);
    }
}

struct ggml_metal_buffer_id ggml_metal_buffer_get_id(ggml_metal_buffer_t buf, const struct ggml_tensor * t) {
    const ptrdiff_t offs = (const char *) t->data - buf->data;
    GGML_ASSERT(offs >= 0 && offs + ggml_nbytes(t) <= buf->size);
    return { buf->data, (size_t) offs };
}
