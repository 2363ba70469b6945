/* What clients of MPS and the control program say to the control daemon, over its sockets.
 *
 * NVIDIA publishes the names of files, variables, commands and errors, not this: it is the
 * simulation's own. One request and one answer a connection; a client keeps its connection, and
 * each end takes its closing for the other's death.
 */
#ifndef DIVVY_MPS_H
#define DIVVY_MPS_H

#include <stdint.h>

#include "protocol.h"

#define MPS_MAGIC 0x53504D44u /* "DMPS" */
#define MPS_PIPES "/tmp/nvidia-mps"
#define MPS_PIPES_3 "/run/nvidia-mps" /* of version 3, as root */
#define MPS_LOGS "/var/log/nvidia-mps"
#define MPS_CONTROL "control"
#define MPS_PRIVILEGED "control_privileged" /* of version 2 takes every command; `control` those that read */
#define MPS_TEXT 1024
#define MPS_MEMORY "/dev/shm" /* where client and server have to find the same file */
#define MPS_MEMORY_NAME 64
#define MPS_NONCE 16

enum mps_kind { MPS_CLIENT = 1, MPS_COMMAND };

struct mps_request {
    uint32_t magic, kind;
    uint32_t percentage; /* of the SMs, 100 for all: what the client asks for */
    uint32_t reserved;
    uint64_t limits[SIM_MAX_GPUS]; /* bytes by the daemon's ordinal, 0: none asked for */
    char memory[MPS_MEMORY_NAME]; /* a client's file in MPS_MEMORY, and what is in it */
    unsigned char nonce[MPS_NONCE];
    char command[MPS_TEXT];
};

struct mps_answer {
    uint32_t magic;
    int32_t code;        /* 0, or a client's CUDA error, or 1 for a command that failed */
    uint32_t gpus;       /* the daemon's GPUs, a bit each by index */
    uint32_t percentage; /* that the client gets */
    uint32_t length;     /* of a command's text, which follows */
    uint32_t reserved;
};

/* Write the path of one of the daemon's sockets; 0, or -1 if no address has room for it. */
int mps_socket_path(const char *name, char *path, unsigned length);

/* Connect to one of the daemon's sockets; a descriptor, or -1 without a listener. */
int mps_connect(const char *name);

/* Bytes of "1G", "512M" or "64K", 0 if it is no such size. */
uint64_t mps_size(const char *text);

#endif
