/* cvt between every two types, and between generic addresses and those of one space. */
#include <math.h>
#include <string.h>

#include "code.h"
#include "variant.h"

/* A register may be wider than the type: `width` is that of the source's, `count` that of the
 * destination's. */
static inline void put(uint8_t *d, unsigned t, unsigned width, int64_t value)
{
    memcpy(d + (size_t)t * width, &value, width);
}

static inline double rounded(double value, unsigned mode)
{
    switch (mode & 7u) {
    case ROUND_NEAREST:
        return rint(value);
    case ROUND_DOWN:
        return floor(value);
    case ROUND_UP:
        return ceil(value);
    case ROUND_ZERO:
        return trunc(value);
    default:
        return value;
    }
}

/* Out of range gives the nearest end of the range, as on the hardware. */
static inline int64_t to_signed(double value, unsigned bits)
{
    double top = ldexp(1.0, (int)bits - 1);
    if (isnan(value))
        return 0;
    if (value >= top)
        return (int64_t)(((uint64_t)1 << (bits - 1)) - 1);
    if (value < -top)
        return (int64_t)(~(uint64_t)0 << (bits - 1));
    return (int64_t)value;
}

static inline int64_t to_unsigned(double value, unsigned bits)
{
    if (!(value > 0))
        return 0;
    if (value >= ldexp(1.0, (int)bits))
        return bits == 64 ? -1 : (int64_t)(((uint64_t)1 << bits) - 1);
    return (int64_t)(uint64_t)value;
}

static inline int64_t clamp_signed(__int128 value, unsigned bits)
{
    __int128 top = ((__int128)1 << (bits - 1)) - 1;
    return (int64_t)(value > top ? top : value < -top - 1 ? -top - 1 : value);
}

static inline int64_t clamp_unsigned(__int128 value, unsigned bits)
{
    __int128 top = ((__int128)1 << bits) - 1;
    return (int64_t)(value > top ? top : value < 0 ? 0 : value);
}

#define FROM(from_type, body)                                                       \
    const uint8_t *s = REG(uint8_t, i->a);                                          \
    const unsigned source = i->width;                                               \
    EACH(from_type a; memcpy(&a, s + (size_t)t * source, sizeof a); body)

#define INT_TO_INT(to, from, to_type, from_type, clamp)                             \
    static void cvt_##to##_##from(struct exec *x, const struct insn *i)             \
    {                                                                               \
        uint8_t *d = REG(uint8_t, i->d[0]);                                         \
        const unsigned target = i->count;                                           \
        if (i->mode & MODE_SATURATE) {                                              \
            FROM(from_type, put(d, t, target, clamp((__int128)a, sizeof(to_type) * 8))); \
        } else {                                                                    \
            FROM(from_type, put(d, t, target, (int64_t)(to_type)a));                \
        }                                                                           \
    }

#define FLOAT_TO_INT(to, from, to_type, from_type, range)                           \
    static void cvt_##to##_##from(struct exec *x, const struct insn *i)             \
    {                                                                               \
        uint8_t *d = REG(uint8_t, i->d[0]);                                         \
        const unsigned target = i->count, mode = i->mode;                           \
        FROM(from_type, put(d, t, target, (int64_t)(to_type)range(rounded(a, mode), sizeof(to_type) * 8))); \
    }

#define TO_FLOAT(to, from, to_type, from_type)                                      \
    static void cvt_##to##_##from(struct exec *x, const struct insn *i)             \
    {                                                                               \
        to_type *d = REG(to_type, i->d[0]);                                         \
        FROM(from_type, d[t] = (to_type)a);                                         \
    }

#define FLOAT_TO_FLOAT(to, from, to_type, from_type)                                \
    static void cvt_##to##_##from(struct exec *x, const struct insn *i)             \
    {                                                                               \
        to_type *d = REG(to_type, i->d[0]);                                         \
        const unsigned mode = i->mode;                                              \
        FROM(from_type, to_type made = (to_type)a;                                  \
             if ((mode & 7u) != 0) made = (to_type)rounded(made, mode);             \
             if (mode & MODE_SATURATE) made = made > 0 ? (made < 1 ? made : 1) : 0; \
             d[t] = made);                                                          \
    }

#define TO_INTS(from, from_type)                                        \
    INT_TO_INT(u8, from, uint8_t, from_type, clamp_unsigned)            \
    INT_TO_INT(u16, from, uint16_t, from_type, clamp_unsigned)          \
    INT_TO_INT(u32, from, uint32_t, from_type, clamp_unsigned)          \
    INT_TO_INT(u64, from, uint64_t, from_type, clamp_unsigned)          \
    INT_TO_INT(s8, from, int8_t, from_type, clamp_signed)               \
    INT_TO_INT(s16, from, int16_t, from_type, clamp_signed)             \
    INT_TO_INT(s32, from, int32_t, from_type, clamp_signed)             \
    INT_TO_INT(s64, from, int64_t, from_type, clamp_signed)             \
    TO_FLOAT(f32, from, float, from_type)                               \
    TO_FLOAT(f64, from, double, from_type)

TO_INTS(u8, uint8_t)
TO_INTS(u16, uint16_t)
TO_INTS(u32, uint32_t)
TO_INTS(u64, uint64_t)
TO_INTS(s8, int8_t)
TO_INTS(s16, int16_t)
TO_INTS(s32, int32_t)
TO_INTS(s64, int64_t)

#define FROM_FLOATS(from, from_type)                                    \
    FLOAT_TO_INT(u8, from, uint8_t, from_type, to_unsigned)             \
    FLOAT_TO_INT(u16, from, uint16_t, from_type, to_unsigned)           \
    FLOAT_TO_INT(u32, from, uint32_t, from_type, to_unsigned)           \
    FLOAT_TO_INT(u64, from, uint64_t, from_type, to_unsigned)           \
    FLOAT_TO_INT(s8, from, int8_t, from_type, to_signed)                \
    FLOAT_TO_INT(s16, from, int16_t, from_type, to_signed)              \
    FLOAT_TO_INT(s32, from, int32_t, from_type, to_signed)              \
    FLOAT_TO_INT(s64, from, int64_t, from_type, to_signed)

FROM_FLOATS(f32, float)
FROM_FLOATS(f64, double)
FLOAT_TO_FLOAT(f32, f32, float, float)
FLOAT_TO_FLOAT(f32, f64, float, double)
FLOAT_TO_FLOAT(f64, f32, double, float)
FLOAT_TO_FLOAT(f64, f64, double, double)

#define WINDOW(name, expression)                           \
    static void name(struct exec *x, const struct insn *i) \
    {                                                      \
        uint64_t *d = REG(uint64_t, i->d[0]);              \
        const uint64_t *pa = REG(uint64_t, i->a);          \
        EACH(uint64_t a = pa[t]; d[t] = expression);       \
    }

WINDOW(from_shared, a + SHARED_WINDOW)
WINDOW(from_local, a + LOCAL_WINDOW)
WINDOW(to_shared, a - SHARED_WINDOW)
WINDOW(to_local, a - LOCAL_WINDOW)

#define ROW(to) {[U8] = cvt_##to##_u8, [U16] = cvt_##to##_u16, [U32] = cvt_##to##_u32, \
                 [U64] = cvt_##to##_u64, [S8] = cvt_##to##_s8, [S16] = cvt_##to##_s16, \
                 [S32] = cvt_##to##_s32, [S64] = cvt_##to##_s64, [F32] = cvt_##to##_f32, \
                 [F64] = cvt_##to##_f64}

const struct converting VARIANT(converting) = {
    .cvt = {[U8] = ROW(u8), [U16] = ROW(u16), [U32] = ROW(u32), [U64] = ROW(u64), [S8] = ROW(s8),
            [S16] = ROW(s16), [S32] = ROW(s32), [S64] = ROW(s64), [F32] = ROW(f32), [F64] = ROW(f64)},
    .from_shared_window = from_shared, .from_local_window = from_local,
    .to_shared_window = to_shared, .to_local_window = to_local,
};
