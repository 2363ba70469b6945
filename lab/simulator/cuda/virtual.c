/* Addresses and memory apart: ranges are reserved, handles hold memory, a map joins the two. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

#define GRANULE (2ull << 20)
#define LOCATION_DEVICE 1
#define TYPE_PINNED 1
#define FILE_NAME "device memory %u %u %u"
#define HANDLE_FILE 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */

struct properties { /* the first fields of CUmemAllocationProp */
    int type, handle_types, location_type, location;
};

struct access {
    int location_type, location, flags;
};

struct handle {
    uint64_t number, size;
    struct properties properties;
    unsigned users; /* its owners, and each map */
    unsigned owners; /* who is to release it; a map may give another */
    int file;
    struct handle *next;
};

struct range { /* reserved addresses */
    uint64_t begin, size;
    struct range *next;
};

struct map {
    uint64_t begin;
    struct handle *handle;
    struct map *next;
};

static struct handle *handles;
static struct range *ranges;
static struct map *maps;
static uint64_t last_number = 0x1000;

static struct handle *find(uint64_t number)
{
    struct handle *handle = handles;
    while (handle != NULL && (handle->number != number || handle->owners == 0))
        handle = handle->next;
    return handle;
}

/* The memory lives as long as any process holds it: the daemon knows it by its file's number. */
static CUresult hold(const struct device *device, int file, uint64_t size, bool hold)
{
    struct stat facts;
    if (fstat(file, &facts) != 0)
        return CUDA_ERROR_UNKNOWN;
    struct sim_segment request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci, .hold = hold,
                                  .id = facts.st_ino, .bytes = size};
    return driver_call(SIM_SEGMENT, &request, sizeof request, CUDA_ERROR_OUT_OF_MEMORY);
}

static void leave(struct handle *handle)
{
    if (--handle->users > 0)
        return;
    hold(device_at(handle->properties.location), handle->file, handle->size, false);
    struct handle **at = &handles;
    while (*at != handle)
        at = &(*at)->next;
    *at = handle->next;
    close(handle->file);
    free(handle);
}

static CUresult add(struct handle value, CUmemGenericAllocationHandle *number)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = value;
    handle->users = handle->owners = 1;
    handle->number = *number = ++last_number;
    handle->next = handles;
    handles = handle;
    return 0;
}

static CUresult sound(const struct properties *properties)
{
    if (properties == NULL || properties->type != TYPE_PINNED || properties->location_type != LOCATION_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_at(properties->location) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return (properties->handle_types & ~HANDLE_FILE) != 0 ? CUDA_ERROR_NOT_SUPPORTED : 0;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *granule, const struct properties *properties, int option)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0)
        result = granule == NULL || option < 0 || option > 1 ? CUDA_ERROR_INVALID_VALUE : sound(properties);
    if (result == 0)
        *granule = GRANULE;
    FINISH(result);
}

/* A new handle of held memory; without it, the memory is no longer held. */
static CUresult own(CUresult result, struct handle value, CUmemGenericAllocationHandle *made)
{
    if (result == 0 && (result = add(value, made)) != 0)
        hold(device_at(value.properties.location), value.file, value.size, false);
    if (result != 0)
        close(value.file);
    return result;
}

/* Needs a context of the device, but none that is current. */
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *made, size_t size, const struct properties *properties,
                            unsigned long long flags)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0)
        result = made == NULL || flags != 0 || size == 0 || size % GRANULE != 0 ? CUDA_ERROR_INVALID_VALUE
                                                                                 : sound(properties);
    if (result != 0)
        FINISH(result);
    const struct device *device = device_at(properties->location);
    char name[64];
    snprintf(name, sizeof name, FILE_NAME, device->gpu.index, device->gi, device->ci);
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) {
        if (file >= 0)
            close(file);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = hold(device, file, size, true);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_give_up(device))
        result = hold(device, file, size, true);
    FINISH(own(result, (struct handle){.size = size, .properties = *properties, .file = file}, made));
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle number)
{
    driver_lock();
    CUresult result = driver_ready();
    struct handle *handle = find(number);
    if (result == 0 && handle == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        handle->owners--;
        leave(handle);
    }
    FINISH(result);
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                    unsigned long long flags)
{
    driver_lock();
    CUresult result = driver_ready();
    (void)wanted; /* a hint */
    if (result == 0 && (address == NULL || size == 0 || size % GRANULE != 0 || flags != 0 ||
                        (alignment & (alignment - 1)) != 0 || alignment > (1ull << 30)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    size_t to = alignment > GRANULE ? alignment : GRANULE;
    struct range *range = calloc(1, sizeof *range);
    void *found = range == NULL ? MAP_FAILED
                                : mmap(NULL, size + to, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) {
        free(range);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    uint64_t begin = ((uint64_t)(uintptr_t)found + to - 1) / to * to;
    if (begin > (uint64_t)(uintptr_t)found)
        munmap(found, begin - (uint64_t)(uintptr_t)found);
    if (begin < (uint64_t)(uintptr_t)found + to)
        munmap((void *)(uintptr_t)(begin + size), (uint64_t)(uintptr_t)found + to - begin);
    *range = (struct range){begin, size, ranges};
    ranges = range;
    *address = begin;
    FINISH(0);
}

static struct map *map_within(uint64_t begin, uint64_t size)
{
    struct map *map = maps;
    while (map != NULL && (map->begin >= begin + size || map->begin + map->handle->size <= begin))
        map = map->next;
    return map;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    driver_lock();
    CUresult result = driver_ready();
    struct range **at = &ranges;
    while (*at != NULL && ((*at)->begin != address || (*at)->size != size))
        at = &(*at)->next;
    if (result == 0 && (*at == NULL || map_within(address, size) != NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        struct range *gone = *at;
        *at = gone->next;
        munmap((void *)(uintptr_t)gone->begin, gone->size);
        free(gone);
    }
    FINISH(result);
}

static bool is_reserved(uint64_t address, size_t size)
{
    for (const struct range *range = ranges; range != NULL; range = range->next)
        if (address >= range->begin && address - range->begin <= range->size &&
            size <= range->size - (address - range->begin))
            return true;
    return false;
}

/* No access before cuMemSetAccess gives it. */
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle number,
                         unsigned long long flags)
{
    driver_lock();
    CUresult result = driver_ready();
    struct handle *handle = find(number);
    if (result == 0 && (handle == NULL || offset != 0 || flags != 0 || size != handle->size ||
                        address % GRANULE != 0 || !is_reserved(address, size)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && map_within(address, size) != NULL)
        result = CUDA_ERROR_ALREADY_MAPPED;
    if (result != 0)
        FINISH(result);
    struct map *map = calloc(1, sizeof *map);
    void *place = (void *)(uintptr_t)address;
    if (map == NULL || mmap(place, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->file, 0) == MAP_FAILED) {
        free(map);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    handle->users++;
    *map = (struct map){address, handle, maps};
    maps = map;
    FINISH(0);
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const struct access *access, size_t count)
{
    WITH_CONTEXT(context);
    if (access == NULL || count != 1 || access->location_type != LOCATION_DEVICE ||
        (access->flags != 0 && access->flags != 1 && access->flags != 3))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (device_at(access->location) == NULL)
        FINISH(CUDA_ERROR_INVALID_DEVICE);
    for (uint64_t at = address; at < address + size;) {
        struct map *map = map_within(at, 1);
        if (map == NULL || map->begin < address || map->begin + map->handle->size > address + size)
            FINISH(CUDA_ERROR_INVALID_VALUE);
        at = map->begin + map->handle->size;
    }
    for (struct map *map = maps; map != NULL; map = map->next) {
        if (map->begin < address || map->begin >= address + size)
            continue;
        struct allocation *known = memory_exactly(map->begin, MEMORY_MAPPED);
        int rights = access->flags == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
        mprotect((void *)(uintptr_t)map->begin, map->handle->size, rights);
        if (known == NULL && access->flags != 0 &&
            !memory_add((struct allocation){.begin = map->begin, .size = map->handle->size, .kind = MEMORY_MAPPED,
                                            .context = context, .file = -1}))
            FINISH(CUDA_ERROR_OUT_OF_MEMORY);
        if (known != NULL && access->flags == 0)
            memory_drop(known);
    }
    FINISH(0);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    driver_lock();
    CUresult result = driver_ready();
    uint64_t end = address;
    while (result == 0 && end < address + size) {
        struct map *map = map_within(end, 1);
        if (map == NULL || map->begin != end || map->handle->size > address + size - end)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            end += map->handle->size;
    }
    for (struct map **at = &maps; result == 0 && *at != NULL;) {
        struct map *map = *at;
        if (map->begin < address || map->begin >= address + size) {
            at = &map->next;
            continue;
        }
        struct allocation *known = memory_exactly(map->begin, MEMORY_MAPPED);
        uint64_t bytes = map->handle->size;
        if (known != NULL)
            memory_drop(known);
        /* The addresses stay reserved. */
        mmap((void *)(uintptr_t)map->begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0);
        *at = map->next;
        leave(map->handle);
        free(map);
    }
    FINISH(result);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *number, void *address)
{
    driver_lock();
    CUresult result = driver_ready();
    struct map *map = map_within((uint64_t)(uintptr_t)address, 1);
    if (result == 0 && (number == NULL || map == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        map->handle->users++;
        map->handle->owners++;
        *number = map->handle->number;
    }
    FINISH(result);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(struct properties *properties,
                                                       CUmemGenericAllocationHandle number)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct handle *handle = find(number);
    if (result == 0 && (properties == NULL || handle == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *properties = handle->properties;
    FINISH(result);
}

EXPORT CUresult cuMemExportToShareableHandle(void *target, CUmemGenericAllocationHandle number, int type,
                                             unsigned long long flags)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct handle *handle = find(number);
    if (result == 0 && (target == NULL || handle == NULL || flags != 0 || type != HANDLE_FILE ||
                        (handle->properties.handle_types & HANDLE_FILE) == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        int copy = fcntl(handle->file, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            FINISH(CUDA_ERROR_OUT_OF_MEMORY);
        *(int *)target = copy;
    }
    FINISH(result);
}

/* The device that a file's memory is of, as its name says; NULL for one that is none of ours. */
static const struct device *device_of(int file)
{
    char path[64], name[128];
    uint32_t gpu, gi, ci;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(path, name, sizeof name - 1);
    if (length < 0)
        return NULL;
    name[length] = '\0';
    if (sscanf(name, "/memfd:" FILE_NAME, &gpu, &gi, &ci) != 3)
        return NULL;
    for (unsigned i = 0; i < device_count(); i++) {
        const struct device *device = device_at((CUdevice)i);
        if (device->gpu.index == gpu && device->gi == gi && device->ci == ci)
            return device;
    }
    return NULL;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *made, void *source, int type)
{
    struct stat facts;
    driver_lock();
    CUresult result = driver_ready();
    int given = (int)(intptr_t)source;
    if (result == 0 && (made == NULL || type != HANDLE_FILE || fstat(given, &facts) != 0 || facts.st_size <= 0 ||
                        facts.st_size % (off_t)GRANULE != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    const struct device *device = result == 0 ? device_of(given) : NULL;
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result != 0)
        FINISH(result);
    uint64_t size = (uint64_t)facts.st_size;
    const struct properties properties = {TYPE_PINNED, HANDLE_FILE, LOCATION_DEVICE, device->ordinal};
    int file = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (file < 0)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    result = hold(device, file, size, true);
    FINISH(own(result, (struct handle){.size = size, .properties = properties, .file = file}, made));
}
