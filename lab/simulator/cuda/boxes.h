/* Copies of boxes: rows of rows of bytes, between host, device and arrays. */
#ifndef DIVVY_CUDA_BOXES_H
#define DIVVY_CUDA_BOXES_H

#include "state.h"

enum box_place { PLACE_HOST = 1, PLACE_DEVICE, PLACE_ARRAY, PLACE_UNIFIED };

struct box_side {
    enum box_place place;
    void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z;          /* where the box begins; x in bytes */
    size_t pitch, rows;      /* bytes from row to row, rows from layer to layer */
};

struct box_copy {
    struct box_side from, to;
    size_t width, height, depth;
};

CUresult box_check(const struct box_copy *copy);
CUresult box_run(const struct box_copy *copy);

/* arrays.c */
CUresult array_place(CUarray array, uint64_t *begin, size_t *pitch, size_t *rows, size_t *layers);

/* The layout of CUDA_MEMCPY3D. */
struct memcpy3d {
    size_t source_x, source_y, source_z, source_lod;
    int source_place;
    const void *source_host;
    CUdeviceptr source_device;
    CUarray source_array;
    void *source_reserved;
    size_t source_pitch, source_rows;
    size_t x, y, z, lod;
    int place;
    void *host;
    CUdeviceptr device;
    CUarray array;
    void *reserved;
    size_t pitch, rows;
    size_t width, height, depth;
};
struct box_copy box_of_3d(const struct memcpy3d *copy);

#endif
