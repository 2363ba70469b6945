/* Compute instances within a GPU instance. */
#include <stdio.h>
#include <string.h>

#include "handles.h"

/* Number and identifier of a compute-instance profile are the same. */
static const uint32_t slices_of[] = {1, 2, 3, 4, 7, 8, 6, 0, 0};
#define PROFILES (sizeof slices_of / sizeof *slices_of)

struct place {
    struct sim_gpu state;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_profile profile;
};

static int find(nvmlGpuInstance_t instance, struct place *at)
{
    int status = instance_state(instance, &at->state, &at->all, &at->gi);
    return status == 0 ? profile_at(instance->gpu, at->gi->profile_index, &at->profile) : status;
}

static bool has(const struct place *at, unsigned number)
{
    uint32_t all = at->profile.compute_slices;
    return number < PROFILES && slices_of[number] > 0 &&
           (slices_of[number] == all || (slices_of[number] < all && slices_of[number] <= 4));
}

/* Two slices start at even places, three and four at 0 or 4. */
static uint32_t step_of(uint32_t slices)
{
    return slices == 1 ? 1 : slices == 2 ? 2 : 4;
}

static uint32_t most(const struct place *at, unsigned number)
{
    uint32_t all = at->profile.compute_slices, slices = slices_of[number], count = 0;
    for (uint32_t start = 0; start + slices <= all; start += step_of(slices))
        count++;
    return count;
}

static uint32_t sms_of(const struct place *at, unsigned number)
{
    uint32_t all = at->profile.compute_slices, slices = slices_of[number];
    return slices == all ? at->profile.sms : slices * (at->profile.sms / all);
}

static int profile_info(nvmlGpuInstance_t instance, unsigned number, unsigned engine, struct place *at)
{
    int status = find(instance, at);
    if (status != 0)
        return status;
    if (number >= PROFILES || engine != 0)
        return SIM_ERR_INVALID_ARGUMENT;
    return has(at, number) ? 0 : SIM_ERR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance,
    unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_t *info)
{
    struct place at;
    int status = profile_info(instance, number, engine, &at);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    const struct sim_profile *p = &at.profile;
    if (status == 0)
        *info = (nvmlComputeInstanceProfileInfo_t){number, slices_of[number], most(&at, number),
            sms_of(&at, number), p->copy_engines, p->decoders, p->encoders, p->jpegs, p->ofas};
    return status;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance,
    unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_v3_t *info)
{
    struct place at;
    int status = profile_info(instance, number, engine, &at);
    if (status != 0)
        return status;
    if (info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    size_t second = offsetof(nvmlComputeInstanceProfileInfo_v3_t, capabilities);
    bool third = info->version == NVML_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3);
    if (!third && info->version != ((unsigned)second | 2u << 24))
        return SIM_ERR_ARGUMENT_VERSION;
    const struct sim_profile *p = &at.profile;
    nvmlComputeInstanceProfileInfo_v3_t made = {info->version, number, slices_of[number],
        most(&at, number), sms_of(&at, number), p->copy_engines, p->decoders, p->encoders,
        p->jpegs, p->ofas, "", 0};
    if (slices_of[number] == p->compute_slices)
        snprintf(made.name, sizeof made.name, "MIG %s", p->name);
    else
        snprintf(made.name, sizeof made.name, "MIG %uc.%s", slices_of[number], p->name);
    memcpy(info, &made, third ? sizeof made : second);
    return 0;
}

static uint32_t room(const struct place *at, unsigned number)
{
    uint32_t all = at->profile.compute_slices, slices = slices_of[number], count = 0;
    for (uint32_t start = 0; start + slices <= all; start += step_of(slices)) {
        bool free_here = true;
        for (uint32_t i = 0; i < at->gi->ci_count; i++) {
            const struct sim_compute_instance *ci = &at->gi->ci[i];
            if (start < ci->start + ci->slices && ci->start < start + slices)
                free_here = false;
        }
        count += free_here;
    }
    return count;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                       unsigned id, unsigned *count)
{
    struct place at;
    int status = find(instance, &at);
    if (status == 0 && (count == NULL || !has(&at, id)))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = room(&at, id);
    return status;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance,
    unsigned id, nvmlGpuInstancePlacement_t *placements, unsigned *count)
{
    struct place at;
    int status = find(instance, &at);
    if (status == 0 && (count == NULL || !has(&at, id)))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status != 0)
        return status;
    uint32_t made = 0, slices = slices_of[id];
    for (uint32_t start = 0; start + slices <= at.profile.compute_slices; start += step_of(slices)) {
        if (placements != NULL)
            placements[made] = (nvmlGpuInstancePlacement_t){start, slices};
        made++;
    }
    *count = made;
    return 0;
}

static nvmlReturn_t create(nvmlGpuInstance_t instance, unsigned id, uint32_t start, uint32_t size,
                           nvmlComputeInstance_t *made)
{
    struct place at;
    int status = find(instance, &at);
    if (status != 0)
        return status;
    if (made == NULL || id >= PROFILES || (start != SIM_NO_ID && size != slices_of[id]))
        return SIM_ERR_INVALID_ARGUMENT;
    struct sim_instance_change change = {.gpu = instance->gpu, .gi = at.gi->id, .profile = id,
                                         .start = start, .size = size};
    status = session_request(SIM_CREATE_CI, &change, sizeof change);
    if (status != 0)
        return status;
    cap_nodes_make(at.state.minor, at.gi->id, change.ci);
    *made = handle_instance(instance->gpu, at.gi->id, change.ci, change.serial);
    return 0;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned id,
                                                         nvmlComputeInstance_t *made)
{
    return create(instance, id, SIM_NO_ID, 0, made);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance,
    unsigned id, const nvmlGpuInstancePlacement_t *placement, nvmlComputeInstance_t *made)
{
    if (placement == NULL || placement->start == SIM_NO_ID)
        return session_open() ? SIM_ERR_INVALID_ARGUMENT : SIM_ERR_UNINITIALIZED;
    return create(instance, id, placement->start, placement->size, made);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned id,
                                                       nvmlComputeInstance_t *instances, unsigned *count)
{
    struct place at;
    int status = find(instance, &at);
    if (status != 0)
        return status;
    if (instances == NULL || count == NULL || !has(&at, id))
        return SIM_ERR_INVALID_ARGUMENT;
    *count = 0;
    for (uint32_t i = 0; i < at.gi->ci_count; i++)
        if (at.gi->ci[i].profile == id)
            instances[(*count)++] =
                handle_instance(instance->gpu, at.gi->id, at.gi->ci[i].id, at.gi->ci[i].serial);
    return 0;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                          nvmlComputeInstance_t *made)
{
    struct place at;
    int status = find(instance, &at);
    if (status != 0)
        return status;
    if (made == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < at.gi->ci_count; i++)
        if (at.gi->ci[i].id == id) {
            *made = handle_instance(instance->gpu, at.gi->id, id, at.gi->ci[i].serial);
            return 0;
        }
    return SIM_ERR_NOT_FOUND;
}

static int find_ci(nvmlComputeInstance_t instance, struct sim_gpu *state, struct sim_instances *all,
                   struct sim_gpu_instance **gi, struct sim_compute_instance **ci)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!handle_is_instance(instance) || instance->ci == SIM_NO_ID)
        return SIM_ERR_INVALID_ARGUMENT;
    int status = session_gpu(instance->gpu, state);
    if (status != 0)
        return status;
    struct nvml_device mig = {instance->gpu, state->minor, instance->gi, instance->ci, instance->serial};
    return mig_of(&mig, all, gi, ci);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance,
                                                  nvmlComputeInstanceInfo_t *info)
{
    struct sim_gpu state;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    int status = find_ci(instance, &state, &all, &gi, &ci);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *info = (nvmlComputeInstanceInfo_t){handle_gpu(state.index, state.minor),
            handle_instance(state.index, gi->id, SIM_NO_ID, gi->serial), ci->id, ci->profile,
            {ci->start, ci->slices}};
    return status;
}

ALSO(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2,
     (nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info), (instance, info))

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    struct sim_gpu state;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    int status = find_ci(instance, &state, &all, &gi, &ci);
    if (status != 0)
        return status;
    struct sim_instance_change change = {.gpu = state.index, .gi = gi->id, .ci = ci->id,
                                         .serial = ci->serial};
    return session_request(SIM_DESTROY_CI, &change, sizeof change);
}
