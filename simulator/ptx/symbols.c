#include <stdlib.h>
#include <string.h>

#include "parser.h"

static unsigned bucket(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash % BUCKETS;
}

struct symbol *symbol_find(struct parser *p, const char *name)
{
    for (struct symbol *symbol = p->buckets[bucket(name)]; symbol != NULL; symbol = symbol->next)
        if (strcmp(symbol->name, name) == 0)
            return symbol;
    return NULL;
}

struct symbol *symbol_add(struct parser *p, const char *name, enum symbol_kind kind)
{
    struct symbol **at = &p->buckets[bucket(name)];
    struct symbol *symbol = calloc(1, sizeof *symbol);
    if (symbol != NULL)
        symbol->name = strdup(name);
    if (symbol == NULL || symbol->name == NULL) {
        free(symbol);
        refuse(p, "out of memory");
        return NULL;
    }
    symbol->kind = kind;
    symbol->level = p->level;
    symbol->next = *at;
    *at = symbol;
    return symbol;
}

void symbols_leave(struct parser *p, unsigned level)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        while (p->buckets[i] != NULL && p->buckets[i]->level > level) {
            struct symbol *gone = p->buckets[i];
            p->buckets[i] = gone->next;
            free(gone->name);
            free(gone);
        }
}
