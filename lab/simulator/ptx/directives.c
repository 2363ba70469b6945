/* Directives that say how a module was made and how a kernel is to be run. */
#include <stdio.h>
#include <string.h>

#include "parser.h"

#define NEWEST_ISA 90 /* PTX 9.0 */

bool parse_version(struct parser *p)
{
    p->seen_version = true;
    lexer_next(&p->lexer);
    if (p->lexer.token.kind != TOKEN_FLOAT)
        return refuse(p, ".version is followed by a number such as 7.0");
    if ((unsigned)(p->lexer.token.number * 10 + 0.5) > NEWEST_ISA) {
        refuse(p, "PTX %.1f is newer than %d.%d", p->lexer.token.number, NEWEST_ISA / 10, NEWEST_ISA % 10);
        p->problem = PTX_NEWER_ISA;
        return false;
    }
    lexer_next(&p->lexer);
    return true;
}

bool parse_target(struct parser *p)
{
    do {
        char name[32];
        lexer_next(&p->lexer);
        token_copy(&p->lexer.token, name, sizeof name);
        unsigned number = 0;
        if (sscanf(name, "sm_%u", &number) == 1) {
            bool specific = strpbrk(name + 3, "af") != NULL;
            if (number > p->capability || (specific && number != p->capability))
                return refuse(p, "target %s is not this GPU's, which is sm_%u", name, p->capability);
            p->module->target = number;
        } else if (strcmp(name, "debug") != 0 && strcmp(name, "texmode_independent") != 0)
            return refuse(p, "target %s is unknown", name);
        lexer_next(&p->lexer);
    } while (token_is_mark(&p->lexer.token, ','));
    return true;
}

/* .maxntid 256, 1, 1 and its like; only the first kind says something we keep. */
bool parse_performance_directive(struct parser *p)
{
    bool threads = token_is(&p->lexer.token, ".maxntid") || token_is(&p->lexer.token, ".reqntid");
    unsigned most = 1;
    lexer_next(&p->lexer);
    do {
        if (p->lexer.token.kind != TOKEN_INTEGER)
            return refuse(p, "a number is expected");
        most *= p->lexer.token.integer > MAX_THREADS ? MAX_THREADS : (unsigned)p->lexer.token.integer;
        lexer_next(&p->lexer);
    } while (accept(p, ','));
    if (threads && most < p->kernel->max_threads)
        p->kernel->max_threads = most;
    return true;
}

bool skip_line(struct parser *p)
{
    unsigned line = p->lexer.token.line;
    while (p->lexer.token.kind != TOKEN_END && p->lexer.token.line == line)
        lexer_next(&p->lexer);
    return true;
}

bool skip_braces(struct parser *p)
{
    unsigned depth = 0;
    while (p->lexer.token.kind != TOKEN_END && !token_is_mark(&p->lexer.token, '{'))
        lexer_next(&p->lexer);
    do {
        if (token_is_mark(&p->lexer.token, '{'))
            depth++;
        else if (token_is_mark(&p->lexer.token, '}'))
            depth--;
        else if (p->lexer.token.kind == TOKEN_END)
            return refuse(p, "'}' is missing");
        lexer_next(&p->lexer);
    } while (depth > 0);
    return true;
}

bool parse_pragma(struct parser *p)
{
    while (!token_is_mark(&p->lexer.token, ';') && p->lexer.token.kind != TOKEN_END)
        lexer_next(&p->lexer);
    return expect(p, ';');
}
