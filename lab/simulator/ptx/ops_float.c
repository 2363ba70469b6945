/* Roots, reciprocals and the approximate functions, all computed as exactly as C does. */
#include <math.h>

#include "code.h"
#include "variant.h"

#define FUNCTION(name, type, expression)                   \
    static void name(struct exec *x, const struct insn *i) \
    {                                                      \
        type *d = REG(type, i->d[0]);                      \
        const type *pa = REG(type, i->a);                  \
        EACH(type a = pa[t]; d[t] = expression);           \
    }

FUNCTION(sqrt_f32, float, sqrtf(a))
FUNCTION(sqrt_f64, double, sqrt(a))
FUNCTION(rcp_f32, float, 1.0f / a)
FUNCTION(rcp_f64, double, 1.0 / a)
FUNCTION(rsqrt_f32, float, (float)(1.0 / sqrt((double)a)))
FUNCTION(rsqrt_f64, double, 1.0 / sqrt(a))
FUNCTION(sin_f32, float, sinf(a))
FUNCTION(cos_f32, float, cosf(a))
FUNCTION(lg2_f32, float, log2f(a))
FUNCTION(ex2_f32, float, exp2f(a))
FUNCTION(tanh_f32, float, tanhf(a))

const struct floating VARIANT(floating) = {
    .sqrt = {[F32] = sqrt_f32, [F64] = sqrt_f64},
    .rcp = {[F32] = rcp_f32, [F64] = rcp_f64},
    .rsqrt = {[F32] = rsqrt_f32, [F64] = rsqrt_f64},
    .sin = {[F32] = sin_f32}, .cos = {[F32] = cos_f32}, .lg2 = {[F32] = lg2_f32}, .ex2 = {[F32] = ex2_f32},
    .tanh = {[F32] = tanh_f32},
};
