/* Queues of streams. What can be done at once is done within the call; what has to wait (for a
 * host function, an event or a value in memory) is queued, and all that comes after it in the
 * stream. Two threads of the driver work the queues off: one of them runs host functions, so
 * that a function that does not return holds up its own stream alone. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "graphs.h"

#define POLL 0.0002 /* seconds: the host can write a value that is waited for without a call */

struct queued {
    struct operation operation;
    uint64_t number; /* in the order of the calls, over all streams */
    bool running;
    struct queued *next;
};

static uint64_t last_number;
static size_t waiting; /* in all queues */

/* The default stream waits for the streams that block, and they for it, in the order of the calls. */
static bool is_before(CUstream other, CUstream stream)
{
    return other != stream && other->context == stream->context && other->first != NULL &&
           (stream->is_legacy ? stream_is_blocking(other) : other->is_legacy && stream_is_blocking(stream));
}

static bool comes_next(CUstream stream, uint64_t number)
{
    for (CUstream other = stream_after(NULL); other != NULL && waiting > 0; other = stream_after(other))
        if (is_before(other, stream) && other->first->number < number)
            return false;
    return true;
}

static void keep(const struct operation *operation)
{
    if (operation->kind == OPERATION_WAIT || operation->kind == OPERATION_RECORD)
        fence_keep(operation->fence);
    if (operation->kind == OPERATION_ALLOCATE)
        graph_memory_keep(operation->memory);
}

/* What is dropped without having been done must not be waited for either. */
static void leave(const struct operation *operation)
{
    if (operation->kind == OPERATION_RECORD)
        operation->fence->reached = true;
    if (operation->kind == OPERATION_WAIT || operation->kind == OPERATION_RECORD)
        fence_leave(operation->fence);
    if (operation->kind == OPERATION_ALLOCATE)
        graph_memory_leave(operation->memory);
}

static void remove_first(CUstream stream)
{
    struct queued *gone = stream->first;
    stream->first = gone->next;
    if (stream->first == NULL)
        stream->last = NULL;
    leave(&gone->operation);
    free(gone);
    waiting--;
    if (stream->first == NULL && stream->destroyed)
        stream_free(stream);
    driver_changed();
}

/* Once its context has failed, nothing more is done in a stream. */
static bool first_is_ready(CUstream stream)
{
    return comes_next(stream, stream->first->number) &&
           (stream->context->error != 0 || operation_ready(stream, &stream->first->operation));
}

static void call(CUstream stream)
{
    const struct operation operation = stream->first->operation;
    CUresult error = stream->context->error;
    stream->first->running = true;
    driver_unlock();
    driver_in_host_function(true);
    if (operation.call.callback != NULL)
        operation.call.callback(operation.call.stream, error, operation.call.argument);
    else if (error == 0) /* "not called in the event of an error in the CUDA context" */
        operation.call.function(operation.call.argument);
    driver_in_host_function(false);
    driver_lock();
    remove_first(stream); /* queue_drop waits for this */
}

static bool work_off_one(bool calls, bool *polls)
{
    *polls = false;
    for (CUstream stream = stream_after(NULL); stream != NULL; stream = stream_after(stream)) {
        struct queued *first = stream->first;
        if (first == NULL || first->running || (first->operation.kind == OPERATION_CALL) != calls)
            continue;
        if (!first_is_ready(stream)) {
            *polls = *polls || operation_polls(&first->operation);
            continue;
        }
        if (calls) {
            call(stream);
            return true;
        }
        CUresult result = stream->context->error != 0 ? 0 : operation_run(stream, &first->operation);
        if (result != 0)
            stream->context->error = result;
        remove_first(stream);
        return true;
    }
    return false;
}

static void *work_off(void *calls)
{
    bool polls;
    driver_lock();
    for (;;)
        if (!work_off_one(calls != NULL, &polls))
            driver_pause(polls ? POLL : 0);
    return NULL;
}

/* The program's signals are none of these threads'. */
static bool start_threads(void)
{
    static bool started;
    static char for_calls;
    sigset_t all, before;
    pthread_t thread;
    if (started)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, NULL, work_off, NULL) == 0 && pthread_detach(thread) == 0 &&
              pthread_create(&thread, NULL, work_off, &for_calls) == 0 && pthread_detach(thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static CUresult add(CUstream stream, const struct operation *operation)
{
    struct queued *queued = start_threads() ? malloc(sizeof *queued) : NULL;
    if (queued == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *queued = (struct queued){.operation = *operation, .number = ++last_number};
    keep(operation);
    if (stream->last != NULL)
        stream->last->next = queued;
    else
        stream->first = queued;
    stream->last = queued;
    waiting++;
    driver_changed();
    return 0;
}

CUresult stream_submit(CUstream stream, const struct operation *operation)
{
    if (stream->capture != NULL)
        return capture_add(stream, operation);
    CUresult result = stream->is_legacy ? capture_refuses_legacy(stream->context) : 0;
    if (result != 0)
        return result;
    if (operation->kind == OPERATION_CALL || stream->first != NULL || !comes_next(stream, UINT64_MAX) ||
        !operation_ready(stream, operation))
        return add(stream, operation);
    return operation_run(stream, operation);
}

CUresult stream_do(CUstream stream, const struct operation *operation)
{
    CUresult result = stream->capture != NULL ? 0 : operation_check(operation);
    return result != 0 ? result : stream_submit(stream, operation);
}

static bool has_before(CUstream stream, uint64_t number)
{
    return stream->first != NULL && stream->first->number <= number;
}

/* Whether anything up to a number is still to be done that one who waits for the stream waits for. */
static bool is_behind(CUstream stream, uint64_t number)
{
    bool behind = has_before(stream, number);
    for (CUstream other = stream_after(NULL); other != NULL && waiting > 0 && !behind; other = stream_after(other))
        behind = is_before(other, stream) && has_before(other, number);
    return behind;
}

static bool exists(CUstream wanted)
{
    CUstream stream = stream_after(NULL);
    while (stream != NULL && stream != wanted)
        stream = stream_after(stream);
    return stream != NULL;
}

bool stream_idle(CUstream stream)
{
    return !is_behind(stream, UINT64_MAX) && work_done(stream->context, stream_work(stream));
}

CUresult stream_wait(CUstream stream)
{
    CUcontext context = stream->context;
    uint64_t number = last_number;
    while (exists(stream) && is_behind(stream, number))
        driver_pause(0);
    if (exists(stream))
        work_wait(context, stream_work(stream));
    return context_is_known(context) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult stream_do_and_wait(CUstream stream, const struct operation *operation)
{
    CUresult result = capture_refuses(stream);
    if (result == 0)
        result = stream_do(stream, operation);
    return result == 0 ? stream_wait(stream) : result;
}

static bool context_is_behind(CUcontext context, uint64_t number)
{
    for (CUstream stream = stream_after(NULL); stream != NULL && waiting > 0; stream = stream_after(stream))
        if (stream->context == context && has_before(stream, number))
            return true;
    return false;
}

CUresult context_wait(CUcontext context)
{
    uint64_t number = last_number;
    while (context_is_known(context) && context_is_behind(context, number))
        driver_pause(0);
    if (context_is_known(context))
        work_wait(context, context->work);
    return context_is_known(context) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* A host function that runs is waited for. */
void queue_drop(CUstream stream)
{
    stream->destroyed = false; /* it is the caller who frees it */
    while (stream->first != NULL && stream->first->running)
        driver_pause(0);
    while (stream->first != NULL)
        remove_first(stream);
}
