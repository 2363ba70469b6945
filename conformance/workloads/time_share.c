/*
 * time-share: short kernels one after the other, to see which part of a GPU's time a program gets.
 *
 *   time-share [--asleep] size MILLISECONDS   how large a kernel is that takes so long, alone
 *   time-share [--asleep] work SIZE           says "ready", reads "BEGIN SECONDS" (on the monotonic
 *                                             clock), launches kernels of SIZE from then on, and says
 *                                             "KERNELS in SECONDS s: X Gflop/s"
 *
 * With --asleep the kernels sleep, and a microsecond asleep counts as a thousand operations.
 * Exit code 0, or 1 with a sentence on stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_driver.h"
#include "embedded_ptx.h"

EMBED_PTX(time_share_ptx, "time_share.ptx");

enum { THREADS = 256, BLOCKS = 2048, BATCH = 4, OPERATIONS = 32, SMALLEST = 16 };

struct work {
    struct cuda_driver cuda;
    CUfunction kernel;
    CUdeviceptr place;
    unsigned int blocks, threads;
    double operations; /* of a kernel of size 1 */
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void start(struct work *work, unsigned int size)
{
    void *arguments[] = {&size, &work->place};
    CUresult result = work->cuda.launch(work->kernel, work->blocks, 1, 1, work->threads, 1, 1, 0,
                                        NULL, arguments, NULL);
    cuda_must(&work->cuda, result, "launch the kernel");
}

static void finish(const struct work *work)
{
    cuda_must(&work->cuda, work->cuda.synchronize(), "run the kernel");
}

static void begin(struct work *work, int asleep)
{
    CUmodule module = NULL;
    cuda_begin(&work->cuda);
    cuda_must(&work->cuda, work->cuda.load_module(&module, time_share_ptx), "load the kernels");
    const char *name = asleep ? "asleep" : "spin";
    cuda_must(&work->cuda, work->cuda.function(&work->kernel, module, name), "find the kernel");
    cuda_must(&work->cuda, work->cuda.alloc(&work->place, 4), "allocate");
    work->blocks = asleep ? 1 : BLOCKS;
    work->threads = asleep ? 1 : THREADS;
    work->operations = asleep ? 1000 : (double)BLOCKS * THREADS * OPERATIONS;
    start(work, SMALLEST);
    finish(work);
}

static unsigned int size_of(struct work *work, double seconds)
{
    for (unsigned int size = SMALLEST;; size *= 2) {
        double began = now();
        for (int i = 0; i < BATCH; i++)
            start(work, size);
        finish(work);
        double took = (now() - began) / BATCH;
        if (took >= seconds / 2 || size > 1u << 28)
            return (unsigned int)(size * seconds / took) + 1;
    }
}

static void share(struct work *work, unsigned int size)
{
    double at = 0, seconds = 0;
    puts("ready");
    fflush(stdout);
    if (scanf("%lf %lf", &at, &seconds) != 2) {
        fprintf(stderr, "no signal to begin has come\n");
        exit(1);
    }
    while (now() < at) {
        struct timespec moment = {0, 200000};
        nanosleep(&moment, NULL);
    }
    double began = now(), ended = began;
    unsigned long kernels = 0;
    while (ended < at + seconds) {
        for (int i = 0; i < BATCH; i++)
            start(work, size);
        finish(work);
        kernels += BATCH;
        ended = now();
    }
    double rate = work->operations * size * (double)kernels / (ended - began) / 1e9;
    printf("%lu in %.3f s: %.3f Gflop/s\n", kernels, ended - began, rate);
}

int main(int argc, char **argv)
{
    int asleep = argc > 1 && strcmp(argv[1], "--asleep") == 0;
    const char *what = argc == 3 + asleep ? argv[1 + asleep] : "";
    double value = argc == 3 + asleep ? strtod(argv[2 + asleep], NULL) : 0;
    int sizes = strcmp(what, "size") == 0;
    if (value <= 0 || (!sizes && strcmp(what, "work") != 0)) {
        fprintf(stderr, "usage: time-share [--asleep] size MILLISECONDS | work SIZE\n");
        return 2;
    }
    struct work work = {0};
    begin(&work, asleep);
    if (sizes)
        printf("%u\n", asleep ? (unsigned int)(value * 1000) : size_of(&work, value / 1000));
    else
        share(&work, (unsigned int)value);
    return 0;
}
