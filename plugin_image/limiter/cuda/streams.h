/* What this process has launched on a GPU: an event behind it in every stream that it used.
 *
 * Nothing else is waited for before a launch: a stream may hold work that only goes on after it.
 */
#ifndef DIVVY_STREAMS_H
#define DIVVY_STREAMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"

#define MAX_STREAMS 64

struct mark {
    const void *context;
    CUstream stream;
    pthread_t thread; /* of the default stream that each thread has its own of */
    CUevent event;
    bool recorded;
    uint64_t patience; /* ns; halved whenever it was not enough */
    bool ends;         /* perhaps: nothing is asked of its event meanwhile */
};

struct streams {
    pthread_mutex_t lock; /* never held while anything is waited for */
    unsigned count, next;
    struct mark mark[MAX_STREAMS];
};

/* Whether a launch into a stream only goes into a graph, or is refused for a capture's sake. */
bool stream_captures(CUstream stream);

/* Around calls of ours that no capture of the program is to see; the end gets what the beginning gave. */
int captures_relax(void);
void captures_restore(int mode);

/* Put an event behind what the calling thread has just launched. */
void streams_record(struct streams *streams, CUstream stream);

/* Whether all has run that was launched, or was waited for long enough, `waited` ns until now. */
bool streams_done(struct streams *streams, uint64_t waited);

/* Around a call that may end a context, and with it its events. */
void streams_end(struct streams *streams, const void *context);
void streams_ended(struct streams *streams, const void *context, bool gone);

#endif
