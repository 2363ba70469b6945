/* Where managed memory is: on the device as far as there is room, or on the host. */
#include <string.h>

#include "streams.h"

#define CPU (-1)
#define NOWHERE (-2)
enum { ADVISE_PREFERRED = 3, ADVISE_NOT_PREFERRED = 4, ADVISE_LAST = 6 };
enum { RANGE_PREFERRED = 2, RANGE_PREFETCHED = 4 };

static struct allocation *managed(CUdeviceptr pointer, size_t bytes)
{
    struct allocation *found = memory_at(pointer);
    return found != NULL && found->kind == MEMORY_MANAGED && bytes <= found->size - (pointer - found->begin) ? found
                                                                                                              : NULL;
}

EXPORT CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice ordinal)
{
    WITH_CONTEXT(context);
    struct allocation *found = managed(pointer, bytes);
    if (found == NULL || bytes == 0 || advice < 1 || advice > ADVISE_LAST)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (ordinal != CPU && device_at(ordinal) == NULL && advice >= ADVISE_PREFERRED)
        FINISH(CUDA_ERROR_INVALID_DEVICE);
    if (advice == ADVISE_PREFERRED || advice == ADVISE_NOT_PREFERRED)
        found->preferred = advice == ADVISE_PREFERRED ? ordinal : NOWHERE;
    FINISH(0);
}

/* A whole allocation moves, or as much of it as there is room for. */
EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice ordinal, CUstream stream)
{
    WITH_CONTEXT(context);
    struct allocation *found = managed(pointer, bytes);
    struct sim_context answer;
    if (stream_of(context, stream) == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (found == NULL || bytes == 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (ordinal != CPU && device_at(ordinal) != found->context->device)
        FINISH(CUDA_ERROR_INVALID_DEVICE);
    uint64_t whole = (found->size + 511) / 512 * 512;
    CUresult result = 0;
    if (ordinal == CPU && found->accounted > 0) {
        result = memory_account(found->context, SIM_FREE, found->accounted, NULL);
        found->accounted = 0;
    } else if (ordinal != CPU && found->accounted < whole) {
        result = memory_account(found->context, SIM_ALLOCATE, 0, &answer);
        uint64_t more = whole - found->accounted;
        if (result == 0 && more > answer.free / 512 * 512)
            more = answer.free / 512 * 512;
        if (result == 0 && more > 0 && memory_account(found->context, SIM_ALLOCATE, more, NULL) == 0)
            found->accounted += more;
    }
    if (result == 0)
        found->prefetched = ordinal;
    FINISH(result);
}

EXPORT CUresult cuMemRangeGetAttribute(void *value, size_t size, int which, CUdeviceptr pointer, size_t bytes)
{
    WITH_CONTEXT(context);
    const struct allocation *found = managed(pointer, bytes);
    if (value == NULL || found == NULL || bytes == 0 || size != sizeof(int))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (which != RANGE_PREFERRED && which != RANGE_PREFETCHED)
        FINISH(CUDA_ERROR_NOT_SUPPORTED);
    memcpy(value, which == RANGE_PREFERRED ? &found->preferred : &found->prefetched, sizeof(int));
    FINISH(0);
}

PER_THREAD(cuMemPrefetchAsync, _ptsz, (CUdeviceptr pointer, size_t bytes, CUdevice ordinal, CUstream stream),
           (pointer, bytes, ordinal, stream))
