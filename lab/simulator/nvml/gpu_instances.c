/* GPU instances: profiles, placements, creation, destruction. */
#include <stdio.h>
#include <string.h>

#include "handles.h"

#define GPU_INSTANCE_PROFILES 18

/* The model's profile with an NVML number (or, with `by_id`, an identifier). */
static int find_profile(nvmlDevice_t device, unsigned wanted, bool by_id, struct sim_gpu *state,
                        struct sim_profile *profile)
{
    int status = gpu_state(device, state);
    if (status != 0)
        return status;
    if (!state->mig_capable)
        return SIM_ERR_NOT_SUPPORTED;
    for (uint32_t i = 0; i < state->profile_count; i++) {
        if ((status = profile_at(state->index, i, profile)) != 0)
            return status;
        if ((by_id ? profile->id : profile->nvml_profile) == wanted)
            return 0;
    }
    return by_id || wanted >= GPU_INSTANCE_PROFILES ? SIM_ERR_INVALID_ARGUMENT : SIM_ERR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned number,
                                                        nvmlGpuInstanceProfileInfo_t *info)
{
    struct sim_gpu state;
    struct sim_profile p;
    int status = find_profile(device, number, false, &state, &p);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *info = (nvmlGpuInstanceProfileInfo_t){p.id, 0, p.compute_slices, p.max_count, p.sms,
            p.copy_engines, p.decoders, p.encoders, p.jpegs, p.ofas, p.memory_mib};
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned number,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info)
{
    struct sim_gpu state;
    struct sim_profile p;
    int status = find_profile(device, number, false, &state, &p);
    if (status != 0)
        return status;
    if (info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    char name[96];
    snprintf(name, sizeof name, "MIG %s", p.name);
    if (info->version == NVML_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){info->version, p.id, 0, p.compute_slices,
            p.max_count, p.sms, p.copy_engines, p.decoders, p.encoders, p.jpegs, p.ofas,
            p.memory_mib, ""};
        COPY_FIXED(info->name, name);
        return 0;
    }
    if (info->version == NVML_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        nvmlGpuInstanceProfileInfo_v3_t *third = (void *)info;
        *third = (nvmlGpuInstanceProfileInfo_v3_t){third->version, p.id, p.compute_slices,
            p.max_count, p.sms, p.copy_engines, p.decoders, p.encoders, p.jpegs, p.ofas,
            p.memory_mib, "", 0};
        COPY_FIXED(third->name, name);
        return 0;
    }
    return SIM_ERR_ARGUMENT_VERSION;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
    nvmlGpuInstancePlacement_t *placements, unsigned *count)
{
    struct sim_gpu state;
    struct sim_profile p;
    int status = find_profile(device, id, true, &state, &p);
    if (status != 0)
        return status;
    if (count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    /* Without an array this asks for the number. */
    for (uint32_t i = 0; placements != NULL && i < p.start_count; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){p.starts[i], p.memory_slices};
    *count = p.start_count;
    return 0;
}

ALSO(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDeviceGetGpuInstancePossiblePlacements_v2,
     (nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *placements, unsigned *count), (device, id, placements, count))

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id,
                                                              unsigned *count)
{
    struct sim_gpu state;
    struct sim_profile p;
    int status = find_profile(device, id, true, &state, &p);
    if (status == 0 && count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = p.room; /* without MIG mode too */
    return status;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned id, uint32_t start, uint32_t size,
                           nvmlGpuInstance_t *instance)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (instance == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    struct sim_instance_change change = {.gpu = state.index, .profile = id, .start = start, .size = size};
    status = session_request(SIM_CREATE_GI, &change, sizeof change);
    if (status != 0)
        return status;
    cap_nodes_make(state.minor, change.gi, SIM_NO_ID);
    *instance = handle_instance(state.index, change.gi, SIM_NO_ID, change.serial);
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned id,
                                                nvmlGpuInstance_t *instance)
{
    return create(device, id, SIM_NO_ID, 0, instance);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
    const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *instance)
{
    if (placement == NULL)
        return session_open() ? SIM_ERR_INVALID_ARGUMENT : SIM_ERR_UNINITIALIZED;
    if (placement->start == SIM_NO_ID)
        return SIM_ERR_INVALID_ARGUMENT;
    return create(device, id, placement->start, placement->size, instance);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id,
                                              nvmlGpuInstance_t *instances, unsigned *count)
{
    struct sim_gpu state;
    struct sim_profile p;
    struct sim_instances all;
    int status = find_profile(device, id, true, &state, &p);
    if (status != 0)
        return status;
    if (instances == NULL || count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if ((status = mig_instances(device, &all)) != 0)
        return status;
    *count = 0;
    for (uint32_t i = 0; i < all.count; i++)
        if (all.gi[i].profile_index == p.index)
            instances[(*count)++] =
                handle_instance(state.index, all.gi[i].id, SIM_NO_ID, all.gi[i].serial);
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id,
                                                 nvmlGpuInstance_t *instance)
{
    struct sim_gpu state;
    struct sim_instances all;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (instance == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if ((status = mig_instances(device, &all)) != 0)
        return status;
    for (uint32_t i = 0; i < all.count; i++)
        if (all.gi[i].id == id) {
            *instance = handle_instance(state.index, id, SIM_NO_ID, all.gi[i].serial);
            return 0;
        }
    return SIM_ERR_NOT_FOUND;
}

int instance_state(nvmlGpuInstance_t instance, struct sim_gpu *state, struct sim_instances *all,
                   struct sim_gpu_instance **gi)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!handle_is_instance(instance) || instance->ci != SIM_NO_ID)
        return SIM_ERR_INVALID_ARGUMENT;
    int status = session_gpu(instance->gpu, state);
    all->gpu = instance->gpu;
    if (status == 0)
        status = session_request(SIM_INSTANCES, all, sizeof *all);
    for (uint32_t i = 0; status == 0 && i < all->count; i++)
        if (all->gi[i].serial == instance->serial) {
            *gi = &all->gi[i];
            return 0;
        }
    return status == 0 || status == SIM_ERR_NOT_SUPPORTED ? SIM_ERR_NOT_FOUND : status;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    struct sim_gpu state;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_profile p;
    int status = instance_state(instance, &state, &all, &gi);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        status = profile_at(state.index, gi->profile_index, &p);
    if (status == 0)
        *info = (nvmlGpuInstanceInfo_t){handle_gpu(state.index, state.minor), gi->id, p.id,
                                        {gi->placement.start, gi->placement.size}};
    return status;
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    struct sim_gpu state;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    int status = instance_state(instance, &state, &all, &gi);
    if (status != 0)
        return status;
    struct sim_instance_change change = {.gpu = state.index, .gi = gi->id, .serial = gi->serial};
    return session_request(SIM_DESTROY_GI, &change, sizeof change);
}
