/* Conversions and comparisons of f16 and bf16, made of steps through f32 and f64, which hold them all. */
#include "meaning.h"

/* Puts `step` where the instruction at hand stands, or behind its earlier steps. */
static bool put_step(struct parser *p, uint32_t first, unsigned *steps, const struct insn *step)
{
    struct insn *at = *steps == 0 ? &p->kernel->code[first] : emit(p);
    if (at == NULL)
        return false;
    const uint32_t number = at->number;
    *at = *step;
    at->number = number;
    ++*steps;
    return true;
}

static bool is_single(enum type type)
{
    return type == F16 || type == BF16;
}

static bool check(struct parser *p, const struct conversion *c)
{
    bool rounds = c->nearest || c->toward_zero, to_integer = !is_single(c->to) && c->to != F32 && c->to != F64;
    if ((c->to == BF16 && type_width(c->from) == 8 && c->from != F64) || type_is_half(c->to) != is_single(c->to) ||
        type_is_half(c->from) != is_single(c->from))
        return refuse(p, "the opcode has no such type");
    if (to_integer && c->integer_mode == ROUND_NONE)
        return refuse(p, "rounding to integers is expected");
    if (c->integer_mode != ROUND_NONE && !to_integer && c->to != c->from)
        return refuse(p, "no rounding to integers here");
    if (rounds != (is_single(c->to) && c->integer_mode == ROUND_NONE))
        return refuse(p, rounds ? "no rounding here" : "rounding is expected");
    return true;
}

/* cvt.rn.f16x2.f32 d, a, b */
static bool parse_pair(struct parser *p, const struct conversion *c, struct insn *i)
{
    if (c->from != F32 || c->nearest == c->toward_zero || c->saturate || c->integer_mode != ROUND_NONE)
        return refuse(p, "two f32 are rounded to a pair");
    i->run = p->handlers->half_converting->pair[c->to];
    i->mode = c->toward_zero ? ROUND_ZERO : ROUND_NEAREST;
    return parse_register(p, 4, false, &i->d[0]) && expect(p, ',') && parse_operand(p, F32, &i->a) &&
           expect(p, ',') && parse_operand(p, F32, &i->b);
}

bool parse_half_conversion(struct parser *p, const struct conversion *c, struct insn *i)
{
    const struct converting *set = p->handlers->converting, *half = p->handlers->half_converting;
    const uint32_t first = i->number;
    uint32_t target, at;
    unsigned target_width, width, steps = 0;
    if (c->to == F16X2 || c->to == BF16X2)
        return parse_pair(p, c, i);
    if (!check(p, c) || !parse_any_register(p, &target, &target_width) || !expect(p, ',') ||
        !parse_wide_operand(p, c->from, &at, &width))
        return false;
    if (target_width < type_width(c->to) || (is_single(c->to) && target_width != 2))
        return refuse(p, "the destination does not have the width of the type");
    struct insn step = *i;
    enum type type = c->from;
    const unsigned saturate = c->saturate ? MODE_SATURATE : 0;
    if (is_single(type)) {
        bool is_last = c->to == F32 && c->integer_mode == ROUND_NONE && !c->saturate;
        step.run = half->cvt[F32][type];
        step.a = at;
        step.width = (uint8_t)width;
        step.d[0] = at = is_last ? target : new_register(p, 4);
        type = F32;
        width = 4;
        if (!put_step(p, first, &steps, &step) || is_last)
            return p->problem == PTX_FINE;
    }
    /* Whole numbers become f64, and a whole f16 is found as f32. */
    if (!is_single(c->to) || c->integer_mode != ROUND_NONE || (type != F32 && type != F64)) {
        const enum type next = !is_single(c->to) ? c->to : c->integer_mode != ROUND_NONE ? F32 : F64;
        step.run = set->cvt[next][type];
        step.a = at;
        step.width = (uint8_t)width;
        step.count = (uint8_t)(is_single(c->to) ? type_width(next) : target_width);
        step.mode = (uint8_t)(c->integer_mode | (is_single(c->to) ? 0 : saturate));
        step.d[0] = at = is_single(c->to) ? new_register(p, type_width(next)) : target;
        type = next;
        if (step.run == NULL)
            return refuse(p, "the opcode has no such type");
        if (!put_step(p, first, &steps, &step) || !is_single(c->to))
            return p->problem == PTX_FINE;
    }
    step.run = half->cvt[c->to][type];
    step.a = at;
    step.d[0] = target;
    step.mode = (uint8_t)((c->toward_zero ? ROUND_ZERO : ROUND_NEAREST) | saturate);
    return put_step(p, first, &steps, &step);
}

bool widen_operands(struct parser *p, enum type type, const struct insn *i)
{
    const uint32_t first = i->number;
    const struct insn given = *i; /* it moves when more are put behind it */
    struct insn compare = given;
    unsigned steps = 0;
    uint32_t *const operands[2] = {&compare.a, &compare.b};
    for (unsigned n = 0; n < 2; n++) {
        struct insn step = given;
        step.run = p->handlers->half_converting->cvt[F32][type];
        step.a = *operands[n];
        step.width = 2;
        step.d[0] = *operands[n] = new_register(p, 4);
        if (!put_step(p, first, &steps, &step))
            return false;
    }
    return put_step(p, first, &steps, &compare);
}
