// SPDX-License-Identifier: MIT
// Virtual memory of the driver's interface: addresses without access until memory is mapped there and access is set, as a
// GPU has them. Mapped memory holds poison.
#include "../common/poison.hpp"
#include "runtime.hpp"
#include "trace.hpp"

#include <cuda.h>
#include <ggml-cuda/common.cuh>

#include <sys/mman.h>
#include <unistd.h>

#include <map>

namespace {

// a GPU has 2 MiB: what lies beyond the pool's end is nearer here
const size_t GRANULARITY = (size_t) sysconf(_SC_PAGESIZE);

struct range {
    size_t size;
    size_t mapped = 0; // from its begin
    size_t usable = 0;
};

std::map<CUdeviceptr, range> & ranges() {
    static std::map<CUdeviceptr, range> r;
    return r;
}

// the range that begins at p or holds it
std::pair<const CUdeviceptr, range> * range_of(CUdeviceptr p) {
    for (auto & r : ranges()) {
        if (p >= r.first && p < r.first + r.second.size) {
            return &r;
        }
    }
    return nullptr;
}

std::map<CUmemGenericAllocationHandle, size_t> & handles() {
    static std::map<CUmemGenericAllocationHandle, size_t> h;
    return h;
}

void * at(CUdeviceptr p) {
    return (void *) (uintptr_t) p;
}

} // namespace

void emu::use_virtual_memory(bool on) {
    const_cast<ggml_cuda_device_info &>(ggml_cuda_info()).devices[0].vmm = on;
}

CUresult cuGetErrorString(CUresult r, const char ** s) {
    *s = r == CUDA_SUCCESS ? "no error" : r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "invalid value";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice * device, int id) {
    *device = id;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int * value, CUdevice_attribute, CUdevice) {
    *value = 1;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t * n, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    *n = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *, unsigned long long) {
    static CUmemGenericAllocationHandle last = 0;
    if (size == 0 || size % GRANULARITY != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (emu::malloc_is_refused()) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = ++last;
    handles()[*handle] = size;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return handles().erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr * p, size_t size, size_t, CUdeviceptr, unsigned long long) {
    void * m = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *p = (CUdeviceptr) (uintptr_t) m;
    ranges()[*p] = { size };
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
    auto r = ranges().find(p);
    if (r == ranges().end() || r->second.size != size || r->second.mapped != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(at(p), size);
    ranges().erase(r);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
    auto * r = range_of(p);
    auto   h = handles().find(handle);
    if (!r || h == handles().end() || offset != 0 || h->second != size ||
            p != r->first + r->second.mapped || r->second.mapped + size > r->second.size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    r->second.mapped += size;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *, size_t n) {
    auto * r = range_of(p);
    if (!r || n == 0 || p != r->first + r->second.usable || r->second.usable + size != r->second.mapped) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    mprotect(at(p), size, PROT_READ | PROT_WRITE);
    if (!emu::traced()) {
        emu::poison(at(p), size);
    }
    r->second.usable = r->second.mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    auto r = ranges().find(p);
    if (r == ranges().end() || r->second.mapped != size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // the memory goes, the addresses stay
    if (mmap(at(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    r->second.mapped = r->second.usable = 0;
    return CUDA_SUCCESS;
}
