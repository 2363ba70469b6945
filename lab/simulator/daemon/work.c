/* GPU time. A GPU that several processes keep busy gives each of them the same part of it, as
 * time slicing does; MIG devices do not share theirs. */
#include "state.h"

#include <string.h>

static bool same_device(const struct context *one, const struct context *other)
{
    return one->used && one->gpu == other->gpu && one->gi == other->gi && one->ci == other->ci;
}

/* Contexts of a device with work, and of it the shortest queue. */
static unsigned busy_contexts(const struct context *device, double *shortest)
{
    unsigned count = 0;
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (!same_device(context, device) || context->queued <= 0)
                continue;
            if (count++ == 0 || context->queued < *shortest)
                *shortest = context->queued;
        }
    return count;
}

static void advance(const struct context *device, double each, double passed)
{
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            struct context *context = &sim.clients[i].contexts[c];
            if (!same_device(context, device) || context->queued <= 0)
                continue;
            context_worked(context, each, passed);
            context->queued = context->queued > each + 1e-9 ? context->queued - each : 0;
        }
}

static double work_off_device(const struct context *device, double seconds)
{
    double worked = 0, shortest = 0, passed = seconds;
    unsigned busy;
    while (seconds > 0 && (busy = busy_contexts(device, &shortest)) > 0) {
        double each = shortest * busy <= seconds ? shortest : seconds / busy;
        advance(device, each, passed);
        worked += each * busy;
        seconds = shortest * busy <= seconds ? seconds - each * busy : 0;
    }
    return worked;
}

void work_off(struct gpu *gpu)
{
    static struct context done[MAX_CLIENTS];
    unsigned devices = 0;
    double now = now_seconds(), passed = now - gpu->worked_at;
    gpu->worked_at = now;
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (!context->used || context->gpu != gpu->info.index || context->queued <= 0)
                continue;
            unsigned d = 0;
            while (d < devices && !same_device(context, &done[d]))
                d++;
            if (d < devices || devices == MAX_CLIENTS)
                continue;
            done[devices++] = *context;
            gpu_worked(gpu, work_off_device(context, passed));
        }
}

/* How long until a context's queue is empty if nothing is added to any. */
static double seconds_left(const struct context *mine)
{
    double left = 0;
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (same_device(context, mine))
                left += context->queued < mine->queued ? context->queued : mine->queued;
        }
    return left;
}

int work_queue(struct client *client, struct sim_work *request)
{
    struct gpu *gpu = gpu_at(request->gpu);
    struct context *context = context_of(client, request->gpu, request->gi, request->ci);
    if (context == NULL)
        return SIM_ERR_NOT_FOUND;
    work_off(gpu);
    context->queued += (double)request->add / 1e9;
    request->left = (uint64_t)(seconds_left(context) * 1e9);
    return 0;
}
