/* cvt and mov, with the packing and unpacking of registers. */
#include "meaning.h"

static bool is_float(enum type type)
{
    return type == F32 || type == F64;
}

/* cvt{.rounding}{.ftz}{.sat}.to.from d, a */
bool parse_convert(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type to, from;
    unsigned target, source;
    unsigned integer_mode = take(o, "rni")   ? ROUND_NEAREST
                            : take(o, "rzi") ? ROUND_ZERO
                            : take(o, "rmi") ? ROUND_DOWN
                            : take(o, "rpi") ? ROUND_UP
                                             : ROUND_NONE;
    bool nearest = take(o, "rn"), toward_zero = take(o, "rz"), saturate = take(o, "sat");
    take(o, "ftz");
    if (!take_type(o, &to) || !take_type(o, &from) || to == PRED || from == PRED)
        return refuse(p, "two types are expected");
    if (!all_taken(p, o))
        return false;
    if (type_is_half(to) || type_is_half(from)) {
        const struct conversion c = {to, from, integer_mode, nearest, toward_zero, saturate};
        return parse_half_conversion(p, &c, i);
    }
    if (toward_zero)
        return refuse(p, ".rz is not supported");
    bool to_integer = !is_float(to) && is_float(from);
    if (to_integer != (integer_mode != ROUND_NONE) && !(is_float(to) && to == from))
        return refuse(p, to_integer ? "rounding to integers is expected" : "no rounding to integers here");
    if (!nearest && is_float(to) && from != to && !(to == F64 && from == F32))
        return refuse(p, "rounding is expected");
    i->mode = (uint8_t)(integer_mode | (saturate ? MODE_SATURATE : 0));
    i->run = p->handlers->converting->cvt[to][from];
    if (!parse_any_register(p, &i->d[0], &target) || !expect(p, ',') ||
        !parse_wide_operand(p, from, &i->a, &source))
        return false;
    if (target < type_width(to) || (is_float(to) && target != type_width(to)))
        return refuse(p, "the destination does not have the width of the type");
    i->width = (uint8_t)source;
    i->count = (uint8_t)target;
    return true;
}

/* mov.b64 {%r1, %r2}, %rd1 and back are made of a conversion or two and shifts. */
static bool move_parts(struct parser *p, enum type type, struct insn *i)
{
    const struct arithmetic *set = p->handlers->arithmetic;
    const struct converting *cvt = p->handlers->converting;
    unsigned whole = type_width(type), part = whole / 2;
    if (whole != 8 && whole != 4)
        return refuse(p, "packing of other widths is not supported");
    enum type half = part == 4 ? U32 : U16, full = part == 4 ? U64 : U32;
    const struct insn guard = *i;
    uint32_t parts[2], other, distance = constant_register(p, 4, part * 8);
    uint32_t shifted = new_register(p, whole);
    bool unpack = accept(p, '{');
    if (!unpack && (!parse_register(p, whole, false, &other) || !expect(p, ',') || !expect(p, '{')))
        return false;
    for (unsigned n = 0; n < 2; n++)
        if (!(unpack ? parse_register(p, part, false, &parts[n]) : parse_operand(p, half, &parts[n])) ||
            !(n == 0 ? expect(p, ',') : expect(p, '}')))
            return false;
    if (unpack && (!expect(p, ',') || !parse_operand(p, full, &other)))
        return false;
    /* Three steps; a register may be both source and destination, so the last one writes. */
    struct insn steps[3];
    unsigned count = 3;
    for (unsigned n = 0; n < 3; n++)
        steps[n] = guard;
    if (unpack) {
        steps[0].run = set->shr[full];
        steps[0].d[0] = shifted;
        steps[0].a = other;
        steps[0].b = distance;
        for (unsigned n = 0; n < 2; n++) {
            steps[n + 1].run = cvt->cvt[half][full];
            steps[n + 1].d[0] = parts[n];
            steps[n + 1].a = n == 0 ? other : shifted;
            steps[n + 1].width = (uint8_t)whole;
            steps[n + 1].count = (uint8_t)part;
        }
    } else {
        uint32_t low = new_register(p, whole);
        steps[0].run = cvt->cvt[full][half];
        steps[0].d[0] = low;
        steps[0].a = parts[0];
        steps[0].width = (uint8_t)part;
        steps[0].count = (uint8_t)whole;
        steps[1] = steps[0];
        steps[1].d[0] = shifted;
        steps[1].a = parts[1];
        steps[2].run = set->bfi[full];
        steps[2].d[0] = other;
        steps[2].a = shifted;
        steps[2].b = low;
        steps[2].c = distance;
        steps[2].e = distance;
    }
    uint32_t first = i->number;
    for (unsigned n = 0; n < count; n++) {
        struct insn *at = n == 0 ? &p->kernel->code[first] : emit(p);
        if (at == NULL)
            return false;
        uint32_t number = n == 0 ? first : at->number;
        *at = steps[n];
        at->number = number;
    }
    return true;
}

bool parse_move(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    i->run = p->handlers->arithmetic->mov[type];
    if (i->run == NULL)
        return refuse(p, "the opcode has no such type");
    if (token_is_mark(&p->lexer.token, '{'))
        return move_parts(p, type, i);
    struct lexer before = p->lexer;
    if (!parse_register(p, type_width(type), type == PRED, &i->d[0]) || !expect(p, ','))
        return false;
    if (token_is_mark(&p->lexer.token, '{')) {
        p->lexer = before;
        return move_parts(p, type, i);
    }
    return parse_operand(p, type, &i->a);
}
