/*
 * open-devices: which of NVIDIA's device files can this container open, by any name?
 *
 * Prints "named MAJOR:MINOR PATH" for each file below /dev that can be opened, then makes a
 * file of its own for every number a GPU or a MIG capability can have, and prints
 * "made MAJOR:MINOR" for each that can be opened although no file was given. Only a refusal
 * (EPERM, EACCES) counts as closed: with any other error the container was let through, and
 * found no device. Exit code 0.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* MIG's capabilities are 135 for each of up to 32 GPUs, from number 3 on (mig-minors in /proc). */
enum { GPU_MAJOR = 195, MAX_MAJORS = 16, MAX_MINORS = 3 + 32 * 135, MAX_NAMED = 1024 };

static unsigned int majors[MAX_MAJORS];
static int major_count;
static dev_t named[MAX_NAMED];
static int named_count;

static void know_major(unsigned int number)
{
    for (int i = 0; i < major_count; i++)
        if (majors[i] == number)
            return;
    if (major_count < MAX_MAJORS)
        majors[major_count++] = number;
}

static int opens(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || (errno != EPERM && errno != EACCES && errno != ENOENT);
}

static void look_in(const char *folder)
{
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    while (open_folder != NULL && (entry = readdir(open_folder)) != NULL) {
        char path[512];
        struct stat status;
        if (strncmp(entry->d_name, "nvidia", 6) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (lstat(path, &status) != 0 || !S_ISCHR(status.st_mode))
            continue;
        know_major(major(status.st_rdev));
        if (!opens(path))
            continue;
        printf("named %u:%u %s\n", major(status.st_rdev), minor(status.st_rdev), path);
        if (named_count < MAX_NAMED)
            named[named_count++] = status.st_rdev;
    }
    if (open_folder != NULL)
        closedir(open_folder);
}

/* The kernel tells the numbers of the real driver; the simulated one has none of its own. */
static void ask_the_kernel(void)
{
    FILE *devices = fopen("/proc/devices", "r");
    char line[128], name[100];
    unsigned int number;
    while (devices != NULL && fgets(line, sizeof line, devices) != NULL)
        if (sscanf(line, "%u %99s", &number, name) == 2 && strncmp(name, "nvidia", 6) == 0)
            know_major(number);
    if (devices != NULL)
        fclose(devices);
}

static int is_named(dev_t number)
{
    for (int i = 0; i < named_count; i++)
        if (named[i] == number)
            return 1;
    return 0;
}

int main(void)
{
    static const char path[] = "/tmp/made";
    int refused = 0;
    know_major(GPU_MAJOR);
    ask_the_kernel();
    look_in("/dev");
    look_in("/dev/nvidia-caps");
    for (int i = 0; i < major_count; i++) {
        for (unsigned int number = 0; number < MAX_MINORS; number++) {
            dev_t device = makedev(majors[i], number);
            unlink(path);
            if (mknod(path, S_IFCHR | 0666, device) != 0)
                refused++;
            else if (opens(path) && !is_named(device))
                printf("made %u:%u\n", majors[i], number);
        }
    }
    unlink(path);
    printf("tried %d numbers, %d could not be made\n", major_count * MAX_MINORS, refused);
    return 0;
}
