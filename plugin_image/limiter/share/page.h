/* The page of a share on a GPU: what it tells the others that use the same GPU.
 *
 * A file that only this share's containers write; those of others map it read-only. What one writes
 * into its own page can make others wait a bounded time, and no more.
 */
#ifndef DIVVY_PAGE_H
#define DIVVY_PAGE_H

#include <stdint.h>

#define PAGE_MAGIC 0x31454750u
#define PAGE_SIZE 4096

struct page {
    uint32_t magic;
    uint32_t weight;   /* per cent */
    uint64_t beats;    /* changes with every launch, and while one waits */
    uint64_t time;     /* GPU time for its weight: nanoseconds * 100 / weight */
    uint64_t batch;    /* nanoseconds that its last batch took */
    uint64_t ready;    /* with a cap: when it may launch again, by CLOCK_MONOTONIC */
    uint64_t used;     /* nanoseconds of GPU time in all */
    uint64_t counted;  /* until when it is counted: processes of a share use the same time */
    uint32_t draining; /* processes that wait for the GPU */
    uint32_t turns;    /* a futex: changes when a turn ends */
};
_Static_assert(sizeof(struct page) <= PAGE_SIZE, "a page is a page");

#endif
