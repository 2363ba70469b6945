/* Which devices a process has: those whose nodes it can open, in the order and choice of
 * CUDA_VISIBLE_DEVICES. A process has whole GPUs, or one MIG device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../common/version.h"
#include "state.h"

#define MAX_MIGS (SIM_MAX_GPUS * 7)

struct candidates {
    struct device gpus[SIM_MAX_GPUS]; /* openable ones, in MIG mode or not */
    unsigned gpu_count;
    struct device migs[MAX_MIGS];
    unsigned mig_count;
};

static void whole_gpu(struct device *device, const struct sim_gpu *gpu)
{
    *device = (struct device){.gpu = *gpu, .gi = SIM_NO_ID, .ci = SIM_NO_ID,
                              .memory_total = gpu->memory_total, .sms = mps_sms(gpu->sms)};
    snprintf(device->name, sizeof device->name, "%s", gpu->product);
    snprintf(device->uuid, sizeof device->uuid, "%s", gpu->uuid);
}

static void add_migs(struct candidates *all, const struct sim_gpu *gpu)
{
    static struct sim_instances instances;
    instances.gpu = gpu->index;
    if (driver_call(SIM_INSTANCES, &instances, sizeof instances, 0) != 0)
        return;
    for (uint32_t g = 0; g < instances.count; g++)
        for (uint32_t c = 0; c < instances.gi[g].ci_count && all->mig_count < MAX_MIGS; c++) {
            const struct sim_gpu_instance *gi = &instances.gi[g];
            const struct sim_compute_instance *ci = &gi->ci[c];
            struct sim_profile profile = {.gpu = gpu->index, .index = gi->profile_index};
            if (sim_mig_hidden(gpu->minor, gi->id, ci->id) != 0 ||
                driver_call(SIM_PROFILE, &profile, sizeof profile, 0) != 0)
                continue;
            struct device *mig = &all->migs[all->mig_count++];
            whole_gpu(mig, gpu);
            mig->gi = gi->id;
            mig->ci = ci->id;
            mig->memory_total = gi->memory_total;
            mig->sms = ci->sms;
            snprintf(mig->uuid, sizeof mig->uuid, "%s", ci->uuid);
            if (ci->slices == profile.compute_slices)
                snprintf(mig->name, sizeof mig->name, "%s MIG %s", gpu->product, profile.name);
            else
                snprintf(mig->name, sizeof mig->name, "%s MIG %uc.%s", gpu->product, ci->slices, profile.name);
        }
}

static void find_candidates(struct candidates *all, uint32_t gpu_count)
{
    for (uint32_t i = 0; i < gpu_count; i++) {
        struct sim_gpu gpu = {.index = i};
        if (driver_call(SIM_GPU, &gpu, sizeof gpu, 0) != 0 || gpu.lost || sim_gpu_hidden(gpu.minor) != 0 ||
            mps_hides(gpu.index))
            continue;
        whole_gpu(&all->gpus[all->gpu_count++], &gpu);
        if (gpu.mig_mode)
            add_migs(all, &gpu);
    }
}

static const struct device *first_mig_of(const struct candidates *all, uint32_t gpu)
{
    for (unsigned m = 0; m < all->mig_count; m++)
        if (all->migs[m].gpu.index == gpu)
            return &all->migs[m];
    return NULL;
}

/* A GPU in MIG mode stands for the first of its MIG devices. */
static const struct device *usable(const struct candidates *all, const struct device *gpu)
{
    return gpu->gpu.mig_mode ? first_mig_of(all, gpu->gpu.index) : gpu;
}

static const struct device *by_uuid(const struct device *devices, unsigned count, const char *prefix)
{
    const struct device *found = NULL;
    for (unsigned i = 0; i < count; i++)
        if (strncasecmp(devices[i].uuid, prefix, strlen(prefix)) == 0) {
            if (found != NULL)
                return NULL; /* the prefix of two */
            found = &devices[i];
        }
    return found;
}

/* One word: index, GPU-uuid or its beginning, MIG-uuid, MIG-GPU-uuid/gi/ci. */
static const struct device *named(const struct candidates *all, const char *word)
{
    char *end, uuid[64];
    unsigned gi, ci;
    if (strncasecmp(word, "MIG-GPU-", 8) == 0) {
        if (sscanf(word + 4, "%63[^/]/%u/%u", uuid, &gi, &ci) != 3)
            return NULL;
        for (unsigned m = 0; m < all->mig_count; m++)
            if (strcasecmp(all->migs[m].gpu.uuid, uuid) == 0 && all->migs[m].gi == gi && all->migs[m].ci == ci)
                return &all->migs[m];
        return NULL;
    }
    if (strncasecmp(word, "MIG-", 4) == 0)
        return by_uuid(all->migs, all->mig_count, word);
    if (strncasecmp(word, "GPU-", 4) == 0) {
        const struct device *gpu = by_uuid(all->gpus, all->gpu_count, word);
        return gpu == NULL ? NULL : usable(all, gpu);
    }
    unsigned long index = strtoul(word, &end, 10);
    if (*word < '0' || *word > '9' || *end != '\0' || index >= all->gpu_count)
        return NULL;
    return usable(all, &all->gpus[index]);
}

static bool add(struct device *devices, unsigned *count, const struct device *one)
{
    for (unsigned i = 0; i < *count; i++)
        if (strcmp(devices[i].uuid, one->uuid) == 0)
            return false;
    devices[*count] = *one;
    devices[*count].ordinal = (CUdevice)*count;
    ++*count;
    return true;
}

/* The list ends at the first word that names nothing. */
static unsigned choose(struct device *devices, const struct candidates *all, const char *words)
{
    char list[2048], *rest = NULL;
    unsigned count = 0;
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok_r(list, ", ", &rest); word != NULL && count < MAX_DEVICES;
         word = strtok_r(NULL, ", ", &rest)) {
        const struct device *one = named(all, word);
        if (one == NULL || !add(devices, &count, one))
            break;
    }
    for (unsigned i = 0; i < count; i++)
        if (devices[i].gi != SIM_NO_ID) { /* with MIG there is exactly one device */
            struct device mig = devices[i];
            mig.ordinal = 0;
            devices[0] = mig;
            return 1;
        }
    return count;
}

unsigned find_visible_devices(struct device *devices, uint32_t gpu_count)
{
    struct candidates *all = calloc(1, sizeof *all);
    unsigned count = 0;
    if (all == NULL)
        return 0;
    find_candidates(all, gpu_count);
    const char *words = getenv("CUDA_VISIBLE_DEVICES");
    if (words != NULL)
        count = choose(devices, all, words);
    else {
        for (unsigned i = 0; i < all->gpu_count; i++)
            if (!all->gpus[i].gpu.mig_mode)
                add(devices, &count, &all->gpus[i]);
        if (count == 0 && all->mig_count > 0)
            add(devices, &count, &all->migs[0]);
    }
    free(all);
    return count;
}
