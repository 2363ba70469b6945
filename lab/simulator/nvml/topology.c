/* How near GPUs are to each other and to the processors. */
#include <string.h>

#include "handles.h"

/* Where the simulated NVSwitches are: between the GPUs of lab/cluster/flat_file.py. */
#define SWITCH_BUS 0xc0u
#define SWITCHES 6

static int pair(nvmlDevice_t one, nvmlDevice_t other, struct sim_gpu *a, struct sim_gpu *b)
{
    int status = gpu_state(one, a);
    return status == 0 ? gpu_state(other, b) : status;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                        unsigned *level)
{
    struct sim_gpu a, b;
    int status = pair(one, other, &a, &b);
    if (status != 0)
        return status;
    if (level == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (a.index == b.index)
        return SIM_ERR_NOT_SUPPORTED;
    if (a.numa != b.numa)
        *level = 50;
    else /* two neighbours behind one switch of the bus, as on the usual boards */
        *level = a.index / 2 == b.index / 2 ? 10 : 40;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
    struct sim_gpu a, b;
    int status = pair(one, other, &a, &b);
    if (status == 0 && same == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *same = a.index == b.index;
    return status;
}

static bool linked(const struct sim_gpu *a, const struct sim_gpu *b)
{
    for (uint32_t i = 0; i < a->link_count; i++)
        if (a->link_peer[i] == (int)b->index || a->link_peer[i] == SIM_LINK_SWITCH)
            return true;
    return false;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned capability,
                                           unsigned *p2p)
{
    struct sim_gpu a, b;
    int status = pair(one, other, &a, &b);
    if (status != 0)
        return status;
    if (p2p == NULL || capability > 4)
        return SIM_ERR_INVALID_ARGUMENT;
    if (a.mig_mode || b.mig_mode || a.index == b.index)
        *p2p = 5;
    else if (capability == 2 || capability == 3)
        *p2p = linked(&a, &b) ? 0 : 5;
    else
        *p2p = a.numa == b.numa || linked(&a, &b) ? 0 : 5;
    return 0;
}

static int link_at(nvmlDevice_t device, unsigned link, struct sim_gpu *state)
{
    int status = gpu_state(device, state);
    if (status != 0)
        return status;
    if (state->link_count == 0)
        return SIM_ERR_NOT_SUPPORTED;
    return link < state->link_count ? 0 : SIM_ERR_INVALID_ARGUMENT;
}

/* A function that stores one value of a link. */
#define LINK_READING(name, value)                                                  \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned link, unsigned *target)  \
    {                                                                               \
        struct sim_gpu state;                                                       \
        int status = link_at(device, link, &state);                                 \
        if (status == 0 && target == NULL)                                          \
            return SIM_ERR_INVALID_ARGUMENT;                                        \
        if (status == 0)                                                            \
            *target = (value);                                                      \
        return status;                                                              \
    }

LINK_READING(nvmlDeviceGetNvLinkState, state.link_peer[link] != SIM_LINK_NONE)
LINK_READING(nvmlDeviceGetNvLinkVersion, state.architecture >= 10 ? 7 : state.architecture == 9 ? 6 : 5)
/* 0: GPU, 2: switch, 255: nothing */
LINK_READING(nvmlDeviceGetNvLinkRemoteDeviceType, state.link_peer[link] == SIM_LINK_SWITCH ? 2
                                                  : state.link_peer[link] == SIM_LINK_NONE ? 255
                                                                                           : 0)

/* Every simulated error is one that made a link send again: 0, NVML_NVLINK_ERROR_DL_REPLAY. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link,
                                                    unsigned counter, unsigned long long *count)
{
    struct sim_gpu state;
    int status = link_at(device, link, &state);
    if (status == 0 && (count == NULL || counter > 4))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = link == 0 && counter == 0 ? state.link_errors : 0;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link,
                                                  unsigned capability, unsigned *result)
{
    struct sim_gpu state;
    int status = link_at(device, link, &state);
    if (status == 0 && (result == NULL || capability > 5))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *result = state.link_peer[link] != SIM_LINK_NONE;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                        nvmlPciInfo_t *info)
{
    struct sim_gpu state, peer;
    int status = link_at(device, link, &state);
    if (status != 0)
        return status;
    if (info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (state.link_peer[link] == SIM_LINK_NONE)
        return SIM_ERR_NOT_SUPPORTED;
    if (state.link_peer[link] == SIM_LINK_SWITCH) {
        info->bus = SWITCH_BUS + link % SWITCHES;
        strcpy(info->busId, "00000000:C0:00.0");
        info->busId[10] = (char)('0' + link % SWITCHES);
        strcpy(info->busIdLegacy, info->busId + 4);
        return 0;
    }
    if ((status = session_identity((uint32_t)state.link_peer[link], &peer)) != 0)
        return status;
    info->domain = peer.pci_domain;
    info->bus = peer.pci_bus;
    info->device = peer.pci_device;
    info->pciDeviceId = peer.pci_device_id;
    info->pciSubSystemId = peer.pci_subsystem_id;
    strcpy(info->busId, peer.bus_id);
    memcpy(info->busIdLegacy, peer.bus_id + 4, 13);
    return 0;
}

ALSO(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2,
     (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *info), (device, link, info))

#define FABRIC_ARCHITECTURE 9 /* Hopper: from then on the driver knows a GPU's state in the fabric */
enum { FABRIC_NONE = 0, FABRIC_IN_PROGRESS = 2, FABRIC_COMPLETED = 3 };

static int fabric_state(nvmlDevice_t device, unsigned *fabric)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (state.architecture < FABRIC_ARCHITECTURE)
        return SIM_ERR_NOT_SUPPORTED;
    *fabric = FABRIC_NONE;
    for (uint32_t i = 0; i < state.link_count; i++)
        if (state.link_peer[i] == SIM_LINK_SWITCH)
            *fabric = FABRIC_COMPLETED;
    if (state.no_fabric)
        *fabric = FABRIC_IN_PROGRESS;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    unsigned fabric;
    int status = fabric_state(device, &fabric);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *info = (nvmlGpuFabricInfo_t){.state = fabric};
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
    unsigned fabric;
    int status = fabric_state(device, &fabric);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && info->version != NVML_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        return SIM_ERR_ARGUMENT_VERSION;
    if (status == 0)
        *info = (nvmlGpuFabricInfo_v2_t){.version = info->version, .state = fabric};
    return status;
}

/* Of platforms where a GPU's memory is itself a NUMA node: GH200, GB200 and GB300, unless the driver
 * is loaded with NVreg_CoherentGPUMemoryMode=driver. */
READING_UNLESS(nvmlDeviceGetNumaNodeId, unsigned, state.numa_node == 0, state.numa_node)

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words,
                                                unsigned long *nodes, unsigned scope)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (nodes == NULL || words == 0 || scope > 1)
        return SIM_ERR_INVALID_ARGUMENT;
    if (state.numa < 0)
        return SIM_ERR_NOT_SUPPORTED;
    memset(nodes, 0, words * sizeof *nodes);
    if ((unsigned)state.numa / 64 >= words)
        return SIM_ERR_INSUFFICIENT_SIZE;
    nodes[state.numa / 64] = 1ul << (state.numa % 64);
    return 0;
}
