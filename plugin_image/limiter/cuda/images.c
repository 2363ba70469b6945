#include "images.h"

#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <string.h>

static uint64_t sum(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

static uint64_t product(uint64_t one, uint64_t other)
{
    uint64_t result;
    return __builtin_mul_overflow(one, other, &result) ? UINT64_MAX : result;
}

/* The sections of variables: those of functions and of shared memory take none of the device's that matters. */
static bool is_of_variables(const char *name)
{
    return strncmp(name, ".nv.global", 10) == 0 || strncmp(name, ".nv.constant", 12) == 0;
}

static bool is_within(uint64_t offset, uint64_t size, size_t length)
{
    return offset <= length && size <= length - offset;
}

static uint64_t cubin_bytes(const char *image, size_t length)
{
    Elf64_Ehdr head;
    Elf64_Shdr section, names;
    uint64_t all = 0;
    if (length < sizeof head)
        return 0;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof section || head.e_shstrndx >= head.e_shnum ||
        !is_within(head.e_shoff, (uint64_t)head.e_shnum * sizeof section, length))
        return 0;
    memcpy(&names, image + head.e_shoff + head.e_shstrndx * sizeof section, sizeof names);
    if (!is_within(names.sh_offset, names.sh_size, length))
        return 0;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        const char *name = image + names.sh_offset + section.sh_name;
        if (section.sh_name < names.sh_size &&
            memchr(name, '\0', names.sh_size - section.sh_name) != NULL && is_of_variables(name))
            all = sum(all, section.sh_size);
    }
    return all;
}

struct text { /* PTX that is left to read */
    const char *at, *end;
};

struct token { /* a directive with its dot, a word, or a mark */
    const char *at;
    size_t length;
};

static bool is_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static bool skip_to(struct text *text, const char *mark)
{
    size_t length = strlen(mark);
    while ((size_t)(text->end - text->at) >= length && strncmp(text->at, mark, length) != 0)
        text->at++;
    bool is_there = (size_t)(text->end - text->at) >= length;
    text->at = is_there ? text->at + length : text->end;
    return is_there;
}

static void skip_space(struct text *text)
{
    while (text->at < text->end) {
        size_t left = (size_t)(text->end - text->at);
        if (left >= 2 && strncmp(text->at, "//", 2) == 0) {
            skip_to(text, "\n");
        } else if (left >= 2 && strncmp(text->at, "/*", 2) == 0) {
            text->at += 2;
            skip_to(text, "*/");
        } else if (*text->at == '"') {
            text->at++;
            skip_to(text, "\"");
        } else if (isspace((unsigned char)*text->at)) {
            text->at++;
        } else {
            return;
        }
    }
}

/* Directives may follow each other without a space; "ld.global.u32" is a word. */
static bool next_token(struct text *text, struct token *token)
{
    skip_space(text);
    if (text->at == text->end)
        return false;
    token->at = text->at;
    bool mark = *text->at != '.' && !is_of_word(*text->at);
    bool dots = !mark && *text->at != '.' && !isdigit((unsigned char)*text->at);
    text->at++;
    while (text->at < text->end && !mark && (is_of_word(*text->at) || (dots && *text->at == '.')))
        text->at++;
    token->length = (size_t)(text->at - token->at);
    return true;
}

static bool is(const struct token *token, const char *word)
{
    return token->length == strlen(word) && strncmp(token->at, word, token->length) == 0;
}

static uint64_t number_of(const char **at, const char *end)
{
    unsigned base = 10;
    uint64_t value = 0;
    if (end - *at > 2 && **at == '0' && strchr("xXbB", (*at)[1]) != NULL) {
        base = ((*at)[1] | 0x20) == 'x' ? 16 : 2;
        *at += 2;
    } else if (end - *at > 1 && **at == '0') {
        base = 8;
    }
    for (; *at < end && isxdigit((unsigned char)**at); (*at)++) {
        unsigned digit = isdigit((unsigned char)**at) ? (unsigned)(**at - '0') : (unsigned)(**at | 0x20) - 'a' + 10;
        if (digit >= base)
            break;
        value = sum(product(value, base), digit);
    }
    return value;
}

/* Bytes of a type such as .b8, .f32 or .f16x2; 0 for what is none. */
static uint64_t width_of(const struct token *token)
{
    const char *at = token->at + 1, *end = token->at + token->length;
    while (at < end && strchr("busf", *at) != NULL)
        at++;
    if (*token->at != '.' || at == token->at + 1 || at == end)
        return 0;
    uint64_t bits = number_of(&at, end);
    if (at < end && *at == 'x') {
        at++;
        bits = product(bits, number_of(&at, end));
    }
    return at == end && bits <= 128 ? bits / 8 : 0;
}

/* "[2][3]" as 6, from behind the first bracket on. */
static uint64_t elements(struct text *text)
{
    uint64_t count = 0;
    struct token token;
    while (next_token(text, &token) && !is(&token, "]"))
        if (isdigit((unsigned char)*token.at))
            count = number_of(&token.at, token.at + token.length);
    return count;
}

/* The values of a variable, up to what follows it. */
static bool skip_values(struct text *text, struct token *token)
{
    unsigned depth = 0;
    while (next_token(text, token)) {
        if (depth == 0 && (is(token, ",") || is(token, ";")))
            return true;
        depth += is(token, "{");
        depth -= depth > 0 && is(token, "}");
    }
    return false;
}

/* One declaration behind its ".global": ".align 4 .b8 name[100], other[4] = {1, 2, 3, 4};" */
static uint64_t declared(struct text *text)
{
    uint64_t width = 0, vector = 1, all = 0, variable = 0;
    struct token token;
    while (next_token(text, &token)) {
        if (is(&token, "=") && !skip_values(text, &token))
            break;
        if (is(&token, ";"))
            break;
        if (is(&token, "[")) {
            variable = product(variable, elements(text));
        } else if (is(&token, ".v2") || is(&token, ".v4")) {
            vector = (uint64_t)(token.at[2] - '0');
        } else if (width_of(&token) > 0) {
            width = width_of(&token);
        } else if (is_of_word(*token.at) && !isdigit((unsigned char)*token.at)) {
            all = sum(all, variable);
            variable = width * vector;
        }
    }
    return sum(all, variable);
}

static uint64_t ptx_bytes(const char *text, size_t length)
{
    uint64_t all = 0;
    struct text left = {text, text + length};
    struct token token;
    while (next_token(&left, &token)) {
        if (is(&token, ".ptr")) /* a parameter that points there */
            next_token(&left, &token);
        else if (is(&token, ".global") || is(&token, ".const"))
            all = sum(all, declared(&left));
    }
    return all;
}

uint64_t image_bytes(const void *image, size_t length)
{
    if (length >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0)
        return cubin_bytes(image, length);
    const char *text = image;
    /* PTX begins with a comment or a directive; anything else is bundled. */
    if (length < 2 || (*text != '.' && *text != '/' && !isspace((unsigned char)*text)))
        return 0;
    return ptx_bytes(text, strnlen(text, length));
}
