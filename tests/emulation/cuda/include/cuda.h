// SPDX-License-Identifier: MIT
// What ggml-cuda uses of the driver's interface: virtual memory, of which its pool of scratch memory is made. ../../vmm.cpp
#pragma once

#include <cuda_runtime.h>

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 };

typedef int                CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;

enum CUdevice_attribute { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102 };
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum CUmemAllocationGranularity_flags { CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED };

struct CUmemLocation       { CUmemLocationType type; int id; };
struct CUmemAllocationProp { CUmemAllocationType type; CUmemLocation location; };
struct CUmemAccessDesc     { CUmemLocation location; CUmemAccess_flags flags; };

CUresult cuGetErrorString(CUresult r, const char ** s);
CUresult cuDeviceGet(CUdevice * device, int id);
CUresult cuDeviceGetAttribute(int * value, CUdevice_attribute a, CUdevice device);
CUresult cuMemGetAllocationGranularity(size_t * n, const CUmemAllocationProp * p, CUmemAllocationGranularity_flags f);
CUresult cuMemCreate(CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp * p, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr * p, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr p, size_t size);
CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr p, size_t size);
CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc * access, size_t n);
