/* Names and what they stand for, in scopes: of names alike the newest is found. */
#include <stdlib.h>
#include <string.h>

#include "parser.h"

static unsigned bucket(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return hash % BUCKETS;
}

struct symbol *symbol_find(struct parser *p, const struct token *token)
{
    if (token->kind != TOKEN_WORD)
        return NULL;
    struct symbol *symbol = p->buckets[bucket(token->text, token->length)];
    while (symbol != NULL && !token_is(token, symbol->name))
        symbol = symbol->next;
    return symbol;
}

static struct symbol *add(struct parser *p, const char *name, size_t length, enum symbol_kind kind, unsigned level)
{
    struct symbol **at = &p->buckets[bucket(name, length)];
    struct symbol *symbol = calloc(1, sizeof *symbol);
    if (symbol != NULL)
        symbol->name = strndup(name, length);
    if (symbol == NULL || symbol->name == NULL) {
        free(symbol);
        refuse(p, "out of memory");
        return NULL;
    }
    symbol->kind = kind;
    symbol->level = level;
    symbol->next = *at;
    *at = symbol;
    return symbol;
}

struct symbol *symbol_add(struct parser *p, const struct token *token, enum symbol_kind kind)
{
    return add(p, token->text, token->length, kind, p->level);
}

/* A label is its body's, wherever a block in braces first names it. */
struct symbol *symbol_label(struct parser *p, const struct token *token)
{
    struct symbol *known = symbol_find(p, token);
    if (known != NULL && known->level >= p->body_level) {
        if (known->kind != IS_LABEL)
            refuse(p, "%.*s is no label", SHOWN(*token));
        return known->kind == IS_LABEL ? known : NULL;
    }
    return add(p, token->text, token->length, IS_LABEL, p->body_level);
}

void symbols_leave(struct parser *p, unsigned level)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct symbol **at = &p->buckets[i]; *at != NULL;) {
            struct symbol *symbol = *at;
            if (symbol->level <= level) {
                at = &symbol->next;
                continue;
            }
            *at = symbol->next;
            free(symbol->name);
            free(symbol);
        }
}
