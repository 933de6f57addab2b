// SPDX-License-Identifier: MIT
// The products of cuBLAS that ggml-cuda calls: column-major, sums in double, rounded once.
#pragma once

#include <cuda_runtime.h>

#define CUBLAS_VER_MAJOR 11
#define CUBLAS_VER_MINOR 10

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasComputeType_t { CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
typedef struct emu_cublas * cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t * h);
cublasStatus_t cublasDestroy(cublasHandle_t h);
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m);
cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t * m);
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s);
cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void * p, size_t n);
cublasStatus_t cublasLoggerConfigure(int a, int b, int c, const char * f);
const char *   cublasGetStatusString(cublasStatus_t s);

cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float * alpha, const float * a, int lda, const float * b, int ldb, const float * beta, float * c, int ldc);
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float * alpha, const float * a, int lda, long long sa, const float * b, int ldb, long long sb,
    const float * beta, float * c, int ldc, long long sc, int batch);
cublasStatus_t cublasSgemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float * alpha, const float * const * a, int lda, const float * const * b, int ldb,
    const float * beta, float * const * c, int ldc, int batch);
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void * alpha, const void * a, cudaDataType_t at, int lda, const void * b, cudaDataType_t bt, int ldb,
    const void * beta, void * c, cudaDataType_t ct, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void * alpha, const void * a, cudaDataType_t at, int lda, long long sa,
    const void * b, cudaDataType_t bt, int ldb, long long sb,
    const void * beta, void * c, cudaDataType_t ct, int ldc, long long sc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void * alpha, const void * const * a, cudaDataType_t at, int lda, const void * const * b, cudaDataType_t bt, int ldb,
    const void * beta, void * const * c, cudaDataType_t ct, int ldc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasStrsmBatched(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t ta, cublasDiagType_t diag,
    int m, int n, const float * alpha, const float * const * a, int lda, float * const * b, int ldb, int batch);
