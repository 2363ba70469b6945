/* Everything the daemon knows. One thread owns all of it. */
#ifndef DIVVY_STATE_H
#define DIVVY_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../common/codes.h"
#include "../common/protocol.h"

#define MAX_CLIENTS 1024
#define MAX_CONTEXTS 64 /* of one client */
#define MAX_EVENTS 128  /* waiting for one client */
#define MAX_ADMISSIONS 1024
#define MAX_GROUPS 32 /* above one another */

struct gpu {
    struct sim_gpu info; /* what never changes, and the settings; readings are filled in on request */
    struct sim_profile profiles[SIM_MAX_PROFILES];
    struct sim_gpu_instance gis[SIM_MAX_GIS]; /* id SIM_NO_ID: free */
    uint32_t gi_count;
    bool mode_needs_reset, mode_survives;
    uint64_t allocated; /* bytes outside of MIG */
    unsigned load;      /* percent, by command */
    unsigned slow_ms;   /* every answer from this GPU waits so long */
    int answer_code;    /* 0, or what every request to this GPU answers */
    bool no_activation; /* as in a virtual machine: mode changes wait for a reset */
    bool mps_wedges;    /* a client of MPS that dies with work in flight harms the others */
    uint64_t context_bytes; /* what each new context takes by itself */
    double worked_at;       /* until when the queues have been worked off */
    double busy;        /* seconds of work within the sliding window */
    double busy_at;
    double energy_j, energy_at;
};

/* What a client holds on one GPU or MIG device. */
struct context {
    bool used;
    uint32_t gpu, gi, ci;
    uint64_t gi_serial, ci_serial;
    uint32_t opened;   /* how many contexts */
    uint64_t overhead; /* of them, part of `bytes` */
    uint64_t bytes;
    double queued; /* seconds of GPU time that are still to be worked off */
    double busy;   /* seconds of work within the sliding window, as a GPU's */
    double busy_at;
};

struct client {
    int fd; /* -1: free slot */
    pid_t pid;
    uid_t uid;
    bool greeted;
    bool wedged; /* an MPS server that answers no new client */
    uint32_t kind;
    char version[32];
    bool attached[SIM_MAX_GPUS]; /* has the GPU open, as by its device node */
    uint64_t watched[SIM_MAX_GPUS]; /* event bits */
    struct context contexts[MAX_CONTEXTS];
    uint8_t in[sizeof(struct sim_header) + SIM_MAX_BODY];
    size_t in_length;
    uint8_t out[2 * (sizeof(struct sim_header) + SIM_MAX_BODY)];
    size_t out_length;
    double answer_at; /* 0, or when the slow answer goes out */
    struct sim_event events[MAX_EVENTS];
    unsigned event_count;
    bool knows_groups; /* its control groups: its own, and those above it */
    unsigned group_count;
    uint64_t groups[MAX_GROUPS];
};

/* A process that computes on a GPU by an MPS server; the server may be gone before it. */
struct admission {
    pid_t pid; /* 0: free slot */
    uint32_t gpu;
    const struct client *server;
    int ended; /* 0, or what its calls answer from now on */
    uint64_t limit;
};

struct daemon {
    char root[PATH_MAX];
    char persist[PATH_MAX]; /* file that keeps MIG modes over restarts; "" for none */
    char node[128];
    char driver[32];
    struct gpu gpus[SIM_MAX_GPUS];
    uint32_t gpu_count;
    struct client clients[MAX_CLIENTS];
    int client_top; /* slots from here on are free */
    uint64_t next_serial;
    struct admission admissions[MAX_ADMISSIONS];
};

extern struct daemon sim;

double now_seconds(void);

/* description.c */
bool read_description(const char *path); /* says on stderr what is wrong */

/* gpu.c */
struct gpu *gpu_at(uint32_t index); /* NULL if there is none */
void gpu_reading(struct gpu *gpu, struct sim_gpu *answer);
void gpu_worked(struct gpu *gpu, double seconds);
void context_worked(struct context *context, double seconds, double of);
unsigned context_utilisation(struct context *context);
uint32_t gpu_holders(uint32_t index, const struct client *except); /* other clients with contexts */
int gpu_reset(uint32_t index, const struct client *client);
int gpu_set_compute_mode(struct gpu *gpu, uint32_t mode);
int gpu_set_timeslice(struct gpu *gpu, uint32_t value);
void driver_reload(void); /* what a driver loses when it is unloaded */

/* mig.c */
struct sim_gpu_instance *gi_at(struct gpu *gpu, uint32_t id);
struct sim_compute_instance *ci_at(struct sim_gpu_instance *gi, uint32_t id);
uint32_t profile_room(const struct gpu *gpu, const struct sim_profile *profile);
int mig_set_mode(uint32_t index, uint32_t mode, const struct client *client, int32_t *activation);
int mig_create_gi(struct gpu *gpu, struct sim_instance_change *change);
int mig_destroy_gi(struct gpu *gpu, const struct sim_instance_change *change);
int mig_create_ci(struct gpu *gpu, struct sim_instance_change *change);
int mig_destroy_ci(struct gpu *gpu, const struct sim_instance_change *change);
void mig_clear(struct gpu *gpu);

/* memory.c */
int context_open(struct client *client, struct sim_context *request);
int context_close(struct client *client, const struct sim_context *request);
int memory_allocate(struct client *client, struct sim_context *request);
int memory_free(struct client *client, struct sim_context *request);
struct context *context_of(struct client *client, uint32_t gpu, uint32_t gi, uint32_t ci);
void contexts_drop(struct client *client); /* all it holds */
void processes_of(uint32_t gpu, struct sim_processes *answer);
bool instance_in_use(uint64_t gi_serial, uint64_t ci_serial);

/* mps.c */
int mps_change(const struct client *server, const struct sim_admission *request);
const struct admission *mps_admission(const struct client *client, uint32_t gpu); /* NULL: none */
const struct client *mps_server_of(const struct client *client, uint32_t gpu); /* itself if it is one */
int mps_refuses(const struct client *client, uint32_t gpu); /* 0, or what a client's call answers */
void mps_died(const struct client *client); /* before what it holds is dropped */
void mps_drop(const struct client *client); /* a server or a client that is gone */

/* memory_limits.c */
void memory_limits_report(struct client *client, struct sim_context *request); /* caps total and free */
void memory_limits_reading(struct client *client, struct sim_gpu *answer);
int memory_limits_change(const struct gpu *gpu, struct sim_memory_limits *request); /* or reads them */
void memory_limits_clear(void);

/* segments.c */
int segment_change(struct client *client, const struct sim_segment *request);
void segments_drop(struct client *client);

/* work.c */
void work_off(struct gpu *gpu); /* up to now */
int work_queue(struct client *client, struct sim_work *request);

/* events.c */
void event_raise(uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t type, uint64_t data);
int fault_order(const struct sim_fault_order *order);

/* tree.c */
void tree_write(void); /* proc files that never change with MIG */
void tree_update(uint32_t gpu);
void modes_load(void);
void modes_save(void);
int driver_switch(const char *version);

/* requests.c */
bool request_handle(struct client *client, unsigned type, void *body, size_t length);

/* server.c */
bool server_answer(struct client *client, unsigned type, int status, const void *body, size_t length);
void server_drop(struct client *client);
int server_run(int listener);

#endif
