#include "tenant.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "gate.h"
#include "memory.h"
#include "pools.h"

#define MAX_ORDINALS 64

const char driver_library[] = "libcuda-driver.so.1";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct share share;
static bool has_share, has_said, has_said_foreign;
static char folder[4096 + 32], account_path[4096 + 64];
static int8_t indices[MAX_ORDINALS]; /* 0: not asked yet, FOREIGN, or index + 1 */

/* Other threads of the parent may have been anywhere, with any lock. The child has no context, and with it
 * none of what its parent was given; it begins like a new process. */
static void in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    account_in_child();
    charges_in_child();
    contexts_in_child();
    handles_in_child();
    pools_in_child();
    graphs_in_child();
    gates_in_child();
}

__attribute__((constructor)) static void expect_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void say(const char *problem)
{
    if (!has_said)
        fprintf(stderr, "divvy: %s; CUDA is not initialised\n", problem);
    has_said = true;
}

static CUresult start(void)
{
    char path[sizeof folder + 32], problem[sizeof path + 128];
    if (!has_share) {
        snprintf(folder, sizeof folder, "%s/../share", driver_folder());
        snprintf(path, sizeof path, "%s/limits", folder);
        snprintf(account_path, sizeof account_path, "%s/account", folder);
        if (!share_read(path, &share, problem, sizeof problem)) {
            say(problem);
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        has_share = true;
    }
    if (account_attach(account_path))
        return 0;
    snprintf(problem, sizeof problem, "%s: the account of this share cannot be used, or %d processes use it",
             account_path, MAX_SLOTS);
    say(problem);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult tenant_start(void)
{
    pthread_mutex_lock(&lock);
    CUresult result = start();
    pthread_mutex_unlock(&lock);
    return result;
}

static int find(CUdevice ordinal)
{
    uint8_t uuid[16];
    /* The second form tells MIG devices apart; older drivers have only the first. */
    CUresult result = CALL(cuDeviceGetUuid_v2, uuid, ordinal);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = CALL(cuDeviceGetUuid, uuid, ordinal);
    if (result != 0)
        return NO_DEVICE;
    int index = share_find(&share, uuid);
    return index < 0 ? FOREIGN : index;
}

/* A device node may have become another GPU's since the limits were written: the driver was loaded again, and found
 * its GPUs in another order. That GPU is somebody else's. */
int tenant_device(CUdevice ordinal)
{
    if (ordinal < 0 || !has_share)
        return NO_DEVICE;
    if (ordinal >= MAX_ORDINALS)
        return find(ordinal);
    int known = __atomic_load_n(&indices[ordinal], __ATOMIC_RELAXED);
    if (known == 0) {
        int device = find(ordinal);
        if (device == NO_DEVICE)
            return NO_DEVICE;
        known = device == FOREIGN ? FOREIGN : device + 1;
        __atomic_store_n(&indices[ordinal], (int8_t)known, __ATOMIC_RELAXED);
    }
    return known == FOREIGN ? FOREIGN : known - 1;
}

int tenant_current_device(void)
{
    CUdevice ordinal;
    return CALL(cuCtxGetDevice, &ordinal) == 0 ? tenant_device(ordinal) : NO_DEVICE;
}

void tenant_say_foreign(void)
{
    if (!__atomic_exchange_n(&has_said_foreign, true, __ATOMIC_RELAXED))
        fputs("divvy: the limits of this share do not name this GPU; nothing is given on it\n", stderr);
}

const struct share_device *tenant_share(unsigned device)
{
    return &share.device[device];
}

const char *tenant_folder(void)
{
    return folder;
}

bool tenant_reserve(unsigned device, uint64_t bytes)
{
    uint64_t limit = share.device[device].memory;
    /* A child has no slot yet. */
    if (!account_attached() && tenant_start() != 0)
        return false;
    if (account_reserve(device, bytes, limit))
        return true;
    /* What pools keep unused may be enough. */
    if (pools_give_up(device) && account_reserve(device, bytes, limit))
        return true;
    account_count_refusal(device);
    return false;
}
