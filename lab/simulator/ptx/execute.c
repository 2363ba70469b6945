/* Runs blocks one after the other. Of a block's threads those at the lowest instruction go
 * first, together; so they meet again where the code does. */
#include <stdlib.h>
#include <string.h>

#include "code.h"

#define SHARED_UNIT 128u
#define NOT_RUNNABLE 0xFFFFFFFFu

struct block {
    struct exec x;
    uint32_t pc[MAX_THREADS]; /* of threads outside the group; NOT_RUNNABLE when done or waiting */
    uint32_t resume[MAX_THREADS]; /* where threads at a barrier go on */
    bool waiting[MAX_THREADS], done[MAX_THREADS];
    uint16_t group[MAX_THREADS], chosen[MAX_THREADS];
    unsigned group_size;
    bool group_is_full;
    uint32_t at, next_other; /* next_other: lowest pc outside the group */
    unsigned waiting_count, done_count;
};

static void load_value(struct exec *x, uint32_t offset, unsigned width, unsigned t, uint64_t value)
{
    memcpy(x->registers + (size_t)offset * x->lanes + (size_t)t * width, &value, width);
}

static uint64_t special_value(const struct ptx_launch *l, enum special which, unsigned t,
                              const unsigned *block)
{
    unsigned bx = l->block[0], by = l->block[1], threads = bx * by * l->block[2];
    switch (which) {
    case TID_X:
        return t % bx;
    case TID_Y:
        return t / bx % by;
    case TID_Z:
        return t / bx / by;
    case NTID_X:
    case NTID_Y:
    case NTID_Z:
        return l->block[which - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z:
        return block[which - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z:
        return l->grid[which - NCTAID_X];
    case LANEID:
        return t & 31;
    case WARPID:
        return t >> 5;
    case NWARPID:
        return (threads + 31) / 32;
    case NSMID:
        return 1;
    case LANEMASK_EQ:
        return 1u << (t & 31);
    case LANEMASK_LE:
        return (2ull << (t & 31)) - 1;
    case LANEMASK_LT:
        return (1u << (t & 31)) - 1;
    case LANEMASK_GE:
        return (uint32_t)(0xFFFFFFFFull << (t & 31));
    case LANEMASK_GT:
        return (uint32_t)(0xFFFFFFFEull << (t & 31));
    default:
        return 0;
    }
}

static void fill_registers(struct exec *x, const unsigned *block, bool first)
{
    for (unsigned f = 0; f < x->kernel->filled_count; f++) {
        const struct filled *fill = &x->kernel->filled[f];
        bool is_special = fill->with == WITH_SPECIAL;
        bool changes = is_special && fill->value >= CTAID_X && fill->value <= CTAID_Z;
        uint64_t value = fill->value + (fill->with == WITH_DYNAMIC_SHARED ? x->kernel->shared_bytes : 0);
        for (unsigned t = 0; (first || changes) && t < x->threads; t++)
            load_value(x, fill->offset, fill->width, t,
                       is_special ? special_value(x->launch, (enum special)value, t, block) : value);
    }
}

/* Put the group's threads back, then take all threads at the lowest pc; false: none runs. */
static bool regroup(struct block *b)
{
    uint32_t lowest = NOT_RUNNABLE, second = NOT_RUNNABLE;
    unsigned threads = b->x.threads, size = 0;
    for (unsigned n = 0; n < b->group_size; n++) {
        unsigned t = b->group_is_full ? n : b->group[n];
        if (b->pc[t] == NOT_RUNNABLE && !b->done[t] && !b->waiting[t])
            b->pc[t] = b->at;
    }
    for (unsigned t = 0; t < threads; t++) {
        if (b->pc[t] < lowest) {
            second = lowest;
            lowest = b->pc[t];
        } else if (b->pc[t] > lowest && b->pc[t] < second)
            second = b->pc[t];
    }
    if (lowest == NOT_RUNNABLE) {
        b->group_size = 0;
        return false;
    }
    for (unsigned t = 0; t < threads; t++)
        if (b->pc[t] == lowest) {
            b->group[size++] = (uint16_t)t;
            b->pc[t] = NOT_RUNNABLE;
        }
    b->group_size = size;
    b->group_is_full = size == threads;
    b->at = lowest;
    b->next_other = second;
    return true;
}

static void aim_at(struct block *b, const uint16_t *list, unsigned n, bool full)
{
    b->x.list = list;
    b->x.n = n;
    b->x.full = full;
}

/* The group's threads whose guard holds; returns how many. If all do, the list is not made. */
static unsigned filter(struct block *b, const struct insn *i)
{
    const struct exec *x = &b->x;
    const uint8_t *guard = REG(uint8_t, i->guard);
    unsigned size = 0;
    const uint8_t wanted = !i->guard_negated;
    if (b->group_is_full) {
        unsigned t = 0;
        for (; t + 8 <= b->group_size; t += 8) { /* predicates are bytes of 0 and 1: eight at once */
            uint64_t eight;
            memcpy(&eight, guard + t, sizeof eight);
            size += (unsigned)(eight * 0x0101010101010101u >> 56);
        }
        for (; t < b->group_size; t++)
            size += guard[t];
        size = wanted ? size : b->group_size - size;
        if (size == 0 || size == b->group_size)
            return size;
        size = 0;
    }
    for (unsigned n = 0; n < b->group_size; n++) {
        unsigned t = b->group_is_full ? n : b->group[n];
        b->chosen[size] = (uint16_t)t;
        size += (guard[t] != 0) == wanted;
    }
    return size;
}

static bool branch(struct block *b, const struct insn *i)
{
    unsigned taken = i->guarded ? filter(b, i) : b->group_size;
    if (taken == 0) {
        b->at++;
        return b->at < b->next_other || regroup(b);
    }
    if (taken < b->group_size) {
        b->at++;
        for (unsigned n = 0; n < taken; n++)
            b->pc[b->chosen[n]] = i->target;
        return regroup(b);
    }
    b->at = i->target;
    return b->at < b->next_other || regroup(b);
}

/* The n-th of `count` threads that an instruction is for. */
static unsigned nth(const struct block *b, unsigned count, unsigned n)
{
    if (b->group_is_full && count == b->group_size)
        return n;
    return count == b->group_size ? b->group[n] : b->chosen[n];
}

static bool leave(struct block *b, const struct insn *i)
{
    unsigned count = i->guarded ? filter(b, i) : b->group_size;
    for (unsigned n = 0; n < count; n++) {
        unsigned t = nth(b, count, n);
        b->done[t] = true;
    }
    b->done_count += count;
    b->at++;
    return count == 0 ? b->at < b->next_other || regroup(b) : regroup(b);
}

static bool wait_at_barrier(struct block *b, const struct insn *i)
{
    unsigned count = i->guarded ? filter(b, i) : b->group_size;
    for (unsigned n = 0; n < count; n++) {
        unsigned t = nth(b, count, n);
        b->waiting[t] = true;
        b->resume[t] = b->at + 1;
    }
    b->waiting_count += count;
    b->at++;
    return regroup(b);
}

/* All that still run have come to the barrier: on with them. */
static bool release(struct block *b)
{
    if (b->waiting_count == 0)
        return false;
    for (unsigned t = 0; t < b->x.threads; t++)
        if (b->waiting[t]) {
            b->waiting[t] = false;
            b->pc[t] = b->resume[t];
        }
    b->waiting_count = 0;
    return regroup(b);
}

static void start_block(struct block *b)
{
    unsigned threads = b->x.threads;
    memset(b->waiting, 0, sizeof b->waiting);
    memset(b->done, 0, sizeof b->done);
    b->waiting_count = b->done_count = 0;
    b->group_size = 0;
    for (unsigned t = 0; t < threads; t++)
        b->pc[t] = 0;
    regroup(b);
}

static void run_block(struct block *b)
{
    struct exec *x = &b->x;
    const struct insn *code = x->kernel->code;
    bool runs = true;
    start_block(b);
    while (runs) {
        const struct insn *i = &code[b->at];
        switch ((enum control)i->control) {
        case STRAIGHT:
            if (i->guarded) {
                unsigned size = filter(b, i);
                aim_at(b, b->chosen, size, size == x->threads);
                if (size > 0)
                    i->run(x, i);
            } else {
                aim_at(b, b->group, b->group_size, b->group_is_full);
                i->run(x, i);
            }
            if (x->stop != PTX_DONE)
                return;
            b->at++;
            if (b->at >= b->next_other)
                runs = regroup(b);
            break;
        case BRANCH:
            runs = branch(b, i);
            break;
        case LEAVE:
            runs = leave(b, i);
            break;
        case BARRIER:
            runs = wait_at_barrier(b, i);
            break;
        case TRAP:
            if (!i->guarded || filter(b, i) > 0) {
                x->stop = i->mode == TRAP_ASSERT ? PTX_ASSERT : PTX_TRAP;
                return;
            }
            b->at++;
            if (b->at >= b->next_other)
                runs = regroup(b);
            break;
        }
        if (!runs)
            runs = release(b);
    }
}

static bool prepare(struct block *b, struct ptx_launch *launch)
{
    struct exec *x = &b->x;
    const struct ptx_kernel *kernel = launch->kernel;
    x->launch = launch;
    x->kernel = kernel;
    x->module = kernel->module;
    x->threads = launch->block[0] * launch->block[1] * launch->block[2];
    x->lanes = (x->threads + 31) / 32 * 32;
    /* The hardware gives shared memory in such units, and programs read to their end. */
    x->shared_size = (kernel->shared_bytes + launch->dynamic_shared + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
    x->registers = aligned_alloc(64, ((size_t)kernel->register_bytes * x->lanes + 64) / 64 * 64);
    x->address = calloc(x->lanes, sizeof *x->address);
    x->outcome = calloc(x->lanes, 1);
    x->shared = aligned_alloc(256, (x->shared_size + 256) / 256 * 256);
    x->local = calloc(x->lanes, kernel->local_bytes + 1);
    x->ranges = calloc(kernel->length, sizeof *x->ranges);
    if (!x->registers || !x->address || !x->outcome || !x->shared || !x->local || !x->ranges)
        return false;
    memset(x->registers, 0, (size_t)kernel->register_bytes * x->lanes);
    return true;
}

static void clean(struct exec *x)
{
    free(x->registers);
    free(x->address);
    free(x->outcome);
    free(x->shared);
    free(x->local);
    free(x->ranges);
}

enum ptx_stop ptx_run(struct ptx_launch *launch)
{
    struct block *b = calloc(1, sizeof *b);
    if (b == NULL)
        return PTX_NO_MEMORY;
    struct exec *x = &b->x;
    if (!prepare(b, launch)) {
        clean(x);
        free(b);
        return PTX_NO_MEMORY;
    }
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    unsigned at[3] = {0, 0, 0};
    for (uint64_t n = 0; n < blocks && x->stop == PTX_DONE; n++) {
        fill_registers(x, at, n == 0);
        /* What the hardware leaves in shared memory is undefined; zero repeats itself. */
        memset(x->shared, 0, x->shared_size);
        x->slept = 0;
        x->spoil = launch->spoil != 0 && launch->spoil % blocks == n ? launch->spoil : 0;
        run_block(b);
        if (x->slept > launch->slept)
            launch->slept = x->slept;
        if (++at[0] == launch->grid[0]) {
            at[0] = 0;
            if (++at[1] == launch->grid[1]) {
                at[1] = 0;
                at[2]++;
            }
        }
    }
    enum ptx_stop stop = x->stop;
    launch->line = x->kernel->code[b->at].line;
    launch->address = x->bad_address;
    clean(x);
    free(b);
    return stop;
}
