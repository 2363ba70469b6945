/* The share that this container holds: which devices, how much of each. */
#ifndef DIVVY_SHARE_H
#define DIVVY_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_DEVICES 16
#define MAX_UUID 64
#define MAX_PAGE 80

enum compute { COMPUTE_FREE, COMPUTE_SHARE, COMPUTE_CAP };

struct share_device {
    char uuid[MAX_UUID]; /* "GPU-…" or "MIG-…", as NVML writes it */
    uint8_t bytes[16];   /* the same, as CUDA has it */
    uint64_t memory;     /* limit in bytes */
    enum compute compute;
    unsigned weight;     /* per cent */
    char page[MAX_PAGE]; /* file of the share's own page, "-" where compute is free */
    bool oversubscribed; /* what the GPU has no room for goes to the host's memory */
};

struct share {
    unsigned count;
    struct share_device device[MAX_DEVICES];
};

/* Read the file of limits. False if there is none or it is not sound; `problem` says why. */
bool share_read(const char *path, struct share *share, char *problem, size_t size);

/* Index of a device by its UUID; -1 for one that is not of the share. */
int share_find(const struct share *share, const uint8_t bytes[16]);
int share_find_text(const struct share *share, const char *uuid);

#endif
