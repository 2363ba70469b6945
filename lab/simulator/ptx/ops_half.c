/* Floats of 16 bits: f16 and bf16, alone and two in a word. Computed as doubles and rounded once. */
#include <math.h>
#include <string.h>

#include "code.h"
#include "half.h"
#include "variant.h"

#define SMALLER(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) < (b) || ((a) == (b) && signbit(a)) ? (a) : (b))
#define LARGER(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) > (b) || ((a) == (b) && signbit(b)) ? (a) : (b))

#define FUNCTION(name, count, format, expression)                          \
    static inline uint16_t name(uint16_t wa, uint16_t wb, uint16_t wc)     \
    {                                                                      \
        double a = decode(wa, format), b = count > 1 ? decode(wb, format) : 0, \
               c = count > 2 ? decode(wc, format) : 0;                     \
        (void)b;                                                           \
        (void)c;                                                           \
        return encode(expression, format);                                 \
    }

/* Signs are bits, of a NaN too. */
static inline uint16_t negated(uint16_t a, uint16_t b, uint16_t c)
{
    (void)b;
    (void)c;
    return a ^ 0x8000;
}

static inline uint16_t absolute(uint16_t a, uint16_t b, uint16_t c)
{
    (void)b;
    (void)c;
    return a & 0x7FFF;
}

#define OPERATION(name, type, function)                                    \
    static void name(struct exec *x, const struct insn *i)                 \
    {                                                                      \
        type *d = REG(type, i->d[0]);                                      \
        const type *pa = REG(type, i->a), *pb = REG(type, i->b), *pc = REG(type, i->c); \
        EACH(type a = pa[t]; type b = pb[t]; type c = pc[t]; type made = 0; \
             for (unsigned shift = 0; shift < 8 * sizeof(type); shift += 16) \
                 made |= (type)((uint32_t)function((uint16_t)(a >> shift), (uint16_t)(b >> shift), \
                                                   (uint16_t)(c >> shift)) << shift); \
             d[t] = made);                                                 \
    }

#define BOTH_WAYS(op, f, function)                 \
    OPERATION(op##_##f, uint16_t, function)        \
    OPERATION(op##_##f##x2, uint32_t, function)

#define FORMAT_SET(f, format)                      \
    FUNCTION(sum_##f, 2, format, a + b)            \
    FUNCTION(difference_##f, 2, format, a - b)     \
    FUNCTION(product_##f, 2, format, a *b)         \
    FUNCTION(fused_##f, 3, format, fma(a, b, c))   \
    FUNCTION(smaller_##f, 2, format, SMALLER(a, b)) \
    FUNCTION(larger_##f, 2, format, LARGER(a, b))  \
    FUNCTION(power_##f, 1, format, exp2(a))        \
    FUNCTION(tangent_##f, 1, format, tanh(a))      \
    BOTH_WAYS(add, f, sum_##f)                     \
    BOTH_WAYS(sub, f, difference_##f)              \
    BOTH_WAYS(mul, f, product_##f)                 \
    BOTH_WAYS(mad, f, fused_##f)                   \
    BOTH_WAYS(min, f, smaller_##f)                 \
    BOTH_WAYS(max, f, larger_##f)                  \
    BOTH_WAYS(ex2, f, power_##f)                   \
    BOTH_WAYS(tanh, f, tangent_##f)                \
    BOTH_WAYS(neg, f, negated)                     \
    BOTH_WAYS(abs, f, absolute)

FORMAT_SET(f16, F16_FORMAT)
FORMAT_SET(bf16, BF16_FORMAT)

#define ALL(op) {[F16] = op##_f16, [BF16] = op##_bf16, [F16X2] = op##_f16x2, [BF16X2] = op##_bf16x2}

const struct arithmetic VARIANT(half_arithmetic) = {
    .add = ALL(add), .sub = ALL(sub), .mul = ALL(mul), .mad = ALL(mad), .min = ALL(min), .max = ALL(max),
    .neg = ALL(neg), .abs = ALL(abs),
};

const struct floating VARIANT(half_floating) = {.ex2 = ALL(ex2), .tanh = ALL(tanh)};

/* To and from floats of 32 and 64 bits; the register of one of 16 bits may be wider. */
#define WIDEN(f, format)                                                   \
    static void widen_##f(struct exec *x, const struct insn *i)            \
    {                                                                      \
        float *d = REG(float, i->d[0]);                                    \
        const uint8_t *s = REG(uint8_t, i->a);                             \
        const unsigned width = i->width;                                   \
        EACH(uint16_t a; memcpy(&a, s + (size_t)t * width, sizeof a); d[t] = (float)decode(a, format)); \
    }

static inline double saturated(double a, unsigned mode)
{
    return !(mode & MODE_SATURATE) ? a : a > 0 ? (a < 1 ? a : 1) : 0;
}

#define NARROW(f, format, from, type)                                      \
    static void narrow_##f##_##from(struct exec *x, const struct insn *i)  \
    {                                                                      \
        uint16_t *d = REG(uint16_t, i->d[0]);                              \
        const type *a = REG(type, i->a);                                   \
        EACH(d[t] = encode_in(saturated(a[t], i->mode), format, i->mode & 7u)); \
    }

/* The first goes to the upper half. */
#define PAIR(f, format)                                                    \
    static void pair_##f(struct exec *x, const struct insn *i)             \
    {                                                                      \
        uint32_t *d = REG(uint32_t, i->d[0]);                              \
        const float *a = REG(float, i->a), *b = REG(float, i->b);          \
        EACH(uint32_t upper = encode_in(a[t], format, i->mode & 7u);       \
             d[t] = upper << 16 | encode_in(b[t], format, i->mode & 7u));  \
    }

#define CONVERT_SET(f, format)        \
    WIDEN(f, format)                  \
    NARROW(f, format, f32, float)     \
    NARROW(f, format, f64, double)    \
    PAIR(f, format)

CONVERT_SET(f16, F16_FORMAT)
CONVERT_SET(bf16, BF16_FORMAT)

const struct converting VARIANT(half_converting) = {
    .cvt = {[F16] = {[F32] = narrow_f16_f32, [F64] = narrow_f16_f64},
            [BF16] = {[F32] = narrow_bf16_f32, [F64] = narrow_bf16_f64},
            [F32] = {[F16] = widen_f16, [BF16] = widen_bf16}},
    .pair = {[F16X2] = pair_f16, [BF16X2] = pair_bf16},
};
