/* Stream-ordered memory. A pool keeps what is freed until a synchronisation, and beyond it as far as
 * its threshold allows: so a pool is charged by what it holds, as the driver tells it, and not
 * by what is allocated from it. The memory that a device keeps for graphs is such a pool. */
#include "pools.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "memory.h"
#include "streams.h"

#define POOL_THRESHOLD 4
#define POOL_RESERVED 5
#define POOL_USED 7
#define GRAPHS_RESERVED 2
#define GRAPHS_USED 0
#define HOST (-1)

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream);
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream);
EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
EXPORT CUresult cuMemPoolCreate(CUpool *pool, const struct location_properties *properties);
EXPORT CUresult cuMemPoolDestroy(CUpool pool);
EXPORT CUresult cuMemPoolTrimTo(CUpool pool, size_t keep);
EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device);

CUresult cuDeviceGetDefaultMemPool(CUpool *pool, CUdevice device);
CUresult cuDeviceSetMemPool(CUdevice device, CUpool pool);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int which, void *value);
CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemPoolSetAttribute(CUpool pool, int which, void *value);

struct pool {
    CUpool handle; /* NULL: the memory for graphs of a device */
    CUdevice ordinal; /* of graphs */
    int device;
    bool ended; /* by the program; the driver's end waits for what is allocated from it */
    uint64_t charged;
    struct pool *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* also: one allocation from pools at a time */
static struct pool *pools; /* the first is read without the lock, as whether there are any */

static bool any_pools(void)
{
    return __atomic_load_n(&pools, __ATOMIC_RELAXED) != NULL;
}

static struct pool *known(CUpool handle, CUdevice ordinal)
{
    struct pool *pool = pools;
    while (pool != NULL && (pool->handle != handle || pool->ordinal != ordinal))
        pool = pool->next;
    return pool;
}

static struct pool *add(CUpool handle, CUdevice ordinal, int device)
{
    struct pool *pool = known(handle, ordinal);
    if (pool != NULL || (pool = malloc(sizeof *pool)) == NULL)
        return pool;
    *pool = (struct pool){handle, ordinal, device, false, 0, pools};
    __atomic_store_n(&pools, pool, __ATOMIC_RELAXED);
    return pool;
}

static void forget(struct pool *pool)
{
    struct pool **at = &pools;
    while (*at != pool)
        at = &(*at)->next;
    __atomic_store_n(at, pool->next, __ATOMIC_RELAXED);
    free(pool);
}

static uint64_t held(const struct pool *pool)
{
    uint64_t value = 0;
    CUresult result = pool->handle == NULL
                          ? CALL(cuDeviceGetGraphMemAttribute, pool->ordinal, GRAPHS_RESERVED, &value)
                          : CALL(cuMemPoolGetAttribute, pool->handle, POOL_RESERVED, &value);
    return result == 0 ? value : 0;
}

static uint64_t used(const struct pool *pool)
{
    uint64_t value = 0;
    CUresult result = pool->handle == NULL
                          ? CALL(cuDeviceGetGraphMemAttribute, pool->ordinal, GRAPHS_USED, &value)
                          : CALL(cuMemPoolGetAttribute, pool->handle, POOL_USED, &value);
    return result == 0 ? value : 0;
}

static void trim(const struct pool *pool)
{
    if (pool->handle == NULL)
        CALL(cuDeviceGraphMemTrim, pool->ordinal);
    else
        CALL(cuMemPoolTrimTo, pool->handle, 0);
}

/* Charge what it holds now; `reserved` was added to the account for what is being allocated. */
static void settle(struct pool *pool, uint64_t reserved)
{
    if (pool->device == HOST)
        return;
    uint64_t now = held(pool), before = pool->charged + reserved;
    if (now > before)
        account_add((unsigned)pool->device, now - before);
    else
        account_release((unsigned)pool->device, before - now);
    pool->charged = now;
}

/* A pool that the program has ended ends when nothing is left of it. */
static void settle_all(void)
{
    for (struct pool *pool = pools, *next; pool != NULL; pool = next) {
        next = pool->next;
        if (pool->ended)
            trim(pool);
        settle(pool, 0);
        if (pool->ended && pool->charged == 0 && CALL(cuMemPoolDestroy, pool->handle) == 0)
            forget(pool);
    }
}

void pools_refresh(void)
{
    if (!any_pools())
        return;
    pthread_mutex_lock(&lock);
    settle_all();
    pthread_mutex_unlock(&lock);
}

void pools_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pools = NULL;
}

static bool give_up(unsigned device)
{
    bool any = false;
    for (struct pool *pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == (int)device) {
            uint64_t before = pool->charged;
            trim(pool);
            settle(pool, 0);
            any = any || pool->charged < before;
        }
    return any;
}

bool pools_give_up(unsigned device)
{
    if (!any_pools())
        return false;
    pthread_mutex_lock(&lock);
    bool any = give_up(device);
    pthread_mutex_unlock(&lock);
    return any;
}

typedef CUresult (*allocate_fn)(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream);

/* The calls that an allocation comes down to, each with the driver's function behind it. */
static CUresult plain(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    (void)pool;
    return CALL(cuMemAllocAsync, pointer, bytes, stream);
}

static CUresult plain_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    (void)pool;
    return CALL(cuMemAllocAsync_ptsz, pointer, bytes, stream);
}

static CUresult named(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync, pointer, bytes, pool, stream);
}

static CUresult named_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return CALL(cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream);
}

static uint64_t growth_for(struct pool *pool, uint64_t bytes)
{
    settle(pool, 0);
    uint64_t taken = used(pool), unused = pool->charged > taken ? pool->charged - taken : 0;
    return bytes > unused ? bytes - unused : 0;
}

/* Reserve what the pool has to grow by: what it holds unused is charged already, also in a share that is full.
 * If pools have to give up what they keep, it may be this one's. Under the lock, so not by tenant_reserve. */
static bool reserve_growth(struct pool *pool, uint64_t bytes, uint64_t *growth)
{
    unsigned device = (unsigned)pool->device;
    uint64_t limit = tenant_share(device)->memory;
    *growth = growth_for(pool, bytes);
    if (*growth == 0 || account_reserve(device, *growth, limit))
        return true;
    bool any = give_up(device);
    *growth = growth_for(pool, bytes);
    return any && account_reserve(device, *growth, limit);
}

/* A capture may refuse, or not take, what was allocated while there was none. */
static void free_again(CUdeviceptr pointer, CUstream stream)
{
    if (CALL(cuMemFreeAsync, pointer, stream) == 0)
        return;
    int mode = captures_relax();
    CALL(cuMemFree_v2, pointer);
    captures_restore(mode);
}

/* What goes into a graph is charged when the graph is launched. Whether it did shows afterwards: the capture may
 * have ended in between, by another thread. */
static CUresult within_limit(allocate_fn run, CUdeviceptr *pointer, size_t bytes, struct pool *pool, CUstream stream,
                             bool captures)
{
    unsigned device = (unsigned)pool->device;
    uint64_t limit = tenant_share(device)->memory, growth = 0;
    if (captures) {
        settle(pool, 0);
    } else if (!reserve_growth(pool, bytes, &growth)) {
        account_count_refusal(device);
        return refusal();
    }
    CUresult result = run(pointer, bytes, pool->handle, stream);
    uint64_t before = pool->charged + growth;
    settle(pool, growth);
    if (result != 0 || pool->charged <= before || account_used(device) <= limit)
        return result;
    /* The unused parts did not fit together, or nothing was reserved, and the pool grew beyond the limit: back. */
    free_again(*pointer, stream);
    give_up(device);
    account_count_refusal(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Of a pool that this process has not made: the default one of a device, or one that is the current device's. */
static int device_of(CUpool handle, int current)
{
    CUpool standard;
    CUdevice count = 0;
    CALL(cuDeviceGetCount, &count);
    for (CUdevice ordinal = 0; ordinal < count; ordinal++)
        if (CALL(cuDeviceGetDefaultMemPool, &standard, ordinal) == 0 && standard == handle)
            return tenant_device(ordinal);
    return current;
}

static CUresult allocate(allocate_fn run, CUdeviceptr *pointer, size_t bytes, CUpool handle, CUstream stream,
                         CUstream into)
{
    CUdevice ordinal;
    bool of_device = pointer != NULL && bytes > 0 && CALL(cuCtxGetDevice, &ordinal) == 0;
    int device = of_device ? tenant_device(ordinal) : NO_DEVICE;
    if (device == FOREIGN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (device < 0 || (!account_attached() && tenant_start() != 0) ||
        (handle == NULL && CALL(cuDeviceGetMemPool, &handle, ordinal) != 0))
        return run(pointer, bytes, handle, stream);
    bool captures = stream_captures(into);
    pthread_mutex_lock(&lock);
    struct pool *pool = known(handle, 0);
    if (pool == NULL)
        pool = add(handle, 0, device_of(handle, device));
    CUresult result = pool == NULL || pool->device == FOREIGN ? CUDA_ERROR_OUT_OF_MEMORY
                      : pool->ended          ? CUDA_ERROR_INVALID_VALUE
                      : pool->device == HOST ? run(pointer, bytes, handle, stream)
                                             : within_limit(run, pointer, bytes, pool, stream, captures);
    pthread_mutex_unlock(&lock);
    return result;
}

/* The memory for graphs of each device where a graph allocates; false if there is no room to note it. */
static bool find_graph_pools(const struct graph_memory *memory, struct pool **graph_pools)
{
    bool all = true;
    for (unsigned device = 0; device < MAX_DEVICES && all; device++)
        if (memory->bytes[device] > 0)
            all = (graph_pools[device] = add(NULL, memory->ordinal[device], (int)device)) != NULL;
    return all;
}

/* On all of its devices, or on none; `refused` is the one that has too little. */
static bool reserve_graph(const struct graph_memory *memory, struct pool **graph_pools, uint64_t *growth,
                          unsigned *refused)
{
    for (unsigned device = 0; device < MAX_DEVICES; device++) {
        if (graph_pools[device] == NULL || reserve_growth(graph_pools[device], memory->bytes[device], &growth[device]))
            continue;
        for (unsigned i = 0; i < device; i++)
            account_release(i, growth[i]);
        memset(growth, 0, MAX_DEVICES * sizeof *growth);
        *refused = device;
        return false;
    }
    return true;
}

/* Nodes may use the same memory one after the other, or what an earlier launch of the graph has left. Only the
 * driver knows, and says it when it has made room: what does not fit is given back before anything runs. */
static bool fits_uploaded(struct pool **graph_pools, CUgraphExec graph, CUstream stream)
{
    bool fits = !stream_captures(stream) && CALL(cuGraphUpload, graph, stream) == 0;
    for (unsigned device = 0; device < MAX_DEVICES; device++)
        if (graph_pools[device] != NULL) {
            settle(graph_pools[device], 0);
            fits = fits && account_used(device) <= tenant_share(device)->memory;
        }
    for (unsigned device = 0; device < MAX_DEVICES && !fits; device++)
        if (graph_pools[device] != NULL) {
            trim(graph_pools[device]);
            settle(graph_pools[device], 0);
        }
    return fits;
}

CUresult pools_run_graph(const struct graph_memory *memory, CUresult (*run)(CUgraphExec, CUstream), CUgraphExec graph,
                         CUstream stream)
{
    struct pool *graph_pools[MAX_DEVICES] = {NULL};
    uint64_t growth[MAX_DEVICES] = {0};
    unsigned refused = 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    bool found = find_graph_pools(memory, graph_pools);
    if (found && (reserve_graph(memory, graph_pools, growth, &refused) || fits_uploaded(graph_pools, graph, stream))) {
        result = run(graph, stream);
        for (unsigned device = 0; device < MAX_DEVICES; device++)
            if (graph_pools[device] != NULL)
                settle(graph_pools[device], growth[device]);
    } else if (found) {
        account_count_refusal(refused);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(plain, pointer, bytes, NULL, stream, stream);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(plain_ptsz, pointer, bytes, NULL, stream, per_thread(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return pool == NULL ? CALL(cuMemAllocFromPoolAsync, pointer, bytes, pool, stream)
                        : allocate(named, pointer, bytes, pool, stream, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return pool == NULL ? CALL(cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream)
                        : allocate(named_ptsz, pointer, bytes, pool, stream, per_thread(stream));
}

static CUresult run_free(CUdeviceptr pointer, CUstream stream)
{
    return CALL(cuMemFreeAsync, pointer, stream);
}

static CUresult run_free_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return CALL(cuMemFreeAsync_ptsz, pointer, stream);
}

/* It frees what cuMemAlloc gave, too. */
static CUresult release(CUresult (*run)(CUdeviceptr, CUstream), CUdeviceptr pointer, CUstream stream)
{
    struct charge charge;
    bool charged = charge_take(CHARGE_POINTER, pointer, &charge);
    CUresult result = run(pointer, stream);
    if (charged)
        charge_freed(CHARGE_POINTER, result, pointer, &charge);
    else
        pools_refresh();
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return release(run_free, pointer, stream);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return release(run_free_ptsz, pointer, stream);
}

/* A pool of another device than the current one, or of the host, is known from its making. */
EXPORT CUresult cuMemPoolCreate(CUpool *pool, const struct location_properties *properties)
{
    bool of_device = properties != NULL && properties->location_type == LOCATION_DEVICE;
    int device = of_device ? tenant_device(properties->location) : HOST;
    if (device == FOREIGN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CALL(cuMemPoolCreate, pool, properties);
    if (result == 0) {
        pthread_mutex_lock(&lock);
        add(*pool, 0, device);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

/* What is allocated from a pool outlives it, and would belong to no pool: so the driver's pool lives on, unseen,
 * until all of it is freed and nothing that is freed waits in a stream. */
static CUresult end(struct pool *pool)
{
    uint64_t nothing = 0;
    CUpool current, standard;
    CUdevice count = 0;
    trim(pool);
    settle(pool, 0);
    if (pool->device == HOST || pool->charged == 0) {
        CUresult result = CALL(cuMemPoolDestroy, pool->handle);
        if (result == 0)
            forget(pool);
        return result;
    }
    CALL(cuDeviceGetCount, &count);
    for (CUdevice ordinal = 0; ordinal < count; ordinal++) {
        if (CALL(cuDeviceGetDefaultMemPool, &standard, ordinal) != 0)
            continue;
        if (standard == pool->handle)
            return CALL(cuMemPoolDestroy, pool->handle); /* which the driver refuses */
        if (CALL(cuDeviceGetMemPool, &current, ordinal) == 0 && current == pool->handle)
            CALL(cuDeviceSetMemPool, ordinal, standard);
    }
    CALL(cuMemPoolSetAttribute, pool->handle, POOL_THRESHOLD, &nothing);
    pool->ended = true;
    return 0;
}

EXPORT CUresult cuMemPoolDestroy(CUpool handle)
{
    pthread_mutex_lock(&lock);
    struct pool *pool = handle == NULL ? NULL : known(handle, 0);
    CUresult result = pool == NULL  ? CALL(cuMemPoolDestroy, handle)
                      : pool->ended ? CUDA_ERROR_INVALID_VALUE
                                    : end(pool);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUpool pool, size_t keep)
{
    CUresult result = CALL(cuMemPoolTrimTo, pool, keep);
    pools_refresh();
    return result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = CALL(cuDeviceGraphMemTrim, device);
    pools_refresh();
    return result;
}
