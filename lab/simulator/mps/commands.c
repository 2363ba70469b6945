/* What an administrator types, as NVIDIA documents it for the second protocol. */
#include "mps.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MAX_WORDS 6

static struct server *const server = control.servers; /* the only one */

static bool names_server(struct reply *reply, const char *word)
{
    if (word != NULL && server->pid != 0 && atoi(word) == server->pid)
        return true;
    fail(reply, "Failed to find the MPS server");
    return false;
}

static int device(const char *word)
{
    char *rest;
    for (uint32_t i = 0; word != NULL && i < control.gpu_count; i++)
        if (strcasecmp(control.gpus[i].uuid, word) == 0)
            return (int)i;
    if (word == NULL || *word < '0' || *word > '9')
        return -1;
    unsigned long number = strtoul(word, &rest, 10);
    return *rest == '\0' && number < control.gpu_count ? (int)number : -1;
}

static void list_clients(struct reply *reply)
{
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].admitted)
            say(reply, "%d\n", (int)control.peers[i].pid);
}

static void percentage(struct reply *reply, uint32_t *value, const char *word)
{
    char *rest;
    if (word != NULL) {
        double number = strtod(word, &rest);
        if (*rest != '\0' || !(number > 0 && number <= 100)) {
            fail(reply, "Invalid active thread percentage");
            return;
        }
        *value = number < 1 ? 1 : (uint32_t)number;
    }
    say(reply, "%u.0\n", *value);
}

static void limit(struct reply *reply, uint64_t *limits, const char *which, const char *word)
{
    int at = device(which);
    if (at < 0) {
        fail(reply, "Invalid device");
        return;
    }
    if (word != NULL) {
        uint64_t bytes = mps_size(word);
        if (bytes == 0 && strcmp(word, "0") != 0) {
            fail(reply, "Invalid device memory limit");
            return;
        }
        limits[at] = bytes;
    } else if (limits[at] == 0)
        say(reply, "The device memory limit is not set\n");
    else
        say(reply, "%lluM\n", (unsigned long long)(limits[at] >> 20));
}

static void terminate(struct reply *reply, char **words)
{
    if (!names_server(reply, words[1]))
        return;
    for (int i = 0; words[2] != NULL && i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].admitted && atoi(words[2]) == control.peers[i].pid) {
            server_change(server, SIM_MPS_TERMINATE, control.peers[i].pid, NULL);
            note("Client %d is terminated", (int)control.peers[i].pid);
            return;
        }
    fail(reply, "Failed to find the MPS client");
}

static void quit(char **words)
{
    struct timespec now;
    control.stopping = true;
    if (words[1] == NULL || words[2] == NULL || strcmp(words[1], "-t") != 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    control.stop_at = (double)now.tv_sec + (double)now.tv_nsec / 1e9 + atof(words[2]);
}

static void start(struct reply *reply, char **words)
{
    bool named = words[1] != NULL && words[2] != NULL && strcmp(words[1], "-uid") == 0;
    if (!named || server->pid != 0 || !server_start(server, (uid_t)atoi(words[2]), ~0u))
        fail(reply, "Failed to start the MPS server");
}

/* Commands that only read: any user can ask them, so any user sees all clients. */
static bool read_command(struct reply *reply, char **words)
{
    if (strcmp(words[0], "get_server_list") == 0) {
        if (server->pid != 0)
            say(reply, "%d\n", (int)server->pid);
    } else if (strcmp(words[0], "get_server_status") == 0) {
        if (names_server(reply, words[1]))
            say(reply, "ACTIVE\n");
    } else if (strcmp(words[0], "get_client_list") == 0) {
        if (names_server(reply, words[1]))
            list_clients(reply);
    } else if (strcmp(words[0], "get_device_client_list") == 0) {
        for (uint32_t i = 0; i < control.gpu_count; i++) {
            say(reply, "%s\n", control.gpus[i].uuid);
            list_clients(reply);
        }
    } else if (strcmp(words[0], "get_default_active_thread_percentage") == 0)
        percentage(reply, &control.percentage, NULL);
    else if (strcmp(words[0], "get_active_thread_percentage") == 0) {
        if (names_server(reply, words[1]))
            percentage(reply, &server->percentage, NULL);
    } else if (strcmp(words[0], "get_default_device_pinned_mem_limit") == 0)
        limit(reply, control.limits, words[1], NULL);
    else if (strcmp(words[0], "get_device_pinned_mem_limit") == 0) {
        if (names_server(reply, words[1]))
            limit(reply, server->limits, words[2], NULL);
    } else
        return false;
    return true;
}

static bool change_command(struct reply *reply, char **words)
{
    if (strcmp(words[0], "quit") == 0)
        quit(words);
    else if (strcmp(words[0], "start_server") == 0)
        start(reply, words);
    else if (strcmp(words[0], "shutdown_server") == 0) {
        if (!names_server(reply, words[1]))
            return true;
        if (clients(NULL, NULL) > 0 && (words[2] == NULL || strcmp(words[2], "-f") != 0))
            fail(reply, "The MPS server has clients");
        else
            server_stop(server);
    } else if (strcmp(words[0], "terminate_client") == 0)
        terminate(reply, words);
    else if (strcmp(words[0], "set_default_active_thread_percentage") == 0)
        percentage(reply, &control.percentage, words[1]);
    else if (strcmp(words[0], "set_active_thread_percentage") == 0) {
        if (names_server(reply, words[1]))
            percentage(reply, &server->percentage, words[2]);
    } else if (strcmp(words[0], "set_default_device_pinned_mem_limit") == 0)
        limit(reply, control.limits, words[1], words[2]);
    else if (strcmp(words[0], "set_device_pinned_mem_limit") == 0) {
        if (names_server(reply, words[1]))
            limit(reply, server->limits, words[2], words[3]);
    } else
        return false;
    return true;
}

void command(struct peer *peer, struct reply *reply)
{
    char *words[MAX_WORDS] = {NULL};
    split(peer->request.command, words, MAX_WORDS);
    if (words[0] != NULL && !read_command(reply, words)) {
        if (!peer->privileged)
            fail(reply, "Permission denied");
        else if (!change_command(reply, words))
            fail(reply, "Invalid command");
    }
}
