/* Calls of a function whose address is in a register. As calls are inlined, such a call becomes
 * the bodies of all functions that can be meant: those of the module whose address is taken
 * somewhere and whose parameters fit. Any other address ends the kernel, as on a GPU. */
#include <string.h>

#include "meaning.h"

/* What stands for the address of a function; no memory is there. */
#define FUNCTION_WINDOW 0xC000000000000000u

static uint64_t address_of(const struct token *name)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < name->length; i++)
        hash = (hash ^ (uint8_t)name->text[i]) * 1099511628211u;
    return FUNCTION_WINDOW | (hash & 0x0000FFFFFFFFFFF0u);
}

/* A function may be declared and defined. */
bool add_function_address(struct parser *p, const struct token *name)
{
    if (symbol_find(p, name) != NULL)
        return true;
    struct symbol *symbol = symbol_add(p, name, IS_FUNCTION);
    if (symbol == NULL)
        return false;
    symbol->defined = true;
    symbol->width = 8;
    symbol->value = address_of(name);
    return true;
}

/* All names of functions but those in their own headers and as the targets of calls. */
void find_taken_addresses(struct parser *p, struct lexer at)
{
    bool in_call = false, in_header = false;
    for (; at.token.kind != TOKEN_END; lexer_next(&at)) {
        const struct token *token = &at.token;
        if (token->kind == TOKEN_MARK) {
            bool ends = token->mark == ';';
            in_call = in_call && !ends;
            in_header = in_header && !ends && token->mark != '{';
            continue;
        }
        if (token->kind != TOKEN_WORD)
            continue;
        if (token_is(token, ".func"))
            in_header = true;
        else if (strncmp(token->text, "call", 4) == 0 && (token->length == 4 || token->text[4] == '.'))
            in_call = true;
        struct symbol *symbol = in_header || in_call ? NULL : symbol_find(p, token);
        if (symbol != NULL && symbol->kind == IS_FUNCTION)
            symbol->is_taken = true;
    }
}

/* name: .callprototype (.param .b64 _) _ (.param .b64 _); and name: .calltargets f, g; say what the call
 * itself shows, too. */
bool parse_prototype(struct parser *p, const struct token *name)
{
    struct symbol *symbol = symbol_add(p, name, IS_PROTOTYPE);
    if (symbol == NULL)
        return false;
    while (!token_is_mark(&p->lexer.token, ';') && p->lexer.token.kind != TOKEN_END)
        lexer_next(&p->lexer);
    return expect(p, ';');
}

/* Whether a list of a function's parameters, which is next, is of the sizes of what the call gives. */
static bool list_fits(struct parser *p, const struct arguments *list)
{
    unsigned at = 0;
    if (!accept(p, '(') || accept(p, ')'))
        return list->count == 0;
    do {
        struct token name;
        uint64_t align, size;
        const struct token *word = &p->lexer.token;
        if (word->kind != TOKEN_WORD || strncmp(word->text, ".param", 6) != 0 ||
            !parse_parameter(p, &name, &align, &size) || at == list->count || list->symbols[at++]->size != size)
            return false;
    } while (accept(p, ','));
    return accept(p, ')') && at == list->count;
}

static bool fits(struct parser *p, const struct body *function, const struct arguments *results,
                 const struct arguments *arguments)
{
    const struct lexer before = p->lexer;
    p->lexer = function->at;
    bool fits = list_fits(p, results);
    lexer_next(&p->lexer); /* the name */
    fits = fits && list_fits(p, arguments);
    p->lexer = before;
    return fits;
}

static bool is_meant(struct parser *p, const struct body *function)
{
    const struct symbol *symbol = function->is_kernel || function->is_open ? NULL : symbol_find(p, &function->name);
    return symbol != NULL && symbol->kind == IS_FUNCTION && symbol->is_taken;
}

static struct insn *emit_branch(struct parser *p, uint32_t *number)
{
    struct insn *branch = emit(p);
    if (branch != NULL) {
        branch->control = BRANCH;
        *number = branch->number;
    }
    return branch;
}

/* if (target == function) { ...; goto end } */
static bool emit_choice(struct parser *p, uint32_t target, struct body *function, const struct arguments *results,
                        const struct arguments *arguments, uint32_t *to_end)
{
    const struct insn plain = {.line = p->line};
    uint32_t other = new_register(p, 1), wanted = constant_register(p, 8, address_of(&function->name)), past = 0;
    struct insn *compare = emit(p);
    if (compare == NULL)
        return false;
    compare->run = p->handlers->comparing->setp[NE][U64];
    compare->d[0] = other;
    compare->a = target;
    compare->b = wanted;
    struct insn *branch = emit_branch(p, &past);
    if (branch == NULL)
        return false;
    branch->guarded = true;
    branch->guard = other;
    if (!expand_call(p, &plain, function, results, arguments) || emit_branch(p, to_end) == NULL)
        return false;
    p->kernel->code[past].target = p->kernel->length;
    return true;
}

#define MAX_CHOICES 256

/* call (results), %rd1, (arguments), prototype; behind the results */
bool parse_indirect_call(struct parser *p, const struct insn *call, const struct arguments *results)
{
    struct arguments arguments = {.count = 0};
    uint32_t target, around = 0, ends[MAX_CHOICES];
    unsigned choices = 0;
    if (!parse_register(p, 8, false, &target) || !expect(p, ','))
        return false;
    if (token_is_mark(&p->lexer.token, '(') && (!parse_arguments(p, &arguments) || !expect(p, ',')))
        return false;
    const struct symbol *prototype = symbol_find(p, &p->lexer.token);
    if (prototype == NULL || prototype->kind != IS_PROTOTYPE)
        return refuse(p, "%.*s is no prototype", SHOWN(p->lexer.token));
    lexer_next(&p->lexer);
    if (call->guarded) {
        struct insn *branch = emit_branch(p, &around);
        if (branch == NULL)
            return false;
        branch->guarded = true;
        branch->guard = call->guard;
        branch->guard_negated = !call->guard_negated;
    }
    for (struct body *function = p->bodies; function != NULL; function = function->next) {
        if (!is_meant(p, function) || !fits(p, function, results, &arguments))
            continue;
        if (choices == MAX_CHOICES)
            return refuse(p, "more than %d functions can be meant", MAX_CHOICES);
        if (!emit_choice(p, target, function, results, &arguments, &ends[choices++]))
            return false;
    }
    struct insn *trap = emit(p);
    if (trap == NULL)
        return false;
    trap->control = TRAP;
    for (unsigned n = 0; n < choices; n++)
        p->kernel->code[ends[n]].target = p->kernel->length;
    if (call->guarded)
        p->kernel->code[around].target = p->kernel->length;
    return true;
}
