// SPDX-License-Identifier: MIT
#include "runtime.hpp"
#include "trace.hpp"

#include "../common/alignment.hpp"
#include "../common/fibers.hpp"
#include "../common/guard.hpp"
#include "../common/poison.hpp"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

uint3 threadIdx;
uint3 blockIdx;
dim3  blockDim;
dim3  gridDim;

// ---- launches

// what a stream has been given while it was captured
struct emu_graph { std::vector<std::function<void()>> work; };
struct emu_exec  { std::vector<std::function<void()>> work; };

namespace emu {

namespace {

emu_graph *  captured = nullptr;
cudaStream_t captured_stream;
int          n_graphs         = 0;
int          n_graph_launches = 0;
memory       refused          = memory::all_there;

// of compute capability 7.0 to 12.0; a block has 48 KiB of shared memory unless it asks for more
constexpr size_t SHARED_DEFAULT = 48*1024;

// of 8.6, 8.9 and 12.0, the least of those with tensor cores of bf16; or as PYGGML_EMULATED_SHARED_KIB says
size_t shared_max() {
    static const char * kib = getenv("PYGGML_EMULATED_SHARED_KIB");
    static const size_t n   = (kib ? atoi(kib) : 99)*1024;
    return n;
}

constexpr unsigned GRID_YZ_MAX  = 65535;

schedule order = schedule::forward;
uint64_t n_launches = 0;
size_t   shared_limit = SHARED_DEFAULT;

size_t dynamic_size = 0;
std::unique_ptr<guarded> dynamic_block;
std::map<int, std::unique_ptr<guarded>> static_blocks;
size_t static_size = 0;
std::map<std::pair<std::string, size_t>, size_t> used_of_shared;
void (* watched)(const char * kernel, bool is_first);

// how far from its begin the block's dynamic shared memory has been written
size_t written_of_dynamic() {
    const unsigned char * p = (const unsigned char *) dynamic_block->data();
    size_t n = dynamic_size;
    while (n > 0 && is_poison(p + n - 1, 1)) {
        n--;
    }
    return n;
}

void set_thread(int i) {
    threadIdx.x = i%blockDim.x;
    threadIdx.y = i/blockDim.x%blockDim.y;
    threadIdx.z = i/(blockDim.x*blockDim.y);
}

std::string place(const char * kernel) {
    const auto str = [](unsigned x, unsigned y, unsigned z) {
        return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
    };
    return std::string(" in ") + kernel + ", block " + str(blockIdx.x, blockIdx.y, blockIdx.z) +
        " of " + str(gridDim.x, gridDim.y, gridDim.z) + ", " + str(blockDim.x, blockDim.y, blockDim.z) + " threads";
}

} // namespace

void set_schedule(schedule s) {
    order = s;
}

void in_stream(cudaStream_t stream, std::function<void()> work) {
    if (!captured) {
        work();
    } else if (stream == captured_stream) {
        if (refused == memory::of_the_host) {
            throw std::bad_alloc();
        }
        captured->work.push_back(std::move(work));
    } else {
        throw kernel_error("work in another stream while one is captured");
    }
}

void not_while_captured(const char * what) {
    if (captured) {
        throw kernel_error(std::string(what) + " while a stream is captured");
    }
}

void count_launch() {
    n_launches++;
}

void misaligned(const std::string & what, const void * address) {
    const std::string message = what + ", " + guarded::describe(address);
    if (in_kernel()) {
        fail(message);
    }
    fprintf(stderr, "outside of a kernel: %s\n", message.c_str());
    abort(); // the compiler takes this for a function that throws nothing
}

uint64_t launches() {
    return n_launches;
}

// what a device refuses
static void check_launch(const char * kernel, const launch_config & c) {
    gridDim  = c.grid;
    blockDim = c.block;
    blockIdx = { 0, 0, 0 };

    const uint64_t threads = (uint64_t) c.block.x*c.block.y*c.block.z;
    if (threads == 0 || threads > 1024 || c.block.z > 64) {
        throw kernel_error("a block of 1 to 1024 threads was expected" + place(kernel));
    }
    if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0 || c.grid.x > 0x7fffffff || c.grid.y > GRID_YZ_MAX || c.grid.z > GRID_YZ_MAX) {
        throw kernel_error("a grid of 1 to (2^31 - 1, 65535, 65535) blocks was expected" + place(kernel));
    }
    if (c.shared > shared_limit) {
        throw kernel_error(std::to_string(c.shared) + " bytes of dynamic shared memory exceed " + std::to_string(shared_limit) + place(kernel));
    }
}

static void run_kernel(const char * kernel, const launch_config & c, const std::function<void()> & body) {
    n_launches++;
    check_launch(kernel, c);

    // shared memory of a block is new to it; the guards stay from launch to launch
    dynamic_size  = c.shared;
    dynamic_block.reset(c.shared ? new guarded("dynamic shared memory", c.shared) : nullptr);
    static_blocks.clear();
    static_size = 0;

    const uint64_t threads  = (uint64_t) c.block.x*c.block.y*c.block.z;
    const uint64_t n_blocks = (uint64_t) c.grid.x*c.grid.y*c.grid.z;
    std::vector<uint64_t> turn(n_blocks);
    std::iota(turn.begin(), turn.end(), 0);
    if (order == schedule::backward) {
        std::reverse(turn.begin(), turn.end());
    } else if (order == schedule::shuffled) {
        std::mt19937 rng(12345);
        std::shuffle(turn.begin(), turn.end(), rng);
    }

    for (const uint64_t b : turn) {
        blockIdx.x = b%c.grid.x;
        blockIdx.y = b/c.grid.x%c.grid.y;
        blockIdx.z = b/((uint64_t) c.grid.x*c.grid.y);
        if (dynamic_block) {
            dynamic_block->poison();
        }
        for (auto & s : static_blocks) {
            s.second->poison();
        }
        drop_async_copies();
        std::string wrong;
        try {
            run_block((int) threads, 32, order, (uint32_t) b, set_thread, [&](int) { body(); });
            wrong = dynamic_block ? dynamic_block->check() : "";
            if (dynamic_block) {
                size_t & used = used_of_shared[{ kernel, dynamic_size }];
                used = std::max(used, written_of_dynamic());
            }
            for (auto & s : static_blocks) {
                wrong = wrong.empty() ? s.second->check() : wrong;
            }
            if (watched) {
                watched(kernel, b == turn[0]);
            }
        } catch (const kernel_error & e) {
            wrong = e.what();
        }
        if (!wrong.empty()) {
            throw kernel_error(wrong + place(kernel));
        }
    }
}

void launch_body(const char * kernel, const launch_config & c, std::initializer_list<operand> operands, std::function<void()> body) {
    if (traced()) {
        check_launch(kernel, c);
        note_kernel(kernel, c, operands);
        return;
    }
    in_stream(c.stream, [kernel, c, body = std::move(body)] { run_kernel(kernel, c, body); });
}

void bound(int threads) {
    const unsigned n = blockDim.x*blockDim.y*blockDim.z;
    if (n > (unsigned) threads) {
        fail(std::to_string(n) + " threads exceed __launch_bounds__(" + std::to_string(threads) + ")");
    }
}

void watch_blocks(void (* after)(const char * kernel, bool is_first)) {
    watched = after;
}

bool is_shared(const void * p) {
    const auto within = [p](const guarded & g) { return g.data() <= p && p < (const char *) g.data() + g.size(); };
    for (const auto & s : static_blocks) {
        if (within(*s.second)) {
            return true;
        }
    }
    return dynamic_block && within(*dynamic_block);
}

void print_shared() {
    for (const auto & use : used_of_shared) {
        printf("shared %zu of %zu bytes: %s\n", use.second, use.first.second, use.first.first.c_str());
    }
}

void * dynamic_shared() {
    if (!dynamic_block) {
        static char none[16];
        return none; // declared, not used: a use is seen by the sanitizer or not at all
    }
    return dynamic_block->data();
}

unsigned shared_address(const void * p) {
    if (!dynamic_block || p < dynamic_block->data() || (const char *) p >= (const char *) dynamic_block->data() + dynamic_size) {
        fail("__cvta_generic_to_shared of what is not in dynamic shared memory");
    }
    return (unsigned) ((const char *) p - (const char *) dynamic_block->data());
}

void * shared_pointer(unsigned address, size_t size) {
    if (!dynamic_block || address + size > dynamic_size) {
        fail("an address of " + std::to_string(size) + " bytes at " + std::to_string(address) + " is not in dynamic shared memory");
    }
    return (char *) dynamic_block->data() + address;
}

void * static_shared(int key, size_t size, size_t, const char * name) {
    auto & s = static_blocks[key];
    if (!s) {
        static_size += size;
        if (static_size > SHARED_DEFAULT || static_size + dynamic_size > shared_max()) {
            fail(std::to_string(static_size) + " bytes of static shared memory are too many");
        }
        s.reset(new guarded(std::string("__shared__ ") + name, size));
    }
    return s->data();
}

} // namespace emu

cudaError_t emu_shared_limit(size_t n) {
    if (n > emu::shared_max()) {
        return cudaErrorInvalidValue;
    }
    emu::shared_limit = std::max(emu::shared_limit, n);
    return cudaSuccess;
}

// ---- memory

static std::map<void *, std::unique_ptr<emu::guarded>> & allocations() {
    static std::map<void *, std::unique_ptr<emu::guarded>> a;
    return a;
}

// of a device that computes nothing
static std::map<void *, size_t> & addresses() {
    static std::map<void *, size_t> a;
    return a;
}

static std::string freed_damage; // what was written outside of memory that is gone

namespace emu {

std::string check_allocations() {
    std::string s = freed_damage;
    freed_damage.clear();
    for (auto & a : allocations()) {
        if (s.empty()) {
            s = a.second->check();
        }
    }
    return s;
}

void name_allocation(void * p, const char * name) {
    allocations().at(p)->rename(name);
}

} // namespace emu

static bool malloc_fails = false;

void emu::fail_next_malloc() {
    malloc_fails = true;
}

extern "C" __attribute__((visibility("default"))) void emu_refuse(int what);

void emu_refuse(int what) {
    emu::refused = (emu::memory) what;
}

void emu::refuse(memory what) {
    refused = what;
}

bool emu::malloc_is_refused() {
    const bool once = malloc_fails;
    malloc_fails = false;
    return once || refused == memory::of_mallocs;
}

cudaError_t emu_malloc(void ** p, size_t n) {
    if (emu::malloc_is_refused()) {
        return cudaErrorMemoryAllocation;
    }
    if (emu::traced()) {
        *p = emu::unbacked(n);
        addresses()[*p] = n;
        return *p ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    std::unique_ptr<emu::guarded> g(new emu::guarded("device memory", n));
    *p = g->data();
    allocations()[*p] = std::move(g);
    return cudaSuccess;
}

cudaError_t cudaFree(void * p) {
    auto at = addresses().find(p);
    if (at != addresses().end()) {
        emu::free_unbacked(p, at->second);
        addresses().erase(at);
        return cudaSuccess;
    }
    auto it = allocations().find(p);
    if (it == allocations().end()) {
        return p ? cudaErrorInvalidValue : cudaSuccess;
    }
    if (freed_damage.empty()) {
        freed_damage = it->second->check();
    }
    allocations().erase(it);
    return cudaSuccess;
}

cudaError_t emu_malloc_host(void ** p, size_t n) { *p = malloc(n); return *p ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaFreeHost(void * p)               { free(p); return cudaSuccess; }
cudaError_t cudaHostRegister(void *, size_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaHostUnregister(void *)           { return cudaSuccess; }

// what a device that computes nothing does instead of a copy: the host reads zeros
static void note_copy(void * dst, size_t n, cudaMemcpyKind kind) {
    emu::note_bytes(kind == cudaMemcpyHostToDevice ? "to the device" : kind == cudaMemcpyDeviceToHost ? "to the host" : "copy", n);
    if (kind == cudaMemcpyDeviceToHost) {
        memset(dst, 0, n);
    }
}

cudaError_t cudaMemcpy(void * dst, const void * src, size_t n, cudaMemcpyKind kind) {
    emu::not_while_captured("cudaMemcpy");
    if (emu::traced()) {
        note_copy(dst, n, kind);
        return cudaSuccess;
    }
    memmove(dst, src, n);
    return cudaSuccess;
}
cudaError_t cudaMemset(void * p, int value, size_t n) {
    emu::not_while_captured("cudaMemset");
    if (emu::traced()) {
        emu::note_bytes("fill", n);
        return cudaSuccess;
    }
    memset(p, value, n);
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void * dst, size_t dp, const void * src, size_t sp, size_t w, size_t h, cudaMemcpyKind kind, cudaStream_t s) {
    if (kind != cudaMemcpyDeviceToDevice) {
        emu::not_while_captured("a copy to or from the host");
    }
    if (emu::traced()) {
        for (size_t i = 0; i < (kind == cudaMemcpyDeviceToHost ? h : 1); ++i) {
            note_copy((char *) dst + i*dp, kind == cudaMemcpyDeviceToHost ? w : w*h, kind);
        }
        return cudaSuccess;
    }
    emu::in_stream(s, [=] {
        for (size_t i = 0; i < h; ++i) {
            memmove((char *) dst + i*dp, (const char *) src + i*sp, w);
        }
    });
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void * dst, const void * src, size_t n, cudaMemcpyKind kind, cudaStream_t s) {
    return cudaMemcpy2DAsync(dst, n, src, n, n, 1, kind, s);
}
cudaError_t cudaMemcpyPeerAsync(void * dst, int, const void * src, int, size_t n, cudaStream_t s) {
    return cudaMemcpy2DAsync(dst, n, src, n, n, 1, cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemsetAsync(void * p, int value, size_t n, cudaStream_t s) {
    if (emu::traced()) {
        emu::note_bytes("fill", n);
        return cudaSuccess;
    }
    emu::in_stream(s, [=] { memset(p, value, n); });
    return cudaSuccess;
}

// ---- graphs: a captured stream is given nothing to do, what it would do is kept and done at each launch

cudaError_t cudaStreamBeginCapture(cudaStream_t s, int) {
    emu::not_while_captured("cudaStreamBeginCapture");
    emu::captured        = new emu_graph;
    emu::captured_stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t * g) {
    if (!emu::captured || s != emu::captured_stream) {
        return cudaErrorInvalidValue;
    }
    *g = emu::captured;
    emu::captured = nullptr;
    emu::n_graphs++;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus * status) {
    *status = emu::captured && s == emu::captured_stream ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t * e, cudaGraph_t g, cudaGraphNode_t *, char *, size_t) {
    if (emu::refused == emu::memory::of_graphs) {
        return cudaErrorMemoryAllocation;
    }
    *e = new emu_exec { g->work };
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t e, cudaGraph_t g, cudaGraphNode_t *, cudaGraphExecUpdateResult *) {
    e->work = g->work;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) {
    emu::not_while_captured("cudaGraphLaunch");
    emu::n_graph_launches++;
    if (emu::traced()) {
        emu::note_bytes("graph launch", 1);
    }
    for (const auto & work : e->work) {
        work();
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { delete e; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g)         { delete g; return cudaSuccess; }

// how many graphs have been captured, and launched
extern "C" __attribute__((visibility("default"))) void emu_graph_counts(int * captured, int * launched);

void emu_graph_counts(int * captured, int * launched) {
    *captured = emu::n_graphs;
    *launched = emu::n_graph_launches;
}

// ---- device, streams, events

static int number_of(const char * variable, int otherwise) {
    const char * s = getenv(variable);
    return s ? atoi(s) : otherwise;
}

// 6.0: products go to cuBLAS or plain kernels, never to those of tensor cores, which are inline PTX
static int capability()      { return number_of("PYGGML_EMULATED_CC", 60); }
static int multiprocessors() { return number_of("PYGGML_EMULATED_SMS", 4); }

// a device that computes nothing has what a step needs
static size_t memory_size() { return (size_t) (emu::traced() ? 1024 : 4) << 30; }

const char * cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : "error"; }
cudaError_t cudaGetLastError()                 { return cudaSuccess; }
cudaError_t cudaPeekAtLastError()              { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int * n)        { *n = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int * id)            { *id = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int)                 { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned)       { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize()            { emu::not_while_captured("cudaDeviceSynchronize"); return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int * can, int, int) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)    { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int * v, cudaDeviceAttr a, int) { *v = a == cudaDevAttrMultiProcessorCount ? multiprocessors() : 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char * s, int n, int)  { snprintf(s, n, "0000:00:00.0"); return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t * free, size_t * total) {
    *free  = memory_size();
    *total = (size_t) number_of("PYGGML_EMULATED_MEMORY_GIB", memory_size() >> 30) << 30;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp * p, int) {
    *p = {};
    snprintf(p->name, sizeof(p->name), "emulated on the CPU");
    const int v = capability();
    p->major = v/10;
    p->minor = v%10;
    p->multiProcessorCount    = multiprocessors();
    p->warpSize               = 32;
    p->maxThreadsPerBlock     = 1024;
    p->totalGlobalMem         = memory_size();
    p->sharedMemPerBlock      = emu::SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = emu::shared_max();
    return cudaSuccess;
}

cudaError_t emu_func_attributes(cudaFuncAttributes * a) { *a = {}; a->ptxVersion = 60; a->binaryVersion = 60; return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t * s, unsigned) { *s = (cudaStream_t) new char; return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s)                     { delete (char *) s; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t)                   { emu::not_while_captured("cudaStreamSynchronize"); return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t * e, unsigned)   { *e = (cudaEvent_t) new char; return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e)                       { delete (char *) e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)            { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t)                     { emu::not_while_captured("cudaEventSynchronize"); return cudaSuccess; }
cudaError_t cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (* f)(void *), void * data) { f(data); return cudaSuccess; }

// ---- f16

float emu_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t) (h & 0x8000) << 16;
    const int      exp  = h >> 10 & 0x1f;
    const uint32_t man  = h & 0x3ff;
    if (exp == 0) {
        const float f = ldexpf((float) man, -24);
        return sign ? -f : f;
    }
    if (exp == 31) {
        return __uint_as_float(sign | 0x7f800000 | man << 13);
    }
    return __uint_as_float(sign | (uint32_t) (exp + 112) << 23 | man << 13);
}

uint16_t emu_f32_to_f16(float x) {
    const uint32_t u    = __float_as_uint(x);
    const uint16_t sign = (uint16_t) (u >> 16 & 0x8000);
    const float    a    = fabsf(x);
    if (std::isnan(x)) {
        return sign | 0x7e00;
    }
    if (a >= 65520.0f) { // rounds to 2^16
        return sign | 0x7c00;
    }
    if (a < 6.103515625e-5f) { // 2^-14: multiples of 2^-24, to even by the current rounding mode
        return sign | (uint16_t) nearbyintf(ldexpf(a, 24));
    }
    const uint32_t v = (u & 0x7fffffff) + 0xfff + (u >> 13 & 1);
    return sign | (uint16_t) ((v >> 13) - (112 << 10));
}

// ---- cuBLAS

struct emu_cublas { cublasMath_t math; cudaStream_t stream; };

cublasStatus_t cublasCreate(cublasHandle_t * h) {
    if (emu::refused == emu::memory::of_cublas) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *h = new emu_cublas { CUBLAS_DEFAULT_MATH, nullptr };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t h)                         { delete h; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m)     { h->math = m; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t * m)   { *m = h->math; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)       { h->stream = s; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t)      { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLoggerConfigure(int, int, int, const char *)      { return CUBLAS_STATUS_SUCCESS; }
const char *   cublasGetStatusString(cublasStatus_t s)                 { return s == CUBLAS_STATUS_SUCCESS ? "success" : "cuBLAS refused its arguments"; }

static float blas_at(const void * p, cudaDataType_t t, int64_t i) {
    switch (t) {
        case CUDA_R_16F:  return ((const half *) p)[i];
        case CUDA_R_16BF: return ((const nv_bfloat16 *) p)[i];
        default:          return ((const float *) p)[i];
    }
}

// TF32: a mantissa of 10 bits, to nearest
static float blas_rounded(float x, bool tf32) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    if (tf32 && std::isfinite(x)) {
        u = (u + 0x1000) & 0xffffe000;
    }
    memcpy(&x, &u, sizeof(u));
    return x;
}

static void blas_set(void * p, cudaDataType_t t, int64_t i, double v) {
    switch (t) {
        case CUDA_R_16F:  ((half *) p)[i]        = half((float) v); break;
        case CUDA_R_16BF: ((nv_bfloat16 *) p)[i] = nv_bfloat16((float) v); break;
        default:          ((float *) p)[i]       = (float) v;
    }
}

static size_t blas_size(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : 2; }

// the combinations of cuBLAS' table for cublasGemmEx that matter here
static bool blas_types_ok(cudaDataType_t at, cudaDataType_t bt, cudaDataType_t ct, cublasComputeType_t compute) {
    if (at != bt) {
        return false;
    }
    if (compute == CUBLAS_COMPUTE_16F) {
        return at == CUDA_R_16F && ct == CUDA_R_16F;
    }
    return ct == CUDA_R_32F || ct == at;
}

// alpha or beta: read when the product is asked for
struct blas_scalar {
    char bytes[4];
    blas_scalar(const void * p, cublasComputeType_t compute) { memcpy(bytes, p, compute == CUBLAS_COMPUTE_16F ? 2 : 4); }
};

static const char * blas_name(cudaDataType_t t) { return t == CUDA_R_16F ? "f16" : t == CUDA_R_16BF ? "bf16" : "f32"; }

// GPUs before 8.0 have no TF32
static bool blas_tf32(cublasHandle_t h, cublasComputeType_t compute) {
    if (capability() < 80) {
        return false;
    }
    return h->math == CUBLAS_TF32_TENSOR_OP_MATH || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
}

static bool blas_adds(const void * beta, cublasComputeType_t compute) {
    return compute == CUBLAS_COMPUTE_16F ? (float) *(const half *) beta != 0.0f : *(const float *) beta != 0.0f;
}

static bool blas_aligned(const void * p, cudaDataType_t t, int64_t ld) {
    return (uintptr_t) p % 16 == 0 && ld*blas_size(t) % 16 == 0;
}

// now, or when the captured stream is launched
static cublasStatus_t blas_run(cublasHandle_t h, const emu::product & what, std::function<cublasStatus_t()> product) {
    if (emu::traced()) {
        emu::note_product(what);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (!emu::captured) {
        return product();
    }
    emu::in_stream(h->stream, [product = std::move(product)] {
        if (product() != CUBLAS_STATUS_SUCCESS) {
            throw emu::kernel_error("cuBLAS refused its arguments");
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t gemm(cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k, const void * alpha,
        const void * a, cudaDataType_t at, int64_t lda, const void * b, cudaDataType_t bt, int64_t ldb, const void * beta,
        void * c, cudaDataType_t ct, int64_t ldc, cublasComputeType_t compute, bool tf32) {
    if (lda < std::max<int64_t>(1, ta == CUBLAS_OP_N ? m : k) || ldb < std::max<int64_t>(1, tb == CUBLAS_OP_N ? k : n) || ldc < std::max<int64_t>(1, m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!blas_types_ok(at, bt, ct, compute)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    emu::count_launch();
    const bool   h16 = compute == CUBLAS_COMPUTE_16F;
    const double al  = h16 ? (float) *(const half *) alpha : *(const float *) alpha;
    const double be  = h16 ? (float) *(const half *) beta  : *(const float *) beta;
    for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
            double s = 0.0;
            for (int64_t l = 0; l < k; ++l) {
                s += (double) blas_rounded(blas_at(a, at, ta == CUBLAS_OP_N ? i + l*lda : l + i*lda), tf32)*
                              blas_rounded(blas_at(b, bt, tb == CUBLAS_OP_N ? l + j*ldb : j + l*ldb), tf32);
            }
            // what is there is not read when it does not count: it may be a NaN
            blas_set(c, ct, i + j*ldc, al*s + (be != 0.0 ? be*blas_at(c, ct, i + j*ldc) : 0.0));
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const void * alpha, const void * a, cudaDataType_t at, int lda, const void * b, cudaDataType_t bt, int ldb,
        const void * beta, void * c, cudaDataType_t ct, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const bool aligned = m % 8 == 0 && k % 8 == 0 && blas_aligned(a, at, lda) && blas_aligned(b, bt, ldb) && blas_aligned(c, ct, ldc);
    const emu::product what = { "gemm", m, n, k, 1, blas_name(at), blas_name(ct), blas_tf32(h, compute), blas_adds(beta, compute), aligned };
    return blas_run(h, what, [=, al = blas_scalar(alpha, compute), be = blas_scalar(beta, compute)] {
        return gemm(ta, tb, m, n, k, al.bytes, a, at, lda, b, bt, ldb, be.bytes, c, ct, ldc, compute, what.tf32);
    });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const void * alpha, const void * a, cudaDataType_t at, int lda, long long sa,
        const void * b, cudaDataType_t bt, int ldb, long long sb,
        const void * beta, void * c, cudaDataType_t ct, int ldc, long long sc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const bool aligned = m % 8 == 0 && k % 8 == 0 && blas_aligned(a, at, lda) && blas_aligned(b, bt, ldb) && blas_aligned(c, ct, ldc);
    const emu::product what = { "strided batched gemm", m, n, k, batch, blas_name(at), blas_name(ct), blas_tf32(h, compute), blas_adds(beta, compute), aligned };
    return blas_run(h, what, [=, al = blas_scalar(alpha, compute), be = blas_scalar(beta, compute)] {
        cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
        for (int64_t i = 0; i < batch && s == CUBLAS_STATUS_SUCCESS; ++i) {
            s = gemm(ta, tb, m, n, k, al.bytes, (const char *) a + i*sa*blas_size(at), at, lda, (const char *) b + i*sb*blas_size(bt), bt, ldb,
                be.bytes, (char *) c + i*sc*blas_size(ct), ct, ldc, compute, what.tf32);
        }
        return s;
    });
}

// the pointers are in memory of the device
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const void * alpha, const void * const * a, cudaDataType_t at, int lda, const void * const * b, cudaDataType_t bt, int ldb,
        const void * beta, void * const * c, cudaDataType_t ct, int ldc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
    // the addresses are in memory of the device
    const bool aligned = m % 8 == 0 && k % 8 == 0 && blas_aligned(nullptr, at, lda) && blas_aligned(nullptr, bt, ldb) && blas_aligned(nullptr, ct, ldc);
    const emu::product what = { "batched gemm", m, n, k, batch, blas_name(at), blas_name(ct), blas_tf32(h, compute), blas_adds(beta, compute), aligned };
    return blas_run(h, what, [=, al = blas_scalar(alpha, compute), be = blas_scalar(beta, compute)] {
        cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
        for (int64_t i = 0; i < batch && s == CUBLAS_STATUS_SUCCESS; ++i) {
            s = gemm(ta, tb, m, n, k, al.bytes, a[i], at, lda, b[i], bt, ldb, be.bytes, c[i], ct, ldc, compute, what.tf32);
        }
        return s;
    });
}

cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const float * alpha, const float * a, int lda, const float * b, int ldb, const float * beta, float * c, int ldc) {
    return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const float * alpha, const float * a, int lda, long long sa, const float * b, int ldb, long long sb,
        const float * beta, float * c, int ldc, long long sc, int batch) {
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, sa, b, CUDA_R_32F, ldb, sb,
        beta, c, CUDA_R_32F, ldc, sc, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
        const float * alpha, const float * const * a, int lda, const float * const * b, int ldb,
        const float * beta, float * const * c, int ldc, int batch) {
    return cublasGemmBatchedEx(h, ta, tb, m, n, k, alpha, (const void * const *) a, CUDA_R_32F, lda, (const void * const *) b, CUDA_R_32F, ldb,
        beta, (void * const *) c, CUDA_R_32F, ldc, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// X*A = alpha*B with A upper triangular, as solve_tri asks for
cublasStatus_t cublasStrsmBatched(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t ta, cublasDiagType_t diag,
        int m, int n, const float * alpha, const float * const * a, int lda, float * const * b, int ldb, int batch) {
    if (side != CUBLAS_SIDE_RIGHT || fill != CUBLAS_FILL_MODE_UPPER || ta != CUBLAS_OP_N || diag != CUBLAS_DIAG_NON_UNIT) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    emu::count_launch();
    for (int k = 0; k < batch; ++k) {
        for (int i = 0; i < m; ++i) {
            for (int j = 0; j < n; ++j) {
                double v = (double) *alpha*b[k][i + (int64_t) j*ldb];
                for (int l = 0; l < j; ++l) {
                    v -= (double) b[k][i + (int64_t) l*ldb]*a[k][l + (int64_t) j*lda];
                }
                b[k][i + (int64_t) j*ldb] = (float) (v/a[k][j + (int64_t) j*lda]);
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

// ---- kernels that are not part of this build

extern "C" [[noreturn]] void emu_missing(const char * symbol);

void emu_missing(const char * symbol) {
    emu::fail(std::string(symbol) + " is not built into the harness");
}
