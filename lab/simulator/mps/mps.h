/* nvidia-cuda-mps-control: everything the control daemon knows. One thread owns all of it. */
#ifndef DIVVY_MPS_CONTROL_H
#define DIVVY_MPS_CONTROL_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "../common/codes.h"
#include "../common/mps.h"

#define MAX_PEERS 256
#define MAX_SERVERS 8
#define MAX_NAMESPACES 64 /* of one server */
#define MPS_NAME 65       /* 64 lowercase letters, digits and underscores */
#define CLIENTS_SINCE_VOLTA 48 /* of one GPU; 16 before */
#define CLIENTS_BEFORE_VOLTA 16
#define VERSION_3_SINCE 615
#define DEFAULT_NAMESPACE "default"

enum {
    MPS_ERROR_NOT_PERMITTED = 800,
    MPS_ERROR_CONNECTION_FAILED = 805,
    MPS_ERROR_SERVER_NOT_READY = 807,
    MPS_ERROR_MAX_CLIENTS = 808
};

/* What a server of version 3 gives each client of a group. */
struct namespace {
    char name[MPS_NAME]; /* "": free slot */
    uint64_t limit;      /* bytes on each GPU, 0: none */
    uint32_t percentage, priority;
    int listener;
};

struct server {
    pid_t pid; /* 0: free slot */
    uid_t uid;
    int fd;
    uint32_t gpus; /* a bit each by the daemon's ordinal */
    /* Of version 2, whose only server is the first. */
    uint32_t percentage;
    uint64_t limits[SIM_MAX_GPUS];
    /* Of version 3. */
    char name[MPS_NAME];
    int listener;
    struct namespace namespaces[MAX_NAMESPACES]; /* the first is the default one */
};

/* A connection: a client's as long as it lives, or one that brings a command. */
struct peer {
    int fd; /* -1: free slot */
    pid_t pid;
    uid_t uid;
    bool privileged; /* came by the socket for administrators */
    bool is_client, admitted;
    struct server *server; /* by whose socket it came, or that has admitted it */
    struct namespace *space;
    struct mps_request request;
    size_t got;
};

struct control {
    uint32_t protocol; /* 2 or 3 */
    bool multiuser, stopping;
    double stop_at; /* 0, or when servers are ended although they have clients */
    uint32_t gpu_count;
    struct sim_gpu gpus[SIM_MAX_GPUS]; /* in the order of the daemon's ordinals */
    uint32_t percentage;
    uint64_t limits[SIM_MAX_GPUS]; /* defaults of the next server */
    struct server servers[MAX_SERVERS];
    struct peer peers[MAX_PEERS];
    FILE *log;
};

extern struct control control;

void note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* into control.log */
const char *mps_pipes(void); /* the folder of sockets */
const char *mps_logs(void);
int listening(const char *name, mode_t mode); /* a socket in the folder of sockets, or -1 */
bool mps_names(const char *list, const struct sim_gpu *gpu, uint32_t ordinal); /* "0,GPU-…" has it */

/* control.c */
int control_run(int plain, int privileged);
void peer_close(struct peer *peer);
unsigned clients(const struct server *server, const struct namespace *space); /* NULL: of all */
void clients_fail(const struct server *server);

/* admission.c */
void admit(struct peer *peer); /* or leave it waiting */

/* server.c */
bool server_start(struct server *server, uid_t uid, uint32_t gpus);
void server_stop(struct server *server);
int server_change(struct server *server, uint32_t change, pid_t pid, const uint64_t *limits); /* an NVML code */

/* namespaces.c: of version 3; an answer is NULL, or why it cannot be done */
const char *server_create(const char *name, uid_t uid, const char *devices, struct server **created);
void server_remove(struct server *server, bool delete_folders);
struct server *server_named(const char *name);
struct server *server_of_user(uid_t uid);
const char *namespace_create(struct server *server, const char *name, struct namespace **created);
void namespace_remove(struct server *server, struct namespace *space);
struct namespace *namespace_named(struct server *server, const char *name);
const char *read_limit(const char *text, uint64_t *bytes);
const char *read_percentage(const char *text, uint32_t *percentage);
const char *read_priority(const char *text, uint32_t *priority);

/* config.c */
int apply_config(const char *path); /* 0, or -1 and why in control.log and on stderr */

/* reply.c */
struct reply {
    int code;
    size_t length;
    char text[32768];
};
void say(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fail(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Cut a command into words, the last of which is NULL; the number of others. */
unsigned split(char *command, char **words, unsigned most);

/* commands.c: version 2; modules.c: version 3 */
void command(struct peer *peer, struct reply *reply);
void module_command(struct peer *peer, struct reply *reply);

/* prompt.c: the other end */
int bring(const char *line); /* 0, or 1 if it failed */
int prompt(void);

#endif
