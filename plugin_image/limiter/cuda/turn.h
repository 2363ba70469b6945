/* Whose turn it is on a GPU, and for how long: decided from figures alone.
 *
 * The figures of others may be lies. What keeps a lie from costing more than an honest neighbour would
 * is `credit`: how long a share still waits for others. It is earned by the GPU's time that the share
 * itself has used, so that over time it waits no more than the rest of the GPU's time is worth.
 */
#ifndef DIVVY_TURN_H
#define DIVVY_TURN_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTUM 5000000u      /* ns: a turn */
#define QUIET QUANTUM         /* ns without a beat: not active */
#define LONGEST_DRAIN 1000000000u
#define MAX_CREDIT 250000000
#define FIRST_CREDIT 50000000
#define MAX_BUDGET 4096u

struct rival { /* another share, as its page tells it */
    uint64_t time, batch;
    unsigned weight;
    bool before; /* by name, between equals */
};

struct standing {
    bool mine;
    unsigned hungriest;  /* the rival whose turn it is */
    uint64_t least_time, max_time; /* of the rivals */
    uint64_t patience;   /* ns to wait for it at most */
};

unsigned turn_weight(unsigned claimed); /* within reason */

struct standing turn_standing(uint64_t time, unsigned weight, const struct rival *rivals, unsigned count);

/* The time of one that was not active for a while: no savings, and no debt beyond a quantum. */
uint64_t turn_joined(uint64_t time, unsigned weight, const struct standing *standing);

/* Whether a share can have used so much, `now` ns after the machine was started. */
bool turn_is_possible(uint64_t time, uint64_t now);

/* Whether a page is of a share that uses the GPU. */
bool turn_is_active(uint64_t now, uint64_t changed_at, bool waiting);

/* How many launches until the next synchronisation, after a batch of `launches` took so long. */
unsigned turn_budget(unsigned launches, uint64_t nanoseconds);

/* With a cap: when it may launch again, after a batch. */
uint64_t turn_ready(uint64_t ready, uint64_t begun, uint64_t nanoseconds, unsigned weight);

/* What the active rivals weigh, whose weights only they know: no more than the weights of all others leave of
 * 100 per cent, or than the share itself weighs. */
unsigned turn_rivals_weight(unsigned weight, unsigned active, unsigned idle);

/* The credit after so much of the GPU's time was used beside such rivals. */
int64_t turn_credit(int64_t credit, uint64_t nanoseconds, unsigned weight, unsigned rivals_weight);

/* How long one is no rival that let others wait in vain for the so-manieth time. */
uint64_t turn_exclusion(unsigned vain);

#endif
