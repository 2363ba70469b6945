/* Names and numbers by which a device is known. */
#include <stdio.h>
#include <string.h>

#include "handles.h"

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status != 0)
        return status;
    if (device->gi == SIM_NO_ID)
        return copy_text(uuid, length, state.uuid);
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    status = mig_of(device, &all, &gi, &ci);
    return status != 0 ? status : copy_text(uuid, length, ci->uuid);
}

/* "1g.5gb", and "1c.3g.20gb" where the compute instance is a part of its GPU instance. */
static void mig_name(const struct sim_profile *profile, uint32_t slices, char *name, size_t size)
{
    if (slices == profile->compute_slices)
        snprintf(name, size, "%s", profile->name);
    else
        snprintf(name, size, "%uc.%s", slices, profile->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status != 0)
        return status;
    if (device->gi == SIM_NO_ID)
        return copy_text(name, length, state.product);
    struct sim_instances all;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    struct sim_profile profile;
    char part[48], whole[160];
    if ((status = mig_of(device, &all, &gi, &ci)) != 0 ||
        (status = profile_at(state.index, gi->profile_index, &profile)) != 0)
        return status;
    mig_name(&profile, ci->slices, part, sizeof part);
    snprintf(whole, sizeof whole, "%s MIG %s", state.product, part);
    return copy_text(name, length, whole);
}

READING(nvmlDeviceGetMinorNumber, unsigned, state.minor)
READING(nvmlDeviceGetBrand, unsigned, state.architecture <= 6 ? 2 : 14)
READING(nvmlDeviceGetArchitecture, unsigned, state.architecture)
READING(nvmlDeviceGetBoardId, unsigned, state.pci_bus << 8)

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    return state.serial[0] == '\0' ? SIM_ERR_NOT_SUPPORTED : copy_text(serial, length, state.serial);
}

/* The VBIOS is the one identity that no label or scheduler reads: it says what this is. */
EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    return status != 0 ? status : copy_text(version, length, "SIMULATED");
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status == 0 && (major == NULL || minor == NULL))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0) {
        *major = (int)state.cc_major;
        *minor = (int)state.cc_minor;
    }
    return status;
}

static int pci(nvmlDevice_t device, struct sim_gpu *state, const void *target)
{
    int status = device_state(device, state);
    return status == 0 && target == NULL ? SIM_ERR_INVALID_ARGUMENT : status;
}

static nvmlPciInfo_t pci_of(const struct sim_gpu *state)
{
    nvmlPciInfo_t info = {.domain = state->pci_domain, .bus = state->pci_bus,
        .device = state->pci_device, .pciDeviceId = state->pci_device_id,
        .pciSubSystemId = state->pci_subsystem_id};
    snprintf(info.busIdLegacy, sizeof info.busIdLegacy, "%04X:%02X:%02X.0",
             state->pci_domain & 0xffff, state->pci_bus & 0xff, state->pci_device & 0xff);
    COPY_FIXED(info.busId, state->bus_id);
    return info;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    struct sim_gpu state;
    int status = pci(device, &state, info);
    if (status == 0)
        *info = pci_of(&state);
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *info)
{
    struct sim_gpu state;
    int status = pci(device, &state, info);
    if (status != 0)
        return status;
    nvmlPciInfo_t whole = pci_of(&state);
    memset(info, 0, sizeof *info);
    memcpy(info->busId, whole.busIdLegacy, sizeof info->busId);
    info->domain = whole.domain;
    info->bus = whole.bus;
    info->device = whole.device;
    info->pciDeviceId = whole.pciDeviceId;
    info->pciSubSystemId = whole.pciSubSystemId;
    return 0;
}

ALSO(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2,
     (nvmlDevice_t device, nvmlPciInfo_v2_t *info), (device, info))

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *info)
{
    struct sim_gpu state;
    int status = pci(device, &state, info);
    if (status != 0)
        return status;
    if (info->version != NVML_VERSION(nvmlPciInfoExt_v1_t, 1))
        return SIM_ERR_ARGUMENT_VERSION;
    *info = (nvmlPciInfoExt_v1_t){.version = info->version, .domain = state.pci_domain,
        .bus = state.pci_bus, .device = state.pci_device, .pciDeviceId = state.pci_device_id,
        .pciSubSystemId = state.pci_subsystem_id, .baseClass = 3, .subClass = 2};
    COPY_FIXED(info->busId, state.bus_id);
    return 0;
}
