/* Integer, bit and plain floating-point instructions. */
#include <math.h>
#include <string.h>

#include "code.h"
#include "variant.h"

#define UNARY(name, type, expression)                                    \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *pa = REG(type, i->a);                                \
        EACH(type a = pa[t]; d[t] = (type)(expression));                 \
    }

#define BINARY(name, type, expression)                                   \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *pa = REG(type, i->a), *pb = REG(type, i->b);         \
        EACH(type a = pa[t]; type b = pb[t]; d[t] = (type)(expression)); \
    }

#define TERNARY(name, type, expression)                                  \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *pa = REG(type, i->a), *pb = REG(type, i->b), *pc = REG(type, i->c); \
        EACH(type a = pa[t]; type b = pb[t]; type c = pc[t]; d[t] = (type)(expression)); \
    }

#define WIDE(name, narrow, wide, expression)                             \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        wide *d = REG(wide, i->d[0]);                                    \
        const narrow *pa = REG(narrow, i->a), *pb = REG(narrow, i->b);   \
        EACH(wide a = pa[t]; wide b = pb[t]; d[t] = (wide)(expression)); \
    }

#define WIDE_ADD(name, narrow, wide, expression)                         \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        wide *d = REG(wide, i->d[0]);                                    \
        const wide *pc = REG(wide, i->c);                                \
        const narrow *pa = REG(narrow, i->a), *pb = REG(narrow, i->b);   \
        EACH(wide a = pa[t]; wide b = pb[t]; wide c = pc[t]; d[t] = (wide)(expression)); \
    }

#define SHIFT(name, type, expression)                                    \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *pa = REG(type, i->a);                                \
        const uint32_t *pb = REG(uint32_t, i->b);                        \
        EACH(type a = pa[t]; uint32_t b = pb[t]; d[t] = (type)(expression)); \
    }

/* Sums and products wrap, so they are made with unsigned numbers whatever the type. */
#define UNSIGNED_SET(u, type, wide)                                      \
    UNARY(mov_##u, type, a)                                              \
    BINARY(add_##u, type, (wide)a + (wide)b)                             \
    BINARY(sub_##u, type, (wide)a - (wide)b)                             \
    BINARY(mul_##u, type, (wide)a * (wide)b)                             \
    TERNARY(mad_##u, type, (wide)a * (wide)b + (wide)c)                  \
    BINARY(div_##u, type, b == 0 ? (type)-1 : (type)(a / b))             \
    BINARY(rem_##u, type, b == 0 ? a : (type)(a % b))                    \
    BINARY(min_##u, type, a < b ? a : b)                                 \
    BINARY(max_##u, type, a > b ? a : b)                                 \
    BINARY(and_##u, type, a & b)                                         \
    BINARY(or_##u, type, a | b)                                          \
    BINARY(xor_##u, type, a ^ b)                                         \
    UNARY(not_##u, type, ~a)                                             \
    SHIFT(shl_##u, type, b >= sizeof(type) * 8 ? 0 : (wide)a << b)       \
    SHIFT(shr_##u, type, b >= sizeof(type) * 8 ? 0 : a >> b)

/* A quotient that overflows is the dividend, as its negation wraps. */
#define SIGNED_SET(s, type, unsigned_type)                               \
    BINARY(div_##s, type, b == 0 ? (type)-1 : b == -1 ? (type)(0 - (unsigned_type)a) : (type)(a / b)) \
    BINARY(rem_##s, type, b == 0 ? a : b == -1 ? 0 : (type)(a % b))      \
    BINARY(min_##s, type, a < b ? a : b)                                 \
    BINARY(max_##s, type, a > b ? a : b)                                 \
    UNARY(abs_##s, type, a < 0 ? (type)(0 - (unsigned_type)a) : a)       \
    UNARY(neg_##s, type, (type)(0 - (unsigned_type)a))                   \
    SHIFT(shr_##s, type, a >> (b >= sizeof(type) * 8 ? sizeof(type) * 8 - 1 : b))

UNSIGNED_SET(u16, uint16_t, uint32_t)
UNSIGNED_SET(u32, uint32_t, uint32_t)
UNSIGNED_SET(u64, uint64_t, uint64_t)
SIGNED_SET(s16, int16_t, uint16_t)
SIGNED_SET(s32, int32_t, uint32_t)
SIGNED_SET(s64, int64_t, uint64_t)

WIDE(mul_wide_u16, uint16_t, uint32_t, a *b)
WIDE(mul_wide_u32, uint32_t, uint64_t, a *b)
WIDE(mul_wide_s16, int16_t, int32_t, a *b)
WIDE(mul_wide_s32, int32_t, int64_t, a *b)
WIDE_ADD(mad_wide_u16, uint16_t, uint32_t, a *b + c)
WIDE_ADD(mad_wide_u32, uint32_t, uint64_t, a *b + c)
WIDE_ADD(mad_wide_s16, int16_t, int32_t, (int32_t)((uint32_t)(a * b) + (uint32_t)c))
WIDE_ADD(mad_wide_s32, int32_t, int64_t, (int64_t)((uint64_t)(a * b) + (uint64_t)c))

typedef unsigned __int128 u128;
typedef __int128 s128;
BINARY(mul_hi_u16, uint16_t, ((uint32_t)a * b) >> 16)
BINARY(mul_hi_u32, uint32_t, ((uint64_t)a * b) >> 32)
BINARY(mul_hi_u64, uint64_t, (uint64_t)(((u128)a * b) >> 64))
BINARY(mul_hi_s16, int16_t, ((int32_t)a * b) >> 16)
BINARY(mul_hi_s32, int32_t, ((int64_t)a * b) >> 32)
BINARY(mul_hi_s64, int64_t, (int64_t)(((s128)a * b) >> 64))
TERNARY(mad_hi_u32, uint32_t, (uint32_t)(((uint64_t)a * b) >> 32) + c)
TERNARY(mad_hi_u64, uint64_t, (uint64_t)(((u128)a * b) >> 64) + c)
TERNARY(mad_hi_s32, int32_t, (int32_t)((uint32_t)(((int64_t)a * b) >> 32) + (uint32_t)c))
TERNARY(mad_hi_s64, int64_t, (int64_t)((uint64_t)(((s128)a * b) >> 64) + (uint64_t)c))

/* Of two numbers the one that is one, and of zeros the negative one first. */
#define SMALLER(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) < (b) || ((a) == (b) && signbit(a)) ? (a) : (b))
#define LARGER(a, b) (isnan(a) ? (b) : isnan(b) ? (a) : (a) > (b) || ((a) == (b) && signbit(b)) ? (a) : (b))

#define FLOAT_SET(f, type, fused, absolute)                              \
    UNARY(mov_##f, type, a)                                              \
    BINARY(sub_##f, type, a - b)                                         \
    BINARY(div_##f, type, a / b)                                         \
    BINARY(min_##f, type, SMALLER(a, b))                                 \
    BINARY(max_##f, type, LARGER(a, b))                                  \
    UNARY(abs_##f, type, absolute(a))                                    \
    UNARY(neg_##f, type, -a)                                             \
    BINARY(plain_add_##f, type, a + b)                                   \
    BINARY(plain_mul_##f, type, a * b)                                   \
    TERNARY(plain_mad_##f, type, fused(a, b, c))

FLOAT_SET(f32, float, fmaf, fabsf)
FLOAT_SET(f64, double, fma, fabs)

/* A GPU with bad arithmetic gets one result of a launch wrong; see ptx_launch.spoil. */
static void spoil(struct exec *x, const struct insn *i, unsigned width)
{
    if (x->spoil == 0 || x->n == 0)
        return;
    unsigned at = (unsigned)(x->spoil % x->n), t = x->full ? at : x->list[at];
    uint8_t *result = REG(uint8_t, i->d[0]) + (size_t)t * width;
    result[width - 2] ^= 0x10;
    x->spoil = 0;
}

#define SPOILED(name, width)                                             \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        plain_##name(x, i);                                              \
        spoil(x, i, width);                                              \
    }

SPOILED(add_f32, 4)
SPOILED(mul_f32, 4)
SPOILED(mad_f32, 4)
SPOILED(add_f64, 8)
SPOILED(mul_f64, 8)
SPOILED(mad_f64, 8)

static void mov_pred(struct exec *x, const struct insn *i)
{
    uint8_t *d = REG(uint8_t, i->d[0]);
    const uint8_t *a = REG(uint8_t, i->a);
    EACH(d[t] = a[t]);
}

BINARY(and_pred, uint8_t, a & b)
BINARY(or_pred, uint8_t, a | b)
BINARY(xor_pred, uint8_t, a ^ b)
UNARY(not_pred, uint8_t, !a)

#define COUNT(name, type, expression)                                    \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        uint32_t *d = REG(uint32_t, i->d[0]);                            \
        const type *pa = REG(type, i->a);                                \
        EACH(type a = pa[t]; d[t] = (uint32_t)(expression));             \
    }

COUNT(popc_u32, uint32_t, __builtin_popcount(a))
COUNT(popc_u64, uint64_t, __builtin_popcountll(a))
COUNT(clz_u32, uint32_t, a == 0 ? 32 : __builtin_clz(a))
COUNT(clz_u64, uint64_t, a == 0 ? 64 : __builtin_clzll(a))

/* The highest bit that is not the sign; or how far left it can be shifted. -1: there is none. */
#define FIND(name, type, bits, value)                                                \
    COUNT(bfind_##name, type, (value) == 0 ? -1 : 63 - __builtin_clzll(value))       \
    COUNT(bfind_shift_##name, type, (value) == 0 ? -1 : __builtin_clzll(value) - (64 - bits))

FIND(u32, uint32_t, 32, (uint64_t)a)
FIND(s32, int32_t, 32, (uint64_t)(uint32_t)(a < 0 ? ~a : a))
FIND(u64, uint64_t, 64, a)
FIND(s64, int64_t, 64, (uint64_t)(a < 0 ? ~a : a))

static inline uint64_t reversed(uint64_t value, unsigned bits)
{
    uint64_t result = 0;
    for (unsigned bit = 0; bit < bits; bit++)
        result |= (value >> bit & 1) << (bits - 1 - bit);
    return result;
}

UNARY(brev_u32, uint32_t, reversed(a, 32))
UNARY(brev_u64, uint64_t, reversed(a, 64))

static inline uint64_t field(uint64_t value, unsigned bits, uint32_t position, uint32_t length, bool sign)
{
    position &= 255;
    length &= 255;
    uint64_t result = position >= bits ? 0 : value >> position;
    bool negative = false;
    if (sign && length > 0) {
        uint32_t top = position + length - 1;
        negative = value >> (top < bits - 1 ? top : bits - 1) & 1;
    }
    if (length >= bits)
        length = bits;
    uint64_t mask = length == 64 ? ~0ull : (1ull << length) - 1;
    if (position < bits && length > bits - position) { /* what lies above is filled with the sign */
        uint64_t have = (1ull << (bits - position)) - 1;
        result = (result & have) | (negative ? ~have : 0);
    } else if (position >= bits)
        result = negative ? ~0ull : 0;
    return (result & mask) | (negative ? ~mask : 0);
}

#define FIELD(name, type, sign)                                          \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *a = REG(type, i->a);                                 \
        const uint32_t *b = REG(uint32_t, i->b), *c = REG(uint32_t, i->c); \
        EACH(d[t] = (type)field(a[t], sizeof(type) * 8, b[t], c[t], sign)); \
    }

FIELD(bfe_u32, uint32_t, false)
FIELD(bfe_u64, uint64_t, false)
FIELD(bfe_s32, uint32_t, true)
FIELD(bfe_s64, uint64_t, true)

static inline uint64_t inserted(uint64_t what, uint64_t into, unsigned bits, uint32_t position, uint32_t length)
{
    position &= 255;
    length &= 255;
    if (position >= bits || length == 0)
        return into;
    if (length > bits - position)
        length = bits - position;
    uint64_t mask = (length == 64 ? ~0ull : (1ull << length) - 1) << position;
    return (into & ~mask) | (what << position & mask);
}

#define INSERT(name, type)                                               \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *a = REG(type, i->a), *b = REG(type, i->b);           \
        const uint32_t *c = REG(uint32_t, i->c), *e = REG(uint32_t, i->e); \
        EACH(d[t] = (type)inserted(a[t], b[t], sizeof(type) * 8, c[t], e[t])); \
    }

INSERT(bfi_u32, uint32_t)
INSERT(bfi_u64, uint64_t)

#define SELECT(name, type)                                               \
    static void name(struct exec *x, const struct insn *i)               \
    {                                                                    \
        type *d = REG(type, i->d[0]);                                    \
        const type *a = REG(type, i->a), *b = REG(type, i->b);           \
        const uint8_t *c = REG(uint8_t, i->c);                           \
        EACH(d[t] = c[t] ? a[t] : b[t]);                                 \
    }

SELECT(selp_16, uint16_t)
SELECT(selp_32, uint32_t)
SELECT(selp_64, uint64_t)

static void prmt(struct exec *x, const struct insn *i)
{
    uint32_t *d = REG(uint32_t, i->d[0]);
    const uint32_t *a = REG(uint32_t, i->a), *b = REG(uint32_t, i->b), *c = REG(uint32_t, i->c);
    EACH(uint64_t both = (uint64_t)b[t] << 32 | a[t]; uint32_t made = 0;
         for (unsigned n = 0; n < 4; n++) {
             unsigned pick = c[t] >> (4 * n) & 15;
             uint8_t byte = (uint8_t)(both >> (8 * (pick & 7)));
             if (pick & 8)
                 byte = byte & 0x80 ? 0xff : 0;
             made |= (uint32_t)byte << (8 * n);
         } d[t] = made);
}

/* lop3: any function of three bits, given as the table of its eight results. */
static void lop3(struct exec *x, const struct insn *i)
{
    uint32_t *d = REG(uint32_t, i->d[0]);
    const uint32_t *pa = REG(uint32_t, i->a), *pb = REG(uint32_t, i->b), *pc = REG(uint32_t, i->c);
    const unsigned table = i->mode;
    EACH(uint32_t a = pa[t]; uint32_t b = pb[t]; uint32_t c = pc[t]; uint32_t made = 0;
         for (unsigned n = 0; n < 8; n++)
             if (table >> n & 1) made |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
         d[t] = made);
}

/* shf: 32 bits out of the 64 bits b:a; mode 0 left, 1 right; +2 clamps the distance, else it wraps. */
static void shf(struct exec *x, const struct insn *i)
{
    uint32_t *d = REG(uint32_t, i->d[0]);
    const uint32_t *a = REG(uint32_t, i->a), *b = REG(uint32_t, i->b), *c = REG(uint32_t, i->c);
    const unsigned mode = i->mode;
    EACH(uint64_t both = (uint64_t)b[t] << 32 | a[t];
         uint32_t by = mode & 2 ? (c[t] > 32 ? 32 : c[t]) : c[t] & 31;
         d[t] = (uint32_t)(mode & 1 ? both >> by : both << by >> 32));
}

#define INTEGERS(op) {[U16] = op##_u16, [U32] = op##_u32, [U64] = op##_u64, \
                      [S16] = op##_u16, [S32] = op##_u32, [S64] = op##_u64, \
                      [F32] = op##_f32, [F64] = op##_f64}
#define BY_SIGN(op) {[U16] = op##_u16, [U32] = op##_u32, [U64] = op##_u64, \
                     [S16] = op##_s16, [S32] = op##_s32, [S64] = op##_s64, \
                     [F32] = op##_f32, [F64] = op##_f64}
#define BITS(op) {[U16] = op##_u16, [U32] = op##_u32, [U64] = op##_u64, \
                  [S16] = op##_u16, [S32] = op##_u32, [S64] = op##_u64, [PRED] = op##_pred}
#define SIGNS(op) {[S16] = op##_s16, [S32] = op##_s32, [S64] = op##_s64, \
                   [F32] = op##_f32, [F64] = op##_f64}
#define NARROW(op) {[U16] = op##_u16, [U32] = op##_u32, [S16] = op##_s16, [S32] = op##_s32}
#define FOUND(op) {[U32] = op##_u32, [U64] = op##_u64, [S32] = op##_s32, [S64] = op##_s64}
#define WORDS(op) {[U32] = op##_u32, [U64] = op##_u64}

const struct arithmetic VARIANT(arithmetic) = {
    .mov = {[U16] = mov_u16, [S16] = mov_u16, [U32] = mov_u32, [S32] = mov_u32, [F32] = mov_f32,
            [U64] = mov_u64, [S64] = mov_u64, [F64] = mov_f64, [PRED] = mov_pred},
    .add = INTEGERS(add), .sub = INTEGERS(sub), .mul = INTEGERS(mul), .mad = INTEGERS(mad),
    .mul_hi = {[U16] = mul_hi_u16, [U32] = mul_hi_u32, [U64] = mul_hi_u64, [S16] = mul_hi_s16,
               [S32] = mul_hi_s32, [S64] = mul_hi_s64},
    .mad_hi = {[U32] = mad_hi_u32, [U64] = mad_hi_u64, [S32] = mad_hi_s32, [S64] = mad_hi_s64},
    .mul_wide = NARROW(mul_wide), .mad_wide = NARROW(mad_wide),
    .div = BY_SIGN(div), .min = BY_SIGN(min), .max = BY_SIGN(max),
    .rem = {[U16] = rem_u16, [U32] = rem_u32, [U64] = rem_u64, [S16] = rem_s16, [S32] = rem_s32,
            [S64] = rem_s64},
    .abs = SIGNS(abs), .neg = SIGNS(neg),
    .bit_and = BITS(and), .bit_or = BITS(or), .bit_xor = BITS(xor), .bit_not = BITS(not),
    .shl = {[U16] = shl_u16, [U32] = shl_u32, [U64] = shl_u64},
    .shr = {[U16] = shr_u16, [U32] = shr_u32, [U64] = shr_u64, [S16] = shr_s16, [S32] = shr_s32,
            [S64] = shr_s64},
    .popc = WORDS(popc), .clz = WORDS(clz), .bfind = FOUND(bfind), .bfind_shift = FOUND(bfind_shift),
    .brev = WORDS(brev), .bfi = WORDS(bfi),
    .bfe = {[U32] = bfe_u32, [U64] = bfe_u64, [S32] = bfe_s32, [S64] = bfe_s64},
    .selp = {[U16] = selp_16, [S16] = selp_16, [U32] = selp_32, [S32] = selp_32, [F32] = selp_32,
             [U64] = selp_64, [S64] = selp_64, [F64] = selp_64},
    .prmt = prmt, .lop3 = lop3, .shf = shf,
};
