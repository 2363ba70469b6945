/* Votes and matches. The threads of a warp that are at the instruction together and in its mask take part. */
#include <string.h>

#include "code.h"
#include "variant.h"

#define WARPS (MAX_THREADS / 32)

static bool takes_part(const struct exec *x, const struct insn *i, unsigned t)
{
    return REG(uint32_t, i->e)[t] >> (t & 31) & 1;
}

/* Per warp: who takes part, and of them those whose predicate holds. */
static void count(struct exec *x, const struct insn *i, uint32_t *present, uint32_t *holding)
{
    const uint8_t *a = REG(uint8_t, i->a);
    memset(present, 0, WARPS * sizeof *present);
    memset(holding, 0, WARPS * sizeof *holding);
    for (unsigned n = 0; n < x->n; n++) {
        unsigned t = x->full ? n : x->list[n];
        if (!takes_part(x, i, t))
            continue;
        present[t >> 5] |= 1u << (t & 31);
        if (a[t] != (uint8_t)i->negate_c)
            holding[t >> 5] |= 1u << (t & 31);
    }
}

#define VOTE(name, type, expression)                                         \
    static void name(struct exec *x, const struct insn *i)                   \
    {                                                                        \
        type *d = REG(type, i->d[0]);                                        \
        uint32_t present[WARPS], holding[WARPS];                             \
        count(x, i, present, holding);                                       \
        EACH(uint32_t all = present[t >> 5]; uint32_t yes = holding[t >> 5]; \
             (void)all; d[t] = (type)(expression));                          \
    }

VOTE(vote_all, uint8_t, yes == all)
VOTE(vote_any, uint8_t, yes != 0)
VOTE(vote_uni, uint8_t, yes == 0 || yes == all)
VOTE(vote_ballot, uint32_t, yes)

/* Who in the warp has the same value. All: those, if they are all who take part, and a predicate that says so. */
#define MATCH(suffix, type)                                                  \
    static uint32_t same_##suffix(const struct exec *x, const struct insn *i, unsigned t, uint32_t *present) \
    {                                                                        \
        const type *a = REG(type, i->a);                                     \
        uint32_t found = 0;                                                  \
        *present = 0;                                                        \
        for (unsigned n = 0; n < x->n; n++) {                                \
            unsigned other = x->full ? n : x->list[n];                       \
            if (other >> 5 != t >> 5 || !takes_part(x, i, other))            \
                continue;                                                    \
            *present |= 1u << (other & 31);                                  \
            if (a[other] == a[t])                                            \
                found |= 1u << (other & 31);                                 \
        }                                                                    \
        return found;                                                        \
    }                                                                        \
    static void match_any_##suffix(struct exec *x, const struct insn *i)     \
    {                                                                        \
        uint32_t made[MAX_THREADS], present, *d = REG(uint32_t, i->d[0]);    \
        EACH(made[t] = same_##suffix(x, i, t, &present));                    \
        EACH(d[t] = made[t]);                                                \
    }                                                                        \
    static void match_all_##suffix(struct exec *x, const struct insn *i)     \
    {                                                                        \
        uint32_t made[MAX_THREADS], present, *d = REG(uint32_t, i->d[0]);    \
        uint8_t *p = i->q == NO_REGISTER ? NULL : REG(uint8_t, i->q);        \
        EACH(uint32_t same = same_##suffix(x, i, t, &present); made[t] = same == present ? same : 0); \
        EACH(d[t] = made[t]; if (p != NULL) p[t] = made[t] != 0);            \
    }

MATCH(u32, uint32_t)
MATCH(u64, uint64_t)

static void active(struct exec *x, const struct insn *i)
{
    uint32_t present[WARPS] = {0}, *d = REG(uint32_t, i->d[0]);
    EACH(present[t >> 5] |= 1u << (t & 31));
    EACH(d[t] = present[t >> 5]);
}

const struct warp VARIANT(warp) = {
    .vote = {vote_all, vote_any, vote_uni, vote_ballot},
    .match_any = {[U32] = match_any_u32, [U64] = match_any_u64},
    .match_all = {[U32] = match_all_u32, [U64] = match_all_u64},
    .active = active,
};
