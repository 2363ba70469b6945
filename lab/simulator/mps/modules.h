/* What `module verb` commands of version 3 are given, and how they answer. */
#ifndef DIVVY_MPS_MODULES_H
#define DIVVY_MPS_MODULES_H

#include "mps.h"

#define MAX_COLUMNS 8

struct arguments {
    struct peer *peer;
    const char *named; /* "NAMESPACE SET" */
    const char *positional[3];
    const char *uid, *devices, *domains, *server, *format, *limit, *percentage, *priority;
    bool force, all;
};

struct verb {
    const char *module, *name, *arguments;
    unsigned least, most; /* positional arguments */
    void (*run)(struct reply *reply, const struct arguments *given);
};

/* verbs.c */
extern const struct verb verbs[];
extern const size_t verb_count;

/* tables.c */
struct table {
    struct reply *reply;
    bool csv;
    unsigned columns;
    struct {
        const char *name;
        int width; /* 0: as wide as it is */
    } of[MAX_COLUMNS];
};
bool table_begin(struct table *table, const char *format);
void table_row(const struct table *table, const char *const *fields);

/* What a field says, in `text` or elsewhere; NULL: there is no such field. */
const char *server_field(const struct server *server, const char *field, char *text, size_t length);
const char *namespace_field(const struct server *server, const struct namespace *space, const char *field,
                            char *text, size_t length);
const char *client_field(const struct peer *peer, const char *field, char *text, size_t length);

#endif
