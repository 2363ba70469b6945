/* setp: a comparison, combined with a predicate and stored as itself and as its opposite. */
#include <math.h>

#include "code.h"
#include "variant.h"

static void store(struct exec *x, const struct insn *i)
{
    const uint8_t *outcome = x->outcome;
    uint8_t *p = REG(uint8_t, i->d[0]);
    if (i->boolean == BOOLEAN_NONE && i->q == NO_REGISTER) {
        EACH(p[t] = outcome[t]);
        return;
    }
    /* Without a predicate to combine with, "or false" leaves the outcome as it is. */
    static const uint8_t none[MAX_THREADS];
    const uint8_t *c = i->boolean == BOOLEAN_NONE ? none : REG(uint8_t, i->c);
    uint8_t *q = i->q == NO_REGISTER ? NULL : REG(uint8_t, i->q);
    EACH(uint8_t other = c[t] ^ (uint8_t)i->negate_c; uint8_t is = outcome[t]; uint8_t isnt = !is;
         if (i->boolean == BOOLEAN_AND) { is &= other; isnt &= other; }
         else if (i->boolean == BOOLEAN_XOR) { is ^= other; isnt ^= other; }
         else if (i->boolean == BOOLEAN_OR) { is |= other; isnt |= other; }
         p[t] = is;
         if (q != NULL) q[t] = isnt);
}

#define COMPARE(name, type, expression)                    \
    static void name(struct exec *x, const struct insn *i) \
    {                                                      \
        const type *pa = REG(type, i->a), *pb = REG(type, i->b); \
        uint8_t *outcome = x->outcome;                     \
        EACH(type a = pa[t]; type b = pb[t]; outcome[t] = (expression)); \
        store(x, i);                                       \
    }

#define ORDERED(suffix, type)             \
    COMPARE(eq_##suffix, type, a == b)    \
    COMPARE(ne_##suffix, type, a != b)    \
    COMPARE(lt_##suffix, type, a < b)     \
    COMPARE(le_##suffix, type, a <= b)    \
    COMPARE(gt_##suffix, type, a > b)     \
    COMPARE(ge_##suffix, type, a >= b)

#define UNORDERED(suffix, type)                          \
    COMPARE(eq_##suffix, type, a == b)                   \
    COMPARE(ne_##suffix, type, a < b || a > b)           \
    COMPARE(lt_##suffix, type, a < b)                    \
    COMPARE(le_##suffix, type, a <= b)                   \
    COMPARE(gt_##suffix, type, a > b)                    \
    COMPARE(ge_##suffix, type, a >= b)                   \
    COMPARE(equ_##suffix, type, !(a < b || a > b))       \
    COMPARE(neu_##suffix, type, a != b)                  \
    COMPARE(ltu_##suffix, type, !(a >= b))               \
    COMPARE(leu_##suffix, type, !(a > b))                \
    COMPARE(gtu_##suffix, type, !(a <= b))               \
    COMPARE(geu_##suffix, type, !(a < b))                \
    COMPARE(num_##suffix, type, !isnan(a) && !isnan(b))  \
    COMPARE(nan_##suffix, type, isnan(a) || isnan(b))

ORDERED(u16, uint16_t)
ORDERED(u32, uint32_t)
ORDERED(u64, uint64_t)
ORDERED(s16, int16_t)
ORDERED(s32, int32_t)
ORDERED(s64, int64_t)
UNORDERED(f32, float)
UNORDERED(f64, double)

#define ALL(op) {[U16] = op##_u16, [U32] = op##_u32, [U64] = op##_u64, [S16] = op##_s16, \
                 [S32] = op##_s32, [S64] = op##_s64, [F32] = op##_f32, [F64] = op##_f64}
#define FLOATS(op) {[F32] = op##_f32, [F64] = op##_f64}

const struct comparing VARIANT(comparing) = {
    .setp = {[EQ] = ALL(eq), [NE] = ALL(ne), [LT] = ALL(lt), [LE] = ALL(le), [GT] = ALL(gt),
             [GE] = ALL(ge), [EQU] = FLOATS(equ), [NEU] = FLOATS(neu), [LTU] = FLOATS(ltu),
             [LEU] = FLOATS(leu), [GTU] = FLOATS(gtu), [GEU] = FLOATS(geu), [NUM] = FLOATS(num),
             [NAN_] = FLOATS(nan)},
};
