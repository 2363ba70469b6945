#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

const char COMPAT_FOLDER[] = "/usr/local/cuda/compat";

int inside_image(const char *rootfs)
{
    int image = open_tree(AT_FDCWD, rootfs, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr few = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    if (image < 0 || mount_setattr(image, "", AT_EMPTY_PATH, &few, sizeof few) == 0)
        return image;
    int reason = errno;
    close(image);
    errno = reason;
    return -1;
}

int inside_open(int root, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (unsigned long long)(flags | O_CLOEXEC),
        .mode = mode,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

bool inside_exists(int root, const char *path)
{
    int found = inside_open(root, path, O_PATH, 0);
    if (found >= 0)
        close(found);
    return found >= 0;
}

int inside_replace(int folder, const char *name, const char *content)
{
    char scratch[64];
    snprintf(scratch, sizeof scratch, ".%s.new", name);
    unlinkat(folder, scratch, 0);
    int file = inside_open(folder, scratch, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (file < 0)
        return -1;
    size_t size = strlen(content);
    bool done = write(file, content, size) == (ssize_t)size && fchmod(file, 0644) == 0;
    done &= close(file) == 0;
    if (done && renameat(folder, scratch, folder, name) == 0)
        return 0;
    int reason = errno;
    unlinkat(folder, scratch, 0);
    errno = reason;
    return -1;
}

long inside_compat(int root)
{
    static const char prefix[] = "libcuda.so.";
    int folder = inside_open(root, COMPAT_FOLDER, O_RDONLY | O_DIRECTORY, 0);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (entries == NULL) {
        if (folder >= 0)
            close(folder);
        return 0;
    }
    long newest = 0;
    for (struct dirent *each; (each = readdir(entries)) != NULL;) {
        const char *number = each->d_name + sizeof prefix - 1;
        if (strncmp(each->d_name, prefix, sizeof prefix - 1) != 0 || strchr(number, '.') == NULL)
            continue;
        struct stat what;
        if (fstatat(folder, each->d_name, &what, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(what.st_mode))
            continue;
        long branch = strtol(number, NULL, 10);
        newest = branch > newest ? branch : newest;
    }
    closedir(entries);
    return newest;
}
