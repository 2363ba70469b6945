/* Which of the two sets of handlers runs here. */
#include "code.h"

#define DECLARE(set)                                     \
    extern const struct arithmetic arithmetic_##set;     \
    extern const struct floating floating_##set;         \
    extern const struct comparing comparing_##set;       \
    extern const struct converting converting_##set;     \
    extern const struct memory_access memory_access_##set; \
    extern const struct carrying carrying_##set;         \
    extern const struct warp warp_##set;                 \
    extern const struct arithmetic half_arithmetic_##set; \
    extern const struct floating half_floating_##set;    \
    extern const struct converting half_converting_##set; \
    static const struct handlers handlers_##set = {&arithmetic_##set, &floating_##set, \
        &comparing_##set, &converting_##set, &memory_access_##set, &carrying_##set, &warp_##set, \
        &half_arithmetic_##set, &half_floating_##set, &half_converting_##set};

DECLARE(any)
#ifdef __x86_64__
DECLARE(avx2)
#endif

const struct handlers *handlers_for_this_processor(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &handlers_avx2;
#endif
    return &handlers_any;
}

unsigned type_width(enum type type)
{
    static const unsigned widths[TYPES] = {[U8] = 1, [U16] = 2, [U32] = 4, [U64] = 8, [S8] = 1,
        [S16] = 2, [S32] = 4, [S64] = 8, [F16] = 2, [BF16] = 2, [F16X2] = 4, [BF16X2] = 4, [F32] = 4,
        [F64] = 8, [PRED] = 1};
    return widths[type];
}

bool type_is_half(enum type type)
{
    return type == F16 || type == BF16 || type == F16X2 || type == BF16X2;
}
