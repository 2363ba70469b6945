/* A command's words, and what it answers. */
#include <stdarg.h>
#include <string.h>

#include "mps.h"

static void add(struct reply *reply, const char *format, va_list values)
{
    int written = vsnprintf(reply->text + reply->length, sizeof reply->text - reply->length, format, values);
    if (written > 0 && (size_t)written < sizeof reply->text - reply->length)
        reply->length += (size_t)written;
}

unsigned split(char *command, char **words, unsigned most)
{
    char *rest = NULL;
    unsigned count = 0;
    for (char *word = strtok_r(command, " \t\n", &rest); word != NULL && count < most - 1;
         word = strtok_r(NULL, " \t\n", &rest))
        words[count++] = word;
    words[count] = NULL;
    return count;
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
