/* ld, st, atom, red, cvta. */
#include <stdio.h>
#include <string.h>

#include "parser.h"

static void take_any(struct opcode *o, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        take(o, names[i]);
}

/* One thread runs at a time, so every order and every cache policy holds. */
static void take_ordering(struct opcode *o)
{
    static const char *const names[] = {"volatile", "relaxed", "weak", "acquire", "release", "acq_rel",
        "cta", "gpu", "sys", "cluster", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc",
        "L1::evict_normal", "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L2::64B",
        "L2::128B", "L2::256B"};
    take_any(o, names, sizeof names / sizeof *names);
}

static enum space take_space(struct opcode *o)
{
    if (take(o, "global"))
        return SPACE_GLOBAL;
    if (take(o, "shared") || take(o, "shared::cta"))
        return SPACE_SHARED;
    if (take(o, "local"))
        return SPACE_LOCAL;
    if (take(o, "param"))
        return SPACE_PARAM;
    if (take(o, "const"))
        return SPACE_CONST;
    return SPACE_GENERIC;
}

/* %r1, or {%r1, %r2, …}; a store takes immediates too. All of one width. */
static bool data(struct parser *p, enum type type, struct insn *i, unsigned count, bool store,
                 unsigned *width)
{
    bool braces = accept(p, '{');
    if (braces != (count > 1) && !(braces && count == 1))
        return refuse(p, "%u registers in braces are expected", count);
    for (unsigned v = 0; v < count; v++) {
        unsigned one;
        bool sound = store ? parse_wide_operand(p, type, &i->d[v], &one)
                           : parse_any_register(p, &i->d[v], &one);
        if (!sound)
            return false;
        if (one < type_width(type) || (v > 0 && one != *width))
            return refuse(p, "registers do not have the width of the access");
        *width = one;
        if (v + 1 < count && !expect(p, ','))
            return false;
    }
    return !braces || expect(p, '}');
}

bool parse_load_store(struct parser *p, struct opcode *o, struct insn *i, bool store)
{
    enum type type;
    unsigned width = 0;
    take_ordering(o);
    i->space = (uint8_t)take_space(o);
    i->count = take(o, "v2") ? 2 : take(o, "v4") ? 4 : 1;
    if (!take_type(o, &type) || type == PRED)
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    if (type_width(type) * i->count > 16)
        return refuse(p, "an access is at most 16 bytes wide");
    if (store) {
        if (!parse_address(p, i) || !expect(p, ',') || !data(p, type, i, i->count, true, &width))
            return false;
        if (i->space == SPACE_PARAM || i->space == SPACE_CONST)
            return refuse(p, "nothing is stored in this space");
        i->run = p->handlers->memory->store[type][width];
    } else {
        if (!data(p, type, i, i->count, false, &width) || !expect(p, ',') || !parse_address(p, i))
            return false;
        bool is_param = i->space == SPACE_PARAM && !i->parameter_at_register;
        if (is_param && (i->offset < 0 ||
            (uint64_t)i->offset + type_width(type) * i->count > p->kernel->parameter_bytes))
            return refuse(p, "the access lies outside of the parameters");
        i->run = is_param ? p->handlers->memory->load_param[type][width]
                          : p->handlers->memory->load[type][width];
    }
    return i->run != NULL || refuse(p, "no such access");
}

bool parse_atomic(struct parser *p, struct opcode *o, struct insn *i, bool has_result)
{
    static const char *const names[ATOMICS] = {"add", "min", "max", "exch", "cas", "and", "or", "xor",
                                               "inc", "dec"};
    enum type type;
    unsigned op = 0;
    take_ordering(o);
    i->space = (uint8_t)take_space(o);
    while (op < ATOMICS && !take(o, names[op]))
        op++;
    if (op == ATOMICS)
        return refuse(p, "no such atomic operation");
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    if (i->space == SPACE_PARAM || i->space == SPACE_CONST || i->space == SPACE_LOCAL)
        return refuse(p, "atomics work on global and shared memory");
    i->run = p->handlers->memory->atomic[op][type];
    if (i->run == NULL)
        return refuse(p, "no such atomic operation for this type");
    i->d[0] = NO_REGISTER;
    i->c = NO_REGISTER;
    if (has_result) {
        if (token_is(&p->lexer.token, "_"))
            lexer_next(&p->lexer);
        else if (!parse_register(p, type_width(type), false, &i->d[0]))
            return false;
        if (!expect(p, ','))
            return false;
    }
    if (!parse_address(p, i) || !expect(p, ',') || !parse_operand(p, type, &i->b))
        return false;
    return op != ATOM_CAS || (expect(p, ',') && parse_operand(p, type, &i->c));
}

/* cvta{.to}.space.size d, a */
bool parse_cvta(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    bool to = take(o, "to");
    enum space space = take_space(o);
    if (!take_type(o, &type) || type != U64)
        return refuse(p, "addresses have 64 bits");
    if (!all_taken(p, o))
        return false;
    if (space == SPACE_GENERIC)
        return refuse(p, "a space is expected");
    if (space == SPACE_PARAM)
        return refuse(p, "parameters have no generic address here");
    if (!parse_register(p, 8, false, &i->d[0]) || !expect(p, ',') || !parse_operand(p, type, &i->a))
        return false;
    const struct converting *c = p->handlers->converting;
    if (space == SPACE_SHARED)
        i->run = to ? c->to_shared_window : c->from_shared_window;
    else if (space == SPACE_LOCAL)
        i->run = to ? c->to_local_window : c->from_local_window;
    else
        i->run = p->handlers->arithmetic->mov[U64];
    return true;
}
