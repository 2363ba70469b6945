/* Turns on a GPU that several shares keep busy.
 *
 * Each share publishes how much GPU time it has used for its weight; it is the turn of the active one
 * with the least. Who has the turn launches for about a quantum, waits until that has run, adds what it
 * took and so passes the turn on. Nothing is locked between shares: a turn follows from figures that
 * only their owner can write, and all waits for somebody else's are bounded, one by one and together.
 */
#include "gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "peers.h"
#include "streams.h"
#include "tenant.h"
#include "turn.h"

#define LOOK_EVERY 100000u       /* ns, while alone */
#define SCAN_EVERY 1000000000ull /* ns */
#define AT_ONCE 100000u          /* ns: a synchronisation that had nothing to wait for */
#define POLL_EVERY 50000         /* ns: whether the GPU has done what we launched */

struct gate {
    pthread_mutex_t lock;
    bool tried, works, contended, in_batch;
    unsigned device, weight;
    bool capped;
    struct peers peers;
    struct streams streams;
    unsigned budget, done; /* launches of a batch, and of it so far */
    uint64_t begun;        /* of the batch */
    uint64_t turn_used;    /* ns that are not published yet */
    uint64_t last;         /* launch, or synchronisation, while contended */
    int64_t credit;        /* ns that others may still be waited for; below 0 if they were for longer */
    uint64_t credited;     /* of what the share has used */
    unsigned rivals_weight;
    uint64_t looked, scanned;
    unsigned waiting;      /* threads that wait for the GPU */
};

#define CLOSED {.lock = PTHREAD_MUTEX_INITIALIZER, .streams.lock = PTHREAD_MUTEX_INITIALIZER}
static struct gate gates[MAX_DEVICES] = {[0 ... MAX_DEVICES - 1] = CLOSED};
static int only_device = -2; /* -2: not known, -1: there are several */

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t load(const uint64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static void beat(struct gate *gate)
{
    __atomic_add_fetch(&gate->peers.own->beats, 1, __ATOMIC_RELAXED);
}

/* A thread that waits here is not cancelled before it has gone on: it would leave the gate locked. */
static int lock_gate(struct gate *gate)
{
    int state = PTHREAD_CANCEL_ENABLE; /* of a program without threads nothing is said */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&gate->lock);
    return state;
}

static void unlock_gate(struct gate *gate, int state)
{
    pthread_mutex_unlock(&gate->lock);
    pthread_setcancelstate(state, NULL);
}

static void open_gate(struct gate *gate, unsigned device)
{
    const struct share_device *share = tenant_share(device);
    int state = lock_gate(gate);
    if (!gate->tried && share->compute != COMPUTE_FREE) {
        gate->device = device;
        gate->weight = share->weight;
        gate->capped = share->compute == COMPUTE_CAP;
        gate->contended = gate->capped;
        gate->budget = 1;
        gate->works = peers_open(&gate->peers, tenant_folder(), share->uuid, share->page);
        gate->scanned = clock_now();
        if (gate->works) {
            struct page *own = gate->peers.own;
            own->weight = gate->weight;
            /* Of before a restart of the machine. */
            if (!turn_is_possible(load(&own->time), gate->scanned))
                __atomic_store_n(&own->time, 0, __ATOMIC_RELAXED);
            gate->credit = FIRST_CREDIT;
            gate->credited = load(&own->used);
        }
    }
    __atomic_store_n(&gate->tried, true, __ATOMIC_RELEASE);
    unlock_gate(gate, state);
}

static int find_only_device(void)
{
    int count;
    if (CALL(cuDeviceGetCount, &count) != 0)
        return -2;
    return count == 1 && tenant_device(0) >= 0 ? tenant_device(0) : -1;
}

/* The gate of the current context's device; NULL if there is nothing to pass. */
static struct gate *current_gate(void)
{
    int device = __atomic_load_n(&only_device, __ATOMIC_RELAXED);
    if (device == -2) {
        device = find_only_device();
        __atomic_store_n(&only_device, device, __ATOMIC_RELAXED);
    }
    if (device < 0)
        device = tenant_current_device();
    if (device < 0)
        return NULL;
    struct gate *gate = &gates[device];
    if (!__atomic_load_n(&gate->tried, __ATOMIC_ACQUIRE))
        open_gate(gate, (unsigned)device);
    return gate->works ? gate : NULL;
}

/* The threads of this process that wait for the GPU tell it together. */
static void begin_waiting(struct gate *gate)
{
    beat(gate);
    __atomic_add_fetch(&gate->waiting, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->peers.own->waiting[account_slot() % MAX_WAITING], clock_now() + LONGEST_DRAIN,
                     __ATOMIC_RELAXED);
}

static void end_waiting(struct gate *gate)
{
    if (__atomic_sub_fetch(&gate->waiting, 1, __ATOMIC_RELAXED) == 0)
        __atomic_store_n(&gate->peers.own->waiting[account_slot() % MAX_WAITING], 0, __ATOMIC_RELAXED);
}

static bool waits(const struct page *page, uint64_t now)
{
    for (unsigned i = 0; i < MAX_WAITING; i++)
        if (page->waiting[i] > now && page->waiting[i] - now <= LONGEST_DRAIN)
            return true;
    return false;
}

/* See who has moved; their standings, if they are active. */
static unsigned look(struct gate *gate, uint64_t now, struct rival *rivals, struct peer **active)
{
    unsigned count = 0, idle_weight = 0, active_weight = 0;
    if (now - gate->scanned > SCAN_EVERY) {
        peers_scan(&gate->peers);
        gate->scanned = now;
    }
    for (unsigned i = 0; i < gate->peers.count; i++) {
        struct peer *peer = &gate->peers.peer[i];
        struct page page;
        if (!peer_read(peer, &page))
            continue;
        if (page.beats != peer->beats) {
            peer->beats = page.beats;
            peer->changed_at = now;
        }
        if (peer->changed_at == 0 || now < peer->no_rival_until || !turn_is_possible(page.time, now) ||
            !turn_is_active(now, peer->changed_at, waits(&page, now))) {
            idle_weight += turn_weight(page.weight);
            continue;
        }
        active_weight += turn_weight(page.weight);
        peer->turns = page.turns;
        active[count] = peer;
        rivals[count++] = (struct rival){page.time, page.batch, page.weight,
                                         strcmp(peer->name, gate->peers.name) < 0};
    }
    gate->rivals_weight = turn_rivals_weight(gate->weight, active_weight, idle_weight);
    return count;
}

/* End the turn if a quantum of it is used: from now on it may be another's. */
static void publish(struct gate *gate, uint64_t least)
{
    struct page *own = gate->peers.own;
    if (gate->turn_used < least || gate->turn_used == 0)
        return;
    __atomic_add_fetch(&own->time, gate->turn_used * 100 / gate->weight, __ATOMIC_RELAXED);
    gate->turn_used = 0;
    __atomic_add_fetch(&own->turns, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &own->turns, FUTEX_WAKE, MAX_PEERS, NULL, NULL, 0);
}

/* Count a time once, however many processes of the share were at work in it. */
static uint64_t count(struct page *own, uint64_t begun, uint64_t end)
{
    uint64_t counted = load(&own->counted);
    do {
        if (counted >= end) /* a later time than now is nonsense */
            return counted - end < LONGEST_DRAIN ? 0 : end - begun;
    } while (!__atomic_compare_exchange_n(&own->counted, &counted, end, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return end - (counted > begun ? counted : begun);
}

static void close_batch(struct gate *gate, uint64_t end)
{
    struct page *own = gate->peers.own;
    uint64_t took = end > gate->begun ? end - gate->begun : 0;
    uint64_t charged = took == 0 ? 0 : count(own, gate->begun, end);
    gate->in_batch = false;
    gate->budget = turn_budget(gate->done, took);
    gate->turn_used += charged;
    own->batch = took;
    __atomic_add_fetch(&own->used, charged, __ATOMIC_RELAXED);
    if (gate->capped)
        __atomic_store_n(&own->ready, turn_ready(load(&own->ready), gate->begun, charged, gate->weight),
                         __ATOMIC_RELAXED);
    beat(gate);
}

/* Wait until the GPU has done what we launched; when it had, as far as that can be known. */
static uint64_t drain(struct gate *gate)
{
    const struct timespec pause = {0, POLL_EVERY};
    uint64_t begun = clock_now(), now = begun;
    begin_waiting(gate);
    for (; !streams_done(&gate->streams, now - begun); now = clock_now()) {
        beat(gate);
        nanosleep(&pause, NULL);
    }
    end_waiting(gate);
    return now - begun > AT_ONCE ? now : gate->last;
}

/* Credit for all that the share has used, whichever of its processes has. */
static void earn_credit(struct gate *gate)
{
    uint64_t used = load(&gate->peers.own->used);
    if (used > gate->credited)
        gate->credit = turn_credit(gate->credit, used - gate->credited, gate->weight, gate->rivals_weight);
    gate->credited = used;
}

static void exclude(struct peer *peer, uint64_t now)
{
    peer->no_rival_until = now + turn_exclusion(peer->vain);
    peer->vain++;
}

static void sleep_until(uint64_t then)
{
    struct timespec at = {(time_t)(then / 1000000000u), (long)(then % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        ;
}

static void wait_for_cap(struct gate *gate)
{
    uint64_t now = clock_now(), ready = load(&gate->peers.own->ready);
    /* A page that holds nonsense must not hold us forever. */
    if (!gate->capped || ready <= now || ready - now > 100ull * LONGEST_DRAIN)
        return;
    publish(gate, 0);
    sleep_until(ready);
    account_count_wait(gate->device, ready - now, false);
}

static void wait_for_end_of_turn(const struct peer *peer, uint64_t nanoseconds)
{
    struct timespec most = {0, (long)(nanoseconds < 500000 ? nanoseconds : 500000)};
    if (syscall(SYS_futex, &peer->map->turns, FUTEX_WAIT, peer->turns, &most, NULL, 0) != 0 && errno == EFAULT)
        nanosleep(&most, NULL);
}

static void wait_for_turn(struct gate *gate, bool fresh)
{
    struct rival rivals[MAX_PEERS];
    struct peer *active[MAX_PEERS];
    struct page *own = gate->peers.own;
    struct peer *waited_for = NULL;
    uint64_t begun = clock_now(), now = begun;
    bool opened = false;
    for (;; now = clock_now()) {
        unsigned count = look(gate, now, rivals, active);
        earn_credit(gate);
        if (count == 0) {
            __atomic_store_n(&gate->contended, gate->capped, __ATOMIC_RELAXED);
            break;
        }
        struct standing standing = turn_standing(load(&own->time), gate->weight, rivals, count);
        if (fresh) {
            __atomic_store_n(&own->time, turn_joined(load(&own->time), gate->weight, &standing), __ATOMIC_RELAXED);
            fresh = false;
            continue;
        }
        if (standing.mine) {
            if (waited_for != NULL && waited_for->vain > 0)
                waited_for->vain--;
            break;
        }
        struct peer *peer = active[standing.hungriest];
        if (now - begun >= standing.patience)
            exclude(peer, now);
        uint64_t most = gate->credit <= 0 ? 0 : (uint64_t)gate->credit;
        most = most < standing.patience ? most : standing.patience;
        opened = now - begun >= most;
        if (opened)
            break;
        waited_for = peer;
        beat(gate);
        wait_for_end_of_turn(peer, most - (now - begun));
    }
    if (now == begun && !opened)
        return;
    gate->credit -= (int64_t)(now - begun);
    account_count_wait(gate->device, now - begun, opened);
}

static void pass_contended(struct gate *gate)
{
    uint64_t now = clock_now();
    bool fresh = now - gate->last > QUIET && !gate->in_batch;
    if (!gate->in_batch || gate->done >= gate->budget || now - gate->begun >= QUANTUM) {
        uint64_t end = drain(gate);
        if (gate->in_batch)
            close_batch(gate, end);
        wait_for_cap(gate);
        publish(gate, QUANTUM);
        wait_for_turn(gate, fresh);
        gate->in_batch = true;
        gate->begun = clock_now();
        gate->done = 0;
    }
    gate->done++;
    gate->last = clock_now();
    beat(gate);
}

/* Alone: has anybody launched since we last looked? */
static bool others_moved(struct gate *gate)
{
    struct page page;
    uint64_t now = clock_now();
    if (now - gate->looked < LOOK_EVERY)
        return false;
    bool moved = false;
    int state = lock_gate(gate);
    gate->looked = now;
    if (now - gate->scanned > SCAN_EVERY) {
        peers_scan(&gate->peers);
        gate->scanned = now;
    }
    for (unsigned i = 0; i < gate->peers.count && !moved; i++)
        moved = peer_read(&gate->peers.peer[i], &page) && page.beats != gate->peers.peer[i].beats;
    unlock_gate(gate, state);
    return moved;
}

struct gate *gate_pass(CUstream stream)
{
    struct gate *gate = current_gate();
    if (gate == NULL)
        return NULL;
    bool contended = __atomic_load_n(&gate->contended, __ATOMIC_RELAXED);
    if (!contended && !others_moved(gate)) {
        /* Only ever looked at for having changed: a lost step of two threads is no loss. */
        __atomic_store_n(&gate->peers.own->beats, load(&gate->peers.own->beats) + 1, __ATOMIC_RELAXED);
        return NULL;
    }
    if (stream_captures(stream))
        return NULL;
    /* What was launched into this stream before there were turns. */
    if (!contended)
        streams_record(&gate->streams, stream);
    int state = lock_gate(gate);
    if (!gate->contended) {
        __atomic_store_n(&gate->contended, true, __ATOMIC_RELAXED);
        gate->last = 0;
    }
    pass_contended(gate);
    unlock_gate(gate, state);
    return gate;
}

/* At once, and by the thread that launched: the program may end the stream at any time after. */
void gate_passed(struct gate *gate, CUstream stream)
{
    streams_record(&gate->streams, stream);
}

struct gate *gate_synchronises(void)
{
    struct gate *gate = current_gate();
    if (gate == NULL || !__atomic_load_n(&gate->contended, __ATOMIC_RELAXED))
        return NULL;
    begin_waiting(gate);
    return gate;
}

/* A turn goes on over synchronisations until its quantum is used. */
void gate_synchronised(struct gate *gate, bool all)
{
    if (gate == NULL)
        return;
    end_waiting(gate);
    int state = lock_gate(gate);
    gate->last = clock_now();
    /* There may be other contexts, and the driver may have refused to wait. */
    if (all && gate->in_batch && streams_done(&gate->streams, 0)) {
        close_batch(gate, gate->last);
        publish(gate, QUANTUM);
    }
    beat(gate);
    unlock_gate(gate, state);
}

void gates_end(const void *context)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        if (__atomic_load_n(&gates[i].tried, __ATOMIC_ACQUIRE))
            streams_end(&gates[i].streams, context);
}

void gates_ended(const void *context, bool gone)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        if (__atomic_load_n(&gates[i].tried, __ATOMIC_ACQUIRE))
            streams_ended(&gates[i].streams, context, gone);
}

/* A child has no context, so nothing to launch; what it has of its parent stays where it is. */
void gates_in_child(void)
{
    only_device = -2;
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        gates[i] = (struct gate)CLOSED;
}
