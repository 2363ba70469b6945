/* Properties of functions, and how many blocks fit. */
#include "state.h"

#define OPT_IN(gpu) (((gpu)->cc_major == 7 ? 64u : (gpu)->cc_major == 8 ? ((gpu)->cc_minor == 0 ? 163u : 99u) : 227u) << 10)

enum { MAX_THREADS_PER_BLOCK, SHARED_BYTES, CONST_BYTES, LOCAL_BYTES, REGISTERS, PTX_VERSION,
       BINARY_VERSION, CACHE_CA, MAX_DYNAMIC_SHARED, CARVEOUT };

EXPORT CUresult cuFuncGetAttribute(int *value, int which, CUfunction function)
{
    WITH_CONTEXT(context);
    const struct sim_gpu *gpu = &context->device->gpu;
    if (value == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    switch (which) {
    case MAX_THREADS_PER_BLOCK:
        *value = (int)function->facts.max_threads;
        break;
    case SHARED_BYTES:
        *value = (int)function->facts.shared_bytes;
        break;
    case LOCAL_BYTES:
        *value = (int)function->facts.local_bytes;
        break;
    case REGISTERS:
        *value = (int)function->facts.registers;
        break;
    case PTX_VERSION:
    case BINARY_VERSION:
        *value = (int)(gpu->cc_major * 10 + gpu->cc_minor);
        break;
    case CONST_BYTES:
    case CACHE_CA:
        *value = 0;
        break;
    case MAX_DYNAMIC_SHARED:
        *value = (int)function->max_dynamic_shared;
        break;
    case CARVEOUT:
        *value = -1;
        break;
    default:
        FINISH(CUDA_ERROR_INVALID_VALUE);
    }
    FINISH(0);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int which, int value)
{
    WITH_CONTEXT(context);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (which == CARVEOUT)
        FINISH(value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : 0);
    if (which != MAX_DYNAMIC_SHARED || value < 0 ||
        (unsigned)value + function->facts.shared_bytes > OPT_IN(&context->device->gpu))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    function->max_dynamic_shared = (unsigned)value;
    FINISH(0);
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    FINISH(config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : 0);
}

EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    WITH_CONTEXT(context);
    (void)context;
    if (module == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *module = function->module;
    FINISH(0);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                            size_t dynamic_shared)
{
    WITH_CONTEXT(context);
    const struct sim_gpu *gpu = &context->device->gpu;
    if (blocks == NULL || threads <= 0 || threads > 1024)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    size_t shared = function->facts.shared_bytes + dynamic_shared;
    unsigned resident = gpu->cc_major == 7 && gpu->cc_minor == 5 ? 1024
                        : gpu->cc_major == 8 && gpu->cc_minor != 0 ? 1536 : 2048;
    unsigned rounded = ((unsigned)threads + 31) / 32 * 32;
    unsigned fit = resident / rounded;
    if (shared > 0 && OPT_IN(gpu) / shared < fit)
        fit = (unsigned)(OPT_IN(gpu) / shared);
    *blocks = (int)(fit > 32 ? 32 : fit);
    FINISH(0);
}
