/* Stream-ordered memory. A pool keeps what is freed until a synchronisation, and beyond it as far as
 * its threshold allows: so a pool is charged by what it holds, as the driver tells it, and not
 * by what is allocated from it. */
#include "pools.h"

#include <pthread.h>

#include "driver.h"
#include "memory.h"

#define MAX_POOLS 64
#define POOL_RESERVED 5
#define POOL_USED 7

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream);
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream);
EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
EXPORT CUresult cuMemPoolCreate(CUpool *pool, const struct location_properties *properties);
EXPORT CUresult cuMemPoolDestroy(CUpool pool);
EXPORT CUresult cuMemPoolTrimTo(CUpool pool, size_t keep);

struct pool {
    CUpool handle;
    unsigned device;
    uint64_t charged;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* also: one allocation from pools at a time */
static struct pool pools[MAX_POOLS];
static unsigned count;
static bool has_pools;

static struct pool *known(CUpool handle)
{
    for (unsigned i = 0; i < count; i++)
        if (pools[i].handle == handle)
            return &pools[i];
    return NULL;
}

static struct pool *add(CUpool handle, int device)
{
    struct pool *pool = known(handle);
    if (pool != NULL || device < 0 || count == MAX_POOLS)
        return pool;
    pools[count] = (struct pool){handle, (unsigned)device, 0};
    __atomic_store_n(&has_pools, true, __ATOMIC_RELAXED);
    return &pools[count++];
}

static uint64_t attribute(const struct pool *pool, int which)
{
    uint64_t value = 0;
    return CALL(cuMemPoolGetAttribute, pool->handle, which, &value) == 0 ? value : 0;
}

/* Charge what it holds now; `reserved` was added to the account for what is being allocated. */
static void settle(struct pool *pool, uint64_t reserved)
{
    uint64_t held = attribute(pool, POOL_RESERVED), before = pool->charged + reserved;
    if (held > before)
        account_add(pool->device, held - before);
    else
        account_release(pool->device, before - held);
    pool->charged = held;
}

void pools_refresh(void)
{
    if (!__atomic_load_n(&has_pools, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++)
        settle(&pools[i], 0);
    pthread_mutex_unlock(&lock);
}

void pools_synchronised(void)
{
    if (__atomic_load_n(&has_pools, __ATOMIC_RELAXED))
        pools_refresh();
}

static bool give_up(unsigned device)
{
    bool any = false;
    for (unsigned i = 0; i < count; i++)
        if (pools[i].device == device) {
            uint64_t before = pools[i].charged;
            CALL(cuMemPoolTrimTo, pools[i].handle, 0);
            settle(&pools[i], 0);
            any = any || pools[i].charged < before;
        }
    return any;
}

bool pools_give_up(unsigned device)
{
    if (!__atomic_load_n(&has_pools, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&lock);
    bool any = give_up(device);
    pthread_mutex_unlock(&lock);
    return any;
}

/* Under the lock, so not by tenant_reserve. */
static bool reserve(unsigned device, uint64_t bytes)
{
    uint64_t limit = tenant_share(device)->memory;
    return account_reserve(device, bytes, limit) || (give_up(device) && account_reserve(device, bytes, limit));
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

static CUresult within_limit(allocate_fn run, CUdeviceptr *pointer, size_t bytes, struct pool *pool, CUstream stream)
{
    uint64_t limit = tenant_share(pool->device)->memory;
    settle(pool, 0);
    /* What the pool holds unused is charged already. */
    uint64_t unused = pool->charged - attribute(pool, POOL_USED);
    uint64_t growth = bytes > unused ? bytes - unused : 0;
    if (!reserve(pool->device, growth)) {
        account_count_refusal(pool->device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = run(pointer, bytes, pool->handle, stream);
    uint64_t before = pool->charged + growth;
    settle(pool, growth);
    if (result != 0 || pool->charged <= before || account_used(pool->device) <= limit)
        return result;
    /* The unused parts did not fit together, and the pool grew beyond the limit: back. */
    CALL(cuMemFreeAsync, *pointer, stream);
    give_up(pool->device);
    account_count_refusal(pool->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(allocate_fn run, CUdeviceptr *pointer, size_t bytes, CUpool handle, CUstream stream)
{
    CUdevice ordinal;
    bool of_device = pointer != NULL && bytes > 0 && CALL(cuCtxGetDevice, &ordinal) == 0;
    int device = of_device ? tenant_device(ordinal) : -1;
    if (device < 0 || (!account_attached() && tenant_start() != 0) ||
        (handle == NULL && CALL(cuDeviceGetMemPool, &handle, ordinal) != 0))
        return run(pointer, bytes, handle, stream);
    pthread_mutex_lock(&lock);
    struct pool *pool = add(handle, device);
    CUresult result = pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : within_limit(run, pointer, bytes, pool, stream);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(plain, pointer, bytes, NULL, stream);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(plain_ptsz, pointer, bytes, NULL, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return pool == NULL ? CALL(cuMemAllocFromPoolAsync, pointer, bytes, pool, stream)
                        : allocate(named, pointer, bytes, pool, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUpool pool, CUstream stream)
{
    return pool == NULL ? CALL(cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream)
                        : allocate(named_ptsz, pointer, bytes, pool, stream);
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

/* A pool of another device than the current one is known from its making. */
EXPORT CUresult cuMemPoolCreate(CUpool *pool, const struct location_properties *properties)
{
    CUresult result = CALL(cuMemPoolCreate, pool, properties);
    if (result == 0 && properties->location_type == LOCATION_DEVICE) {
        pthread_mutex_lock(&lock);
        add(*pool, tenant_device(properties->location));
        pthread_mutex_unlock(&lock);
    }
    return result;
}

/* What is still allocated from it no longer shows in a pool: from here on NVML's figure counts it. */
EXPORT CUresult cuMemPoolDestroy(CUpool handle)
{
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuMemPoolDestroy, handle);
    struct pool *pool = known(handle);
    if (result == 0 && pool != NULL) {
        account_release(pool->device, pool->charged);
        *pool = pools[--count];
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUpool pool, size_t keep)
{
    CUresult result = CALL(cuMemPoolTrimTo, pool, keep);
    pools_refresh();
    return result;
}
