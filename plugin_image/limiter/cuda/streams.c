#include "streams.h"

#include <string.h>

#include "driver.h"
#include "turn.h"

#define CAPTURE_IMPLICIT 906
#define NOT_READY 600
#define MODE_RELAXED 2
#define NO_TIMING 2u

CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);

/* What we ask the driver for is no part of anybody's capture, and spoils none. */
int captures_relax(void)
{
    int mode = MODE_RELAXED;
    return CALL(cuThreadExchangeStreamCaptureMode, &mode) == 0 ? mode : -1;
}

void captures_restore(int mode)
{
    if (mode >= 0)
        CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

bool stream_captures(CUstream stream)
{
    int status = 0;
    CUresult result = CALL(cuStreamIsCapturing, stream, &status);
    return result == CAPTURE_IMPLICIT || (result == 0 && status != 0);
}

static bool query(struct mark *mark)
{
    if (!mark->recorded)
        return true;
    if (mark->ends || CALL(cuEventQuery, mark->event) == NOT_READY)
        return false;
    mark->recorded = false;
    mark->patience = LONGEST_DRAIN;
    return true;
}

/* If there are more streams than room, one gives way whose work has run. */
static struct mark *free_mark(struct streams *streams)
{
    if (streams->count < MAX_STREAMS)
        return &streams->mark[streams->count++];
    for (unsigned i = 0; i < MAX_STREAMS; i++) {
        struct mark *mark = &streams->mark[streams->next++ % MAX_STREAMS];
        if (!mark->ends && query(mark)) {
            CALL(cuEventDestroy_v2, mark->event);
            return mark;
        }
    }
    return NULL;
}

static struct mark *mark_of(struct streams *streams, CUstream stream)
{
    pthread_t thread = stream == PER_THREAD ? pthread_self() : 0;
    void *context;
    CUevent event;
    if (CALL(cuCtxGetCurrent, &context) != 0)
        return NULL;
    for (unsigned i = 0; i < streams->count; i++) {
        struct mark *mark = &streams->mark[i];
        if (!mark->ends && mark->stream == stream && mark->context == context && mark->thread == thread)
            return mark;
    }
    if (CALL(cuEventCreate, &event, NO_TIMING) != 0)
        return NULL;
    struct mark *mark = free_mark(streams);
    if (mark == NULL)
        CALL(cuEventDestroy_v2, event);
    else
        *mark = (struct mark){context, stream, thread, event, false, LONGEST_DRAIN, false};
    return mark;
}

/* An event that a capture took in must not be asked for: so what was no capture is looked at again. */
void streams_record(struct streams *streams, CUstream stream)
{
    pthread_mutex_lock(&streams->lock);
    int mode = captures_relax();
    struct mark *mark = mark_of(streams, stream);
    if (mark != NULL)
        mark->recorded = CALL(cuEventRecord, mark->event, stream) == 0 && !stream_captures(stream);
    captures_restore(mode);
    pthread_mutex_unlock(&streams->lock);
}

bool streams_done(struct streams *streams, uint64_t waited)
{
    bool done = true;
    pthread_mutex_lock(&streams->lock);
    int mode = captures_relax();
    for (unsigned i = 0; i < streams->count && done; i++) {
        struct mark *mark = &streams->mark[i];
        if (query(mark))
            continue;
        if (waited < mark->patience) {
            done = false;
        } else { /* it may go on only after the launch that waits here */
            mark->recorded = false;
            mark->patience = mark->patience / 2 > QUANTUM ? mark->patience / 2 : QUANTUM;
        }
    }
    captures_restore(mode);
    pthread_mutex_unlock(&streams->lock);
    return done;
}

void streams_end(struct streams *streams, const void *context)
{
    pthread_mutex_lock(&streams->lock);
    for (unsigned i = 0; i < streams->count; i++)
        streams->mark[i].ends = streams->mark[i].ends || streams->mark[i].context == context;
    pthread_mutex_unlock(&streams->lock);
}

/* Most releases of a primary context do not end it, and what was launched there goes on. */
void streams_ended(struct streams *streams, const void *context, bool gone)
{
    pthread_mutex_lock(&streams->lock);
    for (unsigned i = 0; i < streams->count;) {
        struct mark *mark = &streams->mark[i];
        bool ours = mark->ends && mark->context == context;
        if (ours)
            mark->ends = false;
        if (ours && gone)
            *mark = streams->mark[--streams->count];
        else
            i++;
    }
    pthread_mutex_unlock(&streams->lock);
}
