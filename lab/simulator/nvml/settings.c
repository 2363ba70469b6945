/* Settings of a GPU: compute mode, persistence, MIG mode, reset. */
#include "handles.h"

static nvmlReturn_t set(nvmlDevice_t device, enum sim_type type, unsigned value, int *activation)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    struct sim_setting setting = {.gpu = state.index, .value = value};
    status = session_request(type, &setting, sizeof setting);
    if (activation != NULL)
        *activation = status == 0 ? setting.activation : status;
    return status;
}

READING(nvmlDeviceGetComputeMode, unsigned, state.compute_mode)
READING(nvmlDeviceGetVirtualizationMode, unsigned, 0)

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode)
{
    return set(device, SIM_SET_COMPUTE_MODE, mode, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (current == NULL || pending == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (!state.mig_capable)
        return SIM_ERR_NOT_SUPPORTED;
    *current = state.mig_mode;
    *pending = state.mig_pending;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation)
{
    return activation == NULL ? SIM_ERR_INVALID_ARGUMENT
                              : set(device, SIM_SET_MIG_MODE, mode, activation);
}

/* NVML has no time slices; nvidia-smi asks the kernel driver. Ours finds these symbols. */
READING(divvySimulatedGetTimeslice, unsigned, state.timeslice)

EXPORT nvmlReturn_t divvySimulatedSetTimeslice(nvmlDevice_t device, unsigned value)
{
    return set(device, SIM_SET_TIMESLICE, value, NULL);
}

/* NVML has no reset; nvidia-smi asks the kernel driver. Ours finds this symbol. */
EXPORT nvmlReturn_t divvySimulatedReset(nvmlDevice_t device)
{
    return set(device, SIM_RESET, 0, NULL);
}
