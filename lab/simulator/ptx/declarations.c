/* .reg, .param, and variables in shared, local, global and constant memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser.h"

#define MAX_REGISTERS 65536
#define MAX_VARIABLE (64u << 20)
#define VARIABLE_ALIGNMENT 256u
#define MAX_SHARED (232448u + 1024u)
#define MAX_LOCAL (512u << 10)

bool type_of_word(const char *word, enum type *type)
{
    static const struct {
        const char *name;
        enum type type;
    } names[] = {{"b8", U8}, {"b16", U16}, {"b32", U32}, {"b64", U64}, {"u8", U8}, {"u16", U16},
                 {"u32", U32}, {"u64", U64}, {"s8", S8}, {"s16", S16}, {"s32", S32}, {"s64", S64},
                 {"f16", F16}, {"bf16", BF16},
                 {"f16x2", F16X2}, {"bf16x2", BF16X2}, {"f32", F32}, {"f64", F64}, {"pred", PRED}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, word) == 0) {
            *type = names[i].type;
            return true;
        }
    return false;
}

static bool directive_type(struct parser *p, enum type *type)
{
    char word[32];
    token_copy(&p->lexer.token, word, sizeof word);
    if (p->lexer.token.kind != TOKEN_WORD || word[0] != '.' || !type_of_word(word + 1, type))
        return refuse(p, "%s is no type of the subset", word);
    lexer_next(&p->lexer);
    return true;
}

static bool add_register(struct parser *p, const struct token *name, enum type type)
{
    struct symbol *known = symbol_find(p, name);
    if (known != NULL && known->level == p->level)
        return refuse(p, "%.*s is declared twice", SHOWN(*name));
    struct symbol *symbol = symbol_add(p, name, IS_REGISTER);
    if (symbol == NULL)
        return false;
    /* A register of 8 bits has room for 16, as narrow ones are kept. */
    symbol->width = (uint8_t)(type == U8 || type == S8 ? 2 : type_width(type));
    symbol->predicate = type == PRED;
    symbol->defined = true;
    symbol->value = new_register(p, symbol->width);
    return true;
}

static bool add_numbered(struct parser *p, const struct token *stem, unsigned number, enum type type)
{
    char *text = NULL;
    int length = asprintf(&text, "%.*s%u", (int)stem->length, stem->text, number);
    if (length < 0)
        return refuse(p, "out of memory");
    const struct token name = {.kind = TOKEN_WORD, .text = text, .length = (size_t)length};
    bool sound = add_register(p, &name, type);
    free(text);
    return sound;
}

/* .reg .b32 %r<8>, %x; */
bool parse_registers(struct parser *p)
{
    enum type type;
    if (!directive_type(p, &type))
        return false;
    do {
        if (p->lexer.token.kind != TOKEN_WORD)
            return refuse(p, "the name of a register is expected");
        const struct token name = p->lexer.token;
        lexer_next(&p->lexer);
        if (!accept(p, '<')) {
            if (!add_register(p, &name, type))
                return false;
            continue;
        }
        uint64_t count = p->lexer.token.integer;
        if (p->lexer.token.kind != TOKEN_INTEGER || count > MAX_REGISTERS)
            return refuse(p, "a number of registers up to %d is expected", MAX_REGISTERS);
        lexer_next(&p->lexer);
        for (uint64_t i = 0; i < count; i++)
            if (!add_numbered(p, &name, (unsigned)i, type))
                return false;
        if (!expect(p, '>'))
            return false;
    } while (accept(p, ','));
    if (p->kernel->register_count > MAX_REGISTERS)
        return refuse(p, "a kernel has at most %d registers", MAX_REGISTERS);
    return expect(p, ';');
}

static bool alignment(struct parser *p, uint64_t *align)
{
    if (!token_is(&p->lexer.token, ".align"))
        return true;
    lexer_next(&p->lexer);
    *align = p->lexer.token.integer;
    if (p->lexer.token.kind != TOKEN_INTEGER || *align == 0 || *align > 256 || (*align & (*align - 1)) != 0)
        return refuse(p, "an alignment is a power of two up to 256");
    lexer_next(&p->lexer);
    return true;
}

/* [16][16], or [] for memory whose size the launch gives */
static bool dimensions(struct parser *p, uint64_t *count, bool *is_open)
{
    *count = 1;
    *is_open = false;
    while (accept(p, '[')) {
        if (accept(p, ']')) {
            *is_open = true;
            *count = 0;
            continue;
        }
        uint64_t size = p->lexer.token.integer;
        if (p->lexer.token.kind != TOKEN_INTEGER || size > MAX_VARIABLE)
            return refuse(p, "a dimension up to %u is expected", MAX_VARIABLE);
        *count *= size;
        if (*count > MAX_VARIABLE)
            return refuse(p, "a variable is larger than %u elements", MAX_VARIABLE);
        lexer_next(&p->lexer);
        if (!expect(p, ']'))
            return false;
    }
    return true;
}

/* name, name+8, generic(name): the address of a variable or a function that was declared before */
static bool address_value(struct parser *p, enum type type, uint8_t *at)
{
    bool is_generic = token_is(&p->lexer.token, "generic");
    int64_t more = 0;
    if (is_generic) {
        lexer_next(&p->lexer);
        if (!expect(p, '('))
            return false;
    }
    const struct symbol *symbol = symbol_find(p, &p->lexer.token);
    if (symbol == NULL || (symbol->kind != IS_VARIABLE && symbol->kind != IS_FUNCTION) || type_width(type) != 8)
        return refuse(p, "initial values are numbers and addresses");
    lexer_next(&p->lexer);
    if ((is_generic && !expect(p, ')')) || (accept(p, '+') && !parse_constant(p, &more)))
        return false;
    uint64_t value = symbol->value + (uint64_t)more;
    memcpy(at, &value, sizeof value);
    return true;
}

static bool one_value(struct parser *p, enum type type, uint8_t *at)
{
    if (p->lexer.token.kind == TOKEN_WORD)
        return address_value(p, type, at);
    bool negative = accept(p, '-');
    const struct token token = p->lexer.token;
    if (token.kind != TOKEN_INTEGER && token.kind != TOKEN_FLOAT)
        return refuse(p, "initial values are numbers");
    double number = token.kind == TOKEN_INTEGER ? (double)token.integer : token.number;
    float single = (float)(negative ? -number : number);
    if (negative)
        number = -number;
    uint64_t integer = negative ? 0 - token.integer : token.integer;
    if (type == F32)
        memcpy(at, &single, sizeof single);
    else if (type == F64)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &integer, type_width(type));
    lexer_next(&p->lexer);
    return true;
}

static bool initial_values(struct parser *p, enum type type, uint8_t *memory, uint64_t count)
{
    unsigned depth = 0;
    uint64_t at = 0;
    if (!token_is_mark(&p->lexer.token, '{'))
        return one_value(p, type, memory);
    do {
        if (accept(p, '{'))
            depth++;
        else if (accept(p, '}'))
            depth--;
        else if (accept(p, ','))
            continue;
        else {
            if (at == count)
                return refuse(p, "more initial values than elements");
            if (!one_value(p, type, memory + at++ * type_width(type)))
                return false;
        }
    } while (depth > 0);
    return true;
}

static bool add_variable(struct parser *p, const struct token *name, enum type type, uint64_t count)
{
    struct variable *made = calloc(1, sizeof *made);
    if (made == NULL)
        return refuse(p, "out of memory");
    made->next = p->module->variables;
    p->module->variables = made;
    made->size = count * type_width(type);
    made->name = strndup(name->text, name->length);
    made->block = calloc(1, made->size + 2 * VARIABLE_ALIGNMENT); /* takes up no RAM before it is written */
    if (made->name == NULL || made->block == NULL)
        return refuse(p, "out of memory");
    made->memory = (uint8_t *)made->block + VARIABLE_ALIGNMENT - (uintptr_t)made->block % VARIABLE_ALIGNMENT;
    unsigned level = p->level;
    p->level = MODULE_LEVEL; /* variables are the module's */
    struct symbol *symbol = symbol_add(p, name, IS_VARIABLE);
    p->level = level;
    if (symbol == NULL)
        return false;
    symbol->defined = true;
    symbol->width = (uint8_t)type_width(type);
    symbol->value = (uint64_t)(uintptr_t)made->memory;
    return !accept(p, '=') || initial_values(p, type, made->memory, count);
}

static bool take_room(struct parser *p, unsigned *used, const struct symbol *symbol, unsigned most,
                      const char *space, uint64_t *place)
{
    uint64_t at = (*used + symbol->align - 1) / symbol->align * symbol->align;
    if (at + symbol->size > most)
        return refuse(p, "more than %u bytes of %s memory", most, space);
    *place = at;
    *used = (unsigned)(at + symbol->size);
    return true;
}

/* A module's shared memory is in those of its kernels that use it; a kernel's own is in that one. */
bool place_shared(struct parser *p, struct symbol *symbol)
{
    if (symbol->placed_in == p->kernel)
        return true;
    symbol->placed_in = p->kernel;
    return take_room(p, &p->kernel->shared_bytes, symbol, MAX_SHARED, "shared", &symbol->value);
}

static bool add_window_variable(struct parser *p, const struct token *name, enum space space, uint64_t align,
                                uint64_t size, unsigned width, bool is_open)
{
    struct symbol *symbol = symbol_add(p, name, space == SPACE_SHARED  ? IS_SHARED
                                                : space == SPACE_PARAM ? IS_ARGUMENT
                                                                       : IS_LOCAL);
    if (symbol == NULL)
        return false;
    symbol->defined = !is_open; /* an open one begins where the others end: known at the launch */
    symbol->width = (uint8_t)width;
    symbol->align = align;
    symbol->size = size;
    if (is_open)
        return space == SPACE_SHARED || refuse(p, "local memory has a size");
    if (space == SPACE_SHARED)
        return p->kernel == NULL || place_shared(p, symbol);
    return take_room(p, &p->kernel->local_bytes, symbol, MAX_LOCAL, "local", &symbol->value);
}

bool parse_variable(struct parser *p, enum space space)
{
    enum type type;
    uint64_t align = 0, count, vector = 1;
    bool is_open;
    if (!alignment(p, &align))
        return false;
    if (token_is(&p->lexer.token, ".v2") || token_is(&p->lexer.token, ".v4")) {
        vector = p->lexer.token.text[2] == '2' ? 2 : 4;
        lexer_next(&p->lexer);
    }
    if (!directive_type(p, &type))
        return false;
    if (align == 0)
        align = type_width(type) * vector;
    do {
        if (p->lexer.token.kind != TOKEN_WORD)
            return refuse(p, "the name of a variable is expected");
        const struct token name = p->lexer.token;
        lexer_next(&p->lexer);
        if (!dimensions(p, &count, &is_open))
            return false;
        count *= vector;
        bool sound = space == SPACE_GLOBAL || space == SPACE_CONST
                         ? add_variable(p, &name, type, count)
                         : add_window_variable(p, &name, space, align, count * type_width(type),
                                               type_width(type), is_open);
        if (!sound)
            return false;
    } while (accept(p, ','));
    return expect(p, ';');
}

/* .param .u64 .ptr .global .align 8 name[16] */
bool parse_parameter(struct parser *p, struct token *name, uint64_t *align, uint64_t *size)
{
    enum type type;
    bool is_open;
    if (!lexer_split(&p->lexer, ".param"))
        return refuse(p, ".param is expected");
    *align = 0;
    if (!alignment(p, align) || !directive_type(p, &type))
        return false;
    while (p->lexer.token.kind == TOKEN_WORD && p->lexer.token.text[0] == '.') {
        bool is_align = token_is(&p->lexer.token, ".align");
        lexer_next(&p->lexer);
        if (is_align)
            lexer_next(&p->lexer);
    }
    *name = p->lexer.token;
    if (name->kind != TOKEN_WORD)
        return refuse(p, "the name of a parameter is expected");
    lexer_next(&p->lexer);
    if (!dimensions(p, size, &is_open) || is_open)
        return p->problem == PTX_FINE ? refuse(p, "a parameter has a size") : false;
    *size *= type_width(type);
    if (*align == 0)
        *align = type_width(type);
    return true;
}

/* (.param .u64 a, .param .align 8 .b8 b[16]) */
bool parse_parameters(struct parser *p)
{
    struct ptx_kernel *kernel = p->kernel;
    if (!accept(p, '('))
        return true;
    if (accept(p, ')'))
        return true;
    do {
        struct token name;
        uint64_t align, size;
        if (!parse_parameter(p, &name, &align, &size))
            return false;
        struct parameter *grown = realloc(kernel->parameters, (kernel->parameter_count + 1) * sizeof *grown);
        if (grown == NULL)
            return refuse(p, "out of memory");
        kernel->parameters = grown;
        struct parameter *made = &grown[kernel->parameter_count++];
        *made = (struct parameter){strndup(name.text, name.length),
                                   (kernel->parameter_bytes + align - 1) / align * align, size};
        kernel->parameter_bytes = made->offset + made->size;
        if (kernel->parameter_bytes > 4096)
            return refuse(p, "a kernel has at most 4096 bytes of parameters");
        struct symbol *symbol = symbol_add(p, &name, IS_PARAMETER);
        if (symbol == NULL)
            return false;
        symbol->value = made->offset;
    } while (accept(p, ','));
    return expect(p, ')');
}
