/* Properties of functions. */
#include "state.h"

enum { MAX_THREADS_PER_BLOCK, SHARED_BYTES, CONST_BYTES, LOCAL_BYTES, REGISTERS, PTX_VERSION,
       BINARY_VERSION, CACHE_CA, MAX_DYNAMIC_SHARED, CARVEOUT };

CUresult function_fact(const struct sim_gpu *gpu, const struct ptx_kernel_facts *facts, unsigned max_dynamic_shared,
                       int which, int *value)
{
    switch (which) {
    case MAX_THREADS_PER_BLOCK:
        *value = (int)facts->max_threads;
        return 0;
    case SHARED_BYTES:
        *value = (int)facts->shared_bytes;
        return 0;
    case LOCAL_BYTES:
        *value = (int)facts->local_bytes;
        return 0;
    case REGISTERS:
        *value = (int)facts->registers;
        return 0;
    case PTX_VERSION:
        *value = (int)facts->target;
        return 0;
    case BINARY_VERSION:
        *value = (int)(gpu->cc_major * 10 + gpu->cc_minor);
        return 0;
    case CONST_BYTES:
    case CACHE_CA:
        *value = 0;
        return 0;
    case MAX_DYNAMIC_SHARED:
        *value = (int)max_dynamic_shared;
        return 0;
    case CARVEOUT:
        *value = -1;
        return 0;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

bool function_takes_shared(const struct sim_gpu *gpu, const struct ptx_kernel_facts *facts, int bytes)
{
    return bytes >= 0 && (unsigned)bytes + facts->shared_bytes <= OPT_IN(gpu);
}

unsigned function_default_shared(const struct ptx_kernel_facts *facts)
{
    return facts->shared_bytes < 48u << 10 ? (48u << 10) - facts->shared_bytes : 0;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int which, CUfunction function)
{
    WITH_CONTEXT(context);
    if (value == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    FINISH(function_fact(&context->device->gpu, &function->facts, function->max_dynamic_shared, which, value));
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int which, int value)
{
    WITH_CONTEXT(context);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (which == CARVEOUT)
        FINISH(value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : 0);
    if (which != MAX_DYNAMIC_SHARED || !function_takes_shared(&context->device->gpu, &function->facts, value))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    function->max_dynamic_shared = (unsigned)value;
    FINISH(0);
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction function)
{
    WITH_CONTEXT(context);
    if (name == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *name = ptx_kernel_name(function->kernel);
    FINISH(0);
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    WITH_CONTEXT(context);
    size_t bytes;
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (offset == NULL || index >= function->facts.parameter_count)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    ptx_parameter(function->kernel, (unsigned)index, offset, size == NULL ? &bytes : size);
    FINISH(0);
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    WITH_CONTEXT(context);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    FINISH(config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : 0);
}

EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    WITH_CONTEXT(context);
    if (module == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!function_is_known(function))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *module = function->module;
    FINISH(0);
}
