/* What each request does, once its frame is known to be well formed. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Changes of MIG need what the kernel driver asks for: root with CAP_SYS_ADMIN, which a
 * container's root does not have. */
static bool is_administrator(const struct client *client)
{
    char path[64], line[256];
    unsigned long long capabilities = 0;
    if (client->uid != 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)client->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "CapEff: %llx", &capabilities) == 1)
            break;
    fclose(file);
    return (capabilities >> 21 & 1) != 0;
}

static bool hello(struct client *client, struct sim_hello *request)
{
    bool sound = memchr(request->version, '\0', sizeof request->version) != NULL &&
                 request->kind >= SIM_CLIENT_NVML && request->kind <= SIM_CLIENT_MPS;
    if (!sound || client->greeted)
        return false;
    /* A tool outlives a switch of the driver; a library is bound to its kernel module. */
    bool matches = request->kind == SIM_CLIENT_TOOL || strcmp(request->version, sim.driver) == 0;
    client->greeted = matches;
    client->kind = request->kind;
    memcpy(client->version, request->version, sizeof client->version);
    memset(request->version, 0, sizeof request->version);
    snprintf(request->version, sizeof request->version, "%s", sim.driver);
    request->gpu_count = sim.gpu_count;
    return server_answer(client, SIM_HELLO, matches ? 0 : SIM_ERR_VERSION_MISMATCH, request,
                         sizeof *request);
}

static int read_instances(struct gpu *gpu, struct sim_instances *answer)
{
    if (!gpu->info.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    uint32_t index = answer->gpu;
    memset(answer, 0, sizeof *answer);
    answer->gpu = index;
    answer->count = gpu->gi_count;
    memcpy(answer->gi, gpu->gis, gpu->gi_count * sizeof *gpu->gis);
    return 0;
}

static int read_profile(struct gpu *gpu, struct sim_profile *answer)
{
    if (answer->index >= gpu->info.profile_count)
        return SIM_ERR_NOT_FOUND;
    struct sim_profile *profile = &gpu->profiles[answer->index];
    *answer = *profile;
    answer->gpu = gpu->info.index;
    answer->room = profile_room(gpu, profile);
    return 0;
}

static int change_tree(struct gpu *gpu, unsigned type, struct sim_instance_change *change)
{
    int status;
    if (!gpu->info.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    switch (type) {
    case SIM_CREATE_GI:
        status = mig_create_gi(gpu, change);
        break;
    case SIM_DESTROY_GI:
        status = mig_destroy_gi(gpu, change);
        break;
    case SIM_CREATE_CI:
        status = mig_create_ci(gpu, change);
        break;
    default:
        status = mig_destroy_ci(gpu, change);
    }
    if (status == 0) {
        tree_update(gpu->info.index);
        event_raise(gpu->info.index, change->gi, change->ci, 0x100u, 0); /* nvmlEventMigConfigChange */
    }
    return status;
}

static int watch(struct client *client, const struct sim_watch *request)
{
    client->watched[request->gpu] |= request->types;
    return 0;
}

/* Requests about one GPU; all of their structures begin with its index. */
static int about_gpu(struct client *client, struct gpu *gpu, unsigned type, void *body)
{
    switch (type) {
    case SIM_GPU:
        gpu_reading(gpu, body);
        memory_limits_reading(client, body);
        return 0;
    case SIM_ATTACH:
        client->attached[gpu->info.index] = true;
        return 0;
    case SIM_PROFILE:
        return read_profile(gpu, body);
    case SIM_INSTANCES:
        return read_instances(gpu, body);
    case SIM_PROCESSES:
        work_off(gpu);
        processes_of(gpu->info.index, body);
        return 0;
    case SIM_WATCH:
        return watch(client, body);
    case SIM_OPEN_CONTEXT:
        return context_open(client, body);
    case SIM_CLOSE_CONTEXT:
        return context_close(client, body);
    case SIM_ALLOCATE:
        return memory_allocate(client, body);
    case SIM_FREE:
        return memory_free(client, body);
    case SIM_SEGMENT:
        return segment_change(client, body);
    case SIM_ADMIT:
        return mps_change(client, body);
    case SIM_MEMORY_LIMITS: {
        struct sim_memory_limits *limits = body;
        return limits->set && !is_administrator(client) ? SIM_ERR_NO_PERMISSION
                                                        : memory_limits_change(gpu, limits);
    }
    case SIM_WORK:
        return work_queue(client, body);
    case SIM_BUSY: {
        double seconds = (double)((struct sim_busy *)body)->nanoseconds / 1e9;
        struct context *context = context_of(client, gpu->info.index, SIM_NO_ID, SIM_NO_ID);
        gpu_worked(gpu, seconds);
        if (context != NULL)
            context_worked(context, seconds, seconds);
        return 0;
    }
    case SIM_REPORT_XID: {
        const struct sim_fault_order *order = body;
        event_raise(gpu->info.index, order->gi, order->ci, 0x8u, order->value);
        return 0;
    }
    default:
        break;
    }
    if (!is_administrator(client))
        return SIM_ERR_NO_PERMISSION;
    struct sim_setting *setting = body;
    switch (type) {
    case SIM_CREATE_GI:
    case SIM_DESTROY_GI:
    case SIM_CREATE_CI:
    case SIM_DESTROY_CI:
        return change_tree(gpu, type, body);
    case SIM_SET_MIG_MODE:
        return mig_set_mode(gpu->info.index, setting->value, client, &setting->activation);
    case SIM_SET_COMPUTE_MODE:
        return gpu_set_compute_mode(gpu, setting->value);
    case SIM_SET_TIMESLICE:
        return gpu_set_timeslice(gpu, setting->value);
    case SIM_RESET:
        return gpu_reset(gpu->info.index, client);
    case SIM_FAULT:
        return fault_order(body);
    default:
        return SIM_ERR_INVALID_ARGUMENT;
    }
}

static bool works_on_a_lost_gpu(unsigned type)
{
    return type == SIM_GPU || type == SIM_FAULT || type == SIM_FREE || type == SIM_CLOSE_CONTEXT ||
           type == SIM_SEGMENT || type == SIM_ADMIT || type == SIM_WATCH || type == SIM_BUSY || type == SIM_REPORT_XID;
}

static bool computes(unsigned type)
{
    return type == SIM_OPEN_CONTEXT || type == SIM_ALLOCATE || type == SIM_WORK;
}

/* What NVML knows of a GPU without opening it comes from the control device; all else, and all
 * that CUDA asks, from the GPU itself, which may be slow or refuse. */
static bool reaches_the_gpu(const struct client *client, const struct gpu *gpu)
{
    return client->kind == SIM_CLIENT_CUDA || client->attached[gpu->info.index];
}

static int serve(struct client *client, unsigned type, void *body, struct gpu **about)
{
    if (client->kind != SIM_CLIENT_TOOL && strcmp(client->version, sim.driver) != 0)
        return SIM_ERR_VERSION_MISMATCH;
    if (type == SIM_SWITCH_DRIVER) {
        struct sim_switch *order = body;
        if (memchr(order->version, '\0', sizeof order->version) == NULL)
            return SIM_ERR_INVALID_ARGUMENT;
        return is_administrator(client) ? driver_switch(order->version) : SIM_ERR_NO_PERMISSION;
    }
    uint32_t index;
    memcpy(&index, body, sizeof index);
    struct gpu *gpu = *about = gpu_at(index);
    if (gpu == NULL)
        return SIM_ERR_NOT_FOUND;
    if (gpu->info.lost && !works_on_a_lost_gpu(type))
        return SIM_ERR_GPU_IS_LOST;
    int ended = computes(type) ? mps_refuses(client, index) : 0;
    if (ended != 0)
        return ended;
    int status = about_gpu(client, gpu, type, body);
    return gpu->answer_code != 0 && reaches_the_gpu(client, gpu) ? gpu->answer_code : status;
}

bool request_handle(struct client *client, unsigned type, void *body, size_t length)
{
    struct gpu *gpu = NULL;
    if (type == SIM_HELLO)
        return hello(client, body);
    if (!client->greeted || type == SIM_EVENT)
        return false;
    int status = serve(client, type, body, &gpu);
    if (type == SIM_BUSY)
        return true;
    if (gpu != NULL && gpu->slow_ms > 0 && reaches_the_gpu(client, gpu))
        client->answer_at = now_seconds() + gpu->slow_ms / 1000.0;
    return server_answer(client, type, status, body, length);
}
