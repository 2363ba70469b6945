/* Memory of devices and page-locked memory of the host. Device memory is backed by host memory
 * of this process; how much there is, the daemon counts for all processes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "streams.h"

#define GRAIN 512u
#define NOWHERE (-2) /* of cuMemRangeGetAttribute */

static struct allocation *table; /* by address */
static size_t count, room;

/* Place of the first allocation that begins above `address`. */
static size_t above(uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct allocation *memory_at(uint64_t address)
{
    size_t next = above(address);
    if (next == 0 || address - table[next - 1].begin >= table[next - 1].size ||
        table[next - 1].kind == MEMORY_CACHED)
        return NULL;
    return &table[next - 1];
}

bool memory_holds(uint64_t address, size_t bytes)
{
    const struct allocation *found = memory_at(address);
    /* Handles that are mapped side by side are one piece of memory. */
    while (found != NULL && bytes > found->size - (address - found->begin)) {
        bytes -= found->size - (address - found->begin);
        address = found->begin + found->size;
        found = memory_at(address);
    }
    return found != NULL;
}

struct allocation *memory_exactly(uint64_t address, enum memory_kind kind)
{
    struct allocation *found = memory_at(address);
    return found != NULL && found->begin == address && found->kind == kind ? found : NULL;
}

struct allocation *memory_each(size_t at)
{
    return at < count ? &table[at] : NULL;
}

bool memory_add(struct allocation one)
{
    if (count == room) {
        size_t more = room == 0 ? 256 : room * 2;
        struct allocation *grown = realloc(table, more * sizeof *table);
        if (grown == NULL)
            return false;
        table = grown;
        room = more;
    }
    size_t at = above(one.begin);
    memmove(table + at + 1, table + at, (count - at) * sizeof *table);
    table[at] = one;
    count++;
    return true;
}

CUresult memory_account(CUcontext context, enum sim_type type, uint64_t bytes, struct sim_context *answer)
{
    const struct device *device = context->device;
    struct sim_context request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci, .bytes = bytes};
    CUresult result = driver_call(type, &request, sizeof request, CUDA_ERROR_OUT_OF_MEMORY);
    if (answer != NULL)
        *answer = request;
    return result;
}

/* Managed memory is on the device as far as there is room, the rest of it on the host. */
static CUresult settle(CUcontext context, uint64_t whole, uint64_t *resident)
{
    struct sim_context answer;
    for (int tries = 0; tries < 8; tries++) {
        CUresult result = memory_account(context, SIM_ALLOCATE, 0, &answer);
        if (result != 0)
            return result;
        *resident = whole < answer.free ? whole : answer.free / GRAIN * GRAIN;
        if (*resident == 0 || memory_account(context, SIM_ALLOCATE, *resident, NULL) == 0)
            return 0;
    }
    *resident = 0;
    return 0;
}

CUresult memory_new(CUcontext context, size_t bytes, enum memory_kind kind, uint64_t *address)
{
    if (bytes == 0 || bytes > SIZE_MAX - GRAIN)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t whole = ((uint64_t)bytes + GRAIN - 1) / GRAIN * GRAIN;
    uint64_t accounted = 0;
    CUresult result = 0;
    if (kind == MEMORY_DEVICE || kind == MEMORY_ARRAY)
        result = memory_account(context, SIM_ALLOCATE, accounted = whole, NULL);
    if (kind == MEMORY_MANAGED)
        result = settle(context, whole, &accounted);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_give_up(context->device))
        return memory_new(context, bytes, kind, address);
    if (result != 0)
        return result;
    void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* A device address is at a multiple of 512, as mappings are of a page. */
    struct allocation one = {.begin = (uint64_t)(uintptr_t)memory, .size = bytes, .accounted = accounted,
                             .kind = kind, .context = context, .file = -1, .preferred = NOWHERE,
                             .prefetched = NOWHERE};
    if (memory == MAP_FAILED || !memory_add(one)) {
        if (memory != MAP_FAILED)
            munmap(memory, whole);
        if (accounted > 0)
            memory_account(context, SIM_FREE, accounted, NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = one.begin;
    return 0;
}

void memory_drop(struct allocation *one)
{
    uint64_t whole = (one->size + GRAIN - 1) / GRAIN * GRAIN;
    if (one->accounted > 0)
        memory_account(one->context, SIM_FREE, one->accounted, NULL);
    if (one->kind == MEMORY_GRAPH)
        graph_memory_left(one->begin);
    else if (one->kind != MEMORY_REGISTERED && one->kind != MEMORY_MODULE)
        munmap((void *)(uintptr_t)one->begin, whole);
    if (one->file >= 0)
        close(one->file);
    memmove(one, one + 1, (size_t)(table + count - (one + 1)) * sizeof *table);
    count--;
}

CUresult memory_give_back(uint64_t address)
{
    struct allocation *one = memory_at(address);
    if (one == NULL || one->begin != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool_take_back(one))
        memory_drop(one);
    return 0;
}

bool memory_add_module(CUmodule module, uint64_t address, uint64_t size)
{
    return size == 0 || memory_add((struct allocation){.begin = address, .size = size, .kind = MEMORY_MODULE,
                                                       .context = module->context, .module = module,
                                                       .file = -1});
}

void memory_drop_module(CUmodule module)
{
    for (size_t i = count; i > 0; i--)
        if (table[i - 1].module == module)
            memory_drop(&table[i - 1]);
}

void memory_drop_context(CUcontext context)
{
    for (size_t i = count; i > 0; i--)
        if (table[i - 1].context == context) {
            pool_lose(&table[i - 1]);
            memory_drop(&table[i - 1]);
        }
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    WITH_CONTEXT(context);
    uint64_t address = 0;
    if (pointer == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_refuses_unsafe();
    if (result == 0)
        result = memory_new(context, bytes, MEMORY_DEVICE, &address);
    if (result == 0)
        *pointer = address;
    FINISH(result);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    WITH_CONTEXT(context);
    uint64_t address = 0;
    if (pointer == NULL || flags < 1 || flags > 2)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_refuses_unsafe();
    if (result == 0)
        result = memory_new(context, bytes, MEMORY_MANAGED, &address);
    if (result == 0)
        *pointer = address;
    FINISH(result);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned element)
{
    if (pitch == NULL || width == 0 || height == 0 || width > (1ull << 40) / height ||
        (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + GRAIN - 1) / GRAIN * GRAIN;
    return cuMemAlloc_v2(pointer, *pitch * height);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    CUresult result = capture_refuses_unsafe();
    if (result != 0 || pointer == 0)
        FINISH(result);
    result = context_wait(context);
    if (result != 0)
        FINISH(result);
    const struct allocation *found = memory_at(pointer);
    if (found == NULL || (found->pool == NULL && found->kind != MEMORY_DEVICE && found->kind != MEMORY_MANAGED &&
                          found->kind != MEMORY_GRAPH))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    result = memory_give_back(pointer);
    if (result == 0)
        pools_trim(context->device);
    FINISH(result);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    WITH_CONTEXT(context);
    struct sim_context answer;
    CUresult result = memory_account(context, SIM_ALLOCATE, 0, &answer);
    if (result == 0 && unused != NULL) /* OptiX asks for one of the two alone */
        *unused = answer.free;
    if (result == 0 && total != NULL)
        *total = answer.total;
    FINISH(result);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *begin, size_t *size, CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    const struct allocation *found = memory_at(pointer);
    if (found == NULL)
        FINISH(CUDA_ERROR_NOT_FOUND);
    if (begin != NULL)
        *begin = found->begin;
    if (size != NULL)
        *size = found->size;
    FINISH(0);
}

EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    WITH_CONTEXT(context);
    uint64_t address = 0;
    if (pointer == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = capture_refuses_unsafe();
    if (result == 0)
        result = memory_new(context, bytes, MEMORY_HOST, &address);
    if (result == 0)
        *pointer = (void *)(uintptr_t)address;
    FINISH(result);
}

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    return flags > 7 ? CUDA_ERROR_INVALID_VALUE : cuMemAllocHost_v2(pointer, bytes);
}

EXPORT CUresult cuMemFreeHost(void *pointer)
{
    WITH_CONTEXT(context);
    struct allocation *found = memory_at((uint64_t)(uintptr_t)pointer);
    if (found == NULL || found->begin != (uint64_t)(uintptr_t)pointer || found->kind != MEMORY_HOST ||
        found->pool != NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    memory_drop(found);
    FINISH(0);
}

EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    WITH_CONTEXT(context);
    uint64_t begin = (uint64_t)(uintptr_t)pointer;
    if (pointer == NULL || bytes == 0 || flags > 15 || begin + bytes < begin)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    size_t next = above(begin);
    if (memory_at(begin) != NULL || (next < count && table[next].begin < begin + bytes))
        FINISH(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    if (!memory_add((struct allocation){.begin = begin, .size = bytes, .kind = MEMORY_REGISTERED,
                                        .context = context, .file = -1}))
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    FINISH(0);
}

EXPORT CUresult cuMemHostUnregister(void *pointer)
{
    WITH_CONTEXT(context);
    struct allocation *found = memory_at((uint64_t)(uintptr_t)pointer);
    if (found == NULL || found->begin != (uint64_t)(uintptr_t)pointer || found->kind != MEMORY_REGISTERED)
        FINISH(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    memory_drop(found);
    FINISH(0);
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned flags)
{
    WITH_CONTEXT(context);
    const struct allocation *found = memory_at((uint64_t)(uintptr_t)pointer);
    if (device == NULL || flags != 0 || found == NULL ||
        (found->kind != MEMORY_HOST && found->kind != MEMORY_REGISTERED))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *device = (CUdeviceptr)(uintptr_t)pointer;
    FINISH(0);
}
