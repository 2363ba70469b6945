#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

static void blanks(struct json *text)
{
    while (text->at < text->end && memchr(" \t\r\n", *text->at, 4) != NULL)
        text->at++;
}

static bool take(struct json *text, char wanted)
{
    blanks(text);
    if (text->at >= text->end || *text->at != wanted)
        return false;
    text->at++;
    return true;
}

/* Return the number of four hexadecimal digits, -1 if they are none. */
static long hex4(const char *digits, const char *end)
{
    long number = 0;
    if (end - digits < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *all = "0123456789abcdef";
        char digit = digits[i];
        if (digit >= 'A' && digit <= 'F')
            digit += 'a' - 'A';
        const char *found = digit == '\0' ? NULL : strchr(all, digit);
        if (found == NULL)
            return -1;
        number = number * 16 + (found - all);
    }
    return number;
}

static char *utf8(char *out, unsigned long code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

/* Read what follows "\u" at *in; a surrogate without its other half becomes U+FFFD. */
static char *unicode(char *out, const char **in, const char *end)
{
    long high = hex4(*in, end);
    if (high <= 0) /* no C string holds a NUL */
        return NULL;
    *in += 4;
    if (high < 0xD800 || high > 0xDFFF)
        return utf8(out, (unsigned long)high);
    if (high <= 0xDBFF && end - *in >= 6 && (*in)[0] == '\\' && (*in)[1] == 'u') {
        long low = hex4(*in + 2, end);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *in += 6;
            return utf8(out, 0x10000 + ((unsigned long)(high - 0xD800) << 10) +
                                 (unsigned long)(low - 0xDC00));
        }
    }
    return utf8(out, 0xFFFD);
}

static const char *closing_quote(const char *from, const char *end)
{
    for (; from < end && *from != '"'; from++) {
        if (*from == '\\' && ++from >= end)
            return NULL;
    }
    return from < end ? from : NULL;
}

char *json_string(struct json *text)
{
    if (!take(text, '"'))
        return NULL;
    const char *end = closing_quote(text->at, text->end);
    if (end == NULL)
        return NULL;
    /* No escape is longer when it is read than it was written. */
    char *value = malloc((size_t)(end - text->at) + 1);
    char *out = value;
    for (const char *in = text->at; value != NULL && in < end;) {
        if (*in != '\\') {
            if (*in == '\0')
                goto broken;
            *out++ = *in++;
            continue;
        }
        const char *escapes = "\"\\/bfnrt", *meanings = "\"\\/\b\f\n\r\t";
        char escape = in[1];
        const char *found = escape == '\0' ? NULL : strchr(escapes, escape);
        in += 2;
        if (found != NULL)
            *out++ = meanings[found - escapes];
        else if (escape != 'u' || (out = unicode(out, &in, end)) == NULL)
            goto broken;
    }
    if (value != NULL)
        *out = '\0';
    text->at = end + 1;
    return value;
broken:
    free(value);
    return NULL;
}

static bool skip_string(struct json *text)
{
    if (!take(text, '"'))
        return false;
    const char *end = closing_quote(text->at, text->end);
    if (end == NULL)
        return false;
    text->at = end + 1;
    return true;
}

static bool skip_number_or_word(struct json *text)
{
    const char *from = text->at;
    while (text->at < text->end && *text->at != '\0' &&
           strchr("+-.0123456789Eaeflnrstu", *text->at) != NULL)
        text->at++;
    return text->at > from;
}

static bool skip(struct json *text, int deep)
{
    blanks(text);
    if (text->at >= text->end || deep > DEEPEST)
        return false;
    char first = *text->at;
    if (first == '"')
        return skip_string(text);
    if (first != '{' && first != '[')
        return skip_number_or_word(text);
    char last = first == '{' ? '}' : ']';
    text->at++;
    if (take(text, last))
        return true;
    do {
        if (first == '{' && !(skip_string(text) && take(text, ':')))
            return false;
        if (!skip(text, deep + 1))
            return false;
    } while (take(text, ','));
    return take(text, last);
}

bool json_skip(struct json *text)
{
    return skip(text, 0);
}

bool json_member(struct json *text, const char *name)
{
    if (!take(text, '{'))
        return false;
    do {
        char *key = json_string(text);
        bool found = key != NULL && strcmp(key, name) == 0;
        bool whole = key != NULL && take(text, ':');
        free(key);
        if (!whole)
            return false;
        if (found)
            return true;
    } while (json_skip(text) && take(text, ','));
    return false;
}

long json_number(struct json *text)
{
    long number = 0;
    blanks(text);
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9' && number < 1L << 40; text->at++)
        number = number * 10 + (*text->at - '0');
    return number;
}

bool json_enter(struct json *text)
{
    if (!take(text, '['))
        return false;
    blanks(text);
    return text->at < text->end && *text->at != ']';
}

bool json_next(struct json *text)
{
    return take(text, ',');
}
