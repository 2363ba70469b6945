/* Programs that are right by NVIDIA's documents, each in one process:
 *
 *   stream_programs LIBRARY PROGRAM PTX      the file has a kernel "sleep" (lab/driver_clients/sleeper.py)
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct stream *stream_t;

static void *library, *context, *function;
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream_t, void **,
                     void **);
static int (*synchronize)(stream_t);
static int (*begin)(stream_t, int), (*end)(stream_t, void **);
static volatile bool ended;
static sem_t go_on;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(3);
    }
    return found;
}

static void launches(stream_t stream, int count)
{
    unsigned times = 0, nanoseconds = 200000;
    void *values[] = {&times, &nanoseconds};
    for (int i = 0; i < count; i++)
        if (launch(function, 1, 1, 1, 1, 1, 1, 0, stream, values, NULL) != 0)
            exit(4);
}

static stream_t create(void)
{
    stream_t stream;
    if (((int (*)(stream_t *, unsigned))symbol("cuStreamCreate"))(&stream, 1) != 0)
        exit(4);
    return stream;
}

static void wait_for_the_host(void *semaphore)
{
    sem_wait(semaphore);
}

/* A stream goes on when the host says so, and the host says so after other launches. */
static void host_function(stream_t one, stream_t other)
{
    int (*call)(stream_t, void (*)(void *), void *) = symbol("cuLaunchHostFunc");
    sem_init(&go_on, 0, 0);
    call(one, wait_for_the_host, &go_on);
    launches(other, 20);
    sem_post(&go_on);
    synchronize(one);
    puts("done");
}

/* The same between two streams, and with work behind the wait. */
static void wait_value(stream_t one, stream_t other)
{
    uint64_t word;
    ((int (*)(uint64_t *, size_t))symbol("cuMemAlloc_v2"))(&word, 4);
    ((int (*)(uint64_t, unsigned, size_t))symbol("cuMemsetD32_v2"))(word, 0, 1);
    int (*wait)(stream_t, uint64_t, uint32_t, unsigned) = symbol("cuStreamWaitValue32_v2");
    int (*write)(stream_t, uint64_t, uint32_t, unsigned) = symbol("cuStreamWriteValue32_v2");
    wait(one, word, 1, 0);
    launches(one, 1);
    launches(other, 20);
    write(other, word, 1, 0);
    synchronize(one);
    puts("done");
}

static void captures(stream_t stream, bool to_graph)
{
    void *graph, *into;
    int failed = 0;
    for (int i = 0; i < 20; i++) {
        ((int (*)(void **, unsigned))symbol("cuGraphCreate"))(&into, 0);
        usleep(6000);
        if (to_graph)
            ((int (*)(stream_t, void *, void *, void *, size_t, int))symbol("cuStreamBeginCaptureToGraph"))(
                stream, into, NULL, NULL, 0, 0);
        else
            begin(stream, 0);
        launches(stream, 5);
        failed += end(stream, &graph) != 0;
    }
    printf("%d failed\n", failed);
}

static void *launch_on(void *stream)
{
    ((int (*)(void *))symbol("cuCtxSetCurrent"))(context);
    while (!ended) {
        launches(stream, 1);
        usleep(200);
    }
    return NULL;
}

static void captures_beside_launches(stream_t stream)
{
    pthread_t threads[3];
    void *graph;
    int failed = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, launch_on, create());
    for (int i = 0; i < 500; i++) {
        usleep(1500);
        begin(stream, 0);
        launches(stream, 3);
        usleep(300);
        failed += end(stream, &graph) != 0;
    }
    ended = true;
    printf("%d failed\n", failed);
}

static void *launch_until_cancelled(void *stream)
{
    ((int (*)(void *))symbol("cuCtxSetCurrent"))(context);
    for (int i = 0; i < 2000; i++) {
        launches(stream, 1);
        pthread_testcancel();
    }
    return NULL;
}

/* What a thread is cancelled in keeps no other from launching. */
static void cancelled_launch(stream_t one, stream_t other)
{
    pthread_t thread;
    for (int i = 0; i < 10; i++) {
        pthread_create(&thread, NULL, launch_until_cancelled, one);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        launches(other, 1);
    }
    puts("done");
}

/* Others see the launches that pass the gate; what a capture leaves open must not hide them. */
static void open_capture(stream_t one, stream_t other, bool destroyed)
{
    begin(one, 0);
    if (destroyed)
        ((int (*)(stream_t))symbol("cuStreamDestroy_v2"))(one);
    launches(other, 400);
    synchronize(other);
    puts("done");
}

struct memory_node {
    int type, handle_types, location_type, location;
    char more_of_pool[72];
    const void *access;
    size_t accesses, bytes;
    uint64_t address;
};

static size_t unused_mib(void)
{
    size_t unused, total;
    ((int (*)(size_t *, size_t *))symbol("cuMemGetInfo_v2"))(&unused, &total);
    return unused >> 20;
}

/* Launch a graph that allocates so much, and say what came of it and what is left. */
static uint64_t allocating_graph(stream_t stream, size_t mib)
{
    void *graph, *node, *executable;
    struct memory_node memory = {.type = 1, .location_type = 1, .bytes = mib << 20};
    ((int (*)(void **, unsigned))symbol("cuGraphCreate"))(&graph, 0);
    ((int (*)(void **, void *, void *, size_t, void *))symbol("cuGraphAddMemAllocNode"))(&node, graph, NULL, 0, &memory);
    ((int (*)(void **, void *, uint64_t))symbol("cuGraphInstantiateWithFlags"))(&executable, graph, 0);
    int result = ((int (*)(void *, stream_t))symbol("cuGraphLaunch"))(executable, stream);
    synchronize(stream);
    printf("%d %zu\n", result, unused_mib());
    ((int (*)(void *))symbol("cuGraphExecDestroy"))(executable);
    return memory.address;
}

static void graph_memory(stream_t stream)
{
    uint64_t address = allocating_graph(stream, 400);
    allocating_graph(stream, 1500);
    ((int (*)(uint64_t))symbol("cuMemFree_v2"))(address);
    printf("%zu\n", unused_mib());
    address = allocating_graph(stream, 900);
    ((int (*)(uint64_t))symbol("cuMemFree_v2"))(address);
    ((int (*)(int))symbol("cuDeviceGraphMemTrim"))(0);
    printf("%zu\n", unused_mib());
}

int main(int count, char **arguments)
{
    void *module;
    library = count == 4 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (library == NULL)
        return 2;
    launch = symbol("cuLaunchKernel");
    synchronize = symbol("cuStreamSynchronize");
    begin = symbol("cuStreamBeginCapture_v2");
    end = symbol("cuStreamEndCapture");
    ((int (*)(unsigned))symbol("cuInit"))(0);
    ((int (*)(void **, unsigned, int))symbol("cuCtxCreate_v2"))(&context, 0, 0);
    ((int (*)(void **, const char *))symbol("cuModuleLoad"))(&module, arguments[3]);
    if (((int (*)(void **, void *, const char *))symbol("cuModuleGetFunction"))(&function, module, "sleep") != 0)
        return 4;
    stream_t one = create(), other = create();
    const char *program = arguments[2];
    launches(one, 20);
    synchronize(one);
    if (strcmp(program, "host function") == 0)
        host_function(one, other);
    else if (strcmp(program, "wait value") == 0)
        wait_value(one, other);
    else if (strcmp(program, "capture") == 0 || strcmp(program, "capture to graph") == 0)
        captures(one, strlen(program) > 7);
    else if (strcmp(program, "capture beside launches") == 0)
        captures_beside_launches(one);
    else if (strcmp(program, "cancelled launch") == 0)
        cancelled_launch(one, other);
    else if (strcmp(program, "open capture") == 0 || strcmp(program, "lost capture") == 0)
        open_capture(one, other, program[0] == 'l');
    else if (strcmp(program, "graph memory") == 0)
        graph_memory(one);
    else
        return 5;
    fflush(stdout);
    _exit(0);
}
