// SPDX-License-Identifier: MIT
// What ggml-cuda uses of CUDA, on the CPU. Kernels run thread by thread in ../../common/fibers.hpp, streams are in order,
// memory is guarded. `kernel<<<...>>>(...)` and __shared__ are rewritten by ../translate.py.
#pragma once

#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>

// from 11.7 on the backend takes scans and sorts from CUB; the same with its own kernels can be run here
#define CUDART_VERSION 11060

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) ((void) 0)
#define __grid_constant__

#define CUDART_INF_F    INFINITY
#define CUDART_CB

// ---- vector types

#define EMU_VEC(T, N) \
    struct alignas(2*sizeof(T)) N##2 { T x, y; }; \
    struct N##3 { T x, y, z; }; \
    struct alignas(4*sizeof(T) < 16 ? 4*sizeof(T) : 16) N##4 { T x, y, z, w; }; \
    static inline N##2 make_##N##2(T x, T y) { return { x, y }; } \
    static inline N##3 make_##N##3(T x, T y, T z) { return { x, y, z }; } \
    static inline N##4 make_##N##4(T x, T y, T z, T w) { return { x, y, z, w }; }
EMU_VEC(float, float)
EMU_VEC(double, double)
EMU_VEC(int, int)
EMU_VEC(unsigned, uint)
EMU_VEC(short, short)
EMU_VEC(unsigned short, ushort)
EMU_VEC(signed char, char)
EMU_VEC(unsigned char, uchar)
EMU_VEC(long long, longlong)
#undef EMU_VEC

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3  blockDim;
extern dim3  gridDim;
constexpr int warpSize = 32;

// ---- the runtime

enum cudaError_t {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9,
    cudaErrorNotSupported = 801, cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorGraphExecUpdateFailure = 910,
};
typedef cudaError_t cudaError;

typedef struct emu_stream   * cudaStream_t;
typedef struct emu_event    * cudaEvent_t;
typedef struct emu_graph    * cudaGraph_t;
typedef struct emu_exec     * cudaGraphExec_t;
typedef struct emu_node     * cudaGraphNode_t;

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaDeviceAttr { cudaDevAttrCooperativeLaunch, cudaDevAttrMultiProcessorCount };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_32I, CUDA_R_8I };

#define cudaStreamPerThread          ((cudaStream_t) 2)
#define cudaStreamNonBlocking        1
#define cudaEventDisableTiming       2
#define cudaDeviceScheduleSpin       1
#define cudaHostRegisterPortable     1
#define cudaHostRegisterReadOnly     8
#define cudaStreamCaptureModeRelaxed 2

struct cudaDeviceProp {
    char   name[256];
    int    major, minor, multiProcessorCount, warpSize, integrated, maxThreadsPerBlock, l2CacheSize;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int    pciBusID, pciDeviceID, pciDomainID;
};

struct cudaFuncAttributes { int ptxVersion, binaryVersion, numRegs; size_t sharedSizeBytes, localSizeBytes; };

const char * cudaGetErrorString(cudaError_t e);
cudaError_t  cudaGetLastError();
cudaError_t  cudaPeekAtLastError();
cudaError_t  cudaGetDeviceCount(int * n);
cudaError_t  cudaGetDevice(int * id);
cudaError_t  cudaSetDevice(int id);
cudaError_t  cudaSetDeviceFlags(unsigned flags);
cudaError_t  cudaGetDeviceProperties(cudaDeviceProp * p, int id);
cudaError_t  cudaDeviceGetAttribute(int * v, cudaDeviceAttr a, int id);
cudaError_t  cudaDeviceGetPCIBusId(char * s, int n, int id);
cudaError_t  cudaDeviceSynchronize();
cudaError_t  cudaDeviceCanAccessPeer(int * can, int a, int b);
cudaError_t  cudaDeviceEnablePeerAccess(int id, unsigned flags);
cudaError_t  cudaMemGetInfo(size_t * free, size_t * total);
cudaError_t  emu_malloc(void ** p, size_t n);
cudaError_t  cudaFree(void * p);
cudaError_t  emu_malloc_host(void ** p, size_t n);
cudaError_t  cudaFreeHost(void * p);
cudaError_t  cudaHostRegister(void * p, size_t n, unsigned flags);
cudaError_t  cudaHostUnregister(void * p);
cudaError_t  cudaMemcpy(void * dst, const void * src, size_t n, cudaMemcpyKind kind);
cudaError_t  cudaMemset(void * p, int value, size_t n);
cudaError_t  cudaMemcpyAsync(void * dst, const void * src, size_t n, cudaMemcpyKind kind, cudaStream_t s = nullptr);
cudaError_t  cudaMemcpyPeerAsync(void * dst, int dd, const void * src, int sd, size_t n, cudaStream_t s = nullptr);
cudaError_t  cudaMemcpy2DAsync(void * dst, size_t dp, const void * src, size_t sp, size_t w, size_t h, cudaMemcpyKind kind, cudaStream_t s = nullptr);
cudaError_t  cudaMemsetAsync(void * p, int value, size_t n, cudaStream_t s = nullptr);
cudaError_t  cudaStreamCreateWithFlags(cudaStream_t * s, unsigned flags);
cudaError_t  cudaStreamDestroy(cudaStream_t s);
cudaError_t  cudaStreamSynchronize(cudaStream_t s);
cudaError_t  cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t  cudaEventCreateWithFlags(cudaEvent_t * e, unsigned flags);
cudaError_t  cudaEventDestroy(cudaEvent_t e);
cudaError_t  cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr);
cudaError_t  cudaEventSynchronize(cudaEvent_t e);
cudaError_t  cudaLaunchHostFunc(cudaStream_t s, void (* f)(void *), void * data);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaGraphExecUpdateResult { cudaGraphExecUpdateSuccess };
cudaError_t  cudaStreamBeginCapture(cudaStream_t s, int mode);
cudaError_t  cudaStreamEndCapture(cudaStream_t s, cudaGraph_t * g);
cudaError_t  cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus * status);
cudaError_t  cudaGraphInstantiate(cudaGraphExec_t * e, cudaGraph_t g, cudaGraphNode_t * node, char * log, size_t n);
cudaError_t  cudaGraphExecUpdate(cudaGraphExec_t e, cudaGraph_t g, cudaGraphNode_t * node, cudaGraphExecUpdateResult * r);
cudaError_t  cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s);
cudaError_t  cudaGraphExecDestroy(cudaGraphExec_t e);
cudaError_t  cudaGraphDestroy(cudaGraph_t g);
cudaError_t  cudaLaunchCooperativeKernel(const void * f, dim3 grid, dim3 block, void ** args, size_t shared, cudaStream_t s);
cudaError_t  emu_shared_limit(size_t n);
cudaError_t  emu_func_attributes(cudaFuncAttributes * a);

template <typename T> cudaError_t cudaMalloc(T ** p, size_t n)     { return emu_malloc((void **) p, n); }
template <typename T> cudaError_t cudaMallocHost(T ** p, size_t n) { return emu_malloc_host((void **) p, n); }
template <typename T> cudaError_t cudaMallocManaged(T ** p, size_t n) { return emu_malloc((void **) p, n); }
template <typename F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int value) { return emu_shared_limit(value); }
template <typename F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes * a, F) { return emu_func_attributes(a); }

template <typename F> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int * n, F, int, size_t) { *n = 2; return cudaSuccess; }

// ---- launches

struct ggml_cgraph;

namespace emu {

struct launch_config {
    dim3         grid;
    dim3         block;
    size_t       shared;
    cudaStream_t stream;
    launch_config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
        : grid(grid), block(block), shared(shared), stream(stream) {}
};

// an argument that is a pointer, and whether it may be written to
struct operand { const void * p; bool written; };
template <typename T> operand operand_of(const T &) { return { nullptr, false }; }
template <typename T> operand operand_of(T * p)     { return { (const void *) p, !std::is_const_v<T> }; }

// runs it, or records it when its stream is captured
void launch_body(const char * kernel, const launch_config & config, std::initializer_list<operand> operands, std::function<void()> body);

template <typename F, typename... A>
void launch(const char * kernel, const launch_config & config, F call, A... args) {
    launch_body(kernel, config, { operand_of(args)... }, [call, all = std::make_tuple(args...)] { std::apply(call, all); });
}

// what ../../build.py writes into ggml's own files tells: scratch memory, and the nodes that launches are for (trace.hpp)
void note_scratch(const void * p, size_t n);
void at_node(const ggml_cgraph * graph, int i);
void and_nodes(const ggml_cgraph * graph, int i, int n);

// a kernel's launch bounds: threads, and blocks of a multiprocessor; fails in a block of more threads
constexpr int bound_of(int threads, int = 0) { return threads; }
void          bound(int threads);

void * dynamic_shared();
void * static_shared(int key, size_t size, size_t align, const char * name);

void     block_barrier(const char * what);
void     warp_exchange(const char * what, uint64_t mask, const void * value, void * out, size_t size);
uint64_t warp_live();
int      thread_in_block();
[[noreturn]] void fail(const std::string & message);

template <typename T>
T shuffle(const char * what, unsigned mask, T value, int from, int width) {
    static_assert(sizeof(T) <= 16, "value too large");
    alignas(16) unsigned char all[32*sizeof(T)];
    warp_exchange(what, mask, &value, all, sizeof(T));
    const int lane = thread_in_block()%32;
    const int base = lane/width*width;
    T v;
    if (from < base || from >= base + width) {
        from = lane; // out of the segment: one's own value
    }
    if (!(mask >> from & 1)) {
        fail(std::string(what) + ": reads from a thread that is not in its mask");
    }
    memcpy(&v, all + from*sizeof(T), sizeof(T));
    return v;
}

// an operand of inline PTX
struct ptx_place { void * p; size_t size; };
template <typename T> ptx_place ptx_out(T & x) { return { &x, sizeof(T) }; }
template <typename T> uint64_t  ptx_in(T x) {
    static_assert(sizeof(T) <= 8, "operand too large");
    uint64_t u = 0;
    memcpy(&u, (const void *) &x, sizeof(T));
    return u;
}

// one instruction; "+r" operands are read where they are. cuda/ptx.cpp has those that are known.
void ptx(const char * text, std::initializer_list<ptx_place> out, std::initializer_list<uint64_t> in);

// addresses of shared memory have 32 bits
unsigned shared_address(const void * p);
void *   shared_pointer(unsigned address, size_t size);

template <typename F>
int vote(const char * what, unsigned mask, int p, F f) {
    int all[32];
    p = p != 0;
    warp_exchange(what, mask, &p, all, sizeof(int));
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) {
        if (mask >> i & 1) {
            bits |= (unsigned) (all[i] != 0) << i;
        }
    }
    return f(bits);
}

} // namespace emu

static inline void __syncthreads() { emu::block_barrier("__syncthreads"); }
static inline void __syncwarp(unsigned mask = 0xffffffff) { char c = 0; char all[32]; emu::warp_exchange("__syncwarp", mask, &c, all, 1); }
static inline int __syncthreads_or(int p) {
    static int any; // one block runs at a time
    any |= p != 0;
    emu::block_barrier("__syncthreads_or");
    const int r = any;
    emu::block_barrier("__syncthreads_or");
    any = 0;
    emu::block_barrier("__syncthreads_or");
    return r;
}
static inline size_t __cvta_generic_to_shared(const void * p) { return emu::shared_address(p); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap() { emu::fail("__trap"); }

template <typename T> T __shfl_xor_sync(unsigned m, T v, int x, int width = 32) {
    return emu::shuffle("__shfl_xor_sync", m, v, (emu::thread_in_block()%32) ^ x, width);
}
template <typename T> T __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32) {
    return emu::shuffle("__shfl_down_sync", m, v, emu::thread_in_block()%32 + (int) d, width);
}
template <typename T> T __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32) {
    return emu::shuffle("__shfl_up_sync", m, v, emu::thread_in_block()%32 - (int) d, width);
}
template <typename T> T __shfl_sync(unsigned m, T v, int lane, int width = 32) {
    const int base = emu::thread_in_block()%32/width*width;
    return emu::shuffle("__shfl_sync", m, v, base + (lane & (width - 1)), width);
}
static inline int __reduce_add_sync(unsigned m, int v) {
    int all[32];
    emu::warp_exchange("__reduce_add_sync", m, &v, all, sizeof(int));
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
        sum += m >> i & 1 ? all[i] : 0;
    }
    return sum;
}
static inline int      __any_sync(unsigned m, int p)    { return emu::vote("__any_sync", m, p, [](unsigned b) { return b != 0; }); }
static inline int      __all_sync(unsigned m, int p)    { return emu::vote("__all_sync", m, p, [m](unsigned b) { return b == m; }); }
static inline unsigned __ballot_sync(unsigned m, int p) { return emu::vote("__ballot_sync", m, p, [](unsigned b) { return (int) b; }); }
static inline unsigned __activemask()                   { return (unsigned) emu::warp_live(); }

// ---- functions of the device

template <typename T> static inline T __ldg(const T * p)  { return *p; }
template <typename T> static inline T __ldcs(const T * p) { return *p; }
template <typename T> static inline T __ldcg(const T * p) { return *p; }
template <typename T> static inline void __stcs(T * p, T v) { *p = v; }
#define __expf(x) expf(x) // glibc has a function of this name
#define __logf(x) logf(x) // glibc has a function of this name
#define __powf(x, y) powf(x, y)
static inline float    __fdividef(float x, float y)    { return x/y; }
static inline float    __fdiv_rn(float x, float y)     { return x/y; }
static inline float    __frcp_rn(float x)              { return 1.0f/x; }
static inline float    __fsqrt_rn(float x)             { return sqrtf(x); }
static inline float    __frsqrt_rn(float x)            { return 1.0f/sqrtf(x); }
static inline float    rsqrtf(float x)                 { return 1.0f/sqrtf(x); }
static inline double   rsqrt(double x)                 { return 1.0/sqrt(x); }
static inline float    __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float    __fmul_rn(float a, float b)     { return a*b; }
static inline float    __fadd_rn(float a, float b)     { return a + b; }
#define __sinf(x) sinf(x) // glibc has a function of this name
#define __cosf(x) cosf(x) // glibc has a function of this name
static inline unsigned __umulhi(unsigned a, unsigned b){ return (unsigned) (((uint64_t) a*b) >> 32); }
static inline int      __popc(unsigned x)              { return __builtin_popcount(x); }
static inline int      __clz(int x)                    { return x ? __builtin_clz((unsigned) x) : 32; }
static inline int      __ffs(int x)                    { return __builtin_ffs(x); }
static inline float    __int_as_float(int x)           { float f; memcpy(&f, &x, 4); return f; }
static inline int      __float_as_int(float x)         { int i; memcpy(&i, &x, 4); return i; }
static inline float    __uint_as_float(unsigned x)     { float f; memcpy(&f, &x, 4); return f; }
static inline unsigned __float_as_uint(float x)        { unsigned i; memcpy(&i, &x, 4); return i; }
static inline int      __float2int_rn(float x)         { return (int) nearbyintf(x); }
static inline int      __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) {
        c += (int) (int8_t) (a >> 8*i)*(int) (int8_t) (b >> 8*i);
    }
    return c;
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    const uint64_t v = (uint64_t) y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned sel = s >> 4*i & 0xf;
        unsigned byte = (unsigned) (v >> 8*(sel & 7)) & 0xff;
        if (sel & 8) {
            byte = byte & 0x80 ? 0xff : 0;
        }
        r |= byte << 8*i;
    }
    return r;
}
static inline unsigned __vcmpne4(unsigned a, unsigned b) {
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        r |= (a >> 8*i & 0xff) != (b >> 8*i & 0xff) ? 0xffu << 8*i : 0;
    }
    return r;
}
static inline unsigned __vsub4(unsigned a, unsigned b) {
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        r |= (((a >> 8*i) - (b >> 8*i)) & 0xff) << 8*i;
    }
    return r;
}
static inline int __vsubss4(unsigned a, unsigned b) {
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        int d = (int) (int8_t) (a >> 8*i) - (int) (int8_t) (b >> 8*i);
        d = d > 127 ? 127 : d < -128 ? -128 : d;
        r |= (unsigned) (d & 0xff) << 8*i;
    }
    return (int) r;
}

template <typename T> static inline T atomicAdd(T * p, T v) { const T old = *p; *p = old + v; return old; }
template <typename T> static inline T atomicMax(T * p, T v) { const T old = *p; *p = old > v ? old : v; return old; }
template <typename T> static inline T atomicMin(T * p, T v) { const T old = *p; *p = old < v ? old : v; return old; }
template <typename T> static inline T atomicExch(T * p, T v) { const T old = *p; *p = v; return old; }
template <typename T> static inline T atomicCAS(T * p, T c, T v) { const T old = *p; if (old == c) { *p = v; } return old; }
static inline unsigned long long atomicAdd(unsigned long long * p, unsigned long long v) { const auto old = *p; *p = old + v; return old; }

// as the overloads of the device: two types meet in the wider one
template <typename A, typename B, typename = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> min(A a, B b) { using T = std::common_type_t<A, B>; return (T) a < (T) b ? (T) a : (T) b; }
template <typename A, typename B, typename = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> max(A a, B b) { using T = std::common_type_t<A, B>; return (T) a > (T) b ? (T) a : (T) b; }
