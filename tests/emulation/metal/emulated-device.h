// SPDX-License-Identifier: MIT
// The struct behind ggml_metal_device_t; ggml's ggml_metal_device_supports_op, which is in an Objective-C file and
// plain C itself, is compiled with it.
#pragma once

#include "ggml-metal-device.h"

struct ggml_metal_device {
    struct ggml_metal_device_props  props;
    struct ggml_metal_fusion_info * finfo;
    ggml_metal_library_t            library;
};

#ifdef __cplusplus
namespace emu {
constexpr size_t max_threadgroup_memory = 32*1024;
}
#endif
