/* Kernels, and the functions that they call. Both are read when the whole module has been seen. A call puts
 * the function's own instructions in its place: as a compiler does that inlines, so there is no recursion. */
#include <stdlib.h>
#include <string.h>

#include "meaning.h"

#define MAX_DEPTH 64

static bool is_word(const struct parser *p)
{
    return p->lexer.token.kind == TOKEN_WORD;
}

/* Skips "(...)", if that is next. */
static void skip_list(struct parser *p)
{
    if (!accept(p, '('))
        return;
    while (!accept(p, ')') && p->lexer.token.kind != TOKEN_END)
        lexer_next(&p->lexer);
}

/* .entry name (...) { ... }, .func (...) name (...) { ... }, or .func name (...); for one that comes later */
bool note_body(struct parser *p, bool is_kernel)
{
    lexer_next(&p->lexer);
    struct body body = {.at = p->lexer, .is_kernel = is_kernel};
    skip_list(p);
    body.name = p->lexer.token;
    if (!is_word(p))
        return refuse(p, "the name of a %s is expected", is_kernel ? "kernel" : "function");
    if (!is_kernel && !add_function_address(p, &body.name))
        return false;
    lexer_next(&p->lexer);
    skip_list(p);
    while (!token_is_mark(&p->lexer.token, '{') && p->lexer.token.kind != TOKEN_END)
        if (accept(p, ';'))
            return true;
        else
            lexer_next(&p->lexer);
    if (!skip_braces(p))
        return false;
    struct body **at = &p->bodies;
    while (*at != NULL)
        at = &(*at)->next;
    *at = malloc(sizeof **at);
    if (*at == NULL)
        return refuse(p, "out of memory");
    **at = body;
    return true;
}

void bodies_free(struct parser *p)
{
    while (p->bodies != NULL) {
        struct body *gone = p->bodies;
        p->bodies = gone->next;
        free(gone);
    }
}

static bool parse_kernel(struct parser *p)
{
    struct ptx_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return refuse(p, "out of memory");
    kernel->module = p->module;
    kernel->next = p->module->kernels;
    kernel->max_threads = MAX_THREADS;
    p->module->kernels = kernel;
    kernel->name = strndup(p->lexer.token.text, p->lexer.token.length);
    p->kernel = kernel;
    p->carry = NO_REGISTER;
    p->level = p->body_level = MODULE_LEVEL + 1;
    p->return_label = NULL;
    lexer_next(&p->lexer);
    if (!parse_parameters(p))
        return false;
    while (is_word(p) && p->lexer.token.text[0] == '.')
        if (token_is(&p->lexer.token, ".pragma") ? !parse_pragma(p) : !parse_performance_directive(p))
            return false;
    if (!parse_body(p))
        return false;
    if (kernel->dynamic_align > 0) /* it begins behind all that has a size */
        kernel->shared_bytes = (kernel->shared_bytes + kernel->dynamic_align - 1) / kernel->dynamic_align *
                               kernel->dynamic_align;
    symbols_leave(p, MODULE_LEVEL);
    p->kernel = NULL;
    p->level = MODULE_LEVEL;
    return true;
}

bool parse_kernels(struct parser *p)
{
    for (const struct body *body = p->bodies; body != NULL; body = body->next)
        if (body->is_kernel) {
            p->lexer = body->at;
            p->opcode[0] = '\0';
            if (!parse_kernel(p))
                return refuse(p, "this is no PTX");
        }
    return true;
}

/* (retval0), or the arguments: names of .param variables of the caller. */
bool parse_arguments(struct parser *p, struct arguments *list)
{
    list->count = 0;
    if (!accept(p, '(') || accept(p, ')'))
        return true;
    do {
        const struct symbol *symbol = symbol_find(p, &p->lexer.token);
        if (symbol == NULL || symbol->kind != IS_ARGUMENT)
            return refuse(p, "%.*s is no .param of the caller", SHOWN(p->lexer.token));
        if (list->count == MAX_ARGUMENTS)
            return refuse(p, "a call has at most %d arguments", MAX_ARGUMENTS);
        list->symbols[list->count++] = symbol;
        lexer_next(&p->lexer);
    } while (accept(p, ','));
    return expect(p, ')');
}

/* The function's names for what the caller gives it. */
static bool formal_list(struct parser *p, const struct arguments *list)
{
    unsigned at = 0;
    bool is_empty = !accept(p, '(') || accept(p, ')');
    while (!is_empty) {
        struct token name;
        uint64_t align, size;
        if (!parse_parameter(p, &name, &align, &size))
            return false;
        if (at == list->count || list->symbols[at]->size < size)
            return refuse(p, "the call does not fit the function");
        struct symbol *symbol = symbol_add(p, &name, IS_ARGUMENT);
        if (symbol == NULL)
            return false;
        symbol->value = list->symbols[at]->value;
        symbol->size = list->symbols[at++]->size;
        if (!accept(p, ','))
            break;
    }
    if (at < list->count)
        return refuse(p, "the call does not fit the function");
    return is_empty || expect(p, ')');
}

static bool inline_function(struct parser *p, const struct body *function, const struct arguments *results,
                            const struct arguments *arguments)
{
    /* No word of PTX, so nothing else has this name. */
    static const struct token end = {.kind = TOKEN_WORD, .text = "(end)", .length = 5};
    const unsigned level = p->level, body_level = p->body_level;
    struct symbol *return_label = p->return_label;
    p->lexer = function->at;
    p->body_level = ++p->level;
    p->return_label = symbol_label(p, &end);
    if (p->return_label == NULL || !formal_list(p, results))
        return false;
    lexer_next(&p->lexer); /* the name */
    if (!formal_list(p, arguments))
        return false;
    while (is_word(p)) /* .noreturn */
        lexer_next(&p->lexer);
    if (!parse_body(p))
        return false;
    symbols_leave(p, level);
    p->level = level;
    p->body_level = body_level;
    p->return_label = return_label;
    return true;
}

/* A guarded call is a branch around what the call stands for. */
bool expand_call(struct parser *p, const struct insn *call, struct body *function, const struct arguments *results,
                 const struct arguments *arguments)
{
    const struct lexer behind = p->lexer;
    uint32_t around = 0;
    char opcode[sizeof p->opcode];
    memcpy(opcode, p->opcode, sizeof opcode);
    if (p->level > MAX_DEPTH)
        return refuse(p, "calls are nested too deeply");
    if (call->guarded) {
        struct insn *branch = emit(p);
        if (branch == NULL)
            return false;
        around = branch->number;
        branch->control = BRANCH;
        branch->guarded = true;
        branch->guard = call->guard;
        branch->guard_negated = !call->guard_negated;
    }
    function->is_open = true;
    if (!inline_function(p, function, results, arguments))
        return false;
    function->is_open = false;
    if (call->guarded)
        p->kernel->code[around].target = p->kernel->length;
    p->lexer = behind;
    memcpy(p->opcode, opcode, sizeof opcode);
    p->line = call->line;
    return true;
}

/* The driver's own function behind assert() of CUDA C. */
static bool fail_assertion(struct parser *p, const struct insn *call)
{
    struct insn *trap = emit(p);
    if (trap == NULL)
        return false;
    const uint32_t number = trap->number;
    *trap = *call;
    trap->number = number;
    trap->control = TRAP;
    trap->mode = TRAP_ASSERT;
    return true;
}

/* call{.uni} {(results),} function {, (arguments)} */
bool parse_call(struct parser *p, struct opcode *o, struct insn *i)
{
    const struct insn call = *i;
    struct arguments results = {.count = 0}, arguments = {.count = 0};
    p->kernel->length--;
    take(o, "uni");
    if (!all_taken(p, o))
        return false;
    if (token_is_mark(&p->lexer.token, '(') && (!parse_arguments(p, &results) || !expect(p, ',')))
        return false;
    const struct token name = p->lexer.token;
    const struct symbol *target = symbol_find(p, &name);
    if (target != NULL && target->kind == IS_REGISTER)
        return parse_indirect_call(p, &call, &results);
    struct body *function = p->bodies;
    while (function != NULL && (function->is_kernel || function->name.length != name.length ||
                                memcmp(function->name.text, name.text, name.length) != 0))
        function = function->next;
    const bool asserts = token_is(&name, "__assertfail"), prints = token_is(&name, "vprintf");
    if (function == NULL && !asserts && !prints)
        return refuse(p, "%.*s is no function with a body in this module", SHOWN(name));
    if (function != NULL && function->is_open)
        return refuse(p, "%.*s calls itself, which is not supported", SHOWN(name));
    lexer_next(&p->lexer);
    if (accept(p, ',') && !parse_arguments(p, &arguments))
        return false;
    if (function == NULL)
        return asserts ? fail_assertion(p, &call) : parse_print(p, &call, &results, &arguments);
    return expand_call(p, &call, function, &results, &arguments);
}
