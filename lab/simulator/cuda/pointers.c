/* What is known of a pointer: attributes of the allocation that it is in. */
#include <string.h>

#include "state.h"

enum { /* as CUpointer_attribute numbers them */
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    SYNCHRONOUS = 6,
    BUFFER_ID = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    LEGACY_IPC = 10,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    MAPPED = 13,
    HANDLE_TYPES = 14,
    DIRECT_RDMA = 15,
    ACCESS_FLAGS = 16,
    POOL = 17,
    LAST = 21,
};
enum { TYPE_HOST = 1, TYPE_DEVICE = 2 };
#define READ_WRITE 3u

static size_t size_of(int which)
{
    switch (which) {
    case CONTEXT:
    case DEVICE_POINTER:
    case HOST_POINTER:
    case BUFFER_ID:
    case RANGE_START:
    case RANGE_SIZE:
    case HANDLE_TYPES:
    case ACCESS_FLAGS:
    case POOL:
        return 8;
    case SYNCHRONOUS:
    case IS_MANAGED:
    case LEGACY_IPC:
    case MAPPED:
    case DIRECT_RDMA:
        return 1;
    case MEMORY_TYPE:
    case DEVICE_ORDINAL:
        return 4;
    default:
        return 0;
    }
}

/* Of an attribute that is not here: whether there is none of that number. */
static CUresult lacks(int which)
{
    return which < CONTEXT || which > LAST ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

/* The value, and whether there is one: device memory has no address for the host. */
static bool value_of(const struct allocation *one, CUdeviceptr pointer, int which, uint64_t *value)
{
    bool on_host = one->kind == MEMORY_HOST || one->kind == MEMORY_REGISTERED;
    switch (which) {
    case CONTEXT:
        *value = (uint64_t)(uintptr_t)one->context;
        break;
    case MEMORY_TYPE:
        *value = on_host ? TYPE_HOST : TYPE_DEVICE;
        break;
    case DEVICE_POINTER:
        *value = pointer;
        break;
    case HOST_POINTER:
        *value = pointer;
        return on_host || one->kind == MEMORY_MANAGED;
    case BUFFER_ID: /* unique for as long as the allocation lives */
    case RANGE_START:
        *value = one->begin;
        break;
    case RANGE_SIZE:
        *value = one->size;
        break;
    case IS_MANAGED:
        *value = one->kind == MEMORY_MANAGED;
        break;
    case DEVICE_ORDINAL:
        *value = (uint64_t)one->context->device->ordinal;
        break;
    case LEGACY_IPC:
        *value = one->kind == MEMORY_DEVICE && one->pool == NULL;
        break;
    case MAPPED:
        *value = 1;
        break;
    case ACCESS_FLAGS:
        *value = READ_WRITE;
        break;
    case POOL:
        *value = (uint64_t)(uintptr_t)one->pool;
        break;
    default:
        *value = 0;
    }
    return true;
}

EXPORT CUresult cuPointerGetAttribute(void *target, int which, CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    uint64_t value;
    const struct allocation *found = memory_at(pointer);
    if (target == NULL || found == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (size_of(which) == 0)
        FINISH(lacks(which));
    if (!value_of(found, pointer, which, &value))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    memcpy(target, &value, size_of(which));
    FINISH(0);
}

/* Of a pointer that the driver does not know, all attributes are 0 and the call succeeds. */
EXPORT CUresult cuPointerGetAttributes(unsigned count, const int *which, void **targets, CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    const struct allocation *found = memory_at(pointer);
    if (count == 0 || which == NULL || targets == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        if (size_of(which[i]) == 0 || targets[i] == NULL)
            FINISH(targets[i] == NULL ? CUDA_ERROR_INVALID_VALUE : lacks(which[i]));
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = 0;
        if (found == NULL || !value_of(found, pointer, which[i], &value))
            value = which[i] == DEVICE_ORDINAL && found == NULL ? (uint64_t)-2 : 0;
        memcpy(targets[i], &value, size_of(which[i]));
    }
    FINISH(0);
}

/* Whether calls of this memory wait for each other: they do anyway. */
EXPORT CUresult cuPointerSetAttribute(const void *value, int which, CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    if (value == NULL || memory_at(pointer) == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    FINISH(which == SYNCHRONOUS ? 0 : CUDA_ERROR_NOT_SUPPORTED);
}
