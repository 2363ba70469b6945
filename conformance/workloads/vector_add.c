/*
 * cuda-vector-add: add two vectors on the GPU and check every element.
 *
 * Output and exit code follow the well-known sample: "Test PASSED" and 0, or a
 * sentence on stderr and 1. A line with the device's name and UUID comes first.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_driver.h"
#include "embedded_ptx.h"

EMBED_PTX(vector_add_ptx, "vector_add.ptx");

enum { BLOCK = 256 };

static struct cuda_driver cuda;

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "Failed to %s (error code %s)!\n", what, cuda_error(&cuda, result));
    exit(1);
}

static long positive(const char *text, const char *option)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > 1 << 30) {
        fprintf(stderr, "%s %s: a number from 1 to %d is right\n", option, text, 1 << 30);
        exit(2);
    }
    return value;
}

static CUdevice open_device(void)
{
    char name[128], text[48];
    CUuuid uuid;
    CUdevice device = 0;
    CUcontext context = NULL;
    int count = 0;
    must(cuda.init(0), "initialise the driver");
    must(cuda.device_count(&count), "count devices");
    if (count == 0) {
        fprintf(stderr, "Failed to find a device!\n");
        exit(1);
    }
    must(cuda.device(&device, 0), "get device 0");
    must(cuda.device_name(name, sizeof name, device), "name the device");
    must(cuda.device_uuid(&uuid, device), "get the device's UUID");
    cuda_uuid_text(name, &uuid, text);
    printf("Device 0 of %d: %s (UUID: %s)\n", count, name, text);
    must(cuda.retain_context(&context, device), "create a context");
    must(cuda.set_context(context), "use the context");
    return device;
}

static void add_once(CUfunction kernel, size_t size)
{
    size_t bytes = size * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);
    if (a == NULL || b == NULL || c == NULL) {
        fprintf(stderr, "Failed to allocate host vectors!\n");
        exit(1);
    }
    for (size_t i = 0; i < size; i++) {
        a[i] = (float)rand() / (float)RAND_MAX;
        b[i] = (float)rand() / (float)RAND_MAX;
        c[i] = NAN;
    }
    CUdeviceptr da = 0, db = 0, dc = 0;
    must(cuda.alloc(&da, bytes), "allocate device vector A");
    must(cuda.alloc(&db, bytes), "allocate device vector B");
    must(cuda.alloc(&dc, bytes), "allocate device vector C");
    printf("Copy input data from the host memory to the CUDA device\n");
    must(cuda.to_device(da, a, bytes), "copy vector A from host to device");
    must(cuda.to_device(db, b, bytes), "copy vector B from host to device");
    unsigned int count = (unsigned int)size, blocks = (count + BLOCK - 1) / BLOCK;
    void *arguments[] = {&da, &db, &dc, &count};
    printf("CUDA kernel launch with %u blocks of %d threads\n", blocks, BLOCK);
    must(cuda.launch(kernel, blocks, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL),
         "launch the kernel");
    must(cuda.synchronize(), "run the kernel");
    printf("Copy output data from the CUDA device to the host memory\n");
    must(cuda.to_host(c, dc, bytes), "copy vector C from device to host");
    for (size_t i = 0; i < size; i++) {
        if (!(fabsf(a[i] + b[i] - c[i]) <= 1e-5f)) {
            fprintf(stderr, "Result verification failed at element %zu!\n", i);
            exit(1);
        }
    }
    must(cuda.release(da), "free device vector A");
    must(cuda.release(db), "free device vector B");
    must(cuda.release(dc), "free device vector C");
    free(a);
    free(b);
    free(c);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"repeat", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    long size = 50000, repeat = 1;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 's')
            size = positive(optarg, "--size");
        else if (option == 'r')
            repeat = positive(optarg, "--repeat");
        else
            return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cuda_open(&cuda) != 0)
        return 1;
    printf("[Vector addition of %ld elements]\n", size);
    CUdevice device = open_device();
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    must(cuda.load_module(&module, vector_add_ptx), "load the kernel");
    must(cuda.function(&kernel, module, "vector_add"), "find the kernel");
    for (long round = 0; round < repeat; round++)
        add_once(kernel, (size_t)size);
    printf("Test PASSED\n");
    must(cuda.release_context(device), "release the context");
    printf("Done\n");
    return 0;
}
