/* Opcodes taken apart: a base and its modifiers, each to be understood by someone. */
#include <stdio.h>
#include <string.h>

#include "parser.h"

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

bool opcode_split(struct parser *p, struct opcode *o)
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
