/* The file of `-a`: servers, namespaces and features, of TOML what NVIDIA's example has. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mps.h"

#define MAX_LINE 2048

/* A server as the file wants it: it is started when all of its tables are read. */
static struct wanted {
    char name[MPS_NAME], devices[MAX_LINE];
    bool has_uid;
    uid_t uid;
    struct namespace namespaces[MAX_NAMESPACES];
} wanted[MAX_SERVERS];

static enum { NOWHERE, OF_SERVER, OF_NAMESPACE, OF_FEATURE } table;
static struct wanted *server;
static struct namespace *space;
static char feature[64];

static const char *find_server(const char *name)
{
    if (strlen(name) >= MPS_NAME)
        return "Invalid server name";
    for (int i = 0; i < MAX_SERVERS; i++) {
        server = &wanted[i];
        if (strcmp(server->name, name) == 0)
            return NULL;
        if (server->name[0] == '\0') {
            snprintf(server->name, sizeof server->name, "%s", name);
            snprintf(server->namespaces[0].name, MPS_NAME, DEFAULT_NAMESPACE);
            server->namespaces[0].percentage = 100;
            return NULL;
        }
    }
    return "No more servers are possible";
}

static const char *find_namespace(const char *name)
{
    if (strlen(name) >= MPS_NAME)
        return "Invalid namespace name";
    for (int i = 0; i < MAX_NAMESPACES; i++) {
        space = &server->namespaces[i];
        if (strcmp(space->name, name) == 0)
            return NULL;
        if (space->name[0] == '\0') {
            snprintf(space->name, sizeof space->name, "%s", name);
            space->percentage = 100;
            return NULL;
        }
    }
    return "No more namespaces are possible";
}

static const char *enter(char *path)
{
    char *parts[5] = {NULL}, *rest = NULL;
    unsigned count = 0;
    for (char *part = strtok_r(path, ".", &rest); part != NULL && count < 5; part = strtok_r(NULL, ".", &rest))
        parts[count++] = part;
    if (count == 2 && strcmp(parts[0], "features") == 0) {
        table = OF_FEATURE;
        snprintf(feature, sizeof feature, "%s", parts[1]);
        return strcmp(feature, "memacct") == 0 || strcmp(feature, "context-share") == 0 ? NULL : "Unknown feature";
    }
    if (count < 2 || strcmp(parts[0], "servers") != 0)
        return "Unknown table";
    const char *problem = find_server(parts[1]);
    table = OF_SERVER;
    space = server->namespaces;
    if (problem != NULL || count == 2)
        return problem;
    if (count != 4 || strcmp(parts[2], "namespaces") != 0)
        return "Unknown table";
    table = OF_NAMESPACE;
    return find_namespace(parts[3]);
}

static const char *set_server(const char *key, const char *value, bool is_text)
{
    char *rest;
    if (strcmp(key, "allowed_devices") == 0 && is_text) {
        snprintf(server->devices, sizeof server->devices, "%s", value);
        return NULL;
    }
    if (strcmp(key, "uid") == 0 && !is_text) {
        server->has_uid = true;
        server->uid = (uid_t)strtoul(value, &rest, 10);
        return *value >= '0' && *value <= '9' && *rest == '\0' ? NULL : "Invalid UID";
    }
    if (strcmp(key, "locality_domains") == 0 && !is_text)
        return strcmp(value, "false") == 0 ? NULL : "Locality domains are not supported";
    return "Unknown key";
}

static const char *set(const char *key, const char *value, bool is_text)
{
    bool is_of_client = table == OF_SERVER || table == OF_NAMESPACE;
    if (table == NOWHERE)
        return strcmp(key, "schema_version") == 0 && strcmp(value, "1.0") == 0 ? NULL : "Unknown key";
    if (is_of_client && is_text && strcmp(key, "pinned_memory_limit") == 0)
        return read_limit(value, &space->limit);
    if (is_of_client && is_text && strcmp(key, "active_thread_percentage") == 0)
        return read_percentage(value, &space->percentage);
    if (is_of_client && is_text && strcmp(key, "client_priority") == 0)
        return read_priority(value, &space->priority);
    if (table == OF_SERVER)
        return set_server(key, value, is_text);
    /* What features do is not simulated. */
    bool is_known = strcmp(key, "enabled") == 0 ||
                    strcmp(key, strcmp(feature, "memacct") == 0 ? "audit_log" : "default_socket") == 0;
    return table == OF_FEATURE && is_known ? NULL : "Unknown key";
}

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        text[--length] = '\0';
    return text;
}

static const char *read_line(char *line)
{
    bool quoted = false;
    for (char *at = line; *at != '\0'; at++) {
        quoted = *at == '"' ? !quoted : quoted;
        if (*at == '#' && !quoted)
            *at = '\0';
    }
    line = trimmed(line);
    size_t length = strlen(line);
    if (length == 0)
        return NULL;
    if (strncmp(line, "[[", 2) == 0)
        return "SM partitions are not simulated";
    if (*line == '[') {
        if (line[length - 1] != ']')
            return "Invalid table";
        line[length - 1] = '\0';
        return enter(line + 1);
    }
    char *value = strchr(line, '=');
    if (value == NULL)
        return "A table or key = value is expected";
    *value++ = '\0';
    value = trimmed(value);
    length = strlen(value);
    bool is_text = length > 1 && value[0] == '"' && value[length - 1] == '"';
    if (is_text) {
        value[length - 1] = '\0';
        value++;
    }
    return set(trimmed(line), value, is_text);
}

static const char *start(const struct wanted *from)
{
    struct server *created;
    uid_t uid = from->has_uid ? from->uid : geteuid();
    const char *problem = server_create(from->name, uid, from->devices[0] == '\0' ? NULL : from->devices, &created);
    if (problem != NULL || created == NULL)
        return problem;
    for (int i = 0; problem == NULL && i < MAX_NAMESPACES && from->namespaces[i].name[0] != '\0'; i++) {
        struct namespace *made = namespace_named(created, from->namespaces[i].name);
        if (made == NULL)
            problem = namespace_create(created, from->namespaces[i].name, &made);
        if (made != NULL) {
            made->limit = from->namespaces[i].limit;
            made->percentage = from->namespaces[i].percentage;
            made->priority = from->namespaces[i].priority;
        }
    }
    return problem;
}

int apply_config(const char *path)
{
    char line[MAX_LINE];
    unsigned number = 0;
    FILE *file = fopen(path, "re");
    const char *problem = file == NULL ? "cannot be read" : NULL;
    while (problem == NULL && fgets(line, sizeof line, file) != NULL) {
        number++;
        problem = read_line(line);
    }
    if (file != NULL)
        fclose(file);
    for (int i = 0; problem == NULL && i < MAX_SERVERS && wanted[i].name[0] != '\0'; i++)
        problem = start(&wanted[i]);
    if (problem == NULL)
        return 0;
    fprintf(stderr, "%s, line %u: %s\n", path, number, problem);
    note("%s, line %u: %s", path, number, problem);
    return -1;
}
