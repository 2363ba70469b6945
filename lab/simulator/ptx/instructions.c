/* Instructions: which handler an opcode with its modifiers means, and its operands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meaning.h"

#define MAX_INSTRUCTIONS 262144
#define A(member) offsetof(struct arithmetic, member)
#define F(member) offsetof(struct floating, member)

static const struct meaning meanings[] = {
    {"add", BINARY, A(add)}, {"sub", BINARY, A(sub)},
    {"min", BINARY, A(min)}, {"max", BINARY, A(max)},
    {"div", BINARY, A(div)}, {"rem", BINARY, A(rem)},
    {"and", BINARY, A(bit_and)}, {"or", BINARY, A(bit_or)},
    {"xor", BINARY, A(bit_xor)}, {"not", UNARY, A(bit_not)},
    {"abs", UNARY, A(abs)}, {"neg", UNARY, A(neg)},
    {"shl", SHIFT, A(shl)}, {"shr", SHIFT, A(shr)},
    {"addc", CARRY, 0}, {"subc", CARRY, 0}, {"madc", CARRY, 0},
    {"mul", MULTIPLY, 0}, {"mad", MULTIPLY_ADD, 0}, {"fma", TERNARY, A(mad)},
    {"sqrt", FUNCTION, F(sqrt)}, {"rcp", FUNCTION, F(rcp)},
    {"rsqrt", FUNCTION, F(rsqrt)}, {"sin", FUNCTION, F(sin)},
    {"cos", FUNCTION, F(cos)}, {"lg2", FUNCTION, F(lg2)},
    {"ex2", FUNCTION, F(ex2)}, {"tanh", FUNCTION, F(tanh)},
    {"popc", COUNT_BITS, A(popc)}, {"clz", COUNT_BITS, A(clz)},
    {"bfind", COUNT_BITS, A(bfind)},
    {"brev", UNARY, A(brev)}, {"bfe", EXTRACT, A(bfe)}, {"bfi", INSERT, A(bfi)},
    {"selp", SELECT, A(selp)}, {"setp", COMPARE, 0}, {"cvt", CONVERT, 0},
    {"mov", MOVE, 0}, {"cvta", CONVERT_ADDRESS, 0}, {"ld", LOAD, 0},
    {"ldu", LOAD, 0}, {"st", STORE, 0}, {"atom", ATOMIC_RESULT, 0},
    {"red", ATOMIC_ONLY, 0}, {"shfl", SHUFFLE, 0}, {"vote", VOTE, 0},
    {"match", MATCH, 0}, {"activemask", ACTIVE, 0}, {"prmt", PERMUTE, 0},
    {"lop3", LOGIC3, 0}, {"shf", FUNNEL, 0}, {"bra", JUMP, 0},
    {"call", CALL, 0}, {"ret", RETURN, 0}, {"exit", LEAVE_KERNEL, 0}, {"bar", WAIT, 0},
    {"barrier", WAIT, 0}, {"trap", STOP, 0}, {"membar", NOTHING, 0},
    {"fence", NOTHING, 0}, {"nanosleep", SLEEP, 0},
};

struct insn *emit(struct parser *p)
{
    struct ptx_kernel *kernel = p->kernel;
    if (kernel->length == kernel->room) {
        uint32_t room = kernel->room == 0 ? 256 : kernel->room * 2;
        struct insn *grown = room > MAX_INSTRUCTIONS ? NULL : realloc(kernel->code, room * sizeof *grown);
        if (grown == NULL) {
            refuse(p, "a kernel has at most %d instructions", MAX_INSTRUCTIONS / 2);
            return NULL;
        }
        kernel->code = grown;
        kernel->room = room;
    }
    struct insn *made = &kernel->code[kernel->length];
    *made = (struct insn){.line = p->line, .number = kernel->length++, .q = NO_REGISTER};
    return made;
}

static bool jump(struct parser *p, struct opcode *o, struct insn *i)
{
    take(o, "uni");
    if (!all_taken(p, o))
        return false;
    if (p->lexer.token.kind != TOKEN_WORD)
        return refuse(p, "a label is expected");
    struct symbol *label = symbol_label(p, &p->lexer.token);
    if (label == NULL)
        return false;
    lexer_next(&p->lexer);
    i->control = BRANCH;
    i->label = label;
    return true;
}

static bool wait(struct parser *p, struct opcode *o, struct insn *i)
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
    if (takes_carry(o))
        return parse_carry(p, o, m, i);
    switch (m->form) {
    case MULTIPLY:
    case MULTIPLY_ADD:
        return parse_multiply(p, o, m->form == MULTIPLY_ADD, i);
    case COMPARE:
        return parse_compare(p, o, i);
    case CONVERT:
        return parse_convert(p, o, i);
    case MOVE:
        return parse_move(p, o, i);
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
    case VOTE:
        return parse_vote(p, o, i);
    case MATCH:
        return parse_match(p, o, i);
    case ACTIVE:
        return parse_active(p, o, i);
    case PERMUTE:
    case LOGIC3:
    case FUNNEL:
        return parse_three_words(p, o, i, m->form);
    case JUMP:
        return jump(p, o, i);
    case CALL:
        return parse_call(p, o, i);
    case RETURN:
        take(o, "uni");
        i->control = p->return_label != NULL ? BRANCH : LEAVE;
        i->label = p->return_label;
        return all_taken(p, o);
    case LEAVE_KERNEL:
        i->control = LEAVE;
        return all_taken(p, o);
    case WAIT:
        return wait(p, o, i);
    case STOP:
        i->control = TRAP;
        return all_taken(p, o);
    case SLEEP:
        return parse_sleep(p, o, i);
    case NOTHING:
        p->kernel->length--;
        return true;
    default:
        return parse_plain(p, o, m, i);
    }
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
    if (!opcode_split(p, &o))
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
