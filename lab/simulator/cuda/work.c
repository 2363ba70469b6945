/* GPU time that kernels take without the processor's: the daemon keeps each context's queue. */
#include <time.h>

#include "state.h"

#define LONGEST_SLEEP 500000u /* ns: others may finish, and ours come sooner than foretold */

static CUresult ask(CUcontext context, uint64_t add, uint64_t *left)
{
    const struct device *device = context->device;
    struct sim_work request = {.gpu = device->gpu.index, .gi = device->gi, .ci = device->ci, .add = add};
    CUresult result = driver_call(SIM_WORK, &request, sizeof request, 0);
    *left = result == 0 ? request.left : 0;
    return result;
}

CUresult work_queue(CUcontext context, uint64_t nanoseconds)
{
    uint64_t left;
    context->work += nanoseconds;
    context->has_work = true;
    return ask(context, nanoseconds, &left);
}

/* A lower bound of what is done: the queue's time is that of all who share the GPU. */
static uint64_t nanoseconds_left(CUcontext context, uint64_t mark)
{
    uint64_t left;
    if (!context->has_work)
        return 0;
    ask(context, 0, &left);
    if (left == 0)
        context->has_work = false;
    uint64_t behind = context->work - mark;
    return left > behind ? left - behind : 0;
}

bool work_done(CUcontext context, uint64_t mark)
{
    return nanoseconds_left(context, mark) == 0;
}

void work_wait(CUcontext context, uint64_t mark)
{
    for (;;) {
        if (!context_is_known(context))
            return;
        uint64_t left = nanoseconds_left(context, mark);
        if (left == 0)
            return;
        struct timespec sleep = {0, (long)(left < LONGEST_SLEEP ? left : LONGEST_SLEEP)};
        driver_unlock();
        nanosleep(&sleep, NULL);
        driver_lock();
    }
}
