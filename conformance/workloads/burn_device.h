/* One device under load: matrices on it, products made again and again, results compared. */
#ifndef BURN_DEVICE_H
#define BURN_DEVICE_H

#include <stddef.h>

#include "cuda_driver.h"

struct burn_request {
    int device;      /* index among the visible ones */
    int doubles;     /* double precision */
    long megabytes;  /* memory to hold in MB (2^20), 0: a percentage */
    int percent;     /* of what is available */
};

struct burn_device {
    struct cuda_driver cuda;
    CUdevice device;
    CUcontext context;
    CUfunction multiply, compare;
    CUdeviceptr a, b, results, errors, held;
    unsigned int side;       /* of the square matrices */
    unsigned int iterations; /* results that fit, products in one round */
    size_t element;          /* bytes */
    size_t total, available, used;
    double *reference;       /* what some elements of a result have to be, from the CPU */
    int doubles;
};

/*
 * Take a device, fill it with the requested memory, choose a matrix size it can multiply in a
 * reasonable time. 0, or -1 with a sentence on stderr.
 */
int burn_open(struct burn_device *burn, const struct burn_request *request);

/* Make one round of products and compare them; errors found, or -1. */
long burn_round(struct burn_device *burn);

/* Floating point operations of one product. */
double burn_operations(const struct burn_device *burn);

#endif
