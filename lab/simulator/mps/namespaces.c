/* Servers and namespaces of version 3 by their names: each has a folder with a socket. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "mps.h"

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < MPS_NAME && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

static void path_of(const struct server *server, const struct namespace *space, const char *file, char *path)
{
    const char *name = space == NULL ? "" : space->name, *slash = space == NULL ? "" : "/";
    snprintf(path, PATH_MAX, "%s/%s/%s%s%s", mps_pipes(), server->name, name, slash, file);
}

/* Listen in the folder of a server or of one of its namespaces. */
static const char *listen_in(struct server *server, struct namespace *space, int *listener)
{
    char folder[PATH_MAX], name[2 * MPS_NAME + 16];
    path_of(server, space, "", folder);
    mkdir(folder, 0755); /* it may be left of a daemon before */
    snprintf(name, sizeof name, "%s%s%s/%s", server->name, space == NULL ? "" : "/",
             space == NULL ? "" : space->name, MPS_CONTROL);
    *listener = listening(name, 0666);
    return *listener < 0 ? "Failed to listen in the pipe directory: is its path too long for a socket?" : NULL;
}

static void stop_listening(const struct server *server, const struct namespace *space, int *listener, bool delete_folder)
{
    char path[PATH_MAX];
    if (*listener >= 0) {
        close(*listener);
        path_of(server, space, MPS_CONTROL, path);
        unlink(path);
    }
    *listener = -1;
    if (delete_folder) {
        path_of(server, space, "", path);
        rmdir(path);
    }
}

struct server *server_named(const char *name)
{
    for (int i = 0; name != NULL && i < MAX_SERVERS; i++)
        if (control.servers[i].pid != 0 && strcmp(control.servers[i].name, name) == 0)
            return &control.servers[i];
    return NULL;
}

static uint32_t chosen(const char *devices)
{
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < control.gpu_count; i++)
        if (mps_names(devices, &control.gpus[i], i))
            gpus |= 1u << i;
    return gpus;
}

static void log_of(const struct server *server, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", mps_logs(), server->name);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/server.log", mps_logs(), server->name);
    FILE *file = fopen(path, "ae");
    if (file == NULL)
        return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

const char *server_create(const char *name, uid_t uid, const char *devices, struct server **created)
{
    char of_user[MPS_NAME];
    snprintf(of_user, sizeof of_user, "uid_%u", (unsigned)uid);
    name = name == NULL ? of_user : name;
    if (!is_name(name))
        return "Invalid server name";
    if (server_named(name) != NULL)
        return "The server exists already";
    if (control.multiuser && uid != geteuid())
        return "Multiuser servers are the daemon's user's: only its UID is allowed";
    struct server *server = NULL;
    for (int i = 0; i < MAX_SERVERS && server == NULL; i++)
        if (control.servers[i].pid == 0)
            server = &control.servers[i];
    if (server == NULL)
        return "No more servers are possible";
    *server = (struct server){.fd = -1, .listener = -1};
    for (int i = 0; i < MAX_NAMESPACES; i++)
        server->namespaces[i].listener = -1;
    snprintf(server->name, sizeof server->name, "%s", name);
    const char *problem = listen_in(server, NULL, &server->listener);
    if (problem == NULL)
        problem = namespace_create(server, DEFAULT_NAMESPACE, NULL);
    if (problem != NULL) {
        server_remove(server, true);
        return problem;
    }
    uint32_t gpus = chosen(devices);
    /* One that cannot start is accepted, too, and then not listed: seen by NVIDIA (Dynamo's
     * guide) of a GPU that is not there. */
    if (gpus == 0 || !server_start(server, uid, gpus)) {
        log_of(server, gpus == 0 ? "no CUDA-capable device is detected" : "the driver refused the server");
        server_remove(server, true);
        server = NULL;
    } else
        log_of(server, "started");
    if (created != NULL)
        *created = server;
    return NULL;
}

void server_remove(struct server *server, bool delete_folders)
{
    server_stop(server);
    for (int i = 0; i < MAX_NAMESPACES; i++)
        if (server->namespaces[i].name[0] != '\0') {
            stop_listening(server, &server->namespaces[i], &server->namespaces[i].listener, delete_folders);
            server->namespaces[i].name[0] = '\0';
        }
    stop_listening(server, NULL, &server->listener, delete_folders);
}

struct server *server_of_user(uid_t uid)
{
    char name[MPS_NAME];
    struct server *server;
    snprintf(name, sizeof name, "uid_%u", (unsigned)uid);
    server = server_named(name);
    if (server == NULL)
        server_create(NULL, uid, NULL, &server);
    return server;
}

struct namespace *namespace_named(struct server *server, const char *name)
{
    for (int i = 0; name != NULL && i < MAX_NAMESPACES; i++)
        if (*name != '\0' && strcmp(server->namespaces[i].name, name) == 0)
            return &server->namespaces[i];
    return NULL;
}

const char *namespace_create(struct server *server, const char *name, struct namespace **created)
{
    if (!is_name(name))
        return "Invalid namespace name";
    if (namespace_named(server, name) != NULL)
        return "The namespace exists already";
    struct namespace *space = NULL;
    for (int i = 0; i < MAX_NAMESPACES && space == NULL; i++)
        if (server->namespaces[i].name[0] == '\0')
            space = &server->namespaces[i];
    if (space == NULL)
        return "No more namespaces are possible";
    *space = (struct namespace){.percentage = 100, .listener = -1};
    snprintf(space->name, sizeof space->name, "%s", name);
    const char *problem = listen_in(server, space, &space->listener);
    if (problem != NULL)
        namespace_remove(server, space);
    if (created != NULL)
        *created = problem == NULL ? space : NULL;
    return problem;
}

void namespace_remove(struct server *server, struct namespace *space)
{
    /* Whom it has admitted keeps what it was given; whom it has not gets in nowhere. */
    for (int i = 0; i < MAX_PEERS; i++) {
        struct peer *peer = &control.peers[i];
        if (peer->fd >= 0 && peer->space == space && peer->is_client && !peer->admitted)
            peer_close(peer);
        else if (peer->space == space)
            peer->space = NULL;
    }
    stop_listening(server, space, &space->listener, true);
    space->name[0] = '\0';
}

const char *read_limit(const char *text, uint64_t *bytes)
{
    uint64_t limit = mps_size(text);
    if (limit == 0 || isdigit((unsigned char)text[strlen(text) - 1]))
        return "Invalid pinned memory limit: 4G, 512M or 1024K is expected";
    *bytes = limit;
    return NULL;
}

const char *read_percentage(const char *text, uint32_t *percentage)
{
    char *rest;
    double number = strtod(text, &rest);
    if (rest == text || *rest != '\0' || !(number >= 1 && number <= 100))
        return "Invalid active thread percentage: 1 to 100 is expected";
    *percentage = (uint32_t)number;
    return NULL;
}

const char *read_priority(const char *text, uint32_t *priority)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return "Invalid client priority: 0 or 1 is expected";
    *priority = (uint32_t)(*text - '0');
    return NULL;
}
