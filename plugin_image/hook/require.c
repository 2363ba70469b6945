#include "require.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 16384, PARTS = 4 };

/* From CUDA 11 on a program runs on every driver of its toolkit's major version. */
enum { FIRST_WITH_MINOR_COMPATIBILITY = 11 };

struct version {
    long part[PARTS];
};

/* Read "550.163.01"; a leading v is allowed. False if it is no version. */
static bool version(const char *text, struct version *out)
{
    *out = (struct version){{0}};
    if (*text == 'v')
        text++;
    for (int i = 0; i < PARTS; i++) {
        if (*text < '0' || *text > '9')
            return false;
        for (; *text >= '0' && *text <= '9'; text++) {
            if (out->part[i] > INT32_MAX / 10)
                return false;
            out->part[i] = out->part[i] * 10 + (*text - '0');
        }
        if (*text == '\0')
            return true;
        if (*text++ != '.')
            return false;
    }
    return false;
}

static int compare(const struct version *one, const struct version *other)
{
    for (int i = 0; i < PARTS; i++) {
        if (one->part[i] != other->part[i])
            return one->part[i] < other->part[i] ? -1 : 1;
    }
    return 0;
}

static bool holds(const char *operator, int order)
{
    if (strcmp(operator, "=") == 0)
        return order == 0;
    if (strcmp(operator, "!=") == 0)
        return order != 0;
    if (strcmp(operator, ">=") == 0)
        return order >= 0;
    if (strcmp(operator, "<=") == 0)
        return order <= 0;
    return *operator == '>' ? order > 0 : order < 0;
}

/* cuda-compat works on data center GPUs and on workstation GPUs that NVIDIA has qualified. */
static bool takes_compat(const char *brand)
{
    static const char *const known[] = {"tesla", "nvidia", "quadrortx", "nvidiartx"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(brand, known[i]) == 0)
            return true;
    }
    return false;
}

static bool cuda_suffices(const struct version *has, const struct version *wants,
                          const struct given *given, bool *by_compat)
{
    if (has->part[0] == wants->part[0] && has->part[0] >= FIRST_WITH_MINOR_COMPATIBILITY)
        return true;
    struct version driver;
    if (has->part[0] > wants->part[0] || !takes_compat(given->brand) ||
        !version(given->driver, &driver) || given->compat <= driver.part[0])
        return false;
    *by_compat = true;
    return true;
}

/* Split "driver>=470" where its operator begins; NULL without one. */
static char *split(char *condition, char *operator)
{
    char *at = condition + strcspn(condition, "=!<>");
    size_t length = strspn(at, "=!<>");
    static const char *const known[] = {"=", "!=", "<", "<=", ">", ">="};
    if (at == condition || length == 0 || length > 2)
        return NULL;
    memcpy(operator, at, length);
    operator[length] = '\0';
    *at = '\0';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(operator, known[i]) == 0)
            return at + length;
    }
    return NULL;
}

static enum verdict condition(char *text, const struct given *given, bool *by_compat)
{
    char operator[3];
    char *value = split(text, operator);
    if (value == NULL || *value == '\0')
        return NOT_UNDERSTOOD;
    if (strcmp(text, "brand") == 0) {
        bool known = *given->brand != '\0';
        return !known || holds(operator, strcmp(given->brand, value)) ? MET : NOT_MET;
    }
    const char *has = strcmp(text, "cuda") == 0     ? given->cuda
                      : strcmp(text, "driver") == 0 ? given->driver
                      : strcmp(text, "arch") == 0   ? given->arch
                                                    : NULL;
    if (has == NULL)
        return MET; /* a property that is not ours to judge */
    struct version own, wanted;
    if (!version(value, &wanted))
        return NOT_UNDERSTOOD;
    if (!version(has, &own) || holds(operator, compare(&own, &wanted)))
        return MET;
    bool at_least = strcmp(text, "cuda") == 0 && *operator == '>';
    return at_least && cuda_suffices(&own, &wanted, given, by_compat) ? MET : NOT_MET;
}

static enum verdict all_of(char *term, const struct given *given, bool *by_compat)
{
    enum verdict found = MET;
    char *rest = term;
    for (char *each; (each = strsep(&rest, ",")) != NULL;) {
        enum verdict one = condition(each, given, by_compat);
        if (one == NOT_UNDERSTOOD)
            return one;
        if (one == NOT_MET)
            found = NOT_MET;
    }
    return found;
}

enum verdict require_judge(const char *expression, const struct given *given, bool *by_compat)
{
    if (strlen(expression) >= LONGEST)
        return NOT_UNDERSTOOD;
    char text[LONGEST];
    strcpy(text, expression);
    bool met = false;
    char *rest = text;
    int terms = 0;
    for (char *term; (term = strsep(&rest, " ")) != NULL;) {
        if (*term == '\0')
            continue;
        bool needs_compat = false;
        enum verdict one = all_of(term, given, &needs_compat);
        if (one == NOT_UNDERSTOOD)
            return one;
        terms++;
        met |= one == MET;
        *by_compat |= one == MET && needs_compat;
    }
    return terms == 0 || met ? MET : NOT_MET;
}

static const char *lookup(char *const *environment, const char *name)
{
    const char *found = NULL;
    size_t length = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            found = *environment + length + 1; /* the last one counts */
    }
    return found;
}

static bool is_true(const char *value)
{
    static const char *const known[] = {"1", "t", "T", "true", "True", "TRUE"};
    for (size_t i = 0; value != NULL && i < sizeof known / sizeof *known; i++) {
        if (strcmp(value, known[i]) == 0)
            return true;
    }
    return false;
}

/* Write a refusal; what the image says is a stranger's, so only plain characters of it. */
static void explain(char *reason, size_t size, enum verdict verdict, const char *name,
                    const char *value, const struct given *given)
{
    char quoted[161];
    size_t used = 0;
    for (; *value != '\0' && used + 1 < sizeof quoted; value++)
        quoted[used++] = *value >= ' ' && *value <= '~' ? *value : '?';
    quoted[used] = '\0';
    const char *more = *value != '\0' ? "..." : "";
    if (verdict == NOT_UNDERSTOOD)
        snprintf(reason, size,
                 "the image's %s is not understood: %s%s: correct it, or set "
                 "NVIDIA_DISABLE_REQUIRE=true",
                 name, quoted, more);
    else
        snprintf(reason, size,
                 "the driver does not meet the image's requirement: %s=%s%s, but driver %s "
                 "supports CUDA %s: use an older image or a newer driver, or set "
                 "NVIDIA_DISABLE_REQUIRE=true",
                 name, quoted, more, given->driver, given->cuda);
}

enum verdict require_environment(char *const *environment, const struct given *given,
                                 bool *by_compat, char *reason, size_t size)
{
    static const char prefix[] = "NVIDIA_REQUIRE_", jetpack[] = "NVIDIA_REQUIRE_JETPACK";
    *by_compat = false;
    if (is_true(lookup(environment, "NVIDIA_DISABLE_REQUIRE")))
        return MET;
    const char *cuda = lookup(environment, "NVIDIA_REQUIRE_CUDA");
    const char *legacy = lookup(environment, "CUDA_VERSION");
    if (cuda == NULL && legacy != NULL && *legacy != '\0') {
        /* Only its first two numbers say something about the driver. */
        char expression[64], *dot;
        snprintf(expression, sizeof expression, "cuda>=%.40s", legacy);
        if ((dot = strchr(expression, '.')) != NULL && (dot = strchr(dot + 1, '.')) != NULL)
            *dot = '\0';
        enum verdict found = require_judge(expression, given, by_compat);
        if (found == NOT_MET) {
            explain(reason, size, found, "CUDA_VERSION", legacy, given);
            return found;
        } /* "cu124" and the like are somebody's own variable: no statement about a driver */
    }
    for (char *const *each = environment; *each != NULL; each++) {
        const char *equals = strchr(*each, '=');
        if (equals == NULL || strncmp(*each, prefix, sizeof prefix - 1) != 0 ||
            strncmp(*each, jetpack, sizeof jetpack - 1) == 0)
            continue;
        char name[65];
        snprintf(name, sizeof name, "%.*s", (int)(equals - *each), *each);
        if (lookup(environment, name) != equals + 1)
            continue; /* set again later */
        bool compat = false;
        enum verdict found = require_judge(equals + 1, given, &compat);
        if (found != MET) {
            explain(reason, size, found, name, equals + 1, given);
            return found;
        }
        *by_compat |= compat;
    }
    return MET;
}
