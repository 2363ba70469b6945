#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_CONTEXT 512u /* MiB */

/* The threads of this process: a lock of a file description does not keep them apart. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;
static int cancelling; /* whether the one that has the lock could be cancelled before */
static struct account *account;
static int file = -1;
static bool has_slot;
static unsigned own;

static int lock_byte(int fd, int command, short type, unsigned byte)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int done;
    do
        done = fcntl(fd, command, &range);
    while (done != 0 && errno == EINTR);
    return done != 0 ? -1 : command == F_OFD_GETLK && range.l_type != F_UNLCK;
}

/* A thread that waits for the account is not cancelled meanwhile: it would leave it locked. */
static void lock_threads(void)
{
    int state = PTHREAD_CANCEL_ENABLE; /* of a program without threads nothing is said */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&threads);
    cancelling = state;
}

static void unlock_threads(void)
{
    int state = cancelling;
    pthread_mutex_unlock(&threads);
    pthread_setcancelstate(state, NULL);
}

static bool enter(void)
{
    lock_threads();
    if (file >= 0 && lock_byte(file, F_OFD_SETLKW, F_WRLCK, 0) == 0)
        return true;
    unlock_threads();
    return false;
}

static void leave(void)
{
    lock_byte(file, F_OFD_SETLK, F_UNLCK, 0);
    unlock_threads();
}

static bool is_alive(int fd, unsigned slot)
{
    return lock_byte(fd, F_OFD_GETLK, F_WRLCK, 1 + slot) != 0;
}

static uint64_t load(const uint64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static unsigned top_of(const struct account *map)
{
    return map->top < MAX_SLOTS ? map->top : MAX_SLOTS;
}

static uint64_t sum(unsigned device)
{
    uint64_t all = load(&account->outside[device]);
    for (unsigned i = 0; i < top_of(account); i++)
        if (account->slot[i].pid != 0)
            all += load(&account->slot[i].bytes[device]) + load(&account->slot[i].beyond[device]);
    return all;
}

/* What a process that charges no context has on a device beyond its slot is at least one context; no more counts
 * than one ever takes, as its libraries may have the rest. */
static void learn(struct slot *slot)
{
    for (unsigned d = 0; d < MAX_DEVICES && slot->context == 0; d++) {
        uint64_t beyond = load(&slot->beyond[d]) >> 20;
        slot->context = (uint32_t)(beyond < MAX_CONTEXT ? beyond : MAX_CONTEXT);
    }
}

static void clear(struct slot *slot)
{
    learn(slot);
    *slot = (struct slot){.context = slot->context};
}

/* What the dead had is the share's again: the driver took it back at their death. */
static void bury(void)
{
    for (unsigned i = 0; i < top_of(account); i++)
        if (i != own && account->slot[i].pid != 0 && !is_alive(file, i))
            clear(&account->slot[i]);
}

static uint64_t own_namespace(void)
{
    char link[64];
    unsigned long long inode = 0;
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    if (length > 0) {
        link[length] = '\0';
        if (sscanf(link, "pid:[%llu]", &inode) != 1)
            inode = 0;
    }
    return inode;
}

static bool take_slot(void)
{
    for (unsigned i = 0; i < MAX_SLOTS; i++) {
        if (lock_byte(file, F_OFD_SETLK, F_WRLCK, 1 + i) != 0)
            continue;
        own = i;
        has_slot = true;
        clear(&account->slot[i]);
        account->slot[i].pid_namespace = own_namespace();
        account->slot[i].pid = (uint32_t)getpid();
        if (i >= account->top)
            account->top = i + 1;
        return true;
    }
    return false;
}

static bool map_account(const char *path)
{
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    if (lseek(file, 0, SEEK_END) >= (off_t)sizeof *account) {
        void *map = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) {
            account = map;
            if (account->magic == ACCOUNT_MAGIC)
                return true;
            munmap(map, sizeof *account);
            account = NULL;
        }
    }
    close(file);
    file = -1;
    return false;
}

/* The parent's slot stays the parent's: without our copy of its description, it ends with it. Another
 * thread of the parent may have held the lock, or been about to attach. */
void account_in_child(void)
{
    if (account != NULL)
        munmap(account, sizeof *account);
    if (file >= 0)
        close(file);
    account = NULL;
    file = -1;
    has_slot = false;
    threads = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

bool account_attached(void)
{
    return has_slot;
}

bool account_attach(const char *path)
{
    lock_threads();
    bool done = file >= 0 || map_account(path);
    bool held = has_slot;
    unlock_threads();
    if (!done || held)
        return done;
    if (!enter())
        return false;
    done = has_slot || take_slot();
    leave();
    return done;
}

unsigned account_slot(void)
{
    return own;
}

bool account_reserve(unsigned device, uint64_t bytes, uint64_t limit)
{
    if (!enter())
        return false;
    uint64_t used = sum(device);
    if (bytes > limit || used > limit - bytes) {
        bury();
        used = sum(device);
    }
    bool fits = bytes <= limit && used <= limit - bytes;
    if (fits)
        __atomic_add_fetch(&account->slot[own].bytes[device], bytes, __ATOMIC_RELAXED);
    leave();
    return fits;
}

void account_add(unsigned device, uint64_t bytes)
{
    if (account_attached())
        __atomic_add_fetch(&account->slot[own].bytes[device], bytes, __ATOMIC_RELAXED);
}

/* The least that any process, living or dead, was seen with. Who asks charges it, and shows no other. */
uint64_t account_context(void)
{
    uint32_t least = 0;
    if (!enter())
        return 0;
    for (unsigned i = 0; i < top_of(account); i++) {
        learn(&account->slot[i]);
        uint32_t seen = account->slot[i].context < MAX_CONTEXT ? account->slot[i].context : MAX_CONTEXT;
        if (seen > 0 && (least == 0 || seen < least))
            least = seen;
    }
    if (has_slot && least > 0)
        account->slot[own].context = least;
    leave();
    return (uint64_t)least << 20;
}

void account_release(unsigned device, uint64_t bytes)
{
    if (account_attached())
        __atomic_sub_fetch(&account->slot[own].bytes[device], bytes, __ATOMIC_RELAXED);
}

void account_count_refusal(unsigned device)
{
    if (account_attached())
        __atomic_add_fetch(&account->refused[device], 1, __ATOMIC_RELAXED);
}

void account_count_to_host(unsigned device)
{
    if (account_attached())
        __atomic_add_fetch(&account->to_host[device], 1, __ATOMIC_RELAXED);
}

void account_count_wait(unsigned device, uint64_t nanoseconds, bool opened)
{
    if (!account_attached())
        return;
    __atomic_add_fetch(&account->waited[device], nanoseconds, __ATOMIC_RELAXED);
    if (opened)
        __atomic_add_fetch(&account->opened[device], 1, __ATOMIC_RELAXED);
}

uint64_t account_used(unsigned device)
{
    if (!enter())
        return 0;
    bury();
    uint64_t used = sum(device);
    leave();
    return used;
}

bool account_look(const char *path, unsigned device, uint64_t *used, struct account_process *processes,
                  unsigned *count)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *mapped = lseek(fd, 0, SEEK_END) >= (off_t)sizeof(struct account)
                       ? mmap(NULL, sizeof(struct account), PROT_READ, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    const struct account *map = mapped;
    bool sound = mapped != MAP_FAILED && map->magic == ACCOUNT_MAGIC;
    uint64_t here = own_namespace();
    *count = 0;
    *used = sound ? load(&map->outside[device]) : 0;
    for (unsigned i = 0; sound && i < top_of(map); i++) {
        const struct slot *slot = &map->slot[i];
        if (slot->pid == 0 || !is_alive(fd, i))
            continue;
        uint64_t bytes = load(&slot->bytes[device]) + load(&slot->beyond[device]);
        *used += bytes;
        /* A number means nothing in another namespace, and in an unknown one. */
        if (bytes > 0 && here != 0 && slot->pid_namespace == here)
            processes[(*count)++] = (struct account_process){slot->pid, bytes};
    }
    if (mapped != MAP_FAILED)
        munmap(mapped, sizeof(struct account));
    close(fd);
    return sound;
}
