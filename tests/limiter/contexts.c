/* Two threads that end their contexts and make new ones at the same time, each with memory in it.
 *
 *   contexts LIBRARY ROUNDS      prints in how many rounds the memory of both was not what is in use
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES ((size_t)100 << 20)

static int (*create)(void **, unsigned, int), (*destroy)(void *);
static int (*allocate)(unsigned long long *, size_t), (*info)(size_t *, size_t *);
static pthread_barrier_t both;
static int rounds, wrong;

static void *turn_over(void *is_first)
{
    unsigned long long pointer;
    size_t unused, total;
    void *context;
    for (int i = 0; i < rounds; i++) {
        if (create(&context, 0, 0) != 0 || allocate(&pointer, BYTES) != 0)
            exit(4);
        pthread_barrier_wait(&both);
        if (is_first != NULL && info(&unused, &total) == 0)
            wrong += total - unused != 2 * BYTES;
        pthread_barrier_wait(&both);
        destroy(context);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t other;
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (library == NULL)
        return 2;
    create = (int (*)(void **, unsigned, int))dlsym(library, "cuCtxCreate_v2");
    destroy = (int (*)(void *))dlsym(library, "cuCtxDestroy_v2");
    allocate = (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2");
    info = (int (*)(size_t *, size_t *))dlsym(library, "cuMemGetInfo_v2");
    rounds = atoi(arguments[2]);
    if (((int (*)(unsigned))dlsym(library, "cuInit"))(0) != 0)
        return 4;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&other, NULL, turn_over, NULL);
    turn_over(&rounds);
    pthread_join(other, NULL);
    printf("%d\n", wrong);
}
