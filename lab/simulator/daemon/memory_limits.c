/* What control groups may take of a GPU, as driver 615 has it: a limit is of all processes in the
 * group and in the groups below it. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct limit {
    uint64_t group; /* inode of its directory: one that is made again has another */
    uint32_t gpu;
    uint64_t soft, hard;
    struct limit *next;
};

static struct limit *limits;

/* Where version 2 of the control groups is mounted; "" if it is not. */
static const char *hierarchy(void)
{
    static char found[PATH_MAX];
    char line[2 * PATH_MAX], place[PATH_MAX], kind[32];
    if (found[0] != '\0')
        return found;
    FILE *mounts = fopen("/proc/self/mounts", "re");
    while (mounts != NULL && found[0] == '\0' && fgets(line, sizeof line, mounts) != NULL)
        if (sscanf(line, "%*s %4095s %31s", place, kind) == 2 && strcmp(kind, "cgroup2") == 0)
            memcpy(found, place, strlen(place) + 1);
    if (mounts != NULL)
        fclose(mounts);
    return found;
}

/* The path of a process' group; false where the kernel tells none. */
static bool group_path(pid_t pid, char *path, size_t size)
{
    char name[64], line[PATH_MAX + 8];
    bool told = false;
    snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
    FILE *file = fopen(name, "re");
    while (file != NULL && !told && fgets(line, sizeof line, file) != NULL)
        told = strncmp(line, "0::/", 4) == 0;
    if (file != NULL)
        fclose(file);
    if (!told || hierarchy()[0] == '\0')
        return false;
    line[strcspn(line, "\n")] = '\0';
    return snprintf(path, size, "%s%s", hierarchy(), line + 3) < (int)size;
}

/* A client is charged to the groups that it was in when it was first asked about. */
static void find_groups(struct client *client)
{
    char path[PATH_MAX + 16];
    struct stat about;
    client->knows_groups = true;
    client->group_count = 0;
    if (!group_path(client->pid, path, sizeof path))
        return;
    size_t top = strlen(hierarchy());
    for (;;) {
        /* Whoever may make groups makes them below its own: of too many, those above count. */
        if (stat(path, &about) == 0)
            client->groups[client->group_count++ % MAX_GROUPS] = about.st_ino;
        if (strlen(path) <= top)
            return;
        *strrchr(path, '/') = '\0';
    }
}

static bool is_in(struct client *client, uint64_t group)
{
    if (!client->knows_groups)
        find_groups(client);
    for (unsigned i = 0; i < client->group_count && i < MAX_GROUPS; i++)
        if (client->groups[i] == group)
            return true;
    return false;
}

/* MIG devices are not counted: the limits are not theirs. */
static uint64_t used_by(uint64_t group, uint32_t gpu)
{
    uint64_t used = 0;
    for (int i = 0; i < sim.client_top; i++)
        for (int c = 0; sim.clients[i].fd >= 0 && c < MAX_CONTEXTS; c++) {
            const struct context *context = &sim.clients[i].contexts[c];
            if (context->used && context->gpu == gpu && context->gi == SIM_NO_ID && is_in(&sim.clients[i], group))
                used += context->bytes;
        }
    return used;
}

void memory_limits_report(struct client *client, struct sim_context *request)
{
    for (const struct limit *limit = limits; limit != NULL && request->gi == SIM_NO_ID; limit = limit->next) {
        if (limit->gpu != request->gpu || !is_in(client, limit->group))
            continue;
        uint64_t used = used_by(limit->group, limit->gpu);
        uint64_t left = used < limit->hard ? limit->hard - used : 0;
        if (request->total > limit->hard)
            request->total = limit->hard;
        if (request->free > left)
            request->free = left;
    }
}

/* Of several limits the caller sees the lowest. */
void memory_limits_reading(struct client *client, struct sim_gpu *answer)
{
    for (const struct limit *limit = limits; limit != NULL; limit = limit->next) {
        bool lower = answer->limit == 0 || limit->hard < answer->limit;
        if (answer->mig_mode || limit->gpu != answer->index || limit->hard >= answer->memory_total || !lower ||
            !is_in(client, limit->group))
            continue;
        answer->limit = limit->hard;
        answer->limit_used = used_by(limit->group, limit->gpu);
    }
}

static struct limit **find(uint64_t group, uint32_t gpu)
{
    struct limit **at = &limits;
    while (*at != NULL && ((*at)->group != group || (*at)->gpu != gpu))
        at = &(*at)->next;
    return at;
}

static int set(const struct sim_memory_limits *request)
{
    struct limit **at = find(request->group, request->gpu);
    if (request->soft > request->hard || request->hard == 0)
        return SIM_ERR_INVALID_ARGUMENT;
    if (request->soft == 0 && request->hard == SIM_NO_LIMIT) {
        struct limit *gone = *at;
        if (gone != NULL)
            *at = gone->next;
        free(gone);
        return 0;
    }
    if (*at == NULL && (*at = calloc(1, sizeof **at)) == NULL)
        return SIM_ERR_MEMORY;
    (*at)->group = request->group;
    (*at)->gpu = request->gpu;
    (*at)->soft = request->soft;
    (*at)->hard = request->hard;
    return 0;
}

int memory_limits_change(const struct gpu *gpu, struct sim_memory_limits *request)
{
    if (gpu->info.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    int status = request->set ? set(request) : 0;
    const struct limit *limit = *find(request->group, request->gpu);
    request->soft = limit == NULL ? 0 : limit->soft;
    request->hard = limit == NULL ? SIM_NO_LIMIT : limit->hard;
    request->used = used_by(request->group, request->gpu);
    return status;
}

void memory_limits_clear(void)
{
    while (limits != NULL) {
        struct limit *gone = limits;
        limits = gone->next;
        free(gone);
    }
}
