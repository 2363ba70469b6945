/* Memory that several processes can hold: it lives as long as any of them holds it, and is
 * counted once, at the one that has held it longest. */
#include "state.h"

#include <stdlib.h>

struct holding {
    struct client *client;
    uint64_t id;
    struct sim_context device; /* the client's way to it, and the bytes */
    uint32_t times;
    bool counted; /* at this client */
    struct holding *next;
};

static struct holding *holdings; /* the newest first */

static bool same_memory(const struct holding *holding, const struct sim_segment *request)
{
    return holding->id == request->id && holding->device.gpu == request->gpu && holding->device.gi == request->gi;
}

static struct holding *find(const struct client *client, const struct sim_segment *request)
{
    struct holding *holding = holdings;
    while (holding != NULL && (holding->client != client || !same_memory(holding, request)))
        holding = holding->next;
    return holding;
}

static struct holding *longest_other(const struct holding *self)
{
    struct holding *other = NULL;
    for (struct holding *holding = holdings; holding != NULL; holding = holding->next)
        if (holding != self && holding->id == self->id && holding->device.gpu == self->device.gpu &&
            holding->device.gi == self->device.gi)
            other = holding;
    return other;
}

static int hold(struct client *client, const struct sim_segment *request)
{
    struct holding *holding = find(client, request);
    if (holding != NULL) {
        holding->times++;
        return 0;
    }
    holding = calloc(1, sizeof *holding);
    if (holding == NULL)
        return SIM_ERR_MEMORY;
    *holding = (struct holding){.client = client, .id = request->id, .times = 1,
                                .device = {.gpu = request->gpu, .gi = request->gi, .ci = request->ci,
                                           .bytes = request->bytes}};
    const struct holding *other = longest_other(holding);
    holding->counted = other == NULL;
    struct sim_context charge = holding->device;
    int status = other == NULL ? memory_allocate(client, &charge)
                               : other->device.bytes == request->bytes ? 0 : SIM_ERR_INVALID_ARGUMENT;
    if (status != 0) {
        free(holding);
        return status;
    }
    holding->next = holdings;
    holdings = holding;
    return 0;
}

static void end(struct holding *holding)
{
    struct holding *heir = holding->counted ? longest_other(holding) : NULL;
    if (holding->counted)
        memory_free(holding->client, &holding->device);
    if (heir != NULL)
        heir->counted = memory_allocate(heir->client, &heir->device) == 0;
    struct holding **at = &holdings;
    while (*at != holding)
        at = &(*at)->next;
    *at = holding->next;
    free(holding);
}

int segment_change(struct client *client, const struct sim_segment *request)
{
    if (request->bytes == 0)
        return SIM_ERR_INVALID_ARGUMENT;
    if (request->hold)
        return hold(client, request);
    struct holding *holding = find(client, request);
    if (holding == NULL)
        return SIM_ERR_NOT_FOUND;
    if (--holding->times == 0)
        end(holding);
    return 0;
}

void segments_drop(struct client *client)
{
    for (struct holding *holding = holdings, *next; holding != NULL; holding = next) {
        next = holding->next;
        if (holding->client == client)
            end(holding);
    }
}
