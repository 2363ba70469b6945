/* The two formats of floats of 16 bits. */
#ifndef DIVVY_PTX_HALF_H
#define DIVVY_PTX_HALF_H

#include <math.h>
#include <stdint.h>

#include "code.h"

struct format {
    int fraction, bias; /* bits, exponent of 1.0 */
};
#define F16_FORMAT ((struct format){10, 15})
#define BF16_FORMAT ((struct format){7, 127})
#define CANONICAL_NAN 0x7FFFu

static inline double decode(uint16_t bits, struct format f)
{
    int exponent = (bits & 0x7FFF) >> f.fraction, fraction = bits & ((1 << f.fraction) - 1);
    int top = 0x7FFF >> f.fraction;
    double size = exponent == top ? (fraction != 0 ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(fraction, 1 - f.bias - f.fraction)
                                  : ldexp(fraction + (1 << f.fraction), exponent - f.bias - f.fraction);
    return bits & 0x8000 ? -size : size;
}

static inline uint16_t encode_in(double value, struct format f, unsigned mode)
{
    uint32_t sign = signbit(value) ? 0x8000 : 0, infinity = (uint32_t)(0x7FFF >> f.fraction) << f.fraction;
    double size = fabs(value);
    int exponent;
    if (isnan(value))
        return CANONICAL_NAN;
    if (isinf(value))
        return (uint16_t)(sign | infinity);
    frexp(size, &exponent);
    exponent -= 1;
    if (size == 0 || exponent < 1 - f.bias)
        exponent = 1 - f.bias;
    if (exponent > f.bias)
        return (uint16_t)(sign | (mode == ROUND_ZERO ? infinity - 1 : infinity));
    double scaled = ldexp(size, f.fraction - exponent);
    /* The fraction's leading bit adds one to the exponent; so does a rounding that carries. */
    uint32_t bits = ((uint32_t)(exponent + f.bias - 1) << f.fraction) +
                    (uint32_t)(mode == ROUND_ZERO ? trunc(scaled) : rint(scaled));
    return (uint16_t)(sign | bits);
}

static inline uint16_t encode(double value, struct format f)
{
    return encode_in(value, f, ROUND_NEAREST);
}

#endif
