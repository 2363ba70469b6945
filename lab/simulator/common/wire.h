/* A connection to the daemon, as the libraries and tools use it. */
#ifndef DIVVY_WIRE_H
#define DIVVY_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

/* Connect to the daemon below `root` and say hello; the descriptor, or minus an NVML code. */
int sim_connect(const char *root, uint32_t kind, struct sim_hello *hello);

/* Send a request and wait for its answer, both in `body`; an NVML code. */
int sim_call(int fd, enum sim_type type, void *body, size_t length);

/* As sim_call on a connection with subscriptions: events that come before the answer are added
 * to `early`, as far as there is room. */
int sim_call_between_events(int fd, enum sim_type type, void *body, size_t length,
                            struct sim_event *early, unsigned *count, unsigned most);

/* Send a request that has no answer; an NVML code. */
int sim_tell(int fd, enum sim_type type, const void *body, size_t length);

/* Wait up to `timeout_ms` (-1: forever) for a pushed event; an NVML code (TIMEOUT if none). */
int sim_wait_event(int fd, int timeout_ms, struct sim_event *event);

/* Length of the structure of a message type; 0 for an unknown one. */
size_t sim_body_length(unsigned type);

#endif
