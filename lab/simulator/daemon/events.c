/* Events for those who wait for them, and the faults that a command brings about. */
#include "state.h"

#define EVENT_SINGLE_BIT_ECC 0x1u
#define EVENT_DOUBLE_BIT_ECC 0x2u
#define EVENT_XID 0x8u
/* The last of NVML_GPU_RECOVERY_ACTION_*. */
#define RECOVERY_SYSTEM_REBOOT 7

#define XID_FELL_OFF_THE_BUS 79
#define XID_DOUBLE_BIT_ECC 48

/* A watcher that never reads loses the newest events, as its queue is full. */
void event_raise(uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t type, uint64_t data)
{
    for (int i = 0; i < sim.client_top; i++) {
        struct client *client = &sim.clients[i];
        if (client->fd < 0 || (client->watched[gpu] & type) == 0 || client->event_count == MAX_EVENTS)
            continue;
        client->events[client->event_count++] =
            (struct sim_event){.gpu = gpu, .gi = gi, .ci = ci, .type = type, .data = data};
    }
}

static void fault_clear(struct gpu *gpu)
{
    gpu->info.lost = 0;
    gpu->info.bad_arithmetic = 0;
    gpu->info.no_fabric = 0;
    gpu->info.hot = 0;
    gpu->info.narrow = 0;
    gpu->info.numa_node = 0;
    gpu->info.recovery = 0;
    gpu->info.link_errors = 0;
    gpu->info.ecc_corrected_volatile = 0;
    gpu->info.ecc_uncorrected_volatile = 0;
    gpu->slow_ms = 0;
    gpu->answer_code = 0;
    gpu->load = 0;
    gpu->no_activation = gpu->mps_wedges = false;
}

static void fault_ecc(struct gpu *gpu, uint64_t kind)
{
    uint32_t index = gpu->info.index;
    if (kind == 0) {
        gpu->info.ecc_corrected_volatile++;
        gpu->info.ecc_corrected_aggregate++;
        event_raise(index, SIM_NO_ID, SIM_NO_ID, EVENT_SINGLE_BIT_ECC, 0);
        return;
    }
    gpu->info.ecc_uncorrected_volatile++;
    gpu->info.ecc_uncorrected_aggregate++;
    event_raise(index, SIM_NO_ID, SIM_NO_ID, EVENT_DOUBLE_BIT_ECC, 0);
    event_raise(index, SIM_NO_ID, SIM_NO_ID, EVENT_XID, XID_DOUBLE_BIT_ECC);
}

int fault_order(const struct sim_fault_order *order)
{
    struct gpu *gpu = gpu_at(order->gpu);
    if (gpu == NULL)
        return SIM_ERR_NOT_FOUND;
    switch (order->kind) {
    case SIM_FAULT_CLEAR:
        fault_clear(gpu);
        return 0;
    case SIM_FAULT_XID:
        event_raise(order->gpu, order->gi, order->ci, EVENT_XID, order->value);
        return 0;
    case SIM_FAULT_LOST:
        gpu->info.lost = 1;
        event_raise(order->gpu, SIM_NO_ID, SIM_NO_ID, EVENT_XID, XID_FELL_OFF_THE_BUS);
        return 0;
    case SIM_FAULT_ECC:
        fault_ecc(gpu, order->value);
        return 0;
    case SIM_FAULT_SLOW:
        if (order->value > 600000)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->slow_ms = (unsigned)order->value;
        return 0;
    case SIM_FAULT_CODE:
        if (order->value > 999)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->answer_code = (int)order->value;
        return 0;
    case SIM_FAULT_CONTEXT_MEMORY:
        if (order->value > gpu->info.memory_total >> 20)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->context_bytes = order->value << 20;
        return 0;
    case SIM_FAULT_BAD_MATH:
        gpu->info.bad_arithmetic = 1;
        return 0;
    case SIM_FAULT_NO_FABRIC:
        gpu->info.no_fabric = 1;
        return 0;
    case SIM_FAULT_HOT:
        gpu->info.hot = 1;
        return 0;
    case SIM_FAULT_NARROW:
        gpu->info.narrow = 1;
        return 0;
    case SIM_FAULT_NUMA_NODE:
        if (order->value > UINT8_MAX)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->info.numa_node = (uint8_t)order->value;
        return 0;
    case SIM_FAULT_RECOVERY:
        if (order->value > RECOVERY_SYSTEM_REBOOT)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->info.recovery = (uint8_t)order->value;
        return 0;
    case SIM_FAULT_MPS_WEDGE:
        gpu->mps_wedges = true;
        return 0;
    case SIM_FAULT_LINK_ERRORS:
        gpu->info.link_errors++;
        return 0;
    case SIM_FAULT_NO_ACTIVATION:
        gpu->no_activation = true;
        return 0;
    case SIM_FAULT_LOAD:
        if (order->value > 100)
            return SIM_ERR_INVALID_ARGUMENT;
        gpu->load = (unsigned)order->value;
        return 0;
    default:
        return SIM_ERR_INVALID_ARGUMENT;
    }
}
