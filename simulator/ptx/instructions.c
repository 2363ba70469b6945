/* Instructions: which handler an opcode with its modifiers means, and its operands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"

#define MOST_INSTRUCTIONS 262144

/* A form: how the operands of an opcode are laid out. */
enum form {
    UNARY, BINARY, SHIFT, TERNARY, MULTIPLY, MULTIPLY_ADD, FUNCTION, COUNT_BITS, EXTRACT, INSERT, SELECT,
    COMPARE, CONVERT, MOVE, CONVERT_ADDRESS, LOAD, STORE, ATOMIC_RESULT, ATOMIC_ONLY, SHUFFLE, PERMUTE,
    LOGIC3, FUNNEL, JUMP, RETURN, WAIT, STOP, NOTHING
};

struct meaning {
    const char *base;
    enum form form;
    size_t table; /* of a handler array within struct arithmetic or floating */
    bool spoils;
};

#define A(member) offsetof(struct arithmetic, member)
#define F(member) offsetof(struct floating, member)

static const struct meaning meanings[] = {
    {"add", BINARY, A(add), true}, {"sub", BINARY, A(sub), false},
    {"min", BINARY, A(min), false}, {"max", BINARY, A(max), false},
    {"div", BINARY, A(div), false}, {"rem", BINARY, A(rem), false},
    {"and", BINARY, A(bit_and), false}, {"or", BINARY, A(bit_or), false},
    {"xor", BINARY, A(bit_xor), false}, {"not", UNARY, A(bit_not), false},
    {"abs", UNARY, A(abs), false}, {"neg", UNARY, A(neg), false},
    {"shl", SHIFT, A(shl), false}, {"shr", SHIFT, A(shr), false},
    {"mul", MULTIPLY, 0, true}, {"mad", MULTIPLY_ADD, 0, true}, {"fma", TERNARY, A(mad), true},
    {"sqrt", FUNCTION, F(sqrt), false}, {"rcp", FUNCTION, F(rcp), false},
    {"rsqrt", FUNCTION, F(rsqrt), false}, {"sin", FUNCTION, F(sin), false},
    {"cos", FUNCTION, F(cos), false}, {"lg2", FUNCTION, F(lg2), false},
    {"ex2", FUNCTION, F(ex2), false}, {"tanh", FUNCTION, F(tanh), false},
    {"popc", COUNT_BITS, A(popc), false}, {"clz", COUNT_BITS, A(clz), false},
    {"brev", UNARY, A(brev), false}, {"bfe", EXTRACT, A(bfe), false}, {"bfi", INSERT, A(bfi), false},
    {"selp", SELECT, A(selp), false}, {"setp", COMPARE, 0, false}, {"cvt", CONVERT, 0, false},
    {"mov", MOVE, 0, false}, {"cvta", CONVERT_ADDRESS, 0, false}, {"ld", LOAD, 0, false},
    {"ldu", LOAD, 0, false}, {"st", STORE, 0, false}, {"atom", ATOMIC_RESULT, 0, false},
    {"red", ATOMIC_ONLY, 0, false}, {"shfl", SHUFFLE, 0, false}, {"prmt", PERMUTE, 0, false},
    {"lop3", LOGIC3, 0, false}, {"shf", FUNNEL, 0, false}, {"bra", JUMP, 0, false},
    {"ret", RETURN, 0, false}, {"exit", RETURN, 0, false}, {"bar", WAIT, 0, false},
    {"barrier", WAIT, 0, false}, {"trap", STOP, 0, false}, {"membar", NOTHING, 0, false},
    {"fence", NOTHING, 0, false},
};

bool take(struct opcode *o, const char *modifier)
{
    for (unsigned i = 0; i < o->count; i++)
        if (!o->used[i] && strcmp(o->modifier[i], modifier) == 0) {
            o->used[i] = true;
            return true;
        }
    return false;
}

bool take_type(struct opcode *o, enum type *type)
{
    for (unsigned i = 0; i < o->count; i++)
        if (!o->used[i] && type_of_word(o->modifier[i], type)) {
            o->used[i] = true;
            return true;
        }
    return false;
}

bool all_taken(struct parser *p, const struct opcode *o)
{
    for (unsigned i = 0; i < o->count; i++)
        if (!o->used[i])
            return refuse(p, ".%s is not supported", o->modifier[i]);
    return true;
}

struct insn *emit(struct parser *p)
{
    struct ptx_kernel *kernel = p->kernel;
    if (kernel->length == kernel->room) {
        uint32_t room = kernel->room == 0 ? 256 : kernel->room * 2;
        struct insn *grown = room > MOST_INSTRUCTIONS ? NULL : realloc(kernel->code, room * sizeof *grown);
        if (grown == NULL) {
            refuse(p, "a kernel has at most %d instructions", MOST_INSTRUCTIONS / 2);
            return NULL;
        }
        kernel->code = grown;
        kernel->room = room;
    }
    struct insn *made = &kernel->code[kernel->length];
    *made = (struct insn){.line = p->line, .number = kernel->length++, .q = NO_REGISTER};
    return made;
}

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

/* Rounding to nearest is what happens; other modes are refused. ftz and approx are kept more
 * exactly than asked for. */
static void take_float_modifiers(struct opcode *o)
{
    take(o, "rn");
    take(o, "ftz");
    take(o, "approx");
    take(o, "full");
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

static bool plain(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i)
{
    enum type type;
    const void *set = m->form == FUNCTION ? (const void *)p->handlers->floating
                                          : (const void *)p->handlers->arithmetic;
    take_float_modifiers(o);
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    size_t table = m->table;
    if (m->form == FUNCTION && table >= F(sin)) { /* these have one handler, for f32 */
        if (type != F32)
            return no_such(p, NULL);
        memcpy(&i->run, (const char *)set + table, sizeof i->run);
    } else
        i->run = handler(set, table, type);
    if (!no_such(p, i->run))
        return false;
    switch (m->form) {
    case UNARY:
    case FUNCTION:
        return operands(p, i, type, type, type, type, 1);
    case BINARY:
        return operands(p, i, type, type, type, type, 2);
    case SHIFT:
        return operands(p, i, type, type, U32, type, 2);
    case TERNARY:
        if (type != F32 && type != F64)
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

static bool multiply(struct parser *p, struct opcode *o, bool add, struct insn *i)
{
    const struct arithmetic *set = p->handlers->arithmetic;
    enum type type;
    bool wide = take(o, "wide"), high = take(o, "hi"), low = take(o, "lo");
    take_float_modifiers(o);
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    bool is_float = type == F32 || type == F64;
    if (is_float ? wide || high || low : wide + high + low != 1)
        return refuse(p, "one of .lo, .hi and .wide is expected of integers, none of floats");
    i->run = add ? wide ? set->mad_wide[type] : high ? set->mad_hi[type] : set->mad[type]
                 : wide ? set->mul_wide[type] : high ? set->mul_hi[type] : set->mul[type];
    if (!no_such(p, i->run))
        return false;
    enum type result = wide ? wider(type) : type;
    return operands(p, i, result, type, type, result, add ? 3 : 2);
}

/* setp.cmp{.bool}.type p{|q}, a, b{, {!}c} */
static bool compare(struct parser *p, struct opcode *o, struct insn *i)
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
    i->run = type == PRED ? NULL : p->handlers->comparing->setp[names[found].comparison][type];
    if (!all_taken(p, o) || !no_such(p, i->run) || !parse_register(p, 1, true, &i->d[0]))
        return false;
    if (accept(p, '|') && !parse_register(p, 1, true, &i->q))
        return false;
    if (!expect(p, ',') || !parse_operand(p, type, &i->a) || !expect(p, ',') ||
        !parse_operand(p, type, &i->b))
        return false;
    if (i->boolean == BOOLEAN_NONE)
        return true;
    if (!expect(p, ','))
        return false;
    i->negate_c = accept(p, '!');
    return parse_operand(p, PRED, &i->c);
}

static bool is_float(enum type type)
{
    return type == F32 || type == F64;
}

/* cvt{.rounding}{.ftz}{.sat}.to.from d, a */
static bool convert(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type to, from;
    unsigned target, source;
    unsigned integer_mode = take(o, "rni")   ? ROUND_NEAREST
                            : take(o, "rzi") ? ROUND_ZERO
                            : take(o, "rmi") ? ROUND_DOWN
                            : take(o, "rpi") ? ROUND_UP
                                             : ROUND_NONE;
    bool nearest = take(o, "rn"), saturate = take(o, "sat");
    take(o, "ftz");
    if (!take_type(o, &to) || !take_type(o, &from) || to == PRED || from == PRED)
        return refuse(p, "two types are expected");
    if (!all_taken(p, o))
        return false;
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

static bool move(struct parser *p, struct opcode *o, struct insn *i)
{
    enum type type;
    if (!take_type(o, &type))
        return refuse(p, "a type is expected");
    if (!all_taken(p, o))
        return false;
    i->run = p->handlers->arithmetic->mov[type];
    if (!no_such(p, i->run))
        return false;
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

static bool three_words(struct parser *p, struct opcode *o, struct insn *i, enum form form)
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

static bool jump(struct parser *p, struct opcode *o, struct insn *i)
{
    char name[160];
    take(o, "uni");
    if (!all_taken(p, o))
        return false;
    if (p->lexer.token.kind != TOKEN_WORD)
        return refuse(p, "a label is expected");
    token_copy(&p->lexer.token, name, sizeof name);
    lexer_next(&p->lexer);
    struct symbol *label = symbol_find(p, name);
    if (label == NULL) {
        /* Labels are the kernel's, wherever a block in braces first names one. */
        unsigned level = p->level;
        p->level = 1;
        label = symbol_add(p, name, IS_LABEL);
        p->level = level;
        if (label == NULL)
            return false;
        label->width = 0;
    }
    if (label->kind != IS_LABEL)
        return refuse(p, "%s is no label", name);
    i->control = BRANCH;
    /* Until the kernel's end the symbol stands for the place. */
    i->offset = (int64_t)(uintptr_t)label;
    return true;
}

static bool wait(struct parser *p, struct opcode *o, struct insn *i, const char *base)
{
    int64_t number = 0;
    bool is_warp = take(o, "warp");
    take(o, "cta");
    take(o, "aligned");
    if (!take(o, "sync"))
        return refuse(p, "only .sync is supported");
    if (!all_taken(p, o))
        return false;
    if (is_warp) { /* bar.warp.sync: a warp's threads are together as far as they can be */
        uint32_t mask;
        p->kernel->length--;
        return parse_operand(p, U32, &mask);
    }
    (void)base;
    if (!parse_constant(p, &number))
        return false;
    if (number < 0 || number > 15)
        return refuse(p, "barriers have numbers from 0 to 15");
    if (token_is_mark(&p->lexer.token, ','))
        return refuse(p, "a barrier for a part of the block is not supported");
    i->control = BARRIER;
    return true;
}

static bool parse_by_form(struct parser *p, struct opcode *o, const struct meaning *m, struct insn *i)
{
    switch (m->form) {
    case MULTIPLY:
    case MULTIPLY_ADD:
        return multiply(p, o, m->form == MULTIPLY_ADD, i);
    case COMPARE:
        return compare(p, o, i);
    case CONVERT:
        return convert(p, o, i);
    case MOVE:
        return move(p, o, i);
    case CONVERT_ADDRESS:
        return parse_cvta(p, o, i);
    case LOAD:
        return parse_load_store(p, o, i, false);
    case STORE:
        return parse_load_store(p, o, i, true);
    case ATOMIC_RESULT:
    case ATOMIC_ONLY:
        return parse_atomic(p, o, i, m->form == ATOMIC_RESULT);
    case SHUFFLE:
        return parse_shuffle(p, o, i);
    case PERMUTE:
    case LOGIC3:
    case FUNNEL:
        return three_words(p, o, i, m->form);
    case JUMP:
        return jump(p, o, i);
    case RETURN:
        take(o, "uni");
        i->control = LEAVE;
        return all_taken(p, o);
    case WAIT:
        return wait(p, o, i, m->base);
    case STOP:
        i->control = TRAP;
        return all_taken(p, o);
    case NOTHING:
        p->kernel->length--;
        return true;
    default:
        return plain(p, o, m, i);
    }
}

static bool split(struct parser *p, struct opcode *o)
{
    char *rest = NULL, copy[sizeof p->opcode];
    snprintf(copy, sizeof copy, "%s", p->opcode);
    memset(o, 0, sizeof *o);
    char *word = strtok_r(copy, ".", &rest);
    if (word == NULL || strlen(word) >= sizeof o->base)
        return refuse(p, "the opcode is not supported");
    strcpy(o->base, word);
    while ((word = strtok_r(NULL, ".", &rest)) != NULL) {
        if (o->count == 12 || strlen(word) >= sizeof *o->modifier)
            return refuse(p, "the opcode is not supported");
        strcpy(o->modifier[o->count++], word);
    }
    return true;
}

bool parse_instruction(struct parser *p)
{
    struct opcode o;
    bool guarded = false, negated = false;
    uint32_t guard = 0;
    p->line = p->lexer.token.line;
    p->opcode[0] = '\0';
    if (accept(p, '@')) {
        guarded = true;
        negated = accept(p, '!');
        if (!parse_register(p, 1, true, &guard))
            return false;
    }
    if (p->lexer.token.kind != TOKEN_WORD)
        return refuse(p, "an instruction is expected");
    if (p->lexer.token.length >= sizeof p->opcode)
        return refuse(p, "the opcode is not supported");
    p->line = p->lexer.token.line;
    token_copy(&p->lexer.token, p->opcode, sizeof p->opcode);
    if (!split(p, &o))
        return false;
    lexer_next(&p->lexer);
    for (size_t n = 0; n < sizeof meanings / sizeof *meanings; n++) {
        if (strcmp(meanings[n].base, o.base) != 0)
            continue;
        struct insn *i = emit(p);
        if (i == NULL)
            return false;
        i->guarded = guarded;
        i->guard = guard;
        i->guard_negated = negated;
        return parse_by_form(p, &o, &meanings[n], i) && expect(p, ';');
    }
    return refuse(p, "the opcode is not supported by the simulator");
}
