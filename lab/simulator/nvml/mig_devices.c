/* MIG devices: handles, parents, attributes. */
#include "../common/version.h"
#include "handles.h"

int mig_instances(nvmlDevice_t device, struct sim_instances *all)
{
    all->gpu = device->gpu;
    return session_request(SIM_INSTANCES, all, sizeof *all);
}

int mig_of(nvmlDevice_t device, struct sim_instances *all, struct sim_gpu_instance **gi,
           struct sim_compute_instance **ci)
{
    int status = mig_instances(device, all);
    if (status != 0)
        return status == SIM_ERR_NOT_SUPPORTED ? SIM_ERR_NOT_FOUND : status;
    for (uint32_t g = 0; g < all->count; g++)
        for (uint32_t c = 0; c < all->gi[g].ci_count; c++)
            if (all->gi[g].ci[c].serial == device->serial) {
                *gi = &all->gi[g];
                *ci = &all->gi[g].ci[c];
                return 0;
            }
    return SIM_ERR_NOT_FOUND;
}

int profile_at(uint32_t gpu, uint32_t index, struct sim_profile *profile)
{
    profile->gpu = gpu;
    profile->index = index;
    return session_request(SIM_PROFILE, profile, sizeof *profile);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!handle_is_device(device) || is_mig == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    *is_mig = device->gi != SIM_NO_ID;
    return 0;
}

READING(nvmlDeviceGetMaxMigDeviceCount, unsigned, state.mig_mode ? state.compute_slices : 0)

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *mig)
{
    struct sim_gpu state;
    struct sim_instances all;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (mig == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (!state.mig_mode)
        return state.mig_capable ? SIM_ERR_NOT_FOUND : SIM_ERR_NOT_SUPPORTED;
    if (index >= state.compute_slices)
        return SIM_ERR_INVALID_ARGUMENT;
    if ((status = mig_instances(device, &all)) != 0)
        return status;
    for (uint32_t g = 0; g < all.count; g++)
        for (uint32_t c = 0; c < all.gi[g].ci_count; c++) {
            const struct sim_compute_instance *ci = &all.gi[g].ci[c];
            if (sim_mig_hidden(state.minor, all.gi[g].id, ci->id) != 0 || index-- > 0)
                continue;
            *mig = handle_mig(state.index, state.minor, all.gi[g].id, ci->id, ci->serial);
            return 0;
        }
    return SIM_ERR_NOT_FOUND;
}

static int mig_handle(nvmlDevice_t device)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!handle_is_device(device) || device->gi == SIM_NO_ID)
        return SIM_ERR_INVALID_ARGUMENT;
    return 0;
}

/* A function that stores one value of a MIG device's handle. */
#define HANDLE_READING(name, type, value)                       \
    EXPORT nvmlReturn_t name(nvmlDevice_t mig, type *target)     \
    {                                                            \
        int status = mig_handle(mig);                            \
        if (status == 0 && target == NULL)                       \
            return SIM_ERR_INVALID_ARGUMENT;                     \
        if (status == 0)                                         \
            *target = (value);                                   \
        return status;                                           \
    }

HANDLE_READING(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t, handle_gpu(mig->gpu, mig->minor))
HANDLE_READING(nvmlDeviceGetGpuInstanceId, unsigned, mig->gi)
HANDLE_READING(nvmlDeviceGetComputeInstanceId, unsigned, mig->ci)

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes)
{
    struct sim_gpu state;
    int status = device_state(mig, &state);
    if (status != 0)
        return status;
    if (attributes == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (mig->gi == SIM_NO_ID)
        return SIM_ERR_NOT_SUPPORTED;
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    struct sim_profile profile;
    if ((status = mig_of(mig, &all, &gi, &ci)) != 0 ||
        (status = profile_at(state.index, gi->profile_index, &profile)) != 0)
        return status;
    *attributes = (nvmlDeviceAttributes_t){ci->sms, profile.copy_engines, profile.decoders,
        profile.encoders, profile.jpegs, profile.ofas, profile.compute_slices, ci->slices,
        gi->memory_total >> 20};
    return 0;
}

ALSO(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2,
     (nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes), (mig, attributes))
