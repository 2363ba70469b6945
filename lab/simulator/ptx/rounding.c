/* Arithmetic rounded otherwise than to nearest: the processor's own rounding is set meanwhile. */
#include <fenv.h>

#include "meaning.h"

static void rounded(struct exec *x, const struct insn *i, int direction)
{
    int before = fegetround();
    fesetround(direction);
    i->nearest(x, i);
    fesetround(before);
}

static void toward_zero(struct exec *x, const struct insn *i)
{
    rounded(x, i, FE_TOWARDZERO);
}

static void downward(struct exec *x, const struct insn *i)
{
    rounded(x, i, FE_DOWNWARD);
}

static void upward(struct exec *x, const struct insn *i)
{
    rounded(x, i, FE_UPWARD);
}

enum rounding take_rounding(struct opcode *o)
{
    return take(o, "rz")   ? ROUND_ZERO
           : take(o, "rm") ? ROUND_DOWN
           : take(o, "rp") ? ROUND_UP
           : take(o, "rn") ? ROUND_NEAREST
                           : ROUND_NONE;
}

void round_result(struct insn *i, enum rounding rounding)
{
    if (rounding == ROUND_NONE || rounding == ROUND_NEAREST)
        return;
    i->nearest = i->run;
    i->run = rounding == ROUND_ZERO ? toward_zero : rounding == ROUND_DOWN ? downward : upward;
}
