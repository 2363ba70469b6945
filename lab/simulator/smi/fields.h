/* What --query-gpu can ask for. */
#ifndef DIVVY_SMI_FIELDS_H
#define DIVVY_SMI_FIELDS_H

#include <stddef.h>

#include "smi.h"

struct field {
    const char *name, *alias;
    const char *unit; /* "" for none */
    bool (*read)(unsigned index, nvmlDevice_t gpu, char *text, size_t size); /* false: [N/A] */
};

/* The field of that name or other name; NULL if there is none. */
const struct field *find_field(const char *name);

#endif
