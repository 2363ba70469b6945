#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"

enum { LARGEST_TEXT = 16 << 20, MAX_VARIABLES = 65536, MAX_MOUNTS = 65536 };

/* Read everything; NULL where it fails or is larger than a specification ever is. */
static char *read_all(int file, size_t *size)
{
    size_t room = 65536;
    char *text = malloc(room);
    *size = 0;
    while (text != NULL) {
        ssize_t got = read(file, text + *size, room - *size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        if (got == 0)
            return text;
        *size += (size_t)got;
        if (*size < room)
            continue;
        char *larger = room >= LARGEST_TEXT ? NULL : realloc(text, room *= 2);
        if (larger == NULL)
            break;
        text = larger;
    }
    free(text);
    return NULL;
}

static char *read_file(const char *path, size_t *size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return NULL;
    char *text = read_all(file, size);
    close(file);
    return text;
}

/* Return a copy of the string at a member of a member ("root", "path"). */
static char *member_string(struct json text, const char *outer, const char *inner)
{
    if (!json_member(&text, outer) || (inner != NULL && !json_member(&text, inner)))
        return NULL;
    return json_string(&text);
}

static long member_number(struct json text, const char *name)
{
    return json_member(&text, name) ? json_number(&text) : 0;
}

static char **environment(struct json text)
{
    char **found = calloc(1, sizeof *found);
    if (!json_member(&text, "process") || !json_member(&text, "env") || !json_enter(&text))
        return found;
    for (size_t count = 0; found != NULL && count < MAX_VARIABLES; count++) {
        char *one = json_string(&text);
        if (one == NULL)
            break;
        char **larger = realloc(found, (count + 2) * sizeof *found);
        if (larger == NULL) {
            free(one);
            break;
        }
        found = larger;
        found[count] = one;
        found[count + 1] = NULL;
        if (!json_next(&text))
            return found;
    }
    for (char **each = found; each != NULL && *each != NULL; each++)
        free(*each);
    free(found);
    return NULL;
}

static void free_mounts(struct mount *mounts)
{
    for (struct mount *each = mounts; each != NULL && each->path != NULL; each++) {
        free(each->path);
        free(each->source);
    }
    free(mounts);
}

static struct mount *mounts(struct json text)
{
    struct mount *found = calloc(1, sizeof *found);
    if (!json_member(&text, "mounts") || !json_enter(&text))
        return found;
    for (size_t count = 0; found != NULL && count < MAX_MOUNTS; count++) {
        struct mount one = {member_string(text, "destination", NULL), member_string(text, "source", NULL)};
        if (one.source == NULL)
            one.source = strdup("");
        struct mount *larger = realloc(found, (count + 2) * sizeof *found);
        if (larger != NULL) {
            found = larger;
            found[count] = one;
            found[count + 1] = (struct mount){NULL, NULL};
        }
        if (larger == NULL || one.path == NULL || one.source == NULL) {
            if (larger == NULL)
                free(one.path);
            free(one.source);
            break;
        }
        if (!json_skip(&text) || !json_next(&text))
            return found;
    }
    free_mounts(found);
    return NULL;
}

static bool read_specification(const char *bundle, struct container *container)
{
    char path[PATH_MAX];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/config.json", bundle);
    char *text = read_file(path, &size);
    if (text == NULL) {
        fprintf(stderr, "divvy: cannot read %s: %s\n", path, strerror(errno));
        return false;
    }
    struct json json = {text, text + size};
    char *root = member_string(json, "root", "path");
    container->environment = environment(json);
    container->mounts = mounts(json);
    free(text);
    if (root == NULL || container->environment == NULL || container->mounts == NULL) {
        fprintf(stderr, "divvy: %s has no root.path, or is broken\n", path);
        free(root);
        return false;
    }
    if (*root == '/') {
        container->rootfs = root;
        return true;
    }
    int long_enough = snprintf(path, sizeof path, "%s/%s", bundle, root);
    container->rootfs = (size_t)long_enough < sizeof path ? strdup(path) : NULL;
    free(root);
    return container->rootfs != NULL;
}

bool container_read(int state, struct container *container)
{
    *container = (struct container){0};
    size_t size = 0;
    char *text = read_all(state, &size);
    if (text == NULL) {
        fprintf(stderr, "divvy: cannot read the container's state: %s\n", strerror(errno));
        return false;
    }
    char *bundle = member_string((struct json){text, text + size}, "bundle", NULL);
    container->pid = member_number((struct json){text, text + size}, "pid");
    free(text);
    if (bundle == NULL || *bundle != '/') {
        fprintf(stderr, "divvy: the container's state names no bundle\n");
        free(bundle);
        return false;
    }
    bool done = read_specification(bundle, container);
    free(bundle);
    return done;
}

void container_free(struct container *container)
{
    free(container->rootfs);
    for (char **each = container->environment; each != NULL && *each != NULL; each++)
        free(*each);
    free(container->environment);
    free_mounts(container->mounts);
}
