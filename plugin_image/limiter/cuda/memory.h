/* Charges: what this process has been given, by the handle under which it gives it back. */
#ifndef DIVVY_MEMORY_H
#define DIVVY_MEMORY_H

#include "tenant.h"

enum charge_kind {
    CHARGE_POINTER,
    CHARGE_ARRAY,
    CHARGE_MIPMAP,
    CHARGE_CONTEXT,
    CHARGE_LIMIT,
    CHARGE_MODULE,
    CHARGE_LIBRARY,
};

struct charge {
    void *context; /* whose end is the memory's */
    uint64_t bytes;
    unsigned device;
};

/* charges.c */
void charges_move(const void *context, void *other); /* as if they had been made in the other */
void charges_end(const void *context);                /* gives them back to the account */

/* In the child of a fork: nothing of its parent's is its own. */
void charges_in_child(void);
void contexts_in_child(void);
void handles_in_child(void);
void pools_in_child(void);

/* Begin and end of an allocation in the current context. `charge.bytes` is what to reserve. */
enum reservation { NOT_OF_THE_SHARE, RESERVED, REFUSED };
enum reservation charge_reserve(struct charge *charge);
/* After the driver's call: keeps the charge, or gives it back. False: the memory must be freed. */
bool charge_settle(enum charge_kind kind, CUresult result, uint64_t handle, const struct charge *charge);
/* Begin and end of a free. The charge goes before the memory: another thread may be given the
 * same handle at once. */
bool charge_take(enum charge_kind kind, uint64_t handle, struct charge *charge);
void charge_freed(enum charge_kind kind, CUresult result, uint64_t handle, const struct charge *charge);

/* report.c. The answer to what was not reserved. After a fault of the current context its driver answers everything
 * with that: who is told of a lack of memory instead would free some and go on. */
CUresult refusal(void);

/* pools.c */
bool pools_give_up(unsigned device); /* whether anything came free */
void pools_refresh(void);            /* what the process's pools hold now; one load if there are none */

#endif
