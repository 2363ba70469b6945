/* add.cc, addc, sub.cc, subc, mad.cc, madc: whole numbers of more words than one. */
#include <string.h>

#include "meaning.h"

bool takes_carry(const struct opcode *o)
{
    if (strncmp(o->base, "add", 3) != 0 && strncmp(o->base, "sub", 3) != 0 && strncmp(o->base, "mad", 3) != 0)
        return false;
    for (unsigned i = 0; i < o->count; i++)
        if (strcmp(o->modifier[i], "cc") == 0)
            return true;
    return o->base[3] == 'c';
}

bool parse_carry(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i)
{
    const struct carrying *set = p->handlers->carrying;
    enum type type;
    bool is_mad = strncmp(m->base, "mad", 3) == 0, is_sub = strncmp(m->base, "sub", 3) == 0;
    bool high = is_mad && take(o, "hi"), low = is_mad && take(o, "lo");
    unsigned in = strlen(o->base) == 4 ? CARRY_IN : 0, out = take(o, "cc") ? CARRY_OUT : 0;
    if (is_mad && high == low)
        return refuse(p, "one of .lo and .hi is expected");
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    i->run = high ? set->mad_hi[type] : low ? set->mad[type] : is_sub ? set->sub[type] : set->add[type];
    if (i->run == NULL)
        return refuse(p, "the opcode has no such type");
    if (p->carry == NO_REGISTER)
        p->carry = new_register(p, 1);
    i->q = p->carry;
    i->mode = (uint8_t)(in | out);
    const unsigned width = type_width(type);
    if (!all_taken(p, o) || !parse_register(p, width, false, &i->d[0]) || !expect(p, ',') ||
        !parse_operand(p, type, &i->a) || !expect(p, ',') || !parse_operand(p, type, &i->b))
        return false;
    if (!is_mad)
        i->c = i->b;
    return !is_mad || (expect(p, ',') && parse_operand(p, type, &i->c));
}
