/* nvidia-smi mig: creation and destruction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

static int failed(const char *what, nvmlReturn_t status)
{
    printf("Failed to %s: %s\n", what, lib.nvmlErrorString(status));
    return status > 255 ? 255 : status;
}

static bool named(const nvmlGpuInstanceProfileInfo_v2_t *info, const char *name)
{
    char *end;
    unsigned long id = strtoul(name, &end, 10);
    if (*name != '\0' && *end == '\0')
        return info->id == id;
    return strcasecmp(strncasecmp(name, "MIG ", 4) == 0 ? name + 4 : name, short_name(info)) == 0;
}

static bool find_profile(nvmlDevice_t gpu, const char *name, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    for (unsigned number = 0; number < GPU_INSTANCE_PROFILES; number++)
        if (gpu_profile(gpu, number, info) && named(info, name))
            return true;
    return false;
}

/* The compute instance that fills its GPU instance: the one with as many slices. */
static nvmlReturn_t fill(const struct found_instance *gi, const char *wanted)
{
    nvmlReturn_t status = SIM_ERR_NOT_FOUND;
    for (unsigned number = 0; number < 9; number++) {
        nvmlComputeInstanceProfileInfo_t info;
        nvmlComputeInstance_t made;
        nvmlComputeInstanceInfo_t ci;
        char name[48], id[12];
        if (lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi->handle, number, 0, &info) != 0)
            continue;
        compute_name(gi, info.sliceCount, name, sizeof name);
        snprintf(id, sizeof id, "%u", info.id);
        if (wanted == NULL ? info.sliceCount != gi->profile.sliceCount : strcmp(wanted, id) != 0 && strcasecmp(wanted, name) != 0)
            continue;
        status = lib.nvmlGpuInstanceCreateComputeInstance(gi->handle, info.id, &made);
        if (status != 0)
            break;
        lib.nvmlComputeInstanceGetInfo_v2(made, &ci);
        printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using "
               "profile MIG %s (ID %2u)\n", ci.id, gi->gpu, gi->info.id, name, info.id);
        return 0;
    }
    printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %s: %s\n",
           gi->gpu, gi->info.id, wanted == NULL ? gi->profile.name : wanted, lib.nvmlErrorString(status));
    return status;
}

static nvmlReturn_t create_one(unsigned index, nvmlDevice_t gpu, char *wanted, bool compute)
{
    struct found_instance made = {.gpu = index};
    char *colon = strchr(wanted, ':');
    nvmlReturn_t status = SIM_ERR_INVALID_ARGUMENT;
    if (colon != NULL)
        *colon++ = '\0';
    if (find_profile(gpu, wanted, &made.profile)) {
        if (colon == NULL)
            status = lib.nvmlDeviceCreateGpuInstance(gpu, made.profile.id, &made.handle);
        else {
            nvmlGpuInstancePlacement_t places[64], place = {0, 0};
            unsigned count = 64;
            lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, made.profile.id, places, &count);
            place.start = (unsigned)strtoul(colon, NULL, 10);
            place.size = count > 0 ? places[0].size : 0;
            status = lib.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, made.profile.id, &place, &made.handle);
        }
    }
    if (status != 0) {
        printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", index, wanted,
               lib.nvmlErrorString(status));
        return status;
    }
    lib.nvmlGpuInstanceGetInfo(made.handle, &made.info);
    printf("Successfully created GPU instance ID %2u on GPU %2u using profile %s (ID %2u)\n", made.info.id,
           index, made.profile.name, made.profile.id);
    return compute ? fill(&made, NULL) : 0;
}

static int no_gpu(void)
{
    puts("No MIG-enabled devices found.");
    return 6;
}

int mig_create(const struct selection *gpus, const char *profiles, bool compute)
{
    bool any = false;
    for (unsigned i = 0; i < gpus->count; i++) {
        char list[512], *rest = NULL;
        if (gpus->status[i] != 0 || !mig_is_on(gpus->device[i]))
            continue;
        any = true;
        snprintf(list, sizeof list, "%s", profiles);
        for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
            nvmlReturn_t status = create_one(gpus->index[i], gpus->device[i], word, compute);
            if (status != 0)
                return failed("create GPU instances", status);
        }
    }
    return any ? 0 : no_gpu();
}

int mig_create_compute(const struct selection *gpus, const char *profiles, const char *wanted)
{
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, wanted, &count);
    for (const struct found_instance *gi = found; gi < found + count; gi++) {
        char list[512], *rest = NULL;
        snprintf(list, sizeof list, "%s", profiles);
        char *word = strtok_r(list, ",", &rest);
        do {
            nvmlReturn_t status = fill(gi, word);
            if (status != 0)
                return failed("create compute instances", status);
        } while (word != NULL && (word = strtok_r(NULL, ",", &rest)) != NULL);
    }
    return count > 0 ? 0 : nothing("GPU instances");
}

int mig_destroy(const struct selection *gpus, const char *wanted)
{
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, wanted, &count);
    for (const struct found_instance *gi = found; gi < found + count; gi++) {
        nvmlReturn_t status = lib.nvmlGpuInstanceDestroy(gi->handle);
        if (status != 0) {
            printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", gi->info.id, gi->gpu,
                   lib.nvmlErrorString(status));
            return failed("destroy GPU instances", status);
        }
        printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", gi->info.id, gi->gpu);
    }
    return count > 0 ? 0 : nothing("GPU instances");
}

int mig_destroy_compute(const struct selection *gpus, const char *wanted_gi, const char *wanted_ci)
{
    bool any = false;
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, wanted_gi, &count);
    for (const struct found_instance *gi = found; gi < found + count; gi++)
        for (unsigned id = 0; id < 8; id++) {
            nvmlComputeInstance_t ci;
            if (!chosen(wanted_ci, id) || lib.nvmlGpuInstanceGetComputeInstanceById(gi->handle, id, &ci) != 0)
                continue;
            any = true;
            nvmlReturn_t status = lib.nvmlComputeInstanceDestroy(ci);
            if (status != 0) {
                printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n", id,
                       gi->gpu, gi->info.id, lib.nvmlErrorString(status));
                return failed("destroy compute instances", status);
            }
            printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", id, gi->gpu,
                   gi->info.id);
        }
    return any ? 0 : nothing("compute instances");
}
