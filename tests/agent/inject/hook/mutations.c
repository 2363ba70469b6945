/* Specifications and requirements with random damage, the same in every run; under sanitizers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "require.h"

enum { ROUNDS = 60000, LARGEST = 512 };

static const char *const SPECIFICATIONS[] = {
    "{\"root\":{\"path\":\"rootfs\"},\"process\":{\"env\":[\"A=\\u00e4\\n\",\"B=\\\"c\\\\\"]}}",
    "{\"a\":[1,-2.5e+3,true,null,{\"b\":[]}],\"process\":{\"env\":[]},\"root\":{\"path\":\"/r\"}}",
};
static const char *const REQUIREMENTS[] = {
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 arch!=8.0",
    "cuda<=13.0,driver>=550.163.01 brand=nvidia",
};

static uint32_t next(void)
{
    static uint32_t state = 2463534242U;
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

/* Return a damaged copy, exactly as large as its text, so that a sanitizer sees a byte beyond. */
static char *damaged(const char *seed, size_t *size)
{
    static const char telling[] = "{}[]\",:\\u0 =<>!.";
    char text[LARGEST];
    *size = strlen(seed);
    memcpy(text, seed, *size);
    for (uint32_t count = next() % 6; count > 0 && *size > 1; count--) {
        size_t at = next() % *size;
        switch (next() % 4) {
        case 0:
            text[at] = (char)next();
            break;
        case 1:
            text[at] = telling[next() % (sizeof telling - 1)];
            break;
        case 2:
            *size = at;
            break;
        default:
            if (*size < LARGEST / 2) {
                size_t rest = *size - at;
                memcpy(text + *size, text + at, rest);
                *size += rest;
            }
        }
    }
    char *copy = malloc(*size + 1);
    memcpy(copy, text, *size);
    copy[*size] = '\0';
    return copy;
}

static void read_specification(const char *begin, const char *end)
{
    struct json text = {begin, end}, whole = {begin, end};
    json_skip(&whole);
    if (json_member(&text, "root") && json_member(&text, "path"))
        free(json_string(&text));
    text = (struct json){begin, end};
    if (!json_member(&text, "process") || !json_member(&text, "env") || !json_enter(&text))
        return;
    for (char *one; (one = json_string(&text)) != NULL;) {
        free(one);
        if (!json_next(&text))
            return;
    }
}

int main(void)
{
    const struct given given = {"12.4", "550.163.01", "nvidia", "8.0", 580};
    for (int round = 0; round < ROUNDS; round++) {
        size_t size;
        char *text = damaged(SPECIFICATIONS[next() % 2], &size);
        /* Without the byte that ends it: a reader trusts the size. */
        char *exact = malloc(size + !size);
        memcpy(exact, text, size);
        read_specification(exact, exact + size);
        free(exact);
        free(text);
        char *expression = damaged(REQUIREMENTS[next() % 2], &size);
        char variable[LARGEST + 32] = "NVIDIA_REQUIRE_CUDA=", reason[64];
        strncat(variable, expression, LARGEST);
        char *const environment[] = {variable, NULL};
        bool by_compat = false;
        require_judge(expression, &given, &by_compat);
        require_environment(environment, &given, &by_compat, reason, sizeof reason);
        free(expression);
    }
    return 0;
}
