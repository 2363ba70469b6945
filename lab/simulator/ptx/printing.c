/* vprintf, the driver's own function behind printf of CUDA C. What it prints is on the standard output at once. */
#include <stdio.h>
#include <string.h>

#include "parser.h"

struct text { /* bytes of memory that a thread sees */
    const uint8_t *at;
    uint64_t size;
};

/* What a generic address means, up to the end of what it points into. */
static struct text seen(const struct exec *x, unsigned t, uint64_t address)
{
    uint64_t begin, end;
    if (address - LOCAL_WINDOW < x->kernel->local_bytes)
        return (struct text){x->local + (size_t)t * x->kernel->local_bytes + (address - LOCAL_WINDOW),
                             x->kernel->local_bytes - (address - LOCAL_WINDOW)};
    if (address - SHARED_WINDOW < x->shared_size)
        return (struct text){x->shared + (address - SHARED_WINDOW), x->shared_size - (address - SHARED_WINDOW)};
    for (const struct variable *v = x->module->variables; v != NULL; v = v->next)
        if (address - (uint64_t)(uintptr_t)v->memory < v->size)
            return (struct text){v->memory + (address - (uint64_t)(uintptr_t)v->memory),
                                 v->size - (address - (uint64_t)(uintptr_t)v->memory)};
    if (x->launch->allocation(x->launch->context, address, &begin, &end))
        return (struct text){(const uint8_t *)(uintptr_t)address, end - address};
    return (struct text){NULL, 0};
}

static bool is_string(const struct text *text)
{
    return text->at != NULL && memchr(text->at, '\0', text->size) != NULL;
}

/* The next argument; each lies at a multiple of its size. */
static uint64_t argument(const struct text *arguments, uint64_t *at, unsigned size)
{
    uint64_t value = 0;
    *at = (*at + size - 1) / size * size;
    if (*at + size <= arguments->size)
        memcpy(&value, arguments->at + *at, size);
    *at += size;
    return value;
}

/* One conversion, from the % to its letter: "%-08.3llx". */
static void print_one(const struct exec *x, unsigned t, const char *form, size_t length, const struct text *arguments,
                      uint64_t *at)
{
    char whole[40];
    const char letter = form[length - 1];
    size_t kept = 0;
    bool is_long = letter == 'p' || letter == 's';
    for (size_t n = 0; n < length - 1 && kept < sizeof whole - 4; n++)
        if (strchr("lzjt", form[n]) != NULL)
            is_long = true;
        else if (form[n] != 'h')
            whole[kept++] = form[n];
    if (strchr("diouxX", letter) != NULL) {
        memcpy(whole + kept, "ll", 2);
        kept += 2;
    }
    whole[kept++] = letter;
    whole[kept] = '\0';
    const bool is_float = strchr("aAeEfFgG", letter) != NULL;
    uint64_t value = argument(arguments, at, is_long || is_float ? 8 : 4);
    if (is_float) {
        double number;
        memcpy(&number, &value, sizeof number);
        printf(whole, number);
    } else if (letter == 's') {
        const struct text string = seen(x, t, value);
        printf(whole, is_string(&string) ? (const char *)string.at : "(null)");
    } else if (letter == 'p')
        printf(whole, (void *)(uintptr_t)value);
    else if (letter == 'c')
        printf(whole, (int)value);
    else if (letter == 'd' || letter == 'i')
        printf(whole, is_long ? (long long)value : (long long)(int32_t)value);
    else
        printf(whole, (unsigned long long)value);
}

/* The number of arguments, or -1 without a format. */
static int print(const struct exec *x, unsigned t, const char *format, const struct text *arguments)
{
    int count = 0;
    uint64_t at = 0;
    while (*format != '\0') {
        size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, stdout);
        format += plain;
        if (format[0] == '%' && format[1] == '%') {
            putchar('%');
            format += 2;
            continue;
        }
        size_t length = format[0] == '%' ? 1 + strspn(format + 1, "-+ #0123456789.hlzjt") : 0;
        if (length == 0 || format[length] == '\0' || strchr("diouxXaAeEfFgGcsp", format[length]) == NULL) {
            fputs(format, stdout); /* no conversion */
            return count;
        }
        print_one(x, t, format, length + 1, arguments, &at);
        format += length + 1;
        count++;
    }
    return count;
}

/* The two parameters and the result are places in each thread's local memory. */
static void print_group(struct exec *x, const struct insn *i)
{
    for (unsigned n = 0; n < x->n; n++) {
        const unsigned t = x->full ? n : x->list[n];
        uint8_t *local = x->local + (size_t)t * x->kernel->local_bytes;
        uint64_t format, arguments;
        memcpy(&format, local + i->a, sizeof format);
        memcpy(&arguments, local + i->b, sizeof arguments);
        const struct text text = seen(x, t, format), buffer = seen(x, t, arguments);
        int32_t count = is_string(&text) ? print(x, t, (const char *)text.at, &buffer) : -1;
        memcpy(local + i->c, &count, sizeof count);
    }
    fflush(stdout);
}

/* call (count), vprintf, (format, arguments) */
bool parse_print(struct parser *p, const struct insn *call, const struct arguments *results,
                 const struct arguments *arguments)
{
    if (results->count != 1 || arguments->count != 2 || results->symbols[0]->size != 4 ||
        arguments->symbols[0]->size != 8 || arguments->symbols[1]->size != 8)
        return refuse(p, "vprintf takes two addresses and gives a number");
    struct insn *made = emit(p);
    if (made == NULL)
        return false;
    const uint32_t number = made->number;
    *made = *call;
    made->number = number;
    made->run = print_group;
    made->a = (uint32_t)arguments->symbols[0]->value;
    made->b = (uint32_t)arguments->symbols[1]->value;
    made->c = (uint32_t)results->symbols[0]->value;
    return true;
}
