/* Handles live until the process ends, as callers keep them; the same thing has the same one. */
#include "handles.h"

#include <pthread.h>

#define MOST 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvml_device gpus[SIM_MAX_GPUS], migs[MOST];
static struct nvml_instance instances[MOST];
static unsigned mig_count, instance_count;

nvmlDevice_t handle_gpu(uint32_t gpu, uint32_t minor)
{
    gpus[gpu] = (struct nvml_device){gpu, minor, SIM_NO_ID, SIM_NO_ID, 0};
    return &gpus[gpu];
}

/* Serial numbers are never used twice, so one identifies an instance; when thousands have come
 * and gone, the oldest handles are given to new ones. */
nvmlDevice_t handle_mig(uint32_t gpu, uint32_t minor, uint32_t gi, uint32_t ci, uint64_t serial)
{
    pthread_mutex_lock(&lock);
    unsigned known = mig_count < MOST ? mig_count : MOST, at = 0;
    while (at < known && (migs[at].serial != serial || migs[at].gpu != gpu))
        at++;
    if (at == known)
        at = mig_count++ % MOST;
    migs[at] = (struct nvml_device){gpu, minor, gi, ci, serial};
    pthread_mutex_unlock(&lock);
    return &migs[at];
}

struct nvml_instance *handle_instance(uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t serial)
{
    pthread_mutex_lock(&lock);
    unsigned known = instance_count < MOST ? instance_count : MOST, at = 0;
    while (at < known && (instances[at].serial != serial || instances[at].gpu != gpu))
        at++;
    if (at == known)
        at = instance_count++ % MOST;
    instances[at] = (struct nvml_instance){gpu, gi, ci, serial};
    pthread_mutex_unlock(&lock);
    return &instances[at];
}

static bool within(const void *pointer, const void *array, size_t size, size_t step)
{
    uintptr_t at = (uintptr_t)pointer - (uintptr_t)array;
    return at < size && at % step == 0;
}

bool handle_is_device(const void *pointer)
{
    return within(pointer, gpus, sizeof gpus, sizeof *gpus) ||
           within(pointer, migs, sizeof migs, sizeof *migs);
}

bool handle_is_instance(const void *pointer)
{
    return within(pointer, instances, sizeof instances, sizeof *instances);
}
