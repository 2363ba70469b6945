/* Objects of programs that graphs keep alive: when the last reference goes, their destructor runs. */
#include <stdlib.h>

#include "graphs.h"

#define NO_DESTRUCTOR_SYNC 1u
#define MOVE 1u

struct cuda_user_object {
    unsigned references;
    void (*destroy)(void *);
    void *pointer;
    CUuserObject next;
};

static CUuserObject objects;

static KNOWS(is_known, CUuserObject, objects)

/* The destructor may not call the driver, as a host function. */
static void release(CUuserObject object, unsigned count)
{
    if ((object->references -= count) > 0)
        return;
    UNLINK(objects, object);
    void (*destroy)(void *) = object->destroy;
    void *pointer = object->pointer;
    free(object);
    driver_unlock();
    driver_in_host_function(true);
    destroy(pointer);
    driver_in_host_function(false);
    driver_lock();
}

bool user_objects_keep(struct user_objects *kept, CUuserObject object, unsigned count)
{
    struct user_object *grown = realloc(kept->objects, (kept->count + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    kept->objects = grown;
    kept->objects[kept->count++] = (struct user_object){object, count};
    object->references += count;
    return true;
}

bool user_objects_copy(struct user_objects *to, const struct user_objects *from)
{
    for (size_t i = 0; i < from->count; i++)
        if (!user_objects_keep(to, from->objects[i].object, from->objects[i].count))
            return false;
    return true;
}

/* The set is emptied first: destructors give the lock away. */
void user_objects_leave(struct user_objects *kept)
{
    struct user_objects gone = *kept;
    *kept = (struct user_objects){NULL, 0};
    for (size_t i = 0; i < gone.count; i++)
        release(gone.objects[i].object, gone.objects[i].count);
    free(gone.objects);
}

static CUresult check(CUuserObject object, unsigned count)
{
    CUresult result = driver_ready();
    return result == 0 && (!is_known(object) || count == 0 || count > 0x7FFFFFFFu) ? CUDA_ERROR_INVALID_VALUE : result;
}

EXPORT CUresult cuUserObjectCreate(CUuserObject *made, void *pointer, void (*destroy)(void *), unsigned references,
                                   unsigned flags)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || destroy == NULL || references == 0 || flags != NO_DESTRUCTOR_SYNC))
        result = CUDA_ERROR_INVALID_VALUE;
    CUuserObject object = result == 0 ? malloc(sizeof *object) : NULL;
    if (object == NULL)
        FINISH(result != 0 ? result : CUDA_ERROR_OUT_OF_MEMORY);
    *object = (struct cuda_user_object){references, destroy, pointer, objects};
    objects = object;
    *made = object;
    FINISH(0);
}

EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
    driver_lock();
    CUresult result = check(object, count);
    if (result == 0)
        object->references += count;
    FINISH(result);
}

EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    driver_lock();
    CUresult result = check(object, count);
    if (result == 0 && count > object->references)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        release(object, count);
    FINISH(result);
}

/* With the flag, the caller's references become the graph's. */
EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    driver_lock();
    CUresult result = check(object, count);
    if (result == 0 && (!graph_is_known(graph) || flags > MOVE))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && !user_objects_keep(&graph->user_objects, object, count))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == 0 && flags == MOVE)
        release(object, count);
    FINISH(result);
}

EXPORT CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
    driver_lock();
    CUresult result = check(object, count);
    if (result == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; graph_is_known(graph) && i < graph->user_objects.count; i++) {
        struct user_object *kept = &graph->user_objects.objects[i];
        if (kept->object != object || kept->count < count)
            continue;
        kept->count -= count;
        if (kept->count == 0)
            *kept = graph->user_objects.objects[--graph->user_objects.count];
        release(object, count);
        FINISH(0);
    }
    FINISH(result);
}
