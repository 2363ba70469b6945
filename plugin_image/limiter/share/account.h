/* The account of a share: who of its processes has how much of each device.
 *
 * A file that the agent makes and every process of the share's containers maps. Byte 0 of it is
 * locked by who changes it, byte 1 + N by the process that has slot N, for as long as it lives.
 * The locks belong to open file descriptions: the kernel drops them at a process's death,
 * whatever it died of and whatever namespaces it lived in.
 */
#ifndef DIVVY_ACCOUNT_H
#define DIVVY_ACCOUNT_H

#include "share.h"

#define ACCOUNT_MAGIC 0x32545041u
#define MAX_SLOTS 512

struct slot {
    uint32_t pid; /* as its own namespace numbers it; 0 for a free slot */
    uint32_t context; /* MiB that a context was last seen to take; outlives the process */
    uint64_t pid_namespace;       /* inode number */
    uint64_t bytes[MAX_DEVICES];  /* what the process has allocated, or is about to */
    uint64_t beyond[MAX_DEVICES]; /* what NVML sees above that; from the agent */
};

struct account {
    uint32_t magic;
    uint32_t top;                   /* slots from here on were never used */
    uint64_t outside[MAX_DEVICES];  /* of processes that have no slot; from the agent */
    uint64_t refused[MAX_DEVICES];  /* how many requests were */
    uint64_t waited[MAX_DEVICES];   /* nanoseconds at the compute gate */
    uint64_t opened[MAX_DEVICES];   /* how often the gate opened for want of an answer */
    uint64_t to_host[MAX_DEVICES];  /* how many requests the host's memory took */
    struct slot slot[MAX_SLOTS];
};

/* Take a slot; false where the file is no account or has no slot free. Again after a fork. */
bool account_attach(const char *path);
bool account_attached(void);

unsigned account_slot(void); /* of this process */
void account_in_child(void); /* of a fork */

/* Reserve on a device if it stays within `limit`. */
bool account_reserve(unsigned device, uint64_t bytes, uint64_t limit);
/* Reserve although it may go beyond: what the driver took turned out to be more. */
void account_add(unsigned device, uint64_t bytes);
void account_release(unsigned device, uint64_t bytes);
/* What a context of the share takes, as far as that is known. */
uint64_t account_context(void);
void account_count_refusal(unsigned device);
void account_count_to_host(unsigned device);
void account_count_wait(unsigned device, uint64_t nanoseconds, bool opened);

/* Bytes of a device that the living processes have, and those that have no slot. */
uint64_t account_used(unsigned device);

/* For those who only look: what is used, and the living processes of this PID namespace that use the device. */
struct account_process {
    uint32_t pid;
    uint64_t bytes;
};
bool account_look(const char *path, unsigned device, uint64_t *used, struct account_process *processes,
                  unsigned *count);

#endif
