/* Copies in two and three dimensions. */
#include <string.h>

#include "streams.h"

struct memcpy2d { /* the layout of CUDA_MEMCPY2D */
    size_t source_x, source_y;
    int source_place;
    const void *source_host;
    CUdeviceptr source_device;
    CUarray source_array;
    size_t source_pitch;
    size_t x, y;
    int place;
    void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
    size_t width, height;
};

static struct box_copy box_of_2d(const struct memcpy2d *c)
{
    return (struct box_copy){
        .from = {(enum box_place)c->source_place, (void *)(uintptr_t)c->source_host, c->source_device, c->source_array,
                 c->source_x, c->source_y, 0, c->source_pitch, 0},
        .to = {(enum box_place)c->place, c->host, c->device, c->array, c->x, c->y, 0, c->pitch, 0},
        .width = c->width, .height = c->height, .depth = 1};
}

struct box_copy box_of_3d(const struct memcpy3d *c)
{
    return (struct box_copy){
        .from = {(enum box_place)c->source_place, (void *)(uintptr_t)c->source_host, c->source_device, c->source_array,
                 c->source_x, c->source_y, c->source_z, c->source_pitch, c->source_rows},
        .to = {(enum box_place)c->place, c->host, c->device, c->array, c->x, c->y, c->z, c->pitch, c->rows},
        .width = c->width, .height = c->height, .depth = c->depth};
}

/* Where a side's bytes begin, and its pitch and rows as they are. */
static CUresult resolve(const struct box_side *side, const struct box_copy *copy, uint64_t *begin, size_t *pitch,
                        size_t *rows)
{
    size_t layers;
    *pitch = side->pitch != 0 ? side->pitch : side->x + copy->width;
    *rows = side->rows != 0 ? side->rows : side->y + copy->height;
    switch (side->place) {
    case PLACE_HOST:
        *begin = (uint64_t)(uintptr_t)side->host;
        break;
    case PLACE_DEVICE:
    case PLACE_UNIFIED:
        *begin = side->device;
        break;
    case PLACE_ARRAY: {
        CUresult result = array_place(side->array, begin, pitch, rows, &layers);
        if (result != 0)
            return result;
        if (side->y + copy->height > *rows || side->z + copy->depth > layers)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (*begin == 0 || side->x + copy->width > *pitch || side->x + copy->width < copy->width)
        return CUDA_ERROR_INVALID_VALUE;
    if (side->place != PLACE_DEVICE || copy->width == 0 || copy->height == 0 || copy->depth == 0)
        return 0;
    uint64_t last = (uint64_t)*pitch * (*rows * (side->z + copy->depth - 1) + side->y + copy->height - 1) +
                    side->x + copy->width;
    return memory_holds(*begin, last) ? 0 : CUDA_ERROR_INVALID_VALUE;
}

CUresult box_check(const struct box_copy *copy)
{
    uint64_t begin;
    size_t pitch, rows;
    if (copy->width > 1ull << 40 || copy->height > 1ull << 31 || copy->depth > 1ull << 31)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = resolve(&copy->from, copy, &begin, &pitch, &rows);
    return result != 0 ? result : resolve(&copy->to, copy, &begin, &pitch, &rows);
}

CUresult box_run(const struct box_copy *copy)
{
    uint64_t from, to;
    size_t from_pitch, from_rows, pitch, rows;
    CUresult result = resolve(&copy->from, copy, &from, &from_pitch, &from_rows);
    if (result == 0)
        result = resolve(&copy->to, copy, &to, &pitch, &rows);
    if (result != 0)
        return result;
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++) {
            uint64_t source = from + copy->from.x + from_pitch * (copy->from.y + y + from_rows * (copy->from.z + z));
            uint64_t target = to + copy->to.x + pitch * (copy->to.y + y + rows * (copy->to.z + z));
            memmove((void *)(uintptr_t)target, (void *)(uintptr_t)source, copy->width);
        }
    return 0;
}

static CUresult run(const struct box_copy *copy, CUstream handle, bool waits)
{
    WITH_STREAM(context, stream, handle);
    struct operation operation;
    operation.kind = OPERATION_COPY;
    operation.copy = *copy;
    FINISH(waits ? stream_do_and_wait(stream, &operation) : stream_do(stream, &operation));
}

EXPORT CUresult cuMemcpy2D_v2(const struct memcpy2d *copy)
{
    const struct box_copy box = copy == NULL ? (struct box_copy){0} : box_of_2d(copy);
    return run(&box, NULL, true);
}

ALSO(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2, (const struct memcpy2d *copy), (copy))

EXPORT CUresult cuMemcpy2DAsync_v2(const struct memcpy2d *copy, CUstream stream)
{
    const struct box_copy box = copy == NULL ? (struct box_copy){0} : box_of_2d(copy);
    return run(&box, stream, false);
}

EXPORT CUresult cuMemcpy3D_v2(const struct memcpy3d *copy)
{
    const struct box_copy box = copy == NULL ? (struct box_copy){0} : box_of_3d(copy);
    return run(&box, NULL, true);
}

EXPORT CUresult cuMemcpy3DAsync_v2(const struct memcpy3d *copy, CUstream stream)
{
    const struct box_copy box = copy == NULL ? (struct box_copy){0} : box_of_3d(copy);
    return run(&box, stream, false);
}

PER_THREAD(cuMemcpy2D_v2, _ptds, (const struct memcpy2d *copy), (copy))
PER_THREAD(cuMemcpy2DUnaligned_v2, _ptds, (const struct memcpy2d *copy), (copy))
PER_THREAD(cuMemcpy2DAsync_v2, _ptsz, (const struct memcpy2d *copy, CUstream stream), (copy, stream))
PER_THREAD(cuMemcpy3D_v2, _ptds, (const struct memcpy3d *copy), (copy))
PER_THREAD(cuMemcpy3DAsync_v2, _ptsz, (const struct memcpy3d *copy, CUstream stream), (copy, stream))
