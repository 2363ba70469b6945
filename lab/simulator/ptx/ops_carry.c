/* Sums and products that take and leave a carry: numbers of more words than one. */
#include "code.h"
#include "variant.h"

/* `over` is what does not fit: the carry of a sum, the borrow of a difference. */
#define WITH_CARRY(name, type, wide, expression)                             \
    static void name(struct exec *x, const struct insn *i)                   \
    {                                                                        \
        type *d = REG(type, i->d[0]);                                        \
        const type *pa = REG(type, i->a), *pb = REG(type, i->b), *pc = REG(type, i->c); \
        uint8_t *flag = REG(uint8_t, i->q);                                  \
        const bool takes = i->mode & CARRY_IN, leaves = i->mode & CARRY_OUT; \
        EACH(type a = pa[t]; type b = pb[t]; type c = pc[t]; wide carry = takes ? flag[t] : 0; \
             (void)c;                                                        \
             wide made = (expression);                                       \
             d[t] = (type)made;                                              \
             if (leaves) flag[t] = (uint8_t)(made >> (8 * sizeof(type)) & 1)); \
    }

typedef unsigned __int128 u128;
typedef __int128 s128;

#define CARRY_SET(u, type, wide)                                             \
    WITH_CARRY(add_##u, type, wide, (wide)a + b + carry)                     \
    WITH_CARRY(sub_##u, type, wide, (wide)a - b - carry)                     \
    WITH_CARRY(mad_##u, type, wide, (wide)(type)(a * b) + c + carry)         \
    WITH_CARRY(mad_hi_##u, type, wide, ((wide)a * b >> (8 * sizeof(type))) + c + carry)

CARRY_SET(u32, uint32_t, uint64_t)
CARRY_SET(u64, uint64_t, u128)
WITH_CARRY(mad_hi_s32, uint32_t, uint64_t,
           (uint64_t)(uint32_t)((int64_t)(int32_t)a * (int32_t)b >> 32) + c + carry)
WITH_CARRY(mad_hi_s64, uint64_t, u128, (u128)(uint64_t)((s128)(int64_t)a * (int64_t)b >> 64) + c + carry)

#define SAME(op) {[U32] = op##_u32, [S32] = op##_u32, [U64] = op##_u64, [S64] = op##_u64}

const struct carrying VARIANT(carrying) = {
    .add = SAME(add), .sub = SAME(sub), .mad = SAME(mad),
    .mad_hi = {[U32] = mad_hi_u32, [S32] = mad_hi_s32, [U64] = mad_hi_u64, [S64] = mad_hi_s64},
};
