/* Memory pools and stream-ordered allocation. What is freed stays its pool's until the next
 * synchronisation, and beyond it as far as the release threshold allows. */
#include <stdlib.h>

#include "graphs.h"

enum {
    POOL_REUSE_FIRST = 1,
    POOL_REUSE_LAST = 3,
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED = 7,
    POOL_USED_HIGH = 8,
};

#define LOCATION_DEVICE 1
#define LOCATION_HOST 2
#define LOCATION_LAST 4 /* the host's as a whole, of a NUMA node, of the nearest */
#define TYPE_PINNED 1

struct cuda_pool {
    const struct device *device; /* NULL: the host */
    bool is_default;
    int reuse[3];
    uint64_t release_threshold, reserved, reserved_high, used, used_high;
    CUmemoryPool next;
};

struct pool_properties { /* the first fields of CUmemPoolProps */
    int type, handle_types, location_type, location;
};

static CUmemoryPool pools;
static CUmemoryPool current[MAX_DEVICES]; /* by ordinal; NULL: the default one */

static KNOWS(is_known, CUmemoryPool, pools)

static CUmemoryPool make(const struct device *device, bool is_default)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (pool != NULL) {
        *pool = (struct cuda_pool){.device = device, .is_default = is_default, .reuse = {1, 1, 1},
                                   .next = pools};
        pools = pool;
    }
    return pool;
}

static CUmemoryPool default_pool(const struct device *device)
{
    for (CUmemoryPool pool = pools; pool != NULL; pool = pool->next)
        if (pool->is_default && pool->device == device)
            return pool;
    return make(device, true);
}

static void trim(CUmemoryPool pool, uint64_t keep)
{
    size_t at = 0;
    struct allocation *one;
    while (pool->reserved > keep && (one = memory_each(at)) != NULL)
        if (one->kind == MEMORY_CACHED && one->pool == pool) {
            pool->reserved -= one->accounted;
            memory_drop(one);
        } else {
            at++;
        }
}

void pools_trim(const struct device *device)
{
    for (CUmemoryPool pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == device)
            trim(pool, pool->release_threshold);
}

bool pools_give_up(const struct device *device)
{
    bool any = false;
    for (CUmemoryPool pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == device && pool->reserved > pool->used) {
            trim(pool, 0);
            any = true;
        }
    return any;
}

static uint64_t size_in_pool(const struct allocation *one)
{
    return one->pool->device == NULL ? one->size : one->accounted;
}

/* Memory of the host is not kept. */
bool pool_take_back(struct allocation *one)
{
    if (one->pool == NULL)
        return false;
    one->pool->used -= size_in_pool(one);
    if (one->pool->device == NULL) {
        one->pool->reserved -= one->size;
        return false;
    }
    one->kind = MEMORY_CACHED;
    return true;
}

/* Memory that ends with its context. */
void pool_lose(struct allocation *one)
{
    if (one->pool == NULL)
        return;
    one->pool->reserved -= size_in_pool(one);
    if (one->kind != MEMORY_CACHED)
        one->pool->used -= size_in_pool(one);
}

static void count(CUmemoryPool pool, uint64_t reserved, uint64_t used)
{
    pool->reserved += reserved;
    pool->used += used;
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
}

static CUresult allocate(CUcontext context, CUmemoryPool pool, size_t bytes, uint64_t *address)
{
    struct allocation *one;
    for (size_t at = 0; (one = memory_each(at)) != NULL; at++)
        if (one->kind == MEMORY_CACHED && one->pool == pool && one->context == context &&
            bytes <= one->accounted && bytes > one->accounted / 2) {
            one->kind = MEMORY_DEVICE;
            one->size = bytes;
            *address = one->begin;
            count(pool, 0, one->accounted);
            return 0;
        }
    enum memory_kind kind = pool->device == NULL ? MEMORY_HOST : MEMORY_DEVICE;
    CUresult result = memory_new(context, bytes, kind, address);
    if (result == 0) {
        one = memory_exactly(*address, kind);
        one->pool = pool;
        count(pool, size_in_pool(one), size_in_pool(one));
    }
    return result;
}

/* In a capture, the allocation is the graph's: each launch makes it again, at the same address. */
static CUresult capture_allocation(CUcontext context, CUstream stream, size_t bytes, CUdeviceptr *pointer)
{
    struct operation operation;
    CUresult result = graph_memory_reserve(context->device, bytes, &operation.memory);
    if (result != 0)
        return result;
    operation.kind = OPERATION_ALLOCATE;
    result = capture_add(stream, &operation);
    graph_memory_leave(operation.memory); /* the node's now, or free */
    if (result == 0)
        *pointer = operation.memory;
    return result;
}

static CUresult from_pool(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, bool named, CUstream handle)
{
    WITH_CONTEXT(context);
    uint64_t address = 0;
    CUstream stream = stream_of(context, handle);
    if (stream == NULL || (named && !is_known(pool)))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (pointer == NULL || bytes == 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (pool == NULL)
        pool = current[context->device->ordinal];
    if (pool == NULL)
        pool = default_pool(context->device);
    if (pool == NULL)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    if (pool->device != NULL && pool->device != context->device) /* peers have no access to each other */
        FINISH(CUDA_ERROR_INVALID_DEVICE);
    if (stream->capture != NULL)
        FINISH(pool->device == NULL ? CUDA_ERROR_NOT_SUPPORTED : capture_allocation(context, stream, bytes, pointer));
    CUresult result = stream->is_legacy ? capture_refuses_legacy(context) : 0;
    if (result != 0)
        FINISH(result);
    result = allocate(context, pool, bytes, &address);
    if (result == 0)
        *pointer = address;
    FINISH(result);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return from_pool(pointer, bytes, NULL, false, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return from_pool(pointer, bytes, pool, true, stream);
}

/* What streams can free: memory of the device, of graphs, and of pools on the host. */
static bool is_freeable(CUdeviceptr pointer, bool in_capture)
{
    const struct allocation *found = memory_at(pointer);
    if (in_capture)
        return graph_memory_size(pointer) > 0;
    return found != NULL && found->begin == pointer &&
           (found->kind == MEMORY_DEVICE || found->kind == MEMORY_GRAPH || found->pool != NULL);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    WITH_STREAM(context, stream, handle);
    if (pointer == 0)
        FINISH(0);
    if (!is_freeable(pointer, stream->capture != NULL))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    struct operation operation;
    operation.kind = OPERATION_FREE;
    operation.memory = pointer;
    FINISH(stream_do(stream, &operation));
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *made, const struct pool_properties *properties)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || properties == NULL || properties->type != TYPE_PINNED ||
                        properties->location_type < LOCATION_DEVICE || properties->location_type > LOCATION_LAST))
        result = CUDA_ERROR_INVALID_VALUE;
    bool on_host = result == 0 && properties->location_type >= LOCATION_HOST;
    if (result == 0 && !on_host && device_at(properties->location) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0 && properties->handle_types != 0) /* pools that processes share */
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == 0) {
        *made = make(on_host ? NULL : device_at(properties->location), false);
        result = *made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
    }
    FINISH(result);
}

/* What is still allocated from it stays so. */
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (!is_known(pool) || pool->is_default))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        trim(pool, 0);
        struct allocation *one;
        for (size_t at = 0; (one = memory_each(at)) != NULL; at++)
            if (one->pool == pool)
                one->pool = NULL;
        for (unsigned d = 0; d < MAX_DEVICES; d++)
            if (current[d] == pool)
                current[d] = NULL;
        CUmemoryPool *at = &pools;
        while (*at != pool)
            at = &(*at)->next;
        *at = pool->next;
        free(pool);
    }
    FINISH(result);
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && !is_known(pool))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        trim(pool, keep);
    FINISH(result);
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int which, void *value)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (!is_known(pool) || value == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    if (which >= POOL_REUSE_FIRST && which <= POOL_REUSE_LAST)
        pool->reuse[which - POOL_REUSE_FIRST] = *(int *)value;
    else if (which == POOL_RELEASE_THRESHOLD)
        pool->release_threshold = *(uint64_t *)value;
    else if (which == POOL_RESERVED_HIGH && *(uint64_t *)value == 0)
        pool->reserved_high = pool->reserved;
    else if (which == POOL_USED_HIGH && *(uint64_t *)value == 0)
        pool->used_high = pool->used;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    FINISH(result);
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int which, void *value)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (!is_known(pool) || value == NULL || which < POOL_REUSE_FIRST || which > POOL_USED_HIGH))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    const uint64_t sizes[] = {[POOL_RELEASE_THRESHOLD] = pool->release_threshold,
        [POOL_RESERVED] = pool->reserved, [POOL_RESERVED_HIGH] = pool->reserved_high,
        [POOL_USED] = pool->used, [POOL_USED_HIGH] = pool->used_high};
    if (which <= POOL_REUSE_LAST)
        *(int *)value = pool->reuse[which - POOL_REUSE_FIRST];
    else
        *(uint64_t *)value = sizes[which];
    FINISH(0);
}

static CUresult pool_of(CUmemoryPool *pool, CUdevice ordinal, bool is_default)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct device *device = device_at(ordinal);
    if (result == 0 && pool == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0) {
        *pool = !is_default && current[ordinal] != NULL ? current[ordinal] : default_pool(device);
        result = *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
    }
    FINISH(result);
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
    return pool_of(pool, ordinal, true);
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
    return pool_of(pool, ordinal, false);
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && device_at(ordinal) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0 && (!is_known(pool) || pool->device != device_at(ordinal)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        current[ordinal] = pool;
    FINISH(result);
}

PER_THREAD(cuMemAllocAsync, _ptsz, (CUdeviceptr *pointer, size_t bytes, CUstream stream), (pointer, bytes, stream))
PER_THREAD(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
           (pointer, bytes, pool, stream))
PER_THREAD(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream stream), (pointer, stream))
