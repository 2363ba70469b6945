/* Arrays and mipmapped arrays: memory with a shape. Textures and surfaces do not read them here. */
#include <stdlib.h>

#include "boxes.h"

#define ROW 512u /* every row begins at a multiple of it */
#define MAX_EXTENT 65536u
#define FLAG_LAYERED 1u
#define FLAG_CUBEMAP 4u

struct array_descriptor { /* CUDA_ARRAY_DESCRIPTOR */
    size_t width, height;
    int format;
    unsigned channels;
};

struct array3d_descriptor { /* CUDA_ARRAY3D_DESCRIPTOR */
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct cuda_array {
    struct array3d_descriptor shape;
    CUcontext context;
    uint64_t begin;
    size_t pitch;
    CUmipmappedArray of; /* NULL for one of its own */
    CUarray next;
};

struct cuda_mipmap {
    unsigned levels;
    CUarray level[17];
    CUmipmappedArray next;
};

static CUarray arrays;
static CUmipmappedArray mipmaps;

static size_t element_bytes(int format)
{
    switch (format) {
    case 0x01: /* unsigned and signed, 8 bits */
    case 0x08:
        return 1;
    case 0x02: /* 16 bits, and half */
    case 0x09:
    case 0x10:
        return 2;
    case 0x03: /* 32 bits, and float */
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

static bool is_sound(const struct array3d_descriptor *shape)
{
    return element_bytes(shape->format) != 0 &&
           (shape->channels == 1 || shape->channels == 2 || shape->channels == 4) && shape->width > 0 &&
           shape->width <= MAX_EXTENT * 2 && shape->height <= MAX_EXTENT && shape->depth <= 16384 &&
           (shape->depth == 0 || shape->height > 0 || (shape->flags & FLAG_LAYERED) != 0) && shape->flags < 0x200;
}

static size_t at_least_one(size_t extent)
{
    return extent == 0 ? 1 : extent;
}

static CUresult make(CUcontext context, const struct array3d_descriptor *shape, CUarray *made)
{
    size_t row = shape->width * shape->channels * element_bytes(shape->format);
    CUarray array = calloc(1, sizeof *array);
    if (array == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *array = (struct cuda_array){.shape = *shape, .context = context, .pitch = (row + ROW - 1) / ROW * ROW,
                                 .next = arrays};
    CUresult result = capture_refuses_unsafe();
    if (result == 0)
        result = memory_new(context, array->pitch * at_least_one(shape->height) * at_least_one(shape->depth),
                            MEMORY_ARRAY, &array->begin);
    if (result != 0) {
        free(array);
        return result;
    }
    arrays = array;
    *made = array;
    return 0;
}

static KNOWS(is_known, CUarray, arrays)

/* Its memory may have gone with its context. */
static void end(CUarray array)
{
    struct allocation *memory = memory_exactly(array->begin, MEMORY_ARRAY);
    if (memory != NULL && memory->context == array->context)
        memory_drop(memory);
    UNLINK(arrays, array);
    free(array);
}

CUresult array_place(CUarray array, uint64_t *begin, size_t *pitch, size_t *rows, size_t *layers)
{
    if (!is_known(array) || memory_exactly(array->begin, MEMORY_ARRAY) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *begin = array->begin;
    *pitch = array->pitch;
    *rows = at_least_one(array->shape.height);
    *layers = at_least_one(array->shape.depth);
    return 0;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *made, const struct array3d_descriptor *shape)
{
    WITH_CONTEXT(context);
    if (made == NULL || shape == NULL || !is_sound(shape))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    FINISH(make(context, shape, made));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *made, const struct array_descriptor *shape)
{
    if (shape == NULL)
        return cuArray3DCreate_v2(made, NULL);
    const struct array3d_descriptor whole = {shape->width, shape->height, 0, shape->format, shape->channels, 0};
    return cuArray3DCreate_v2(made, &whole);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    WITH_CONTEXT(context);
    if (!is_known(array) || array->of != NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    end(array);
    FINISH(0);
}

EXPORT CUresult cuArray3DGetDescriptor_v2(struct array3d_descriptor *shape, CUarray array)
{
    WITH_CONTEXT(context);
    if (shape == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!is_known(array))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *shape = array->shape;
    FINISH(0);
}

EXPORT CUresult cuArrayGetDescriptor_v2(struct array_descriptor *shape, CUarray array)
{
    struct array3d_descriptor whole;
    CUresult result = cuArray3DGetDescriptor_v2(shape == NULL ? NULL : &whole, array);
    if (result == 0)
        *shape = (struct array_descriptor){whole.width, whole.height, whole.format, whole.channels};
    return result;
}

static KNOWS(mipmap_is_known, CUmipmappedArray, mipmaps)

static void end_levels(CUmipmappedArray mipmap)
{
    while (mipmap->levels > 0)
        end(mipmap->level[--mipmap->levels]);
}

static size_t half(size_t extent)
{
    return extent > 1 ? extent / 2 : extent;
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *made, const struct array3d_descriptor *shape, unsigned levels)
{
    WITH_CONTEXT(context);
    unsigned most = 1;
    if (made == NULL || shape == NULL || !is_sound(shape))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (levels == 0)
        levels = 1;
    for (size_t extent = shape->width > shape->height ? shape->width : shape->height; extent > 1; extent /= 2)
        most++;
    CUmipmappedArray mipmap = calloc(1, sizeof *mipmap);
    if (mipmap == NULL)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    struct array3d_descriptor level = *shape;
    CUresult result = 0;
    while (result == 0 && mipmap->levels < (levels < most ? levels : most)) {
        result = make(context, &level, &mipmap->level[mipmap->levels]);
        if (result != 0)
            break;
        mipmap->level[mipmap->levels++]->of = mipmap;
        level.width = half(level.width);
        level.height = half(level.height);
        if ((level.flags & (FLAG_LAYERED | FLAG_CUBEMAP)) == 0)
            level.depth = half(level.depth);
    }
    if (result != 0) {
        end_levels(mipmap);
        free(mipmap);
        FINISH(result);
    }
    mipmap->next = mipmaps;
    mipmaps = mipmap;
    *made = mipmap;
    FINISH(0);
}

EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned level)
{
    WITH_CONTEXT(context);
    if (!mipmap_is_known(mipmap))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (array == NULL || level >= mipmap->levels)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *array = mipmap->level[level];
    FINISH(0);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    WITH_CONTEXT(context);
    if (!mipmap_is_known(mipmap))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    end_levels(mipmap);
    UNLINK(mipmaps, mipmap);
    free(mipmap);
    FINISH(0);
}
