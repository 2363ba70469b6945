/* Answers of version 3 as tables and as single fields. */
#include <stdlib.h>
#include <string.h>

#include "modules.h"

/* Cuts what is wider than its column: PIDs of seven digits, too (reported of driver 615). */
void table_row(const struct table *table, const char *const *fields)
{
    for (unsigned i = 0; i < table->columns; i++) {
        int width = table->of[i].width, length = (int)strlen(fields[i]);
        bool last = i + 1 == table->columns;
        if (table->csv)
            say(table->reply, "%s%s", fields[i], last ? "\n" : ",");
        else if (width > 0 && length > width - 2)
            say(table->reply, "%.*s...  ", width - 5, fields[i]);
        else
            say(table->reply, "%-*s%s", last ? 0 : width, fields[i], last ? "\n" : "");
    }
}

bool table_begin(struct table *table, const char *given)
{
    const char *format = given == NULL ? "table" : given;
    const char *names[MAX_COLUMNS];
    table->csv = strncmp(format, "csv", 3) == 0;
    const char *rest = format + (table->csv ? 3 : 5);
    if ((!table->csv && strncmp(format, "table", 5) != 0) || (*rest != '\0' && strcmp(rest, ",noheader") != 0)) {
        fail(table->reply, "Invalid format '%s': table or csv is expected, and ,noheader after it", format);
        return false;
    }
    for (unsigned i = 0; i < table->columns; i++)
        names[i] = table->of[i].name;
    if (*rest == '\0')
        table_row(table, names);
    return true;
}

static void size_text(uint64_t bytes, char *text, size_t length)
{
    if (bytes == 0)
        snprintf(text, length, "unlimited");
    else if (bytes % (1u << 30) == 0)
        snprintf(text, length, "%lluG", (unsigned long long)(bytes >> 30));
    else if (bytes % (1u << 20) == 0)
        snprintf(text, length, "%lluM", (unsigned long long)(bytes >> 20));
    else
        snprintf(text, length, "%lluK", (unsigned long long)(bytes >> 10));
}

const char *server_field(const struct server *server, const char *field, char *text, size_t length)
{
    text[0] = '\0';
    if (strcmp(field, "name") == 0)
        return server->name;
    if (strcmp(field, "status") == 0)
        return "Ready";
    if (strcmp(field, "uid") == 0)
        snprintf(text, length, "%u", (unsigned)server->uid);
    else if (strcmp(field, "pid") == 0)
        snprintf(text, length, "%d", (int)server->pid);
    else if (strcmp(field, "pipe-directory") == 0)
        snprintf(text, length, "%s/%s", mps_pipes(), server->name);
    else if (strcmp(field, "allowed-devices") == 0) {
        for (uint32_t i = 0; i < control.gpu_count; i++)
            if (server->gpus >> i & 1) {
                size_t used = strlen(text);
                snprintf(text + used, length - used, "%s%s", used == 0 ? "" : ",", control.gpus[i].uuid);
            }
    } else
        return NULL;
    return text;
}

const char *namespace_field(const struct server *server, const struct namespace *space, const char *field,
                                   char *text, size_t length)
{
    text[0] = '\0';
    if (strcmp(field, "name") == 0)
        return space->name;
    if (strcmp(field, "server") == 0)
        return server->name;
    if (strcmp(field, "server-status") == 0)
        return "Ready";
    if (strcmp(field, "pipe-directory") == 0)
        snprintf(text, length, "%s/%s/%s", mps_pipes(), server->name, space->name);
    else if (strcmp(field, "pinned-memory-limit") == 0)
        size_text(space->limit, text, length);
    else if (strcmp(field, "active-thread-percentage") == 0)
        snprintf(text, length, "%u.00", space->percentage);
    else if (strcmp(field, "client-priority") == 0)
        snprintf(text, length, "%u", space->priority);
    else
        return NULL;
    return text;
}

const char *client_field(const struct peer *peer, const char *field, char *text, size_t length)
{
    text[0] = '\0';
    if (strcmp(field, "server") == 0)
        return peer->server->name;
    if (strcmp(field, "pid") == 0)
        snprintf(text, length, "%d", (int)peer->pid);
    else if (strcmp(field, "device") == 0 || strcmp(field, "pci-id") == 0) {
        for (uint32_t i = 0; text[0] == '\0' && i < control.gpu_count; i++)
            if (peer->server->gpus >> i & 1)
                snprintf(text, length, "%s", *field == 'd' ? control.gpus[i].uuid : control.gpus[i].bus_id);
    } else if (strcmp(field, "maws-ns") == 0)
        snprintf(text, length, "%s/%s (0)", peer->server->name, peer->space == NULL ? "-" : peer->space->name);
    else if (strcmp(field, "cmd") == 0) {
        snprintf(text, length, "/proc/%d/comm", (int)peer->pid);
        FILE *file = fopen(text, "re");
        text[0] = '\0';
        if (file != NULL && fgets(text, (int)length, file) != NULL)
            text[strcspn(text, "\n")] = '\0';
        if (file != NULL)
            fclose(file);
    } else
        return NULL;
    return text;
}

