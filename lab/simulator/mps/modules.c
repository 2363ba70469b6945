/* A command of version 3: `module verb` and what follows, as NVIDIA documents it for release 615. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "modules.h"

#define MAX_WORDS 16

static const struct option {
    const char *name;
    size_t at;
} options[] = {
    {"uid", offsetof(struct arguments, uid)},
    {"allowed-devices", offsetof(struct arguments, devices)},
    {"locality-domains", offsetof(struct arguments, domains)},
    {"server", offsetof(struct arguments, server)},
    {"format", offsetof(struct arguments, format)},
    {"pinned-memory-limit", offsetof(struct arguments, limit)},
    {"active-thread-percentage", offsetof(struct arguments, percentage)},
    {"client-priority", offsetof(struct arguments, priority)},
};

static void help(struct reply *reply, const char *module, const char *verb)
{
    for (size_t i = 0; i < verb_count; i++)
        if (strcmp(verbs[i].module, module) == 0 && (verb == NULL || strcmp(verbs[i].name, verb) == 0))
            say(reply, "nvidia-cuda-mps-control %s %s %s\n", module, verbs[i].name, verbs[i].arguments);
}

/* Take a word's option, which its verb must have; false: it is none. */
static bool take_option(struct arguments *given, const struct verb *verb, char *word)
{
    char *name = strncmp(word, "--", 2) == 0 ? word + 2 : word, *value = strchr(name, '=');
    char mark[64];
    if (value != NULL)
        *value++ = '\0';
    snprintf(mark, sizeof mark, "[--%s]", name);
    if (value == NULL) {
        given->force = given->force || strcmp(name, "force") == 0;
        given->all = given->all || strcmp(name, "all") == 0;
        return strstr(verb->arguments, mark) != NULL;
    }
    snprintf(mark, sizeof mark, "--%s=", name);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(options[i].name, name) == 0 && strstr(verb->arguments, mark) != NULL) {
            memcpy((char *)given + options[i].at, &value, sizeof value);
            return true;
        }
    return false;
}

static void quit(struct peer *peer, struct reply *reply)
{
    if (peer->uid != 0 && peer->uid != geteuid()) {
        fail(reply, "Insufficient privileges for UID %u. 'QUIT' requires server owner.", (unsigned)peer->uid);
        return;
    }
    control.stopping = true;
    control.stop_at = 1; /* long ago: it stops all servers */
}

static const struct verb *find_verb(char **words)
{
    for (size_t i = 0; words[1] != NULL && i < verb_count; i++)
        if (strcmp(verbs[i].module, words[0]) == 0 && strcmp(verbs[i].name, words[1]) == 0)
            return &verbs[i];
    return NULL;
}

static void run_verb(struct peer *peer, const struct verb *verb, char **words, struct reply *reply)
{
    char named[64];
    struct arguments given = {.peer = peer, .named = named};
    unsigned count = 0;
    snprintf(named, sizeof named, "%s %s", verb->module, verb->name);
    for (char *at = named; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
    for (; *words != NULL; words++) {
        if (strncmp(*words, "--", 2) == 0 || strchr(*words, '=') != NULL) {
            if (!take_option(&given, verb, *words)) {
                fail(reply, "Unknown option '%s'", *words);
                help(reply, verb->module, verb->name);
                return;
            }
        } else if (count < verb->most)
            given.positional[count++] = *words;
        else
            count = verb->most + 1;
    }
    if (count < verb->least || count > verb->most) {
        fail(reply, "Invalid arguments");
        help(reply, verb->module, verb->name);
        return;
    }
    verb->run(reply, &given);
}

void module_command(struct peer *peer, struct reply *reply)
{
    char *words[MAX_WORDS] = {NULL};
    unsigned count = split(peer->request.command, words, MAX_WORDS);
    if (count == 0)
        return;
    if (strcmp(words[0], "-q") == 0) {
        quit(peer, reply);
        return;
    }
    if (count > 1 && strcmp(words[count - 1], "help") == 0) {
        help(reply, words[0], count > 2 ? words[1] : NULL);
        return;
    }
    const struct verb *verb = find_verb(words);
    if (verb == NULL)
        fail(reply, "Unknown command: a module and its verb are expected");
    else
        run_verb(peer, verb, words + 2, reply);
}
