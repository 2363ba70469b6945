/* Memory of graphs. Its address is that of its node forever; there is memory behind it from the
 * launch of the allocating node to the freeing one's. What graphs give back stays reserved for
 * the graphs of the device until it is trimmed. */
#include <stdlib.h>
#include <sys/mman.h>

#include "graphs.h"

#define GRAIN 512u

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH, ATTRIBUTES }; /* as CUgraphMem_attribute numbers them */

struct block {
    CUdeviceptr begin;
    size_t size, whole;
    const struct device *device;
    unsigned users; /* nodes, and its being live */
    bool live;
    struct block *next;
};

static struct block *blocks;
static uint64_t bytes_of[MAX_DEVICES][ATTRIBUTES];

static struct block *find(CUdeviceptr address)
{
    struct block *block = blocks;
    while (block != NULL && block->begin != address)
        block = block->next;
    return block;
}

size_t graph_memory_size(CUdeviceptr address)
{
    const struct block *block = find(address);
    return block == NULL ? 0 : block->size;
}

CUdevice graph_memory_device(CUdeviceptr address)
{
    return find(address)->device->ordinal;
}

bool graph_memory_is_live(CUdeviceptr address)
{
    const struct block *block = find(address);
    return block != NULL && block->live;
}

CUresult graph_memory_reserve(const struct device *device, size_t bytes, CUdeviceptr *address)
{
    if (bytes > SIZE_MAX - GRAIN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = calloc(1, sizeof *block);
    size_t whole = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    void *place = block == NULL ? MAP_FAILED
                                : mmap(NULL, whole, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = (struct block){.begin = (uint64_t)(uintptr_t)place, .size = bytes, .whole = whole, .device = device,
                            .users = 1, .next = blocks};
    blocks = block;
    *address = block->begin;
    return 0;
}

void graph_memory_keep(CUdeviceptr address)
{
    find(address)->users++;
}

void graph_memory_leave(CUdeviceptr address)
{
    struct block **at = &blocks;
    while (*at != NULL && (*at)->begin != address)
        at = &(*at)->next;
    if (*at == NULL || --(*at)->users > 0)
        return;
    struct block *gone = *at;
    *at = gone->next;
    munmap((void *)(uintptr_t)gone->begin, gone->whole);
    free(gone);
}

static void raise_high(uint64_t *bytes)
{
    if (bytes[USED] > bytes[USED_HIGH])
        bytes[USED_HIGH] = bytes[USED];
    if (bytes[RESERVED] > bytes[RESERVED_HIGH])
        bytes[RESERVED_HIGH] = bytes[RESERVED];
}

CUresult graph_memory_expect(CUcontext context, uint64_t more)
{
    uint64_t *bytes = bytes_of[context->device->ordinal];
    if (bytes[USED] + more <= bytes[RESERVED])
        return 0;
    uint64_t missing = bytes[USED] + more - bytes[RESERVED];
    CUresult result = memory_account(context, SIM_ALLOCATE, missing, NULL);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_give_up(context->device))
        result = memory_account(context, SIM_ALLOCATE, missing, NULL);
    if (result == 0)
        bytes[RESERVED] += missing;
    raise_high(bytes);
    return result;
}

CUresult graph_memory_take(CUcontext context, CUdeviceptr address)
{
    struct block *block = find(address);
    if (block == NULL || block->live)
        return block == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
    CUresult result = graph_memory_expect(context, block->whole);
    if (result != 0)
        return result;
    if (!memory_add((struct allocation){.begin = block->begin, .size = block->size, .kind = MEMORY_GRAPH,
                                        .context = context, .file = -1}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->live = true;
    block->users++;
    bytes_of[block->device->ordinal][USED] += block->whole;
    raise_high(bytes_of[block->device->ordinal]);
    return 0;
}

void graph_memory_left(CUdeviceptr address)
{
    struct block *block = find(address);
    block->live = false;
    bytes_of[block->device->ordinal][USED] -= block->whole;
    madvise((void *)(uintptr_t)block->begin, block->whole, MADV_DONTNEED);
    graph_memory_leave(address);
}

CUresult graph_memory_trim(const struct device *device)
{
    uint64_t *bytes = bytes_of[device->ordinal];
    struct sim_context request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci,
                                  .bytes = bytes[RESERVED] - bytes[USED]};
    bytes[RESERVED] = bytes[USED];
    return request.bytes == 0 ? 0 : driver_call(SIM_FREE, &request, sizeof request, 0);
}

static CUresult check(CUdevice ordinal)
{
    CUresult result = driver_ready();
    return result == 0 && device_at(ordinal) == NULL ? CUDA_ERROR_INVALID_DEVICE : result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    driver_lock();
    CUresult result = check(ordinal);
    FINISH(result == 0 ? graph_memory_trim(device_at(ordinal)) : result);
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, int which, void *value)
{
    driver_lock();
    CUresult result = check(ordinal);
    if (result == 0 && (value == NULL || which < 0 || which >= ATTRIBUTES))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *(uint64_t *)value = bytes_of[ordinal][which];
    FINISH(result);
}

/* The high-water marks can be set back, and nothing else. */
EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, int which, void *value)
{
    driver_lock();
    CUresult result = check(ordinal);
    if (result == 0 && (value == NULL || (which != USED_HIGH && which != RESERVED_HIGH) || *(uint64_t *)value != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        bytes_of[ordinal][which] = bytes_of[ordinal][which - 1];
    FINISH(result);
}
