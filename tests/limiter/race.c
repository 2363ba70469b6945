/* Processes that go for the memory of one share at once.
 *
 *   race ROUNDS PROCESSES BYTES     every process asks for BYTES in every round; prints how many
 *                                   rounds gave to how many, as "COUNT ROUNDS" lines
 *   race churn SEED                 allocates and frees forever, in three threads
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*init_fn)(unsigned);
typedef int (*context_fn)(void **, unsigned, int);
typedef int (*allocate_fn)(unsigned long long *, size_t);
typedef int (*free_fn)(unsigned long long);
typedef int (*set_fn)(void *);

static void *library;
static allocate_fn allocate;
static free_fn give_back;
static void *context;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        exit(3);
    return found;
}

static void start(void)
{
    library = dlopen(getenv("LIBCUDA"), RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    allocate = (allocate_fn)symbol("cuMemAlloc_v2");
    give_back = (free_fn)symbol("cuMemFree_v2");
    if (((init_fn)symbol("cuInit"))(0) != 0 || ((context_fn)symbol("cuCtxCreate_v2"))(&context, 0, 0) != 0)
        exit(4);
}

struct arena {
    pthread_barrier_t barrier;
    atomic_int given, wrong;
    atomic_uint arrived;
};

static void take_part(struct arena *arena, int rounds, unsigned processes, size_t bytes, unsigned *counts)
{
    start();
    for (int i = 0; i < rounds; i++) {
        unsigned long long pointer = 0;
        pthread_barrier_wait(&arena->barrier);
        /* Who is woken first waits for the others without sleeping: they ask within nanoseconds. */
        atomic_fetch_add(&arena->arrived, 1);
        while (atomic_load(&arena->arrived) < (unsigned)(i + 1) * processes)
            if (processes > 2)
                sched_yield();
        int result = allocate(&pointer, bytes);
        if (result == 0)
            atomic_fetch_add(&arena->given, 1);
        else if (result != 2)
            atomic_fetch_add(&arena->wrong, 1);
        bool last = pthread_barrier_wait(&arena->barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        if (last)
            counts[atomic_exchange(&arena->given, 0)]++;
        if (result == 0 && give_back(pointer) != 0)
            atomic_fetch_add(&arena->wrong, 1);
        pthread_barrier_wait(&arena->barrier);
    }
}

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(size_t)argument;
    unsigned long long held[16] = {0};
    ((set_fn)symbol("cuCtxSetCurrent"))(context);
    for (;;) {
        unsigned at = (unsigned)rand_r(&seed) % 16;
        if (held[at] != 0)
            give_back(held[at]);
        held[at] = 0;
        allocate(&held[at], (size_t)(rand_r(&seed) % 200000000) + 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "churn") == 0) {
        pthread_t thread;
        start();
        puts("ready");
        fflush(stdout);
        for (size_t i = 0; i < 2; i++)
            pthread_create(&thread, NULL, churn, (void *)(atoi(argv[2]) * 3 + i + 1));
        churn((void *)(size_t)(atoi(argv[2]) * 3));
    }
    int rounds = atoi(argv[1]), processes = atoi(argv[2]);
    size_t bytes = strtoull(argv[3], NULL, 10);
    size_t size = sizeof(struct arena) + sizeof(unsigned) * (size_t)(processes + 1);
    struct arena *arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned *counts = (unsigned *)(arena + 1);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&arena->barrier, &shared, (unsigned)processes);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            take_part(arena, rounds, (unsigned)processes, bytes, counts);
            _exit(0);
        }
    for (int i = 0, status; i < processes; i++)
        if (wait(&status) < 0 || status != 0)
            return 1;
    for (int i = 0; i <= processes; i++)
        if (counts[i] > 0)
            printf("%d %u\n", i, counts[i]);
    return arena->wrong != 0;
}
