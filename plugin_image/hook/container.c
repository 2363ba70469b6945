#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"

enum { LARGEST_TEXT = 16 << 20, MAX_VARIABLES = 65536 };

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
    free(text);
    if (root == NULL || container->environment == NULL) {
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
}
