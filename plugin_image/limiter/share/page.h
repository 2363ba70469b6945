/* The page of a share on a GPU: what it tells the others that use the same GPU.
 *
 * A file that only this share's containers write; those of others read it. Nothing in it is believed:
 * whatever it says, others wait for its share only as long as they keep their own part (turn.h).
 */
#ifndef DIVVY_PAGE_H
#define DIVVY_PAGE_H

#include <stdint.h>

#define PAGE_MAGIC 0x31454750u
#define PAGE_SIZE 4096
#define MAX_WAITING 32

struct page {
    uint32_t magic;
    uint32_t weight;   /* per cent */
    uint64_t beats;    /* changes with every launch, and while one waits */
    uint64_t time;     /* GPU time for its weight: nanoseconds * 100 / weight */
    uint64_t batch;    /* nanoseconds that its last batch took */
    uint64_t ready;    /* with a cap: when it may launch again, by CLOCK_MONOTONIC */
    uint64_t used;     /* nanoseconds of GPU time in all */
    uint64_t counted;  /* until when it is counted: processes of a share use the same time */
    uint32_t unused;
    uint32_t turns;    /* a futex: changes when a turn ends */
    /* Until when a process may wait for the GPU without a beat, by CLOCK_MONOTONIC; by its slot. One
     * that is killed meanwhile leaves a time that passes. */
    uint64_t waiting[MAX_WAITING];
};
_Static_assert(sizeof(struct page) <= PAGE_SIZE, "a page is a page");

#endif
