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

static bool place_label(struct parser *p, const struct token *name)
{
    struct symbol *label = symbol_label(p, name);
    if (label == NULL)
        return refuse(p, "%.*s is declared twice", SHOWN(*name));
    if (label->defined)
        return refuse(p, "%.*s is declared twice", SHOWN(*name));
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
        if (lexer_split(lexer, ".reg"))
            return parse_registers(p);
        if (lexer_split(lexer, ".shared"))
            return parse_variable(p, SPACE_SHARED);
        if (lexer_split(lexer, ".local"))
            return parse_variable(p, SPACE_LOCAL);
        if (lexer_split(lexer, ".param"))
            return parse_variable(p, SPACE_PARAM);
        token_copy(&token, p->opcode, sizeof p->opcode);
        p->line = token.line;
        return refuse(p, "the directive is not supported within a kernel");
    }
    if (token.kind == TOKEN_WORD) {
        struct lexer before = p->lexer;
        lexer_next(&p->lexer);
        if (accept(p, ':'))
            return token_is(&p->lexer.token, ".callprototype") || token_is(&p->lexer.token, ".calltargets")
                       ? parse_prototype(p, &token)
                       : place_label(p, &token);
        p->lexer = before;
    }
    return parse_instruction(p);
}

static bool resolve_labels(struct parser *p, uint32_t from)
{
    struct ptx_kernel *kernel = p->kernel;
    for (uint32_t n = from; n < kernel->length; n++) {
        struct insn *i = &kernel->code[n];
        if (i->label == NULL)
            continue;
        if (!i->label->defined) {
            p->line = i->line;
            snprintf(p->opcode, sizeof p->opcode, "bra");
            return refuse(p, "label %.100s is nowhere", i->label->name);
        }
        i->target = (uint32_t)i->label->value;
        i->label = NULL; /* it ends with its body */
    }
    return true;
}

/* What stands in the braces of a kernel or a function. */
bool parse_body(struct parser *p)
{
    const unsigned outside = p->level;
    const uint32_t from = p->kernel->length;
    if (!expect(p, '{'))
        return false;
    p->level++;
    while (p->level > outside) {
        if (p->lexer.token.kind == TOKEN_END)
            return refuse(p, "'}' is missing");
        if (!statement(p) || p->lexer.broken)
            return refuse(p, "this is no PTX");
    }
    p->opcode[0] = '\0';
    if (p->return_label != NULL) {
        p->return_label->defined = true;
        p->return_label->value = p->kernel->length;
        return resolve_labels(p, from);
    }
    struct insn *end = emit(p); /* falling off the end is returning */
    if (end == NULL)
        return false;
    end->control = LEAVE;
    return resolve_labels(p, from);
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
    if (token_is(&token, ".entry") || token_is(&token, ".func"))
        return note_body(p, token_is(&token, ".entry"));
    if (token_is(&token, ".file") || token_is(&token, ".loc"))
        return skip_line(p);
    if (token_is(&token, ".section"))
        return skip_braces(p);
    if (lexer_split(&p->lexer, ".global"))
        return parse_variable(p, SPACE_GLOBAL);
    if (lexer_split(&p->lexer, ".const"))
        return parse_variable(p, SPACE_CONST);
    if (lexer_split(&p->lexer, ".shared"))
        return parse_variable(p, SPACE_SHARED);
    lexer_next(&p->lexer);
    if (token_is(&token, ".visible") || token_is(&token, ".extern") || token_is(&token, ".weak") ||
        token_is(&token, ".common"))
        return true;
    if (token_is(&token, ".address_size")) {
        if (p->lexer.token.kind != TOKEN_INTEGER || p->lexer.token.integer != 64)
            return refuse(p, ".address_size is 64");
        lexer_next(&p->lexer);
        return true;
    }
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
    p->level = MODULE_LEVEL;
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
    if (p->problem == PTX_FINE) {
        struct lexer whole;
        lexer_start(&whole, text, length);
        find_taken_addresses(p, whole);
        parse_kernels(p);
    }
    *problem = p->problem == PTX_INVALID && !p->seen_version ? PTX_NONE : p->problem;
    symbols_leave(p, 0);
    bodies_free(p);
    free(p);
    if (*problem == PTX_FINE)
        return module;
    ptx_free(module);
    return NULL;
}
