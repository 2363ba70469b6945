/* The pages of a GPU: our own, and those of the other shares on it. */
#ifndef DIVVY_PEERS_H
#define DIVVY_PEERS_H

#include <stdbool.h>
#include <sys/types.h>

#include "../share/page.h"

#define MAX_PEERS 64

/* The page of another is read, and never touched where it is mapped: who owns a file can cut it
 * off, and memory behind its end is a signal. The map is for the futex, which the kernel looks at. */
struct peer {
    int file;
    dev_t device; /* of the file, and its number: to know it again */
    ino_t inode;
    const struct page *map;
    char name[80];
    uint64_t beats, changed_at; /* as last looked at */
    uint32_t turns;             /* likewise */
    unsigned vain;              /* how often it let us wait in vain, less how often it did not */
    uint64_t no_rival_until;
};

struct peers {
    struct page *own;
    char name[80], folder[4096];
    unsigned count;
    struct peer peer[MAX_PEERS];
};

/* False without a page of our own: then nothing can be agreed with others. */
bool peers_open(struct peers *peers, const char *share_folder, const char *uuid, const char *own_name);
bool peer_read(const struct peer *peer, struct page *page); /* false: no page at the moment */
void peers_scan(struct peers *peers); /* for shares that are new, and those that are gone */

#endif
