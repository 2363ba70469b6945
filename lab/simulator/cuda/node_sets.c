/* Sets of a graph's nodes. */
#include <stdlib.h>
#include <string.h>

#include "streams.h"

static bool has(const struct node_set *set, CUgraphNode wanted)
{
    size_t at = 0;
    while (at < set->count && set->nodes[at] != wanted)
        at++;
    return at < set->count;
}

bool node_set_add(struct node_set *set, const CUgraphNode *nodes, size_t count)
{
    if (count == 0)
        return true;
    CUgraphNode *grown = realloc(set->nodes, (set->count + count) * sizeof *grown);
    if (grown == NULL)
        return false;
    set->nodes = grown;
    for (size_t i = 0; i < count; i++)
        if (!has(set, nodes[i]))
            set->nodes[set->count++] = nodes[i];
    return true;
}

void node_set_clear(struct node_set *set)
{
    free(set->nodes);
    *set = (struct node_set){NULL, 0};
}
