#include "peers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *map_own(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    void *map = MAP_FAILED;
    if (file >= 0 && lseek(file, 0, SEEK_END) >= PAGE_SIZE)
        map = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (map != MAP_FAILED && ((const struct page *)map)->magic != PAGE_MAGIC) {
        munmap(map, PAGE_SIZE);
        map = MAP_FAILED;
    }
    return map == MAP_FAILED ? NULL : map;
}

static bool is_known(const struct peers *peers, const char *name)
{
    for (unsigned i = 0; i < peers->count; i++)
        if (strcmp(peers->peer[i].name, name) == 0)
            return true;
    return strcmp(peers->name, name) == 0;
}

bool peer_read(const struct peer *peer, struct page *page)
{
    return pread(peer->file, page, sizeof *page, 0) == (ssize_t)sizeof *page && page->magic == PAGE_MAGIC;
}

/* By number: fstat is a symbol that old C libraries do not have. */
static bool look_up(int file, struct stat *found)
{
    return syscall(SYS_fstat, file, found) == 0;
}

/* Let go of pages that the agent has removed: there is room for so many, and no more. */
static void drop_removed(struct peers *peers)
{
    for (unsigned i = 0; i < peers->count;) {
        struct peer *peer = &peers->peer[i];
        struct stat found;
        /* A program may close all its files, and open its own under our number. */
        bool ours = look_up(peer->file, &found) && found.st_dev == peer->device && found.st_ino == peer->inode;
        if (ours && found.st_nlink > 0) {
            i++;
            continue;
        }
        if (ours)
            close(peer->file);
        munmap((void *)peer->map, PAGE_SIZE);
        *peer = peers->peer[--peers->count];
    }
}

void peers_scan(struct peers *peers)
{
    drop_removed(peers);
    char path[sizeof peers->folder + 300];
    DIR *folder = opendir(peers->folder);
    if (folder == NULL)
        return;
    for (const struct dirent *found = readdir(folder); found != NULL; found = readdir(folder)) {
        if (found->d_name[0] == '.' || strlen(found->d_name) >= sizeof peers->name ||
            peers->count == MAX_PEERS || is_known(peers, found->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", peers->folder, found->d_name);
        struct page page;
        struct stat opened;
        struct peer *peer = &peers->peer[peers->count];
        memset(peer, 0, sizeof *peer);
        /* A neighbour with a lease on its page would make others wait. */
        peer->file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        void *map = peer->file < 0 ? MAP_FAILED : mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, peer->file, 0);
        if (map == MAP_FAILED || !peer_read(peer, &page) || !look_up(peer->file, &opened)) {
            if (map != MAP_FAILED)
                munmap(map, PAGE_SIZE);
            if (peer->file >= 0)
                close(peer->file);
            continue;
        }
        memcpy(peer->name, found->d_name, strlen(found->d_name) + 1);
        peer->map = map;
        peer->device = opened.st_dev;
        peer->inode = opened.st_ino;
        peer->beats = page.beats;
        peers->count++;
    }
    closedir(folder);
}

bool peers_open(struct peers *peers, const char *share_folder, const char *uuid, const char *own_name)
{
    char path[sizeof peers->folder + 100];
    memset(peers, 0, sizeof *peers);
    snprintf(peers->name, sizeof peers->name, "%s", own_name);
    snprintf(path, sizeof path, "%s/%s", share_folder, own_name);
    peers->own = map_own(path);
    if (peers->own == NULL)
        return false;
    snprintf(peers->folder, sizeof peers->folder, "%s/%s", share_folder, uuid);
    peers_scan(peers);
    return true;
}
