/* Contexts and device memory, counted over all processes of a GPU or MIG device. */
#include "state.h"

#include <string.h>

/* The device a request names: its GPU instance and compute instance, or none of both. */
static int find_device(const struct sim_context *request, struct gpu **gpu,
                       struct sim_gpu_instance **gi, struct sim_compute_instance **ci)
{
    *gi = NULL;
    *ci = NULL;
    *gpu = gpu_at(request->gpu);
    if (*gpu == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if ((*gpu)->info.lost)
        return SIM_ERR_GPU_IS_LOST;
    if (request->gi == SIM_NO_ID)
        return (*gpu)->info.mig_mode ? SIM_ERR_NOT_SUPPORTED : 0;
    *gi = gi_at(*gpu, request->gi);
    *ci = *gi == NULL ? NULL : ci_at(*gi, request->ci);
    return *ci == NULL ? SIM_ERR_NOT_FOUND : 0;
}

struct context *context_of(struct client *client, uint32_t gpu, uint32_t gi, uint32_t ci)
{
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        struct context *context = &client->contexts[i];
        if (context->used && context->gpu == gpu && context->gi == gi && context->ci == ci)
            return context;
    }
    return NULL;
}

static struct context *find_context(struct client *client, const struct sim_context *request)
{
    return context_of(client, request->gpu, request->gi, request->ci);
}

static bool others_hold(const struct client *self, const struct sim_context *request)
{
    for (int i = 0; i < sim.client_top; i++) {
        struct client *client = &sim.clients[i];
        if (client->fd < 0 || client->pid == self->pid || find_context(client, request) == NULL)
            continue;
        /* An MPS server and its clients are one to the driver. */
        const struct client *server = mps_server_of(self, request->gpu);
        if (server == NULL || server != mps_server_of(client, request->gpu))
            return true;
    }
    return false;
}

static void report_room(const struct gpu *gpu, const struct sim_gpu_instance *gi,
                        struct sim_context *request)
{
    uint64_t total = gi == NULL ? gpu->info.memory_total : gi->memory_total;
    uint64_t used = gi == NULL ? gpu->info.memory_reserved + gpu->allocated : gi->memory_used;
    request->total = total;
    request->free = used < total ? total - used : 0;
}

/* A client of MPS has its own limit, of all its contexts; the total stays the device's. */
static void report_pinned_limit(const struct client *self, struct sim_context *request)
{
    const struct admission *admission = mps_admission(self, request->gpu);
    if (admission == NULL || admission->limit == 0)
        return;
    uint64_t used = 0;
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (sim.clients[i].pid == self->pid && context->used && context->gpu == request->gpu)
                used += context->bytes;
        }
    uint64_t left = used < admission->limit ? admission->limit - used : 0;
    if (request->free > left)
        request->free = left;
}

/* What a client sees of a device, and may take: within its own limits. */
static void report(struct client *client, const struct gpu *gpu, const struct sim_gpu_instance *gi,
                   struct sim_context *request)
{
    report_room(gpu, gi, request);
    report_pinned_limit(client, request);
    memory_limits_report(client, request);
}

static void charge(struct gpu *gpu, struct sim_gpu_instance *gi, struct context *context, uint64_t bytes)
{
    context->bytes += bytes;
    if (gi == NULL)
        gpu->allocated += bytes;
    else
        gi->memory_used += bytes;
}

/* What a client holds on a device, from now on if it held nothing. */
static struct context *hold(struct client *client, const struct sim_context *request,
                            const struct sim_gpu_instance *gi, const struct sim_compute_instance *ci)
{
    struct context *context = find_context(client, request);
    for (int i = 0; i < MAX_CONTEXTS && context == NULL; i++)
        if (!client->contexts[i].used)
            context = &client->contexts[i];
    if (context != NULL && !context->used)
        *context = (struct context){.used = true, .gpu = request->gpu, .gi = request->gi,
            .ci = request->ci, .gi_serial = gi == NULL ? 0 : gi->serial,
            .ci_serial = ci == NULL ? 0 : ci->serial};
    return context;
}

int context_open(struct client *client, struct sim_context *request)
{
    struct gpu *gpu;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    int status = find_device(request, &gpu, &gi, &ci);
    if (status != 0)
        return status;
    if (gpu->info.compute_mode == 2)
        return SIM_ERR_NO_PERMISSION;
    if (gpu->info.compute_mode == 3 && others_hold(client, request))
        return SIM_ERR_IN_USE;
    report(client, gpu, gi, request);
    if (gpu->context_bytes > request->free)
        return SIM_ERR_MEMORY;
    struct context *context = hold(client, request, gi, ci);
    if (context == NULL)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    context->opened++;
    context->overhead += gpu->context_bytes;
    charge(gpu, gi, context, gpu->context_bytes);
    return 0;
}

static void release(struct context *context, uint64_t bytes)
{
    struct gpu *gpu = gpu_at(context->gpu);
    context->bytes -= bytes;
    if (context->gi == SIM_NO_ID) {
        gpu->allocated -= bytes;
        return;
    }
    struct sim_gpu_instance *gi = gi_at(gpu, context->gi);
    if (gi != NULL && gi->serial == context->gi_serial)
        gi->memory_used -= bytes;
}

int context_close(struct client *client, const struct sim_context *request)
{
    struct context *context = find_context(client, request);
    if (context == NULL || context->opened == 0)
        return SIM_ERR_NOT_FOUND;
    uint64_t overhead = context->overhead / context->opened;
    context->overhead -= overhead;
    release(context, overhead);
    if (--context->opened == 0) {
        context->queued = 0;
        context->used = context->bytes > 0;
    }
    return 0;
}

/* 0 bytes only asks for total and free. */
int memory_allocate(struct client *client, struct sim_context *request)
{
    struct gpu *gpu;
    struct sim_gpu_instance *gi;
    struct sim_compute_instance *ci;
    int status = find_device(request, &gpu, &gi, &ci);
    if (status != 0)
        return status;
    report(client, gpu, gi, request);
    if (request->bytes == 0)
        return 0;
    /* Memory of a handle needs no context. */
    struct context *context = hold(client, request, gi, ci);
    if (context == NULL)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    if (context->ci_serial != (ci == NULL ? 0 : ci->serial))
        return SIM_ERR_NOT_FOUND;
    if (request->bytes > request->free)
        return SIM_ERR_MEMORY;
    charge(gpu, gi, context, request->bytes);
    report(client, gpu, gi, request);
    return 0;
}

int memory_free(struct client *client, struct sim_context *request)
{
    struct context *context = find_context(client, request);
    if (context == NULL)
        return SIM_ERR_NOT_FOUND;
    if (request->bytes > context->bytes)
        return SIM_ERR_INVALID_ARGUMENT;
    release(context, request->bytes);
    context->used = context->opened > 0 || context->bytes > 0;
    return 0;
}

void contexts_drop(struct client *client)
{
    segments_drop(client);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        if (client->contexts[i].used)
            release(&client->contexts[i], client->contexts[i].bytes);
        client->contexts[i].used = false;
    }
}

bool instance_in_use(uint64_t gi_serial, uint64_t ci_serial)
{
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (context->used && context->gi_serial == gi_serial && context->ci_serial == ci_serial)
                return true;
        }
    return false;
}

/* One entry per process and device, although a process can have several connections. */
void processes_of(uint32_t gpu, struct sim_processes *answer)
{
    memset(answer, 0, sizeof *answer);
    answer->gpu = gpu;
    for (int i = 0; i < sim.client_top; i++) {
        struct client *client = &sim.clients[i];
        for (int c = 0; client->fd >= 0 && c < MAX_CONTEXTS; c++) {
            struct context *context = &client->contexts[c];
            if (!context->used || context->gpu != gpu)
                continue;
            uint32_t at = 0;
            while (at < answer->count && (answer->process[at].pid != (uint32_t)client->pid ||
                   answer->process[at].gi != context->gi || answer->process[at].ci != context->ci))
                at++;
            if (at == SIM_MAX_PROCESSES)
                return;
            if (at == answer->count)
                answer->process[answer->count++] = (struct sim_process){
                    .pid = (uint32_t)client->pid, .gi = context->gi, .ci = context->ci,
                    .by_mps = mps_admission(client, gpu) != NULL};
            answer->process[at].bytes += context->bytes;
            answer->process[at].utilisation += context_utilisation(context);
        }
    }
}
