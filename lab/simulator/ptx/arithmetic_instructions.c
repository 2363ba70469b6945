/* Arithmetic, bits, comparisons. */
#include <string.h>

#include "meaning.h"

static op_fn handler(const void *set, size_t table, enum type type)
{
    op_fn found;
    memcpy(&found, (const char *)set + table + type * sizeof found, sizeof found);
    return found;
}

static bool no_such(struct parser *p, op_fn run)
{
    return run != NULL || refuse(p, "the opcode has no such type");
}

/* ftz and approx are kept more exactly than asked for. */
static void take_float_modifiers(struct opcode *o)
{
    take(o, "ftz");
    take(o, "approx");
    take(o, "full");
}

static bool can_round(struct parser *p, enum type type, enum rounding rounding)
{
    bool is_single_or_double = type == F32 || type == F64;
    return rounding == ROUND_NONE || is_single_or_double || (rounding == ROUND_NEAREST && type_is_half(type)) ||
           refuse(p, "the type has no such rounding");
}

static bool operands(struct parser *p, struct insn *i, enum type d, enum type a, enum type b, enum type c,
                     unsigned count)
{
    const enum type types[3] = {a, b, c};
    uint32_t *slots[3] = {&i->a, &i->b, &i->c};
    if (!parse_register(p, type_width(d), d == PRED, &i->d[0]))
        return false;
    for (unsigned n = 0; n < count; n++)
        if (!expect(p, ',') || !parse_operand(p, types[n], slots[n]))
            return false;
    return true;
}

bool parse_plain(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i)
{
    enum type type;
    size_t table = m->table;
    if (table == offsetof(struct arithmetic, bfind) && take(o, "shiftamt"))
        table = offsetof(struct arithmetic, bfind_shift);
    const enum rounding rounding = take_rounding(o);
    take_float_modifiers(o);
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o) || !can_round(p, type, rounding))
        return false;
    const void *set = m->form == FUNCTION
                          ? type_is_half(type) ? p->handlers->half_floating : p->handlers->floating
                      : type_is_half(type) ? (const void *)p->handlers->half_arithmetic : p->handlers->arithmetic;
    i->run = handler(set, table, type);
    if (!no_such(p, i->run))
        return false;
    round_result(i, rounding);
    switch (m->form) {
    case UNARY:
    case FUNCTION:
        return operands(p, i, type, type, type, type, 1);
    case BINARY:
        return operands(p, i, type, type, type, type, 2);
    case SHIFT:
        return operands(p, i, type, type, U32, type, 2);
    case TERNARY:
        if (type != F32 && type != F64 && !type_is_half(type))
            return no_such(p, NULL);
        return operands(p, i, type, type, type, type, 3);
    case COUNT_BITS:
        return operands(p, i, U32, type, type, type, 1);
    case EXTRACT:
        return operands(p, i, type, type, U32, U32, 3);
    case SELECT:
        return operands(p, i, type, type, type, PRED, 3);
    default: /* INSERT */
        return operands(p, i, type, type, type, U32, 3) && expect(p, ',') && parse_operand(p, U32, &i->e);
    }
}

static enum type wider(enum type type)
{
    return type == U16 ? U32 : type == U32 ? U64 : type == S16 ? S32 : type == S32 ? S64 : type;
}

bool parse_multiply(struct parser *p, struct opcode *o, bool add, struct insn *i)
{
    enum type type;
    bool wide = take(o, "wide"), high = take(o, "hi"), low = take(o, "lo");
    const enum rounding rounding = take_rounding(o);
    take_float_modifiers(o);
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o) || !can_round(p, type, rounding))
        return false;
    const struct arithmetic *set = type_is_half(type) ? p->handlers->half_arithmetic : p->handlers->arithmetic;
    bool is_float = type == F32 || type == F64 || type_is_half(type);
    if (is_float ? wide || high || low : wide + high + low != 1)
        return refuse(p, "one of .lo, .hi and .wide is expected of integers, none of floats");
    i->run = add ? wide ? set->mad_wide[type] : high ? set->mad_hi[type] : set->mad[type]
                 : wide ? set->mul_wide[type] : high ? set->mul_hi[type] : set->mul[type];
    if (!no_such(p, i->run))
        return false;
    round_result(i, rounding);
    enum type result = wide ? wider(type) : type;
    return operands(p, i, result, type, type, result, add ? 3 : 2);
}

/* setp.cmp{.bool}.type p{|q}, a, b{, {!}c} */
bool parse_compare(struct parser *p, struct opcode *o, struct insn *i)
{
    static const struct {
        const char *name;
        enum comparison comparison;
    } names[] = {{"eq", EQ}, {"ne", NE}, {"lt", LT}, {"le", LE}, {"gt", GT}, {"ge", GE}, {"lo", LT},
                 {"ls", LE}, {"hi", GT}, {"hs", GE}, {"equ", EQU}, {"neu", NEU}, {"ltu", LTU},
                 {"leu", LEU}, {"gtu", GTU}, {"geu", GEU}, {"num", NUM}, {"nan", NAN_}};
    enum type type;
    size_t found = 0;
    while (found < sizeof names / sizeof *names && !take(o, names[found].name))
        found++;
    if (found == sizeof names / sizeof *names)
        return refuse(p, "a comparison is expected");
    i->boolean = take(o, "and") ? BOOLEAN_AND : take(o, "or") ? BOOLEAN_OR : take(o, "xor") ? BOOLEAN_XOR
                                                                                       : BOOLEAN_NONE;
    take(o, "ftz");
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    const enum type given = type;
    if (type == F16 || type == BF16) /* as f32, which holds them all */
        type = F32;
    i->run = type == PRED ? NULL : p->handlers->comparing->setp[names[found].comparison][type];
    if (!all_taken(p, o) || !no_such(p, i->run) || !parse_register(p, 1, true, &i->d[0]))
        return false;
    if (given == type && accept(p, '|') && !parse_register(p, 1, true, &i->q))
        return false;
    if (!expect(p, ',') || !parse_operand(p, given, &i->a) || !expect(p, ',') ||
        !parse_operand(p, given, &i->b))
        return false;
    if (i->boolean != BOOLEAN_NONE) {
        if (!expect(p, ','))
            return false;
        i->negate_c = accept(p, '!');
        if (!parse_operand(p, PRED, &i->c))
            return false;
    }
    return given == type || widen_operands(p, given, i);
}

bool parse_three_words(struct parser *p, struct opcode *o, struct insn *i, enum form form)
{
    enum type type;
    int64_t table;
    if (form == FUNNEL) {
        bool left = take(o, "l"), right = take(o, "r"), clamp = take(o, "clamp");
        if (left == right || (!clamp && !take(o, "wrap")))
            return refuse(p, "no such form");
        i->mode = (uint8_t)((right ? 1 : 0) | (clamp ? 2 : 0));
        i->run = p->handlers->arithmetic->shf;
    } else
        i->run = form == PERMUTE ? p->handlers->arithmetic->prmt : p->handlers->arithmetic->lop3;
    if (!take_type(o, &type) || type != U32)
        return refuse(p, "the opcode has no such type");
    if (!all_taken(p, o) || !operands(p, i, U32, U32, U32, U32, 3))
        return false;
    if (form == LOGIC3) {
        if (!expect(p, ',') || !parse_constant(p, &table))
            return false;
        i->mode = (uint8_t)table;
    }
    return true;
}
