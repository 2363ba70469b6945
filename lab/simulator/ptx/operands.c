/* Registers, immediates, addresses. */
#include <stdlib.h>
#include <string.h>

#include "parser.h"

uint32_t new_register(struct parser *p, unsigned width)
{
    struct ptx_kernel *kernel = p->kernel;
    uint32_t at = (kernel->register_bytes + width - 1) / width * width;
    kernel->register_bytes = at + width;
    kernel->register_count++;
    return at;
}

static uint32_t filled_register(struct parser *p, unsigned width, enum filling with, uint64_t value)
{
    struct ptx_kernel *kernel = p->kernel;
    for (unsigned i = 0; i < kernel->filled_count; i++) {
        const struct filled *known = &kernel->filled[i];
        if (known->width == width && known->with == with && known->value == value)
            return known->offset;
    }
    struct filled *grown = realloc(kernel->filled, (kernel->filled_count + 1) * sizeof *grown);
    if (grown == NULL) {
        refuse(p, "out of memory");
        return 0;
    }
    kernel->filled = grown;
    uint32_t offset = new_register(p, width);
    kernel->register_count--; /* not one of the program's */
    grown[kernel->filled_count++] = (struct filled){offset, (uint8_t)width, with, value};
    return offset;
}

uint32_t constant_register(struct parser *p, unsigned width, uint64_t value)
{
    return filled_register(p, width, WITH_VALUE, width < 8 ? value & ((1ull << width * 8) - 1) : value);
}

static bool special(const struct token *token, enum special *which)
{
    static const char *const names[SPECIALS] = {"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y",
        "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
        "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid",
        "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"};
    for (int i = 0; i < SPECIALS; i++)
        if (token_is(token, names[i])) {
            *which = (enum special)i;
            return true;
        }
    return false;
}

bool parse_register(struct parser *p, unsigned width, bool predicate, uint32_t *offset)
{
    const struct token *name = &p->lexer.token;
    struct symbol *symbol = symbol_find(p, name);
    if (symbol == NULL || symbol->kind != IS_REGISTER)
        return refuse(p, "%.*s is no register", SHOWN(*name));
    if (symbol->predicate != predicate || (!predicate && symbol->width != width))
        return refuse(p, predicate ? "%.*s is no predicate" : "%.*s is not a register of %u bits", SHOWN(*name),
                      width * 8);
    *offset = (uint32_t)symbol->value;
    lexer_next(&p->lexer);
    return true;
}

bool parse_any_register(struct parser *p, uint32_t *offset, unsigned *width)
{
    struct symbol *symbol = symbol_find(p, &p->lexer.token);
    if (symbol == NULL || symbol->kind != IS_REGISTER || symbol->predicate)
        return refuse(p, "%.*s is no register for numbers", SHOWN(p->lexer.token));
    *offset = (uint32_t)symbol->value;
    *width = symbol->width;
    lexer_next(&p->lexer);
    return true;
}

bool parse_constant(struct parser *p, int64_t *value)
{
    bool negative = accept(p, '-');
    if (p->lexer.token.kind != TOKEN_INTEGER)
        return refuse(p, "a whole number is expected");
    *value = (int64_t)(negative ? 0 - p->lexer.token.integer : p->lexer.token.integer);
    lexer_next(&p->lexer);
    return true;
}

static bool immediate(struct parser *p, enum type type, uint32_t *offset)
{
    bool negative = accept(p, '-');
    const struct token token = p->lexer.token;
    double number = token.kind == TOKEN_INTEGER ? (double)token.integer : token.number;
    uint64_t bits = negative ? 0 - token.integer : token.integer;
    lexer_next(&p->lexer);
    if (negative)
        number = -number;
    if (type == F32) {
        float single = (float)number;
        uint32_t narrow;
        memcpy(&narrow, &single, sizeof narrow);
        bits = narrow;
    } else if (type == F64)
        memcpy(&bits, &number, sizeof bits);
    else if (type_is_half(type))
        return refuse(p, "floats of 16 bits have no immediates");
    else if (token.kind == TOKEN_FLOAT) {
        /* 0f… and 0d… are allowed where bits are asked for. */
        if ((!token.exact_f32 && !token.exact_f64) || negative)
            return refuse(p, "a whole number is expected");
    }
    if (type == PRED)
        bits = bits != 0;
    *offset = constant_register(p, type == U8 || type == S8 ? 2 : type_width(type), bits);
    return p->problem == PTX_FINE;
}

/* The address of a variable, possibly with an offset: name, name+8, name[2]. What the launch adds to it
 * is said too: where dynamic shared memory begins is not known before. */
static bool variable_address(struct parser *p, struct symbol *symbol, uint64_t *value, enum filling *with)
{
    int64_t more = 0;
    lexer_next(&p->lexer);
    *with = WITH_VALUE;
    if (symbol->kind == IS_SHARED && !symbol->defined) {
        unsigned align = symbol->align < 16 ? 16 : (unsigned)symbol->align;
        if (p->kernel->dynamic_align < align)
            p->kernel->dynamic_align = align;
        *with = WITH_DYNAMIC_SHARED;
    } else if (symbol->kind == IS_SHARED && !place_shared(p, symbol))
        return false;
    if (accept(p, '[')) {
        if (!parse_constant(p, &more) || !expect(p, ']'))
            return false;
        more *= symbol->width;
    } else if (accept(p, '+') && !parse_constant(p, &more))
        return false;
    *value = symbol->value + (uint64_t)more;
    return true;
}

static bool has_address(const struct symbol *symbol)
{
    return symbol != NULL && (symbol->kind == IS_SHARED || symbol->kind == IS_LOCAL || symbol->kind == IS_VARIABLE ||
                              symbol->kind == IS_FUNCTION || symbol->kind == IS_PARAMETER);
}

bool parse_operand(struct parser *p, enum type type, uint32_t *offset)
{
    const struct token *token = &p->lexer.token;
    unsigned width = type == U8 || type == S8 ? 2 : type_width(type);
    enum special which;
    enum filling with;
    uint64_t address;
    if (token->kind == TOKEN_INTEGER || token->kind == TOKEN_FLOAT || token_is_mark(token, '-'))
        return immediate(p, type, offset);
    if (special(token, &which)) {
        if (width < 4 || type == F32 || type == F64)
            return refuse(p, "%.*s is a number of 32 bits", SHOWN(*token));
        *offset = filled_register(p, width, WITH_SPECIAL, which);
        lexer_next(&p->lexer);
        return p->problem == PTX_FINE;
    }
    if (token_is(token, "WARP_SZ")) {
        *offset = constant_register(p, width, 32);
        lexer_next(&p->lexer);
        return true;
    }
    struct symbol *symbol = symbol_find(p, token);
    if (has_address(symbol)) {
        if (width < 4)
            return refuse(p, "%.*s is an address", SHOWN(*token));
        if (!variable_address(p, symbol, &address, &with))
            return false;
        *offset = with == WITH_VALUE ? constant_register(p, width, address)
                                     : filled_register(p, width, with, address);
        return p->problem == PTX_FINE;
    }
    return parse_register(p, width, type == PRED, offset);
}

/* Like parse_operand; a register may also be wider than the type. */
bool parse_wide_operand(struct parser *p, enum type type, uint32_t *offset, unsigned *width)
{
    const struct token name = p->lexer.token;
    struct symbol *symbol = symbol_find(p, &name);
    if (symbol != NULL && symbol->kind == IS_REGISTER) {
        if (!parse_any_register(p, offset, width))
            return false;
        return *width >= type_width(type) || refuse(p, "%.*s is narrower than the type", SHOWN(name));
    }
    *width = type == U8 || type == S8 ? 2 : type_width(type);
    return parse_operand(p, type, offset);
}

/* A place that is known by its name; `base` is what is added to nothing, or to dynamic shared memory. */
static bool named_place(struct parser *p, struct symbol *symbol, struct insn *i, uint64_t *base, enum filling *with)
{
    const struct token name = p->lexer.token;
    *with = WITH_VALUE;
    if (symbol->kind == IS_PARAMETER || symbol->kind == IS_ARGUMENT) {
        if (i->space != SPACE_PARAM)
            return refuse(p, "%.*s is a parameter", SHOWN(name));
        if (symbol->kind == IS_ARGUMENT)
            i->space = SPACE_LOCAL;
        *base = symbol->value;
        lexer_next(&p->lexer);
        return true;
    }
    if (symbol->kind == IS_FUNCTION)
        return refuse(p, "%.*s is a function", SHOWN(name));
    bool fits = symbol->kind == IS_SHARED  ? i->space == SPACE_SHARED
                : symbol->kind == IS_LOCAL ? i->space == SPACE_LOCAL
                                           : i->space == SPACE_GLOBAL || i->space == SPACE_CONST ||
                                                 i->space == SPACE_GENERIC;
    if (!fits)
        return refuse(p, "%.*s lies in another space", SHOWN(name));
    return variable_address(p, symbol, base, with);
}

/* [%rd1+4], [name+4], [4] */
bool parse_address(struct parser *p, struct insn *i)
{
    unsigned width = 8;
    if (!expect(p, '['))
        return false;
    i->offset = 0;
    i->address_is_narrow = false;
    const struct token name = p->lexer.token;
    struct symbol *symbol = symbol_find(p, &name);
    if (symbol != NULL && symbol->kind == IS_REGISTER) {
        if (!parse_any_register(p, &i->a, &width))
            return false;
        if (width < 4)
            return refuse(p, "%.*s is too narrow for an address", SHOWN(name));
        i->address_is_narrow = width == 4;
        i->parameter_at_register = i->space == SPACE_PARAM;
    } else {
        uint64_t base = 0;
        enum filling with = WITH_VALUE;
        if (symbol != NULL && symbol->kind != IS_LABEL) {
            if (!named_place(p, symbol, i, &base, &with))
                return false;
        } else {
            int64_t absolute = 0;
            if (name.kind == TOKEN_WORD)
                return refuse(p, "%.*s is unknown", SHOWN(name));
            if (!parse_constant(p, &absolute))
                return false;
            base = (uint64_t)absolute;
        }
        i->a = with == WITH_VALUE ? constant_register(p, 8, 0) : filled_register(p, 8, with, 0);
        i->offset = (int64_t)base;
    }
    bool plus = accept(p, '+');
    if (plus || token_is_mark(&p->lexer.token, '-')) {
        int64_t more = 0;
        if (!parse_constant(p, &more))
            return false;
        i->offset += more;
    }
    return expect(p, ']');
}
