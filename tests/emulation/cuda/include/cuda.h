// SPDX-License-Identifier: MIT
// The driver's interface is not used: GGML_CUDA_NO_VMM is defined.
#pragma once
#include <cuda_runtime.h>
