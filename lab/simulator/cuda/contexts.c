/* Contexts: primary and created ones, and each thread's stack of them. */
#include <stdlib.h>

#include "streams.h"

#define DEEPEST 32
/* Of CU_LIMIT_*. */
enum { HEAP = 2, SYNCHRONISATION_DEPTH = 3, LIMITS = 6, LAST_LIMIT = 9 };
#define MAPS_HOST_MEMORY 8u /* CU_CTX_MAP_HOST: every context does */
#define DEFAULT_HEAP ((size_t)8 << 20)

static CUcontext contexts;
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local unsigned depth;

KNOWS(context_is_known, CUcontext, contexts)

/* That its work failed is the caller's to look at. */
static CUresult current(CUcontext *context)
{
    CUresult result = driver_ready();
    if (result != 0)
        return result;
    *context = depth > 0 ? stack[depth - 1] : NULL;
    if (*context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_is_known(*context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return 0;
}

CUresult context_current(CUcontext *context)
{
    CUresult result = current(context);
    return result != 0 ? result : (*context)->error;
}

CUresult context_make(struct device *device, unsigned flags, bool is_primary, CUcontext *made)
{
    struct sim_context request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci};
    CUresult result = driver_call(SIM_OPEN_CONTEXT, &request, sizeof request, CUDA_ERROR_OUT_OF_MEMORY);
    if (result != 0)
        return result;
    CUcontext context = calloc(1, sizeof *context);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct cuda_context){.device = device, .is_primary = is_primary, .flags = flags,
                                     .limits = {1024, (size_t)device->sms << 16, DEFAULT_HEAP, 2, 2048, 64},
                                     .next = contexts};
    contexts = context;
    *made = context;
    return 0;
}

/* From the first line on it cannot be found; a host function that runs is waited for. */
void context_end(CUcontext context)
{
    struct device *device = context->device;
    UNLINK(contexts, context);
    streams_drop(context);
    events_drop(context);
    modules_drop(context);
    memory_drop_context(context);
    if (context->heap > 0)
        memory_account(context, SIM_FREE, context->heap, NULL);
    graph_memory_trim(device);
    struct sim_context request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci};
    driver_call(SIM_CLOSE_CONTEXT, &request, sizeof request, 0);
    free(context);
    driver_changed();
}

static CUresult create(CUcontext *made, unsigned flags, CUdevice ordinal)
{
    driver_lock();
    CUresult result = driver_ready();
    struct device *device = device_at(ordinal);
    if (result == 0 && made == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0 && depth == DEEPEST)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == 0)
        result = context_make(device, flags, false, made);
    if (result == 0)
        stack[depth++] = *made;
    FINISH(result);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *made, unsigned flags, CUdevice ordinal)
{
    return create(made, flags, ordinal);
}

ALSO(cuCtxCreate, cuCtxCreate_v2,
     (CUcontext *made, unsigned flags, CUdevice ordinal), (made, flags, ordinal))

EXPORT CUresult cuCtxCreate_v3(CUcontext *made, void *affinity, int count, unsigned flags, CUdevice ordinal)
{
    return affinity != NULL || count != 0 ? CUDA_ERROR_NOT_SUPPORTED : create(made, flags, ordinal);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *made, const void *parameters, unsigned flags, CUdevice ordinal)
{
    return parameters != NULL ? CUDA_ERROR_NOT_SUPPORTED : create(made, flags, ordinal);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (context == NULL || !context_is_known(context)))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0 && context->is_primary)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0) {
        context_end(context);
        /* It leaves this thread's stack; in others' it stays and is known to be gone. */
        while (depth > 0 && stack[depth - 1] == context)
            depth--;
    }
    FINISH(result);
}

ALSO(cuCtxDestroy, cuCtxDestroy_v2, (CUcontext context), (context))


EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && context == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *context = depth > 0 ? stack[depth - 1] : NULL;
    FINISH(result);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && context != NULL && !context_is_known(context))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0) {
        if (depth == 0)
            depth = 1;
        stack[depth - 1] = context;
        if (context == NULL)
            depth--;
    }
    FINISH(result);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (context == NULL || !context_is_known(context) || depth == DEEPEST))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0)
        stack[depth++] = context;
    FINISH(result);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && depth == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0) {
        depth--;
        if (context != NULL)
            *context = stack[depth];
    }
    FINISH(result);
}

ALSO(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context), (context))


ALSO(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *context), (context))


EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    driver_lock();
    CUresult result = current(&context);
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *device = context->device->ordinal;
    FINISH(result);
}

static CUresult synchronize(CUcontext context)
{
    CUresult result = capture_refuses_context(context);
    if (result == 0)
        result = context_wait(context);
    if (result == 0)
        pools_trim(context->device);
    return result;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    WITH_CONTEXT(context);
    FINISH(synchronize(context));
}

/* Of CUDA 13: without a context it is the current one. */
EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    if (context == NULL)
        return cuCtxSynchronize();
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0)
        result = context_is_known(context) ? context->error : CUDA_ERROR_INVALID_CONTEXT;
    FINISH(result == 0 ? synchronize(context) : result);
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags)
{
    WITH_CONTEXT(context);
    if (flags == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags | MAPS_HOST_MEMORY;
    FINISH(0);
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
    (void)context;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return 0;
}

/* Stack size, buffer of printf, heap of malloc, depth and number of launches from kernels, granularity of L2; of
 * these only the heap is memory here. Since Hopper kernels do not wait for what they launch. */
static CUresult limit_check(CUcontext context, int limit)
{
    if (limit < 0 || limit > LAST_LIMIT)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == SYNCHRONISATION_DEPTH && context->device->gpu.cc_major >= 9)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return limit < LIMITS ? 0 : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit)
{
    WITH_CONTEXT(context);
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : limit_check(context, limit);
    if (result == 0)
        *value = context->limits[limit];
    FINISH(result);
}

/* "The actual memory allocation for the heap occurs when a module is loaded into the context"
 * (CUDA programming guide). The heap that a context has without being asked is part of the context. */
CUresult context_heap(CUcontext context)
{
    size_t limit = context->limits[HEAP];
    uint64_t heap = limit > DEFAULT_HEAP ? (limit - DEFAULT_HEAP + 511) / 512 * 512 : 0;
    context->has_modules = true;
    if (heap <= context->heap)
        return 0;
    CUresult result = memory_account(context, SIM_ALLOCATE, heap - context->heap, NULL);
    if (result == 0)
        context->heap = heap;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_SHARED_OBJECT_INIT_FAILED : result;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    WITH_CONTEXT(context);
    CUresult result = limit_check(context, limit);
    if (result != 0)
        FINISH(result);
    size_t before = context->limits[limit];
    context->limits[limit] = value;
    if (limit == HEAP && context->has_modules && context_heap(context) != 0) {
        context->limits[limit] = before;
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    FINISH(0);
}

EXPORT CUresult cuCtxSetCacheConfig(int config)
{
    WITH_CONTEXT(context);
    FINISH(config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : 0);
}

EXPORT CUresult cuCtxGetCacheConfig(int *config)
{
    WITH_CONTEXT(context);
    if (config == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *config = 0;
    FINISH(0);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    WITH_CONTEXT(context);
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    FINISH(0);
}
