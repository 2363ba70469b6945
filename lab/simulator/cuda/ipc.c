/* Memory that other processes open: the pages move to a file, which they find among the owner's
 * descriptors. So both must see the same process numbers. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

#define HANDLE_MAGIC 0x43504944u

struct ipc_handle {
    uint32_t magic, owner;
    int32_t file;
    uint32_t reserved;
    uint64_t offset, size, inode;
    uint8_t unused[24];
};
_Static_assert(sizeof(struct ipc_handle) == 64, "CUipcMemHandle has 64 bytes");

static bool share(struct allocation *one)
{
    size_t whole = (one->size + 4095) / 4096 * 4096;
    void *place = (void *)(uintptr_t)one->begin;
    int file = memfd_create("device memory", MFD_CLOEXEC);
    if (file < 0)
        return false;
    /* A page at a time: what was never written is not worth keeping. */
    for (size_t at = 0; at < one->size; at += 4096) {
        static const char zero[4096];
        size_t part = one->size - at < 4096 ? one->size - at : 4096;
        const char *from = (const char *)place + at;
        if (memcmp(from, zero, part) != 0 && pwrite(file, from, part, (off_t)at) != (ssize_t)part) {
            close(file);
            return false;
        }
    }
    if (ftruncate(file, (off_t)whole) != 0 ||
        mmap(place, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        close(file);
        return false;
    }
    one->file = file;
    return true;
}

EXPORT CUresult cuIpcGetMemHandle(struct ipc_handle *handle, CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    struct stat facts;
    struct allocation *found = memory_at(pointer);
    if (handle == NULL || found == NULL || found->kind != MEMORY_DEVICE || found->pool != NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (found->file < 0 && !share(found))
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    if (fstat(found->file, &facts) != 0)
        FINISH(CUDA_ERROR_UNKNOWN);
    *handle = (struct ipc_handle){.magic = HANDLE_MAGIC, .owner = (uint32_t)getpid(), .file = found->file,
                                  .offset = pointer - found->begin, .size = found->size, .inode = facts.st_ino};
    FINISH(0);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, struct ipc_handle handle, unsigned flags)
{
    WITH_CONTEXT(context);
    char path[64];
    struct stat facts;
    if (pointer == NULL || flags != 1 || handle.magic != HANDLE_MAGIC)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (handle.owner == (uint32_t)getpid()) /* as the real driver: not where it was made */
        FINISH(CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.owner, handle.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &facts) != 0 || facts.st_ino != handle.inode) {
        if (file >= 0)
            close(file);
        FINISH(CUDA_ERROR_INVALID_VALUE);
    }
    void *memory = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        close(file);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (!memory_add((struct allocation){.begin = (uint64_t)(uintptr_t)memory, .size = handle.size,
                                        .kind = MEMORY_MAPPED, .context = context, .file = file})) {
        munmap(memory, handle.size);
        close(file);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pointer = (uint64_t)(uintptr_t)memory + handle.offset;
    FINISH(0);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    WITH_CONTEXT(context);
    struct allocation *found = memory_at(pointer);
    if (found == NULL || found->kind != MEMORY_MAPPED || found->file < 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    memory_drop(found);
    FINISH(0);
}
