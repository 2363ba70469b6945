/* What a command answers. */
#include <stdarg.h>

#include "mps.h"

static void add(struct reply *reply, const char *format, va_list values)
{
    int written = vsnprintf(reply->text + reply->length, sizeof reply->text - reply->length, format, values);
    if (written > 0 && (size_t)written < sizeof reply->text - reply->length)
        reply->length += (size_t)written;
}

void say(struct reply *reply, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add(reply, format, values);
    va_end(values);
}

void fail(struct reply *reply, const char *format, ...)
{
    va_list values;
    reply->code = 1;
    va_start(values, format);
    add(reply, format, values);
    va_end(values);
    say(reply, "\n");
}
