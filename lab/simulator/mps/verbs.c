/* What the verbs of version 3 do, as NVIDIA documents them for release 615. */
#include <stdlib.h>
#include <string.h>

#include "modules.h"

static struct server *find_server(struct reply *reply, const char *name)
{
    struct server *server = server_named(name);
    if (name == NULL)
        fail(reply, "--server is expected");
    else if (server == NULL)
        fail(reply, "Server '%s' not found", name);
    return server;
}

static struct namespace *find_namespace(struct reply *reply, struct server *server, const char *name)
{
    struct namespace *space = namespace_named(server, name);
    if (space == NULL)
        fail(reply, "Namespace '%s' not found on server '%s'", name, server->name);
    return space;
}

static struct peer *find_client(struct reply *reply, const char *pid)
{
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].admitted && atoi(pid) == control.peers[i].pid)
            return &control.peers[i];
    fail(reply, "Client '%s' not found", pid);
    return NULL;
}

/* The words of a refusal are NVIDIA's, as reported of driver 615. */
static bool may(struct reply *reply, const struct arguments *given, uid_t owner)
{
    if (given->peer->uid == 0 || given->peer->uid == owner)
        return true;
    fail(reply, "Insufficient privileges for UID %u. '%s' requires server owner.", (unsigned)given->peer->uid,
         given->named);
    return false;
}

static void say_field(struct reply *reply, const char *field, const char *value)
{
    if (value == NULL)
        fail(reply, "Unknown field '%s'", field);
    else
        say(reply, "%s\n", value);
}

static void server_create_verb(struct reply *reply, const struct arguments *given)
{
    char *rest;
    uid_t uid = given->uid == NULL ? given->peer->uid : (uid_t)strtoul(given->uid, &rest, 10);
    if (given->uid == NULL && given->positional[0] == NULL) {
        fail(reply, "A name or --uid is expected");
        return;
    }
    if (given->uid != NULL && (*given->uid == '\0' || *rest != '\0')) {
        fail(reply, "Invalid UID '%s'", given->uid);
        return;
    }
    if (given->domains != NULL && strcmp(given->domains, "false") != 0) {
        fail(reply, "Locality domains are not supported");
        return;
    }
    if (!may(reply, given, uid))
        return;
    const char *problem = server_create(given->positional[0], uid, given->devices, NULL);
    if (problem != NULL)
        fail(reply, "%s", problem);
}

static void terminate(struct peer *peer)
{
    server_change(peer->server, SIM_MPS_TERMINATE, peer->pid, NULL);
    note("Client %d is terminated", (int)peer->pid);
}

static void server_delete_verb(struct reply *reply, const struct arguments *given)
{
    struct server *server = find_server(reply, given->positional[0]);
    if (server == NULL || !may(reply, given, server->uid))
        return;
    if (clients(server, NULL) > 0 && !given->force) {
        fail(reply, "Server '%s' has active clients", server->name);
        return;
    }
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].admitted && control.peers[i].server == server)
            terminate(&control.peers[i]);
    server_stop(server);
    clients_fail(server);
    server_remove(server, true);
}

static void server_list_verb(struct reply *reply, const struct arguments *given)
{
    static const char *const fields[] = {"name", "uid", "pid", "status", "pipe-directory", "allowed-devices"};
    struct table table = {.reply = reply, .columns = 7,
                          .of = {{"NAME", 17}, {"UID", 8}, {"PID", 8}, {"STATUS", 14}, {"PIPE DIRECTORY", 41},
                                 {"ALLOWED DEVICES", 43}, {"CONTEXT IDS", 0}}};
    static char texts[6][2048];
    if (given->positional[0] != NULL && find_server(reply, given->positional[0]) == NULL)
        return;
    if (!table_begin(&table, given->format))
        return;
    for (int i = 0; i < MAX_SERVERS; i++) {
        const struct server *server = &control.servers[i];
        const char *values[7];
        if (server->pid == 0 || (given->positional[0] != NULL && strcmp(server->name, given->positional[0]) != 0))
            continue;
        for (unsigned f = 0; f < 6; f++)
            values[f] = server_field(server, fields[f], texts[f], sizeof texts[f]);
        values[6] = "-";
        table_row(&table, values);
    }
}

static void set(struct reply *reply, const struct arguments *given, struct server *server, struct namespace *space)
{
    struct namespace changed = *space;
    const char *problem = NULL;
    if (given->limit == NULL && given->percentage == NULL && given->priority == NULL)
        problem = "At least one option is expected";
    if (problem == NULL && given->limit != NULL)
        problem = read_limit(given->limit, &changed.limit);
    if (problem == NULL && given->percentage != NULL)
        problem = read_percentage(given->percentage, &changed.percentage);
    if (problem == NULL && given->priority != NULL)
        problem = read_priority(given->priority, &changed.priority);
    /* Reported of driver 615 (gpu-fractioning): limits cannot change under a client. */
    if (problem == NULL && clients(server, space) > 0)
        problem = "The namespace has active clients";
    if (problem != NULL)
        fail(reply, "%s", problem);
    else
        *space = changed;
}

static void server_set_verb(struct reply *reply, const struct arguments *given)
{
    struct server *server = find_server(reply, given->positional[0]);
    if (server == NULL || !may(reply, given, server->uid))
        return;
    if (given->domains != NULL || given->uid != NULL)
        fail(reply, "Only limits of a server can be set in the simulation");
    else
        set(reply, given, server, server->namespaces);
}

static void server_get_verb(struct reply *reply, const struct arguments *given)
{
    char text[2048];
    const struct server *server = find_server(reply, given->positional[0]);
    if (server == NULL)
        return;
    say_field(reply, given->positional[1], server_field(server, given->positional[1], text, sizeof text));
}

static void namespace_create_verb(struct reply *reply, const struct arguments *given)
{
    struct server *server = find_server(reply, given->server);
    if (server == NULL || !may(reply, given, server->uid))
        return;
    const char *problem = namespace_create(server, given->positional[0], NULL);
    if (problem != NULL)
        fail(reply, "%s", problem);
}

static void namespace_delete_verb(struct reply *reply, const struct arguments *given)
{
    struct server *server = find_server(reply, given->server);
    if (server == NULL || !may(reply, given, server->uid))
        return;
    struct namespace *space = find_namespace(reply, server, given->positional[0]);
    if (space == NULL)
        return;
    if (space == server->namespaces)
        fail(reply, "The default namespace cannot be deleted");
    else if (clients(server, space) > 0 && !given->force)
        fail(reply, "Namespace '%s' has active clients", space->name);
    else
        namespace_remove(server, space);
}

static void namespace_list_verb(struct reply *reply, const struct arguments *given)
{
    static const char *const fields[] = {"name", "server", "server-status", "pinned-memory-limit",
                                         "active-thread-percentage", "client-priority", "pipe-directory"};
    struct table table = {.reply = reply, .columns = 7,
                          .of = {{"NAME", 17}, {"SERVER", 14}, {"SERVER STATUS", 15}, {"PINNED MEMORY LIMIT", 22},
                                 {"ACTIVE THREAD PERCENTAGE", 27}, {"CLIENT PRIORITY", 18}, {"PIPE DIRECTORY", 0}}};
    static char texts[7][1024];
    if ((given->server != NULL && find_server(reply, given->server) == NULL) || !table_begin(&table, given->format))
        return;
    for (int i = 0; i < MAX_SERVERS; i++) {
        const struct server *server = &control.servers[i];
        if (server->pid == 0 || (given->server != NULL && strcmp(server->name, given->server) != 0))
            continue;
        for (int n = 0; n < MAX_NAMESPACES; n++) {
            const struct namespace *space = &server->namespaces[n];
            const char *values[7];
            if (space->name[0] == '\0' || (given->positional[0] != NULL && strcmp(space->name, given->positional[0]) != 0))
                continue;
            for (unsigned f = 0; f < 7; f++)
                values[f] = namespace_field(server, space, fields[f], texts[f], sizeof texts[f]);
            table_row(&table, values);
        }
    }
}

static void namespace_set_verb(struct reply *reply, const struct arguments *given)
{
    struct server *server = find_server(reply, given->server);
    if (server == NULL || !may(reply, given, server->uid))
        return;
    struct namespace *space = find_namespace(reply, server, given->positional[0]);
    if (space != NULL)
        set(reply, given, server, space);
}

static void namespace_get_verb(struct reply *reply, const struct arguments *given)
{
    char text[1024];
    struct server *server = find_server(reply, given->positional[1]);
    struct namespace *space = server == NULL ? NULL : find_namespace(reply, server, given->positional[0]);
    if (space == NULL)
        return;
    say_field(reply, given->positional[2], namespace_field(server, space, given->positional[2], text, sizeof text));
}

static void client_list_verb(struct reply *reply, const struct arguments *given)
{
    static const char *const fields[] = {"pid", "server", "device", "maws-ns", "cmd"};
    struct table table = {.reply = reply, .columns = 5,
                          .of = {{"PID", 8}, {"SERVER", 14}, {"DEVICE", 47}, {"MAWS NS", 25}, {"CMD", 0}}};
    static char texts[5][1024];
    if ((given->server != NULL && find_server(reply, given->server) == NULL) || !table_begin(&table, given->format))
        return;
    for (int i = 0; i < MAX_PEERS; i++) {
        const struct peer *peer = &control.peers[i];
        const char *values[5];
        if (peer->fd < 0 || !peer->admitted || (given->server != NULL && strcmp(peer->server->name, given->server) != 0))
            continue;
        for (unsigned f = 0; f < 5; f++)
            values[f] = client_field(peer, fields[f], texts[f], sizeof texts[f]);
        table_row(&table, values);
    }
}

static void client_get_verb(struct reply *reply, const struct arguments *given)
{
    char text[1024];
    const struct peer *client = find_client(reply, given->positional[0]);
    if (client == NULL)
        return;
    say_field(reply, given->positional[1], client_field(client, given->positional[1], text, sizeof text));
}

static void client_terminate_verb(struct reply *reply, const struct arguments *given)
{
    struct peer *client = find_client(reply, given->positional[0]);
    if (client != NULL && may(reply, given, client->server->uid))
        terminate(client);
}

const struct verb verbs[] = {
    {"server", "create", "<name> [--uid=<n>] [--allowed-devices=<devices>] [--locality-domains=<true|false>]", 0, 1,
     server_create_verb},
    {"server", "delete", "<name> [--force]", 1, 1, server_delete_verb},
    {"server", "list", "[<name>] [--format=<table|csv>[,noheader]]", 0, 1, server_list_verb},
    {"server", "set",
     "<name> [--uid=<n>] [--pinned-memory-limit=<limit>] [--active-thread-percentage=<pct>] "
     "[--locality-domains=<true|false>] [--client-priority=<priority>]",
     1, 1, server_set_verb},
    {"server", "get", "<name> <field>", 2, 2, server_get_verb},
    {"namespace", "create", "<name> --server=<s>", 1, 1, namespace_create_verb},
    {"namespace", "delete", "<name> --server=<s> [--force]", 1, 1, namespace_delete_verb},
    {"namespace", "list", "[<name>] [--server=<s>] [--format=<table|csv>[,noheader]]", 0, 1, namespace_list_verb},
    {"namespace", "set",
     "<name> --server=<s> [--pinned-memory-limit=<limit>] [--active-thread-percentage=<pct>] "
     "[--client-priority=<priority>]",
     1, 1, namespace_set_verb},
    {"namespace", "get", "<name> <server> <field>", 3, 3, namespace_get_verb},
    {"client", "list", "[--server=<s>] [--all] [--format=<table|csv>[,noheader]]", 0, 0, client_list_verb},
    {"client", "get", "<pid> <field>", 2, 2, client_get_verb},
    {"client", "terminate", "<pid>", 1, 1, client_terminate_verb},
};

const size_t verb_count = sizeof verbs / sizeof *verbs;
