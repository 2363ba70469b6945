/* Arrays: what one takes is the driver's secret; at least its rows, each from a multiple of 512 bytes. */
#include "driver.h"
#include "memory.h"

#define ROW 512u
#define MAX_EXTENT (1ull << 20) /* above any that a driver accepts */
#define FLAG_LAYERED 1u
#define FLAG_CUBEMAP 4u
#define FLAG_SPARSE 0x40u
#define FLAG_DEFERRED 0x80u

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const struct array_descriptor *shape);
EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *shape);
EXPORT CUresult cuArrayDestroy(CUarray array);
EXPORT CUresult cuMipmappedArrayCreate(CUmipmap *mipmap, const struct array3d_descriptor *shape, unsigned levels);
EXPORT CUresult cuMipmappedArrayDestroy(CUmipmap mipmap);

static unsigned element_bytes(int format)
{
    switch (format) {
    case 0x01: /* unsigned and signed, 8 bits */
    case 0x08:
        return 1;
    case 0x03: /* 32 bits, and float */
    case 0x0a:
    case 0x20:
        return 4;
    default: /* 16 bits, half, and the packed formats */
        return 2;
    }
}

static uint64_t at_least_one(size_t extent)
{
    return extent == 0 ? 1 : extent;
}

/* 0: the driver will refuse it, or takes the memory for it from handles. */
static uint64_t bytes_of(const struct array3d_descriptor *shape)
{
    if (shape->width > MAX_EXTENT || shape->height > MAX_EXTENT || shape->depth > MAX_EXTENT ||
        shape->channels > 4 || (shape->flags & (FLAG_SPARSE | FLAG_DEFERRED)) != 0)
        return 0;
    uint64_t row = (uint64_t)shape->width * shape->channels * element_bytes(shape->format);
    return (row + ROW - 1) / ROW * ROW * at_least_one(shape->height) * at_least_one(shape->depth);
}

static size_t half(size_t extent)
{
    return extent > 1 ? extent / 2 : extent;
}

static size_t larger(size_t one, size_t other)
{
    return one > other ? one : other;
}

/* The driver makes one level at least, and no more than down to a single element. */
static uint64_t bytes_of_levels(struct array3d_descriptor level, unsigned levels)
{
    unsigned most = 1;
    for (size_t extent = larger(level.width, larger(level.height, level.depth)); extent > 1; extent /= 2)
        most++;
    uint64_t all = 0;
    for (unsigned i = 0; i < most && (i == 0 || i < levels); i++) {
        all += bytes_of(&level);
        level.width = half(level.width);
        level.height = half(level.height);
        if ((level.flags & (FLAG_LAYERED | FLAG_CUBEMAP)) == 0)
            level.depth = half(level.depth);
    }
    return all;
}

static uint64_t number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static CUresult destroy(CUresult (*run)(uint64_t), enum charge_kind kind, uint64_t handle)
{
    struct charge charge;
    bool charged = charge_take(kind, handle, &charge);
    CUresult result = run(handle);
    if (charged)
        charge_freed(kind, result, handle, &charge);
    return result;
}

static CUresult run_array_destroy(uint64_t handle)
{
    return CALL(cuArrayDestroy, (CUarray)(uintptr_t)handle);
}

static CUresult run_mipmap_destroy(uint64_t handle)
{
    return CALL(cuMipmappedArrayDestroy, (CUmipmap)(uintptr_t)handle);
}

/* What was made beyond the limit is destroyed again. */
static CUresult settle(CUresult (*undo)(uint64_t), enum charge_kind kind, enum reservation reservation,
                       CUresult result, uint64_t handle, const struct charge *charge)
{
    if (reservation != RESERVED || charge_settle(kind, result, handle, charge))
        return result;
    undo(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const struct array_descriptor *shape)
{
    struct charge charge = {.bytes = 0};
    if (array != NULL && shape != NULL)
        charge.bytes = bytes_of(&(struct array3d_descriptor){shape->width, shape->height, 0, shape->format,
                                                             shape->channels, 0});
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuArrayCreate_v2, array, shape);
    return settle(run_array_destroy, CHARGE_ARRAY, reservation, result, result == 0 ? number(*array) : 0, &charge);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const struct array3d_descriptor *shape)
{
    struct charge charge = {.bytes = array == NULL || shape == NULL ? 0 : bytes_of(shape)};
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuArray3DCreate_v2, array, shape);
    return settle(run_array_destroy, CHARGE_ARRAY, reservation, result, result == 0 ? number(*array) : 0, &charge);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    return destroy(run_array_destroy, CHARGE_ARRAY, number(array));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmap *mipmap, const struct array3d_descriptor *shape, unsigned levels)
{
    struct charge charge = {.bytes = mipmap == NULL || shape == NULL ? 0 : bytes_of_levels(*shape, levels)};
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuMipmappedArrayCreate, mipmap, shape, levels);
    return settle(run_mipmap_destroy, CHARGE_MIPMAP, reservation, result, result == 0 ? number(*mipmap) : 0, &charge);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmap mipmap)
{
    return destroy(run_mipmap_destroy, CHARGE_MIPMAP, number(mipmap));
}
