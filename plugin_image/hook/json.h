/* A reader of complete JSON texts, as far as container specifications need it. */
#ifndef DIVVY_HOOK_JSON_H
#define DIVVY_HOOK_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* A place in a text; every function moves it behind what it has read. */
struct json {
    const char *at;
    const char *end;
};

/* Move to the value of a member of the object that begins here; false without such a member. */
bool json_member(struct json *text, const char *name);

/* Enter the array that begins here; then json_next moves from element to element. */
bool json_enter(struct json *text);
bool json_next(struct json *text);

/* Read the string that begins here into memory that the caller frees; NULL where none begins. */
char *json_string(struct json *text);

/* Read the whole number that begins here; 0 where none begins. */
long json_number(struct json *text);

/* Move behind the value that begins here, whatever it is; false where the text is broken. */
bool json_skip(struct json *text);

#endif
