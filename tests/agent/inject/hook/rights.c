/* Stands for an ldconfig that a stranger controls: writes down what it could do. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static int entries(const char *folder)
{
    int count = 0;
    DIR *open = opendir(folder);
    while (open != NULL && readdir(open) != NULL)
        count++;
    return count;
}

static int open_files(void)
{
    int count = 0;
    for (int each = 3; each < 256; each++)
        count += fcntl(each, F_GETFD) >= 0;
    return count;
}

static const char *writing(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    if (file < 0)
        return strerror(errno);
    close(file);
    return "done";
}

static const char *running(char *path)
{
    char *const words[] = {path, NULL};
    execv(path, words); /* a program that runs prints none of what is expected */
    return strerror(errno);
}

static int bounding(void)
{
    int count = 0;
    for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; each++)
        count += prctl(PR_CAPBSET_READ, each, 0, 0, 0);
    return count;
}

int main(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    syscall(SYS_capget, &header, data);
    int already = open_files();
    FILE *file = fopen("/etc/rights", "w");
    if (file == NULL)
        return 1;
    fprintf(file, "pid %d\ncapabilities %x %x\nbounding %d\nno new privileges %d\n", getpid(),
            data[0].permitted, data[1].permitted, bounding(),
            prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    fprintf(file, "variables %d\nproc %d\nopen %d\n", *environ != NULL, entries("/proc"),
            already);
    fprintf(file, "volume %d\n", entries("/vol"));
    fprintf(file, "writing a driver's file: %s\n", writing("/opt/driver/libm.so.550.1"));
    fprintf(file, "opening a device: %s\n", writing("/device"));
    fprintf(file, "writing to a volume beside it: %s\n", writing("/opt/driver/volume/new"));
    fprintf(file, "running a program: %s\n", running("/opt/ld.so"));
    return fclose(file) != 0;
}
