/* Which devices there are, and the checks of arguments. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "../common/version.h"
#include "handles.h"

int device_state(nvmlDevice_t device, struct sim_gpu *state)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!handle_is_device(device))
        return SIM_ERR_INVALID_ARGUMENT;
    return session_gpu(device->gpu, state);
}

int gpu_state(nvmlDevice_t device, struct sim_gpu *state)
{
    int status = device_state(device, state);
    return status == 0 && device->gi != SIM_NO_ID ? SIM_ERR_NOT_SUPPORTED : status;
}

int visible_gpu(unsigned index, struct sim_gpu *state)
{
    unsigned seen = 0;
    for (uint32_t gpu = 0; gpu < session_all_gpus(); gpu++) {
        int status = session_identity(gpu, state); /* a lost GPU still counts; its state says so */
        if (status != 0)
            return status;
        if (sim_gpu_hidden(state->minor) == 0 && seen++ == index)
            return 0;
    }
    return SIM_ERR_INVALID_ARGUMENT;
}

int copy_text(char *target, unsigned length, const char *source)
{
    if (target == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (strlen(source) >= length)
        return SIM_ERR_INSUFFICIENT_SIZE;
    memcpy(target, source, strlen(source) + 1);
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    struct sim_gpu state;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    unsigned seen = 0;
    int status;
    while ((status = visible_gpu(seen, &state)) == 0)
        seen++;
    if (status != SIM_ERR_INVALID_ARGUMENT)
        return status;
    *count = seen;
    return 0;
}

ALSO(nvmlDeviceGetCount, nvmlDeviceGetCount_v2, (unsigned *count), (count))

/* Asking for a handle opens the GPU. */
static int opened(struct sim_gpu *state, nvmlDevice_t *device)
{
    int status = session_gpu(state->index, state);
    if (status == 0)
        *device = handle_gpu(state->index, state->minor);
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    struct sim_gpu state;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (device == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    int status = visible_gpu(index, &state);
    if (status != 0)
        return status;
    return opened(&state, device);
}

ALSO(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2,
     (unsigned index, nvmlDevice_t *device), (index, device))

static int mig_by_uuid(const struct sim_gpu *state, const char *uuid, nvmlDevice_t *device)
{
    struct sim_instances all = {.gpu = state->index};
    if (session_request(SIM_INSTANCES, &all, sizeof all) != 0)
        return SIM_ERR_NOT_FOUND;
    for (uint32_t g = 0; g < all.count; g++)
        for (uint32_t c = 0; c < all.gi[g].ci_count; c++) {
            const struct sim_compute_instance *ci = &all.gi[g].ci[c];
            if (strcasecmp(ci->uuid, uuid) != 0 ||
                sim_mig_hidden(state->minor, all.gi[g].id, ci->id) != 0)
                continue;
            *device = handle_mig(state->index, state->minor, all.gi[g].id, ci->id, ci->serial);
            return 0;
        }
    return SIM_ERR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct sim_gpu state;
    int status = 0;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (uuid == NULL || device == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    for (unsigned index = 0; (status = visible_gpu(index, &state)) == 0; index++) {
        /* The search opens the GPUs that it passes (NVML's documentation of this function). */
        struct sim_gpu now;
        int passed = session_gpu(state.index, &now);
        if (strcasecmp(state.uuid, uuid) == 0)
            return passed != 0 ? passed : opened(&state, device);
        if (passed == 0 && state.mig_mode && mig_by_uuid(&state, uuid, device) == 0)
            return 0;
    }
    return status == SIM_ERR_INVALID_ARGUMENT ? SIM_ERR_NOT_FOUND : status;
}

/* Domains are written with eight digits by NVML and with four by the kernel. */
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    struct sim_gpu state;
    unsigned domain = 0, bus, slot, function = 0;
    int status;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (bus_id == NULL || device == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2)
            return SIM_ERR_INVALID_ARGUMENT;
    }
    for (unsigned index = 0; (status = visible_gpu(index, &state)) == 0; index++)
        if (state.pci_domain == domain && state.pci_bus == bus && state.pci_device == slot)
            return opened(&state, device);
    return status == SIM_ERR_INVALID_ARGUMENT ? SIM_ERR_NOT_FOUND : status;
}

ALSO(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2,
     (const char *bus_id, nvmlDevice_t *device), (bus_id, device))

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    struct sim_gpu state, other;
    int status = device_state(device, &state);
    if (status != 0)
        return status;
    if (index == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (device->gi == SIM_NO_ID) {
        for (unsigned at = 0; visible_gpu(at, &other) == 0; at++)
            if (other.index == state.index) {
                *index = at;
                return 0;
            }
        return SIM_ERR_NOT_FOUND;
    }
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    if ((status = mig_of(device, &all, &gi, &ci)) != 0)
        return status;
    unsigned at = 0;
    for (uint32_t g = 0; g < all.count; g++)
        for (uint32_t c = 0; c < all.gi[g].ci_count; c++) {
            if (all.gi[g].ci[c].serial == ci->serial) {
                *index = at;
                return 0;
            }
            at += sim_mig_hidden(state.minor, all.gi[g].id, all.gi[g].ci[c].id) == 0;
        }
    return SIM_ERR_NOT_FOUND;
}
