#include "burn_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "embedded_ptx.h"

EMBED_PTX(gpu_burn_ptx, "gpu_burn.ptx");

enum {
    TILE = 16,
    SMALLEST = 64,
    LARGEST = 8192,
    MAX_ITERATIONS = 64,
    CHECKED = 16, /* elements whose value the CPU knows */
};
/* A product may take this long; the largest matrices that keep to it are used. */
static const double longest_product = 0.25;
/* A round, after which errors are told, about this long. */
static const double usual_round = 1.0;

static int failed(const struct burn_device *burn, CUresult result, const char *what)
{
    fprintf(stderr, "Couldn't init a GPU test: Error in %s: %s\n", what,
            result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
                                               : cuda_error(&burn->cuda, result));
    return -1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double element_a(unsigned int i) { return (double)(i * 7 % 1000) / 1000.0; }
static double element_b(unsigned int i) { return (double)(i * 13 % 1000) / 1000.0; }

static CUresult fill(struct burn_device *burn, CUdeviceptr place, double (*value)(unsigned int))
{
    size_t count = (size_t)burn->side * burn->side;
    void *host = malloc(count * burn->element);
    if (host == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned int i = 0; i < count; i++) {
        if (burn->doubles)
            ((double *)host)[i] = value(i);
        else
            ((float *)host)[i] = (float)value(i);
    }
    CUresult result = burn->cuda.to_device(place, host, count * burn->element);
    free(host);
    return result;
}

static CUresult multiply(struct burn_device *burn, unsigned int which)
{
    CUdeviceptr place = burn->results + (size_t)which * burn->side * burn->side * burn->element;
    void *arguments[] = {&burn->a, &burn->b, &place, &burn->side};
    unsigned int tiles = burn->side / TILE;
    return burn->cuda.launch(burn->multiply, tiles, tiles, 1, TILE, TILE, 1, 0, NULL, arguments,
                             NULL);
}

static CUresult place_matrices(struct burn_device *burn, unsigned int side, unsigned int results)
{
    size_t bytes = (size_t)side * side * burn->element;
    burn->side = side;
    CUresult result = burn->cuda.alloc(&burn->a, bytes);
    if (result == CUDA_SUCCESS)
        result = burn->cuda.alloc(&burn->b, bytes);
    if (result == CUDA_SUCCESS)
        result = burn->cuda.alloc(&burn->results, bytes * results);
    if (result == CUDA_SUCCESS)
        result = fill(burn, burn->a, element_a);
    if (result == CUDA_SUCCESS)
        result = fill(burn, burn->b, element_b);
    return result;
}

static void drop_matrices(struct burn_device *burn)
{
    burn->cuda.release(burn->a);
    burn->cuda.release(burn->b);
    burn->cuda.release(burn->results);
}

/* The largest side whose product is quick enough here and that leaves room for two results. */
static CUresult choose_side(struct burn_device *burn, unsigned int *chosen, double *seconds)
{
    *chosen = 0;
    for (unsigned int side = SMALLEST; side <= LARGEST; side *= 2) {
        if ((size_t)side * side * burn->element * 4 > burn->used)
            break;
        CUresult result = place_matrices(burn, side, 1);
        double began = now();
        if (result == CUDA_SUCCESS)
            result = multiply(burn, 0);
        if (result == CUDA_SUCCESS)
            result = burn->cuda.synchronize();
        double took = now() - began;
        drop_matrices(burn);
        if (result != CUDA_SUCCESS)
            return result;
        *chosen = side;
        *seconds = took;
        /* A product of twice the side takes eight times as long. */
        if (took * 8 > longest_product)
            break;
    }
    return CUDA_SUCCESS;
}

static int know_some_elements(struct burn_device *burn)
{
    unsigned int n = burn->side;
    burn->reference = calloc(CHECKED, sizeof *burn->reference);
    if (burn->reference == NULL)
        return -1;
    for (unsigned int k = 0; k < CHECKED; k++) {
        unsigned int row = (k * 37) % n, column = (k * 101) % n;
        for (unsigned int i = 0; i < n; i++)
            burn->reference[k] += element_a(row * n + i) * element_b(i * n + column);
    }
    return 0;
}

int burn_open(struct burn_device *burn, const struct burn_request *request)
{
    CUmodule module = NULL;
    CUresult result;
    burn->doubles = request->doubles;
    burn->element = request->doubles ? sizeof(double) : sizeof(float);
    if (cuda_open(&burn->cuda) != 0)
        return -1;
    if ((result = burn->cuda.init(0)) != CUDA_SUCCESS ||
        (result = burn->cuda.device(&burn->device, request->device)) != CUDA_SUCCESS ||
        (result = burn->cuda.retain_context(&burn->context, burn->device)) != CUDA_SUCCESS ||
        (result = burn->cuda.set_context(burn->context)) != CUDA_SUCCESS)
        return failed(burn, result, "init");
    if ((result = burn->cuda.load_module(&module, gpu_burn_ptx)) != CUDA_SUCCESS ||
        (result = burn->cuda.function(&burn->multiply, module,
                                      request->doubles ? "multiply_f64" : "multiply_f32")) !=
            CUDA_SUCCESS ||
        (result = burn->cuda.function(&burn->compare, module,
                                      request->doubles ? "compare_f64" : "compare_f32")) !=
            CUDA_SUCCESS)
        return failed(burn, result, "load module");
    if ((result = burn->cuda.memory_info(&burn->available, &burn->total)) != CUDA_SUCCESS)
        return failed(burn, result, "memory information");
    burn->used = request->megabytes > 0 ? (size_t)request->megabytes << 20
                                     : burn->available / 100 * (size_t)request->percent;
    unsigned int side = 0;
    double seconds = 0;
    if ((result = choose_side(burn, &side, &seconds)) != CUDA_SUCCESS)
        return failed(burn, result, "A alloc");
    if (side == 0) {
        fprintf(stderr, "Couldn't init a GPU test: %zu MB hold no matrices of %d by %d\n",
                burn->used >> 20, SMALLEST, SMALLEST);
        return -1;
    }
    size_t bytes = (size_t)side * side * burn->element, fit = burn->used / bytes - 2;
    double wanted = usual_round / (seconds > 0 ? seconds : 1e-9);
    size_t most = wanted < 2 ? 2 : wanted > MAX_ITERATIONS ? MAX_ITERATIONS : (size_t)wanted;
    burn->iterations = (unsigned int)(fit > most ? most : fit);
    size_t rest = burn->used - (size_t)(burn->iterations + 2) * bytes;
    if ((result = place_matrices(burn, side, burn->iterations)) != CUDA_SUCCESS ||
        (rest > 4096 && (result = burn->cuda.alloc(&burn->held, rest)) != CUDA_SUCCESS))
        return failed(burn, result, "C alloc");
    if ((result = burn->cuda.alloc(&burn->errors, sizeof(unsigned int))) != CUDA_SUCCESS)
        return failed(burn, result, "error counter alloc");
    return know_some_elements(burn);
}

static long wrong_elements(struct burn_device *burn)
{
    long wrong = 0;
    for (unsigned int k = 0; k < CHECKED; k++) {
        unsigned int row = (k * 37) % burn->side, column = (k * 101) % burn->side;
        size_t at = ((size_t)row * burn->side + column) * burn->element;
        double value = 0;
        float single = 0;
        CUresult result = burn->doubles ? burn->cuda.to_host(&value, burn->results + at, 8)
                                        : burn->cuda.to_host(&single, burn->results + at, 4);
        if (result != CUDA_SUCCESS)
            return -1;
        if (!burn->doubles)
            value = single;
        double allowed = fabs(burn->reference[k]) * (burn->doubles ? 1e-10 : 1e-4) + 1e-6;
        if (!(fabs(value - burn->reference[k]) <= allowed))
            wrong++;
    }
    return wrong;
}

long burn_round(struct burn_device *burn)
{
    unsigned int count = burn->side * burn->side, errors = 0;
    for (unsigned int i = 0; i < burn->iterations; i++)
        if (multiply(burn, i) != CUDA_SUCCESS)
            return -1;
    if (burn->cuda.set_32(burn->errors, 0, 1) != CUDA_SUCCESS)
        return -1;
    for (unsigned int i = 1; i < burn->iterations; i++) {
        CUdeviceptr other = burn->results + (size_t)i * count * burn->element;
        void *arguments[] = {&burn->results, &other, &count, &burn->errors};
        if (burn->cuda.launch(burn->compare, (count + 255) / 256, 1, 1, 256, 1, 1, 0, NULL,
                              arguments, NULL) != CUDA_SUCCESS)
            return -1;
    }
    if (burn->cuda.synchronize() != CUDA_SUCCESS ||
        burn->cuda.to_host(&errors, burn->errors, sizeof errors) != CUDA_SUCCESS)
        return -1;
    long wrong = wrong_elements(burn);
    return wrong < 0 ? -1 : (long)errors + wrong;
}

double burn_operations(const struct burn_device *burn)
{
    return 2.0 * burn->side * burn->side * burn->side;
}
