/* Memory and who uses it. */
#include <time.h>

#include "handles.h"

static int memory_of(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status != 0)
        return status;
    if (state.of_system)
        return SIM_ERR_NOT_SUPPORTED;
    memory->total = state.memory_total;
    memory->reserved = state.memory_reserved;
    memory->used = state.memory_used;
    if (device->gi != SIM_NO_ID) {
        struct sim_instances all;
        struct sim_gpu_instance *gi;
        struct sim_compute_instance *ci;
        if ((status = mig_of(device, &all, &gi, &ci)) != 0)
            return status;
        memory->total = gi->memory_total;
        memory->reserved = 0;
        memory->used = gi->memory_used;
    }
    /* Within a control group with a limit the GPU is as large as that: driver 615 has it so, and an
     * older one has no limits. */
    unsigned long long room = memory->total - memory->reserved - memory->used;
    if (state.limit != 0 && device->gi == SIM_NO_ID) {
        unsigned long long left = state.limit > state.limit_used ? state.limit - state.limit_used : 0;
        memory->total = state.limit;
        memory->reserved = 0;
        memory->used = state.limit_used;
        room = room < left ? room : left;
    }
    memory->free = room;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlMemory_v2_t whole;
    int status = memory_of(device, &whole);
    if (status == 0 && memory == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *memory = (nvmlMemory_t){whole.total, whole.free, whole.total - whole.free};
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_v2_t whole;
    int status = memory_of(device, &whole);
    if (status != 0)
        return status;
    if (memory == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (memory->version != NVML_VERSION(nvmlMemory_v2_t, 2))
        return SIM_ERR_ARGUMENT_VERSION;
    whole.version = memory->version;
    *memory = whole;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status == 0 && memory == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status != 0)
        return status;
    unsigned long long total = 256ull << 20;
    while (state.architecture >= 7 && total < state.memory_total)
        total *= 2;
    *memory = (nvmlBAR1Memory_t){total, total - (1u << 20), 1u << 20};
    return 0;
}

/* Clients of an MPS server stand in its list alone, the server in the other. */
static int running(nvmlDevice_t device, struct sim_processes *all, struct sim_gpu *state, uint32_t by_mps)
{
    int status = device_state(device, state);
    if (status != 0)
        return status;
    all->gpu = state->index;
    status = session_request(SIM_PROCESSES, all, sizeof *all);
    if (status != 0)
        return status;
    bool whole = device->gi == SIM_NO_ID;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->process[i].by_mps == by_mps &&
            (whole || (all->process[i].gi == device->gi && all->process[i].ci == device->ci)))
            all->process[kept++] = all->process[i];
    all->count = kept;
    return 0;
}

/* Finds the processes and says how many there are; an error where the caller's list is too short. */
static int running_into(nvmlDevice_t device, unsigned *count, const void *infos, struct sim_processes *all,
                        uint32_t by_mps)
{
    struct sim_gpu state;
    int status = running(device, all, &state, by_mps);
    if (status != 0)
        return status;
    if (count == NULL || (infos == NULL && *count > 0))
        return SIM_ERR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = all->count;
    return room < all->count ? SIM_ERR_INSUFFICIENT_SIZE : 0;
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos, uint32_t by_mps)
{
    struct sim_processes all;
    int status = running_into(device, count, infos, &all, by_mps);
    if (status != 0)
        return status;
    for (uint32_t i = 0; i < all.count; i++)
        infos[i] = (nvmlProcessInfo_t){all.process[i].pid, all.process[i].bytes, all.process[i].gi,
                                       all.process[i].ci};
    return 0;
}

static nvmlReturn_t list_v1(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos, uint32_t by_mps)
{
    struct sim_processes all;
    int status = running_into(device, count, infos, &all, by_mps);
    if (status != 0)
        return status;
    for (uint32_t i = 0; i < all.count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){all.process[i].pid, all.process[i].bytes};
    return 0;
}

#define PROCESS_LISTS(name, by_mps)                                                              \
    EXPORT nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) \
    {                                                                                            \
        return list(device, count, infos, by_mps);                                               \
    }                                                                                            \
    EXPORT nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) \
    {                                                                                            \
        return list(device, count, infos, by_mps);                                               \
    }                                                                                            \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos)   \
    {                                                                                            \
        return list_v1(device, count, infos, by_mps);                                            \
    }

PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, 0)
PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, 1)

/* There is no graphics in the simulation, so these lists are always empty. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned *count)
{
    struct sim_gpu state;
    int status = device_state(device, &state);
    if (status == 0 && count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = 0;
    return status;
}

#define EMPTY_LIST(name)                                                             \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *infos)      \
    {                                                                                \
        (void)infos;                                                                 \
        return none(device, count);                                                  \
    }

EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3)

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned *count, unsigned long long since)
{
    struct sim_gpu state;
    struct sim_processes all;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (count == NULL || (samples == NULL && *count > 0))
        return SIM_ERR_INVALID_ARGUMENT;
    if (state.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    all.gpu = state.index;
    if ((status = session_request(SIM_PROCESSES, &all, sizeof all)) != 0)
        return status;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    unsigned long long now = (unsigned long long)time.tv_sec * 1000000 + (unsigned long long)time.tv_nsec / 1000;
    unsigned room = *count;
    *count = 0;
    /* One sample of every process that has worked lately: the driver keeps several of each. */
    for (uint32_t i = 0; i < all.count && since < now; i++) {
        unsigned percent = all.process[i].utilisation < 100 ? all.process[i].utilisation : 100;
        if (percent == 0)
            continue;
        if (*count < room)
            samples[*count] = (nvmlProcessUtilizationSample_t){
                .pid = all.process[i].pid, .timeStamp = now, .smUtil = percent, .memUtil = percent * 6 / 10};
        ++*count;
    }
    if (*count == 0)
        return SIM_ERR_NOT_FOUND;
    return *count > room ? SIM_ERR_INSUFFICIENT_SIZE : 0;
}
