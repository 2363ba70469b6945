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

/* The width of a type such as .b8 or .f32. */
static uint64_t width_of(const char *word, size_t length)
{
    uint64_t bits = 0;
    if (length < 3 || word[0] != '.' || strchr("busf", word[1]) == NULL)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (!isdigit((unsigned char)word[i]))
            return 0;
        bits = bits * 10 + (uint64_t)(word[i] - '0');
    }
    return bits <= 128 ? bits / 8 : 0;
}

/* "[2][3]" as 6; the number of elements of one without brackets is 1. */
static uint64_t elements(const char **at, const char *end)
{
    uint64_t all = 1;
    for (; *at < end && **at == '['; (*at)++) {
        uint64_t count = 0;
        while (++*at < end && **at != ']')
            if (isdigit((unsigned char)**at))
                count = sum(product(count, 10), (uint64_t)(**at - '0'));
        all = product(all, count);
    }
    return all;
}

/* One declaration behind its ".global", up to its ';' or its values: ".align 4 .b8 name[100], other[4];" */
static uint64_t declared(const char **at, const char *end)
{
    uint64_t width = 0, vector = 1, all = 0;
    bool after_name = false;
    while (*at < end && **at != ';' && **at != '=' && **at != '\0') {
        const char *word = *at;
        if (**at == '[') {
            uint64_t many = product(width * vector, elements(at, end));
            if (after_name && all != UINT64_MAX)
                all -= width * vector; /* it was taken for one */
            all = sum(all, many);
            after_name = false;
            continue;
        }
        while (*at < end && (isalnum((unsigned char)**at) || strchr("._$%", **at) != NULL) && **at != '\0')
            (*at)++;
        size_t length = (size_t)(*at - word);
        if (length == 0) {
            (*at)++;
        } else if (width_of(word, length) > 0) {
            width = width_of(word, length);
        } else if (length == 3 && word[0] == '.' && word[1] == 'v' && isdigit((unsigned char)word[2])) {
            vector = (uint64_t)(word[2] - '0');
        } else if (word[0] != '.' && !isdigit((unsigned char)word[0])) {
            all = sum(all, width * vector);
            after_name = true;
        }
    }
    return all;
}

static bool begins(const char *at, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - at) > length && strncmp(at, word, length) == 0 && isspace((unsigned char)at[length]);
}

static uint64_t ptx_bytes(const char *text, size_t length)
{
    uint64_t all = 0;
    const char *end = text + length;
    for (const char *at = text; at < end; at++) {
        bool first = at == text || isspace((unsigned char)at[-1]) || at[-1] == ';' || at[-1] == '}';
        if (*at != '.' || !first)
            continue;
        bool global = begins(at, end, ".global");
        if (!global && !begins(at, end, ".const"))
            continue;
        at += global ? 7 : 6;
        all = sum(all, declared(&at, end));
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
