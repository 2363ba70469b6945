/* Loads, stores and atomics. First every thread's address is checked, then all access. */
#include <string.h>

#include "code.h"
#include "variant.h"

static void stop(struct exec *x, const struct insn *i, enum ptx_stop why, uint64_t address)
{
    (void)i;
    if (x->stop == PTX_DONE) {
        x->stop = why;
        x->bad_address = address;
    }
}

/* What a thread's address means when its instruction's last allocation does not hold it. */
static void look_up(struct exec *x, const struct insn *i, unsigned t, unsigned width)
{
    uint64_t at = x->address[t];
    struct range *range = &x->ranges[i->number];
    if (i->space == SPACE_GENERIC && at - SHARED_WINDOW < WINDOW_SIZE) {
        if (at - SHARED_WINDOW + width > x->shared_size)
            stop(x, i, PTX_ILLEGAL_ADDRESS, at);
        x->address[t] = (uint64_t)(uintptr_t)(x->shared + (at - SHARED_WINDOW));
        return;
    }
    if (i->space == SPACE_GENERIC && at - LOCAL_WINDOW < WINDOW_SIZE) {
        if (at - LOCAL_WINDOW + width > x->kernel->local_bytes)
            stop(x, i, PTX_ILLEGAL_ADDRESS, at);
        x->address[t] = (uint64_t)(uintptr_t)(x->local + (size_t)t * x->kernel->local_bytes + (at - LOCAL_WINDOW));
        return;
    }
    if (at >= range->begin && at < range->end && width <= range->end - at)
        return;
    struct range found = {0, 0};
    for (struct variable *v = x->module->variables; v != NULL; v = v->next)
        if (at - (uint64_t)(uintptr_t)v->memory < v->size) {
            found.begin = (uint64_t)(uintptr_t)v->memory;
            found.end = found.begin + v->size;
        }
    if (found.end == 0 &&
        !x->launch->allocation(x->launch->context, at, &found.begin, &found.end))
        stop(x, i, PTX_ILLEGAL_ADDRESS, at);
    else if (width > found.end - at)
        stop(x, i, PTX_ILLEGAL_ADDRESS, at);
    else
        *range = found;
}

/* Whole accesses lie at multiples of their size. */
static bool aligned(struct exec *x, const struct insn *i, unsigned width, uint64_t odd)
{
    if (odd == 0)
        return true;
    uint64_t at = 0;
    EACH(if (x->address[t] & (width - 1)) at = x->address[t]);
    stop(x, i, PTX_MISALIGNED, at);
    return false;
}

static bool resolve_device(struct exec *x, const struct insn *i, unsigned width)
{
    uint64_t *address = x->address, odd = 0, outside = 0;
    const struct range range = x->ranges[i->number];
    const uint64_t begin = range.begin, offset = (uint64_t)i->offset;
    /* Smaller than any access when there is no range yet. */
    const uint64_t span = range.end - begin >= width ? range.end - begin - width : 0;
    const uint64_t none = range.end - begin < width;
    if (i->address_is_narrow) {
        const uint32_t *a = REG(uint32_t, i->a);
        EACH(uint64_t at = a[t] + offset; address[t] = at; odd |= at & (width - 1);
             outside |= (uint64_t)(at - begin > span) | none);
    } else {
        const uint64_t *a = REG(uint64_t, i->a);
        EACH(uint64_t at = a[t] + offset; address[t] = at; odd |= at & (width - 1);
             outside |= (uint64_t)(at - begin > span) | none);
    }
    if (!aligned(x, i, width, odd))
        return false;
    if (outside)
        EACH(if (x->stop == PTX_DONE) look_up(x, i, t, width));
    return x->stop == PTX_DONE;
}

static bool resolve_window(struct exec *x, const struct insn *i, unsigned width)
{
    uint64_t *address = x->address, odd = 0, outside = 0;
    const bool is_local = i->space == SPACE_LOCAL, is_parameter = i->space == SPACE_PARAM;
    const uint64_t offset = (uint64_t)i->offset;
    const uint64_t size = is_local       ? x->kernel->local_bytes
                          : is_parameter ? x->kernel->parameter_bytes
                                         : x->shared_size;
    const uint64_t span = size >= width ? size - width : 0, none = size < width;
    if (i->address_is_narrow) {
        const uint32_t *a = REG(uint32_t, i->a);
        /* A 32-bit address wraps at 32 bits. */
        EACH(uint64_t at = (uint32_t)(a[t] + (uint32_t)offset); address[t] = at; odd |= at & (width - 1);
             outside |= (uint64_t)(at > span) | none);
    } else {
        const uint64_t *a = REG(uint64_t, i->a);
        EACH(uint64_t at = a[t] + offset; address[t] = at; odd |= at & (width - 1);
             outside |= (uint64_t)(at > span) | none);
    }
    if (!aligned(x, i, width, odd))
        return false;
    if (outside) {
        EACH(if (address[t] > span || none) stop(x, i, PTX_ILLEGAL_ADDRESS, address[t]));
        return false;
    }
    if (is_local) {
        const uint64_t base = (uint64_t)(uintptr_t)x->local, step = x->kernel->local_bytes;
        EACH(address[t] += base + t * step);
    } else {
        const uint64_t base = (uint64_t)(uintptr_t)(is_parameter ? x->launch->parameters : x->shared);
        EACH(address[t] += base);
    }
    return true;
}

static bool resolve(struct exec *x, const struct insn *i, unsigned width)
{
    return i->space == SPACE_SHARED || i->space == SPACE_LOCAL || i->space == SPACE_PARAM
               ? resolve_window(x, i, width)
               : resolve_device(x, i, width);
}

/* The commonest access by far, in one step: a word of shared memory for every thread. */
static bool load_shared_words(struct exec *x, const struct insn *i)
{
    if (i->space != SPACE_SHARED || !i->address_is_narrow || i->count != 1 || !x->full || x->shared_size < 4)
        return false;
    const uint32_t *a = REG(uint32_t, i->a), offset = (uint32_t)i->offset, span = x->shared_size - 4;
    uint32_t wrong = 0;
    const unsigned n = x->n;
    for (unsigned t = 0; t < n; t++) {
        uint32_t at = a[t] + offset;
        wrong |= (at & 3) | (uint32_t)(at > span);
    }
    if (wrong)
        return false;
    const uint32_t *words = (const uint32_t *)(const void *)x->shared;
    uint32_t *d = REG(uint32_t, i->d[0]);
    _Pragma("GCC ivdep") for (unsigned t = 0; t < n; t++)
        d[t] = words[(int32_t)((a[t] + offset) >> 2)];
    return true;
}

#define LOAD(type_name, type, width, holder)                                    \
    static void load_##type_name##_##width(struct exec *x, const struct insn *i) \
    {                                                                           \
        if (!resolve(x, i, (unsigned)sizeof(type) * i->count))                  \
            return;                                                             \
        const uint64_t *address = x->address;                                   \
        for (unsigned v = 0; v < i->count; v++) {                               \
            holder *d = REG(holder, i->d[v]);                                   \
            EACH(type value; memcpy(&value, (const uint8_t *)(uintptr_t)address[t] + v * sizeof value, \
                 sizeof value); d[t] = (holder)value);                          \
        }                                                                       \
    }                                                                           \
    static void param_##type_name##_##width(struct exec *x, const struct insn *i) \
    {                                                                           \
        for (unsigned v = 0; v < i->count; v++) {                               \
            holder *d = REG(holder, i->d[v]);                                   \
            type value;                                                         \
            memcpy(&value, x->launch->parameters + i->offset + v * sizeof value, sizeof value); \
            EACH(d[t] = (holder)value);                                         \
        }                                                                       \
    }

#define STORE(width, holder, type_name, type)                                   \
    static void store_##type_name##_##width(struct exec *x, const struct insn *i) \
    {                                                                           \
        if (!resolve(x, i, (unsigned)sizeof(type) * i->count))                  \
            return;                                                             \
        const uint64_t *address = x->address;                                   \
        for (unsigned v = 0; v < i->count; v++) {                               \
            const holder *s = REG(holder, i->d[v]);                             \
            EACH(type value = (type)s[t]; memcpy((uint8_t *)(uintptr_t)address[t] + v * sizeof value, \
                 &value, sizeof value));                                        \
        }                                                                       \
    }

#define ACCESS(type_name, type, width, holder) \
    LOAD(type_name, type, width, holder)       \
    STORE(width, holder, type_name, type)

/* Signed ones sign-extend to a wider register. */
ACCESS(u8, uint8_t, 2, uint16_t)
ACCESS(u8, uint8_t, 4, uint32_t)
ACCESS(u8, uint8_t, 8, uint64_t)
ACCESS(s8, int8_t, 2, int16_t)
ACCESS(s8, int8_t, 4, int32_t)
ACCESS(s8, int8_t, 8, int64_t)
ACCESS(u16, uint16_t, 2, uint16_t)
ACCESS(u16, uint16_t, 4, uint32_t)
ACCESS(u16, uint16_t, 8, uint64_t)
ACCESS(s16, int16_t, 2, int16_t)
ACCESS(s16, int16_t, 4, int32_t)
ACCESS(s16, int16_t, 8, int64_t)
ACCESS(u32, uint32_t, 4, uint32_t)
ACCESS(u32, uint32_t, 8, uint64_t)
ACCESS(s32, int32_t, 4, int32_t)
ACCESS(s32, int32_t, 8, int64_t)
ACCESS(u64, uint64_t, 8, uint64_t)

/* One thread after the other. The old value goes to the destination, if there is one. */
#define ATOMIC(name, type, expression)                                          \
    static void name(struct exec *x, const struct insn *i)                      \
    {                                                                           \
        if (!resolve(x, i, sizeof(type)))                                       \
            return;                                                             \
        const type *pb = REG(type, i->b), *pc = i->c == NO_REGISTER ? pb : REG(type, i->c); \
        type *d = i->d[0] == NO_REGISTER ? NULL : REG(type, i->d[0]);           \
        for (unsigned n = 0; n < x->n; n++) {                                   \
            unsigned t = x->full ? n : x->list[n];                              \
            type old, b = pb[t], c = pc[t], made;                               \
            uint8_t *at = (uint8_t *)(uintptr_t)x->address[t];                  \
            (void)c;                                                            \
            memcpy(&old, at, sizeof old);                                       \
            made = (type)(expression);                                          \
            memcpy(at, &made, sizeof made);                                     \
            if (d != NULL)                                                      \
                d[t] = old;                                                     \
        }                                                                       \
    }

#define ATOMIC_SET(suffix, type)                                                \
    ATOMIC(atom_add_##suffix, type, old + b)                                    \
    ATOMIC(atom_min_##suffix, type, old < b ? old : b)                          \
    ATOMIC(atom_max_##suffix, type, old > b ? old : b)                          \
    ATOMIC(atom_exch_##suffix, type, b)                                         \
    ATOMIC(atom_cas_##suffix, type, old == b ? c : old)                         \
    ATOMIC(atom_and_##suffix, type, old & b)                                    \
    ATOMIC(atom_or_##suffix, type, old | b)                                     \
    ATOMIC(atom_xor_##suffix, type, old ^ b)

ATOMIC_SET(u32, uint32_t)
ATOMIC_SET(u64, uint64_t)
ATOMIC(atom_min_s32, int32_t, old < b ? old : b)
ATOMIC(atom_max_s32, int32_t, old > b ? old : b)
ATOMIC(atom_min_s64, int64_t, old < b ? old : b)
ATOMIC(atom_max_s64, int64_t, old > b ? old : b)
ATOMIC(atom_inc_u32, uint32_t, old >= b ? 0 : old + 1)
ATOMIC(atom_dec_u32, uint32_t, old == 0 || old > b ? b : old - 1)
ATOMIC(atom_add_f32, float, old + b)
ATOMIC(atom_add_f64, double, old + b)

/* shfl.sync: d|p, a (value), b (lane or distance), c (clamp and segment), per warp of 32. */
#define SHUFFLE(name, source_lane, inside)                                      \
    static void name(struct exec *x, const struct insn *i)                      \
    {                                                                           \
        uint32_t *d = REG(uint32_t, i->d[0]);                                   \
        const uint32_t *a = REG(uint32_t, i->a), *b = REG(uint32_t, i->b), *c = REG(uint32_t, i->c); \
        uint8_t *p = i->q == NO_REGISTER ? NULL : REG(uint8_t, i->q);           \
        uint32_t before[MAX_THREADS];                                          \
        memcpy(before, a, x->threads * sizeof *a); /* lanes of other groups included */ \
        EACH(int lane = (int)(t & 31); int segment = (int)(c[t] >> 8 & 31); int clamp = (int)(c[t] & 31); \
             int most = (lane & segment) | (clamp & ~segment); int least = lane & segment; \
             int by = (int)(b[t] & 31); int from = source_lane;                 \
             bool valid = inside && (t & ~31u) + (unsigned)from < x->threads;   \
             (void)most; (void)least;                                          \
             d[t] = before[valid ? (t & ~31u) + (unsigned)from : t];            \
             if (p != NULL) p[t] = valid);                                      \
    }

SHUFFLE(shuffle_up, lane - by, from >= most)
SHUFFLE(shuffle_down, lane + by, from <= most)
SHUFFLE(shuffle_bfly, lane ^ by, from <= most)
SHUFFLE(shuffle_idx, least | (by & ~segment), from <= most)

#define BYTES(op, name) {[2] = op##_##name##_2, [4] = op##_##name##_4, [8] = op##_##name##_8}
#define WORDS(op, name) {[4] = op##_##name##_4, [8] = op##_##name##_8}
#define TABLE(op) {[U8] = BYTES(op, u8), [S8] = BYTES(op, s8), [U16] = BYTES(op, u16),    \
                   [S16] = BYTES(op, s16), [U32] = WORDS(op, u32), [S32] = WORDS(op, s32), \
                   [F32] = {[4] = op##_u32_4}, [U64] = {[8] = op##_u64_8},                \
                   [S64] = {[8] = op##_u64_8}, [F64] = {[8] = op##_u64_8}}
#define UNSIGNED(op) {[U32] = op##_u32, [U64] = op##_u64, [S32] = op##_u32, [S64] = op##_u64}

static void load_word(struct exec *x, const struct insn *i)
{
    if (!load_shared_words(x, i))
        load_u32_4(x, i);
}

const struct memory_access VARIANT(memory_access) = {
    .load = {[U8] = BYTES(load, u8), [S8] = BYTES(load, s8), [U16] = BYTES(load, u16),
             [S16] = BYTES(load, s16), [U32] = {[4] = load_word, [8] = load_u32_8},
             [S32] = {[4] = load_s32_4, [8] = load_s32_8}, [F32] = {[4] = load_word},
             [U64] = {[8] = load_u64_8}, [S64] = {[8] = load_u64_8}, [F64] = {[8] = load_u64_8}},
    .store = TABLE(store), .load_param = TABLE(param),
    .atomic = {[ATOM_ADD] = {[U32] = atom_add_u32, [U64] = atom_add_u64, [S32] = atom_add_u32,
                             [S64] = atom_add_u64, [F32] = atom_add_f32, [F64] = atom_add_f64},
               [ATOM_MIN] = {[U32] = atom_min_u32, [U64] = atom_min_u64, [S32] = atom_min_s32,
                             [S64] = atom_min_s64},
               [ATOM_MAX] = {[U32] = atom_max_u32, [U64] = atom_max_u64, [S32] = atom_max_s32,
                             [S64] = atom_max_s64},
               [ATOM_EXCH] = UNSIGNED(atom_exch), [ATOM_CAS] = UNSIGNED(atom_cas),
               [ATOM_AND] = UNSIGNED(atom_and), [ATOM_OR] = UNSIGNED(atom_or),
               [ATOM_XOR] = UNSIGNED(atom_xor),
               [ATOM_INC] = {[U32] = atom_inc_u32}, [ATOM_DEC] = {[U32] = atom_dec_u32}},
    .shuffle = {shuffle_up, shuffle_down, shuffle_bfly, shuffle_idx},
};
