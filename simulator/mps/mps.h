/* nvidia-cuda-mps-control: everything the control daemon knows. One thread owns all of it. */
#ifndef DIVVY_MPS_CONTROL_H
#define DIVVY_MPS_CONTROL_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "../common/codes.h"
#include "../common/mps.h"

#define MAX_PEERS 256
#define CLIENTS_SINCE_VOLTA 48 /* of one GPU; 16 before */
#define CLIENTS_BEFORE_VOLTA 16

enum { MPS_ERROR_CONNECTION_FAILED = 805, MPS_ERROR_SERVER_NOT_READY = 807, MPS_ERROR_MAX_CLIENTS = 808 };

/* A connection: a client's as long as it lives, or one that brings a command. */
struct peer {
    int fd; /* -1: free slot */
    pid_t pid;
    uid_t uid;
    bool privileged; /* came by the socket for administrators */
    bool is_client, admitted;
    struct mps_request request;
    size_t got;
};

struct control {
    bool multiuser, stopping;
    double stop_at; /* 0, or when servers are ended although they have clients */
    uint32_t gpu_count;
    struct sim_gpu gpus[SIM_MAX_GPUS]; /* in the order of the daemon's ordinals */
    uint32_t percentage;
    uint64_t limits[SIM_MAX_GPUS]; /* defaults of the next server */
    uint32_t server_percentage;
    uint64_t server_limits[SIM_MAX_GPUS];
    pid_t server; /* 0: none */
    uid_t server_uid;
    int server_fd; /* -1: none */
    struct peer peers[MAX_PEERS];
    FILE *log;
};

extern struct control control;

void note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* into control.log */

/* main.c */
bool find_gpus(void);

/* control.c */
int control_run(int plain, int privileged);
void peer_close(struct peer *peer);
unsigned clients(void);

/* server.c */
bool server_start(uid_t uid);
void server_stop(void);
int server_change(uint32_t change, pid_t pid, const uint64_t *limits); /* an NVML code */

/* commands.c */
void command(struct peer *peer);

#endif
