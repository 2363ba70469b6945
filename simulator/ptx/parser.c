/* A module: its directives, its kernels, and what is wrong with it. */
#include "parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool refuse(struct parser *p, const char *format, ...)
{
    if (p->problem != PTX_FINE)
        return false;
    va_list arguments;
    char text[256];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    p->problem = PTX_INVALID;
    unsigned line = p->opcode[0] != '\0' ? p->line : p->lexer.token.line;
    snprintf(p->message, p->message_size, "ptx: line %u: %s%s%s", line, p->opcode,
             p->opcode[0] != '\0' ? ": " : "", text);
    return false;
}

void token_copy(const struct token *token, char *target, size_t size)
{
    size_t length = token->length < size ? token->length : size - 1;
    memcpy(target, token->text, length);
    target[length] = '\0';
}

bool accept(struct parser *p, char mark)
{
    if (!token_is_mark(&p->lexer.token, mark))
        return false;
    lexer_next(&p->lexer);
    return true;
}

bool expect(struct parser *p, char mark)
{
    char found[40];
    if (accept(p, mark))
        return true;
    token_copy(&p->lexer.token, found, sizeof found);
    return refuse(p, "'%c' is expected before '%s'", mark, found);
}

static bool place_label(struct parser *p, const char *name)
{
    struct symbol *label = symbol_find(p, name);
    if (label == NULL) {
        unsigned level = p->level;
        p->level = 1;
        label = symbol_add(p, name, IS_LABEL);
        p->level = level;
    }
    if (label == NULL)
        return false;
    if (label->kind != IS_LABEL || label->defined)
        return refuse(p, "%s is declared twice", name);
    label->defined = true;
    label->value = p->kernel->length;
    return true;
}

static bool statement(struct parser *p)
{
    const struct token token = p->lexer.token;
    p->opcode[0] = '\0';
    if (token_is_mark(&token, '{')) {
        p->level++;
        lexer_next(&p->lexer);
        return true;
    }
    if (token_is_mark(&token, '}')) {
        symbols_leave(p, --p->level);
        lexer_next(&p->lexer);
        return true;
    }
    if (token.kind == TOKEN_WORD && token.text[0] == '.') {
        struct lexer *lexer = &p->lexer;
        if (token_is(&token, ".loc") || token_is(&token, ".file"))
            return skip_line(p);
        if (token_is(&token, ".pragma"))
            return parse_pragma(p);
        lexer_next(lexer);
        if (token_is(&token, ".reg"))
            return parse_registers(p);
        if (token_is(&token, ".shared"))
            return parse_variable(p, SPACE_SHARED);
        if (token_is(&token, ".local"))
            return parse_variable(p, SPACE_LOCAL);
        token_copy(&token, p->opcode, sizeof p->opcode);
        p->line = token.line;
        return refuse(p, "the directive is not supported within a kernel");
    }
    if (token.kind == TOKEN_WORD) {
        struct lexer before = p->lexer;
        lexer_next(&p->lexer);
        if (accept(p, ':')) {
            char name[160];
            token_copy(&token, name, sizeof name);
            return place_label(p, name);
        }
        p->lexer = before;
    }
    return parse_instruction(p);
}

static bool resolve_labels(struct parser *p)
{
    struct ptx_kernel *kernel = p->kernel;
    for (uint32_t n = 0; n < kernel->length; n++) {
        struct insn *i = &kernel->code[n];
        if (i->control != BRANCH)
            continue;
        const struct symbol *label = (const struct symbol *)(uintptr_t)i->offset;
        if (!label->defined) {
            p->line = i->line;
            snprintf(p->opcode, sizeof p->opcode, "bra");
            return refuse(p, "label %s is nowhere", label->name);
        }
        i->target = (uint32_t)label->value;
    }
    return true;
}

static bool kernel_body(struct parser *p)
{
    if (!expect(p, '{'))
        return false;
    p->level = 2;
    while (p->level > 1) {
        if (p->lexer.token.kind == TOKEN_END)
            return refuse(p, "'}' is missing");
        if (!statement(p) || p->lexer.broken)
            return refuse(p, "this is no PTX");
    }
    p->opcode[0] = '\0';
    struct insn *end = emit(p); /* falling off the end is returning */
    if (end == NULL)
        return false;
    end->control = LEAVE;
    return resolve_labels(p);
}

static bool entry(struct parser *p)
{
    char name[512];
    lexer_next(&p->lexer);
    if (p->lexer.token.kind != TOKEN_WORD)
        return refuse(p, "the name of a kernel is expected");
    token_copy(&p->lexer.token, name, sizeof name);
    lexer_next(&p->lexer);
    struct ptx_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return refuse(p, "out of memory");
    kernel->module = p->module;
    kernel->next = p->module->kernels;
    kernel->max_threads = MAX_THREADS;
    p->module->kernels = kernel;
    kernel->name = strdup(name);
    p->kernel = kernel;
    p->level = 1;
    if (!parse_parameters(p))
        return false;
    while (p->lexer.token.kind == TOKEN_WORD && p->lexer.token.text[0] == '.')
        if (token_is(&p->lexer.token, ".pragma") ? !parse_pragma(p) : !parse_performance_directive(p))
            return false;
    if (!kernel_body(p))
        return false;
    symbols_leave(p, 0);
    p->kernel = NULL;
    p->level = 0;
    return true;
}

static bool module_statement(struct parser *p)
{
    const struct token token = p->lexer.token;
    if (token_is(&token, ".version"))
        return parse_version(p);
    if (!p->seen_version)
        return refuse(p, "PTX begins with .version");
    if (token_is(&token, ".target"))
        return parse_target(p);
    if (token_is(&token, ".entry"))
        return entry(p);
    if (token_is(&token, ".file") || token_is(&token, ".loc"))
        return skip_line(p);
    if (token_is(&token, ".section"))
        return skip_braces(p);
    lexer_next(&p->lexer);
    if (token_is(&token, ".visible") || token_is(&token, ".extern") || token_is(&token, ".weak"))
        return true;
    if (token_is(&token, ".address_size")) {
        if (p->lexer.token.kind != TOKEN_INTEGER || p->lexer.token.integer != 64)
            return refuse(p, ".address_size is 64");
        lexer_next(&p->lexer);
        return true;
    }
    if (token_is(&token, ".global"))
        return parse_variable(p, SPACE_GLOBAL);
    if (token_is(&token, ".const"))
        return parse_variable(p, SPACE_CONST);
    if (token_is(&token, ".shared"))
        return parse_variable(p, SPACE_SHARED);
    token_copy(&token, p->opcode, sizeof p->opcode);
    p->line = token.line;
    return refuse(p, "this is not supported in a module");
}

struct ptx_module *ptx_load(const char *text, size_t length, unsigned capability,
                            enum ptx_problem *problem, char *message, size_t message_size)
{
    struct parser *p = calloc(1, sizeof *p);
    struct ptx_module *module = calloc(1, sizeof *module);
    *problem = PTX_INVALID;
    if (message_size > 0)
        message[0] = '\0';
    if (p == NULL || module == NULL) {
        free(p);
        free(module);
        return NULL;
    }
    p->module = module;
    p->capability = capability;
    p->message = message;
    p->message_size = message_size;
    p->handlers = handlers_for_this_processor();
    lexer_start(&p->lexer, text, length);
    while (p->problem == PTX_FINE && p->lexer.token.kind != TOKEN_END) {
        p->opcode[0] = '\0';
        if (p->lexer.broken || !module_statement(p) || p->lexer.broken)
            refuse(p, "this is no PTX");
    }
    if (p->problem == PTX_FINE && !p->seen_version)
        refuse(p, "PTX begins with .version");
    *problem = p->problem;
    p->level = 0;
    symbols_leave(p, 0);
    for (unsigned i = 0; i < BUCKETS; i++)
        while (p->buckets[i] != NULL) {
            struct symbol *gone = p->buckets[i];
            p->buckets[i] = gone->next;
            free(gone->name);
            free(gone);
        }
    free(p);
    if (*problem == PTX_FINE)
        return module;
    ptx_free(module);
    return NULL;
}
