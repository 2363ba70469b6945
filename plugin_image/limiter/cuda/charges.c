/* A table of charges: open addressing, grown by doubling. */
#include <pthread.h>
#include <stdlib.h>

#include "driver.h"
#include "memory.h"

enum state { EMPTY, TAKEN, GONE };

struct entry {
    uint64_t handle;
    struct charge charge;
    enum charge_kind kind;
    enum state state;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *table;
static size_t room, filled; /* filled: taken or gone */

static size_t place(uint64_t handle, enum charge_kind kind)
{
    uint64_t mixed = (handle + kind) * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 20) & (room - 1);
}

static void put(struct entry one)
{
    size_t at = place(one.handle, one.kind);
    while (table[at].state == TAKEN)
        at = (at + 1) & (room - 1);
    filled += table[at].state == EMPTY;
    table[at] = one;
}

static bool grow(void)
{
    struct entry *old = table;
    size_t before = room, taken = 0;
    for (size_t i = 0; i < before; i++)
        taken += old[i].state == TAKEN;
    size_t wanted = taken * 4 < before ? before : before == 0 ? 1024 : before * 2;
    struct entry *fresh = calloc(wanted, sizeof *fresh);
    if (fresh == NULL)
        return false;
    table = fresh;
    room = wanted;
    filled = 0;
    for (size_t i = 0; i < before; i++)
        if (old[i].state == TAKEN)
            put(old[i]);
    free(old);
    return true;
}

static bool keep(enum charge_kind kind, uint64_t handle, struct charge charge)
{
    pthread_mutex_lock(&lock);
    bool done = filled * 2 < room || grow();
    if (done)
        put((struct entry){handle, charge, kind, TAKEN});
    pthread_mutex_unlock(&lock);
    return done;
}

bool charge_take(enum charge_kind kind, uint64_t handle, struct charge *charge)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t at = room == 0 ? 0 : place(handle, kind); room > 0 && table[at].state != EMPTY && !found;
         at = (at + 1) & (room - 1))
        if (table[at].state == TAKEN && table[at].handle == handle && table[at].kind == kind) {
            *charge = table[at].charge;
            table[at].state = GONE;
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

/* What was being changed stays where it is. */
void charges_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    table = NULL;
    room = filled = 0;
}

void charges_move(const void *context, void *other)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < room; i++)
        if (table[i].state == TAKEN && table[i].charge.context == context)
            table[i].charge.context = other;
    pthread_mutex_unlock(&lock);
}

void charges_end(const void *context)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < room; i++)
        if (table[i].state == TAKEN && table[i].charge.context == context) {
            account_release(table[i].charge.device, table[i].charge.bytes);
            table[i].state = GONE;
        }
    pthread_mutex_unlock(&lock);
}

enum reservation charge_reserve(struct charge *charge)
{
    int device = charge->bytes == 0 ? NO_DEVICE : tenant_current_device();
    if (device == FOREIGN)
        return REFUSED;
    if (device < 0 || CALL(cuCtxGetCurrent, &charge->context) != 0)
        return NOT_OF_THE_SHARE;
    charge->device = (unsigned)device;
    return tenant_reserve(charge->device, charge->bytes) ? RESERVED : REFUSED;
}

bool charge_settle(enum charge_kind kind, CUresult result, uint64_t handle, const struct charge *charge)
{
    bool kept = result == 0 && keep(kind, handle, *charge);
    if (!kept)
        account_release(charge->device, charge->bytes);
    return kept || result != 0;
}

void charge_freed(enum charge_kind kind, CUresult result, uint64_t handle, const struct charge *charge)
{
    /* What is not freed stays charged; where the table cannot grow, in the account alone. */
    if (result == 0)
        account_release(charge->device, charge->bytes);
    else
        keep(kind, handle, *charge);
}
