/* Memory that a handle holds: it is charged to its maker until the handle is released and nothing maps
 * it any more. What another process has made is charged here, too, from when it is mapped: its maker may
 * end, and what is mapped stays. */
#include <pthread.h>
#include <stdlib.h>

#include "driver.h"
#include "memory.h"

EXPORT CUresult cuMemCreate(CUhandle *handle, size_t size, const struct location_properties *properties,
                            unsigned long long flags);
EXPORT CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *source, int type);
EXPORT CUresult cuMemRelease(CUhandle handle);
EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address);
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUhandle handle, unsigned long long flags);
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size);

struct allocation_properties { /* CUmemAllocationProp */
    struct location_properties first;
    char rest[64];
};

CUresult cuMemGetAllocationPropertiesFromHandle(struct allocation_properties *properties, CUhandle handle);

struct handle {
    CUhandle number;
    unsigned device, references, maps;
    uint64_t bytes;
    bool imported; /* how much it is shows when it is mapped */
    struct handle *next;
};

struct map {
    CUdeviceptr address;
    size_t size;
    struct handle *handle;
    struct map *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static struct map *maps;

void handles_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    handles = NULL;
    maps = NULL;
}

/* A number may be given again once its references are gone. */
static struct handle *find(CUhandle number)
{
    struct handle *handle = handles;
    while (handle != NULL && (handle->number != number || handle->references == 0))
        handle = handle->next;
    return handle;
}

static void end_if_unused(struct handle *handle)
{
    if (handle->references > 0 || handle->maps > 0)
        return;
    account_release(handle->device, handle->bytes);
    struct handle **at = &handles;
    while (*at != handle)
        at = &(*at)->next;
    *at = handle->next;
    free(handle);
}

EXPORT CUresult cuMemCreate(CUhandle *number, size_t size, const struct location_properties *properties,
                            unsigned long long flags)
{
    int device = number == NULL || properties == NULL || properties->location_type != LOCATION_DEVICE
                     ? NO_DEVICE
                     : tenant_device(properties->location);
    if (device == FOREIGN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (device < 0)
        return CALL(cuMemCreate, number, size, properties, flags);
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL || !tenant_reserve((unsigned)device, size)) {
        free(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemCreate, number, size, properties, flags);
    if (result == 0) {
        *handle = (struct handle){*number, (unsigned)device, 1, 0, size, false, handles};
        handles = handle;
    } else {
        account_release((unsigned)device, size);
        free(handle);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUhandle *number, void *source, int type)
{
    struct allocation_properties properties;
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemImportFromShareableHandle, number, source, type);
    bool of_device = result == 0 && CALL(cuMemGetAllocationPropertiesFromHandle, &properties, *number) == 0 &&
                     properties.first.location_type == LOCATION_DEVICE;
    int device = of_device ? tenant_device(properties.first.location) : -1;
    struct handle *known = device < 0 ? NULL : find(*number);
    if (known != NULL) {
        known->references++;
        free(handle);
    } else if (device >= 0) {
        *handle = (struct handle){*number, (unsigned)device, 1, 0, 0, true, handles};
        handles = handle;
    } else {
        free(handle);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemRelease(CUhandle number)
{
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemRelease, number);
    struct handle *handle = find(number);
    if (result == 0 && handle != NULL) {
        handle->references--;
        end_if_unused(handle);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *number, void *address)
{
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemRetainAllocationHandle, number, address);
    struct map *map = maps;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    while (map != NULL && (at < map->address || at - map->address >= map->size))
        map = map->next;
    if (result == 0 && map != NULL) {
        map->handle->number = *number;
        map->handle->references++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* What a map of imported memory adds to what is charged for it. */
static uint64_t added(const struct handle *handle, size_t size, size_t offset)
{
    uint64_t end = size > SIZE_MAX - offset ? SIZE_MAX : size + offset;
    return handle != NULL && handle->imported && end > handle->bytes ? end - handle->bytes : 0;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUhandle number, unsigned long long flags)
{
    struct map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    struct handle *handle = find(number);
    uint64_t more = added(handle, size, offset);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (more == 0 || tenant_reserve(handle->device, more)) {
        result = CALL(cuMemMap, address, size, offset, number, flags);
        if (result == 0 && handle != NULL)
            handle->bytes += more;
        else if (more > 0)
            account_release(handle->device, more);
    }
    if (result == 0 && handle != NULL) {
        *map = (struct map){address, size, handle, maps};
        maps = map;
        handle->maps++;
    } else {
        free(map);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemUnmap, address, size);
    for (struct map **at = &maps; result == 0 && *at != NULL;) {
        struct map *map = *at;
        if (map->address < address || map->address - address >= size) {
            at = &map->next;
            continue;
        }
        *at = map->next;
        map->handle->maps--;
        end_if_unused(map->handle);
        free(map);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
