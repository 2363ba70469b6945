/* Which processes compute by an MPS server: to an exclusive GPU they and the server are one. */
#include "state.h"

const struct admission *mps_admission(const struct client *client, uint32_t gpu)
{
    for (int i = 0; client->kind == SIM_CLIENT_CUDA && i < MAX_ADMISSIONS; i++)
        if (sim.admissions[i].pid == client->pid && sim.admissions[i].gpu == gpu)
            return &sim.admissions[i];
    return NULL;
}

const struct client *mps_server_of(const struct client *client, uint32_t gpu)
{
    if (client->kind == SIM_CLIENT_MPS)
        return client;
    const struct admission *admission = mps_admission(client, gpu);
    return admission == NULL ? NULL : admission->server;
}

int mps_refuses(const struct client *client, uint32_t gpu)
{
    const struct admission *admission = mps_admission(client, gpu);
    return admission == NULL ? 0 : admission->ended;
}

static struct admission *found(uint32_t pid, uint32_t gpu)
{
    for (int i = 0; i < MAX_ADMISSIONS; i++)
        if (sim.admissions[i].pid == (pid_t)pid && sim.admissions[i].gpu == gpu)
            return &sim.admissions[i];
    return NULL;
}

static struct context *with_work(pid_t pid, uint32_t gpu)
{
    work_off(gpu_at(gpu));
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && sim.clients[i].pid == pid && c < MAX_CONTEXTS; c++) {
            struct context *context = &sim.clients[i].contexts[c];
            if (context->used && context->gpu == gpu && context->queued > 0)
                return context;
        }
    return NULL;
}

/* What users and NVIDIA report before driver 625: the others fail, and whoever comes later hangs. */
static void lost(const struct admission *dead)
{
    if (dead->ended != 0 || dead->server == NULL || !gpu_at(dead->gpu)->mps_wedges ||
        with_work(dead->pid, dead->gpu) == NULL)
        return;
    sim.clients[dead->server - sim.clients].wedged = true;
    for (int i = 0; i < MAX_ADMISSIONS; i++)
        if (sim.admissions[i].pid != 0 && sim.admissions[i].server == dead->server && sim.admissions[i].ended == 0)
            sim.admissions[i].ended = SIM_ERR_MPS_HARMED;
}

void mps_died(const struct client *client)
{
    for (int i = 0; client->kind == SIM_CLIENT_CUDA && i < MAX_ADMISSIONS; i++)
        if (sim.admissions[i].pid == client->pid && client->pid != 0)
            lost(&sim.admissions[i]);
}

static void terminate(struct admission *admission)
{
    struct context *context;
    admission->ended = SIM_ERR_MPS_TERMINATED;
    while ((context = with_work(admission->pid, admission->gpu)) != NULL)
        context->queued = 0;
}

int mps_change(const struct client *server, const struct sim_admission *request)
{
    if (server->kind != SIM_CLIENT_MPS || request->pid == 0)
        return SIM_ERR_INVALID_ARGUMENT;
    struct admission *admission = found(request->pid, request->gpu);
    if (request->change == SIM_MPS_ADMIT) {
        if (gpu_at(request->gpu)->info.mig_mode)
            return SIM_ERR_NOT_SUPPORTED;
        if (server->wedged)
            return SIM_ERR_MPS_HARMED;
        if (admission == NULL)
            admission = found(0, 0);
        if (admission == NULL)
            return SIM_ERR_INSUFFICIENT_RESOURCES;
        *admission = (struct admission){.pid = (pid_t)request->pid, .gpu = request->gpu,
                                        .server = server, .limit = request->limit};
        return 0;
    }
    if (admission == NULL || admission->server != server)
        return SIM_ERR_NOT_FOUND;
    if (request->change == SIM_MPS_TERMINATE) {
        terminate(admission);
        return 0;
    }
    lost(admission);
    *admission = (struct admission){0};
    return 0;
}

static bool is_gone(pid_t pid)
{
    for (int i = 0; i < sim.client_top; i++)
        if (sim.clients[i].fd >= 0 && sim.clients[i].pid == pid && sim.clients[i].kind == SIM_CLIENT_CUDA)
            return false;
    return true;
}

void mps_drop(const struct client *client)
{
    for (int i = 0; i < MAX_ADMISSIONS; i++) {
        struct admission *admission = &sim.admissions[i];
        if (admission->pid != 0 && admission->server == client) {
            admission->server = NULL;
            if (admission->ended == 0)
                admission->ended = SIM_ERR_MPS_SERVER_GONE;
        }
        /* Of a client that lives the end is remembered: its calls must fail. */
        if (admission->pid != 0 && admission->server == NULL &&
            (admission->pid == client->pid ? client->kind == SIM_CLIENT_CUDA : is_gone(admission->pid)))
            *admission = (struct admission){0};
    }
}
