/* nvidia-cuda-mps-control: the daemon of one pipe folder (-d, -f), or the prompt that commands it. */
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../common/version.h"
#include "../common/wire.h"

struct control control = {.percentage = 100, .server_percentage = 100, .server_fd = -1};

static int usage(void)
{
    fputs("usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n"
          "Simulated by Divvy: no GPU is behind it.\n",
          stderr);
    return 1;
}

void note(const char *format, ...)
{
    char when[32];
    time_t now = time(NULL);
    struct tm parts;
    va_list values;
    if (control.log == NULL)
        return;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
    fprintf(control.log, "[%s Control %5d] ", when, (int)getpid());
    va_start(values, format);
    vfprintf(control.log, format, values);
    va_end(values);
    fputc('\n', control.log);
    fflush(control.log);
}

static bool is_named(const struct sim_gpu *gpu, const char *words)
{
    char list[2048], *rest = NULL;
    if (words == NULL)
        return true;
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (strcasecmp(word, gpu->uuid) == 0 ||
            (*word >= '0' && *word <= '9' && strtoul(word, NULL, 10) == gpu->index))
            return true;
    return false;
}

bool find_gpus(void)
{
    struct sim_hello hello;
    int driver = sim_connect(sim_root(), SIM_CLIENT_TOOL, &hello);
    if (driver < 0)
        return false;
    /* It is the program of the driver that is loaded when it starts, and of no later one. */
    sim_set_version(hello.version);
    for (uint32_t i = 0; i < hello.gpu_count; i++) {
        struct sim_gpu gpu = {.index = i};
        if (sim_call(driver, SIM_GPU, &gpu, sizeof gpu) == 0 && !gpu.lost && !gpu.mig_mode &&
            sim_gpu_hidden(gpu.minor) == 0 && is_named(&gpu, getenv("CUDA_VISIBLE_DEVICES")))
            control.gpus[control.gpu_count++] = gpu;
    }
    close(driver);
    return control.gpu_count > 0;
}

static int listening(const char *name, mode_t mode)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (mps_socket_path(name, address.sun_path, sizeof address.sun_path) != 0 || fd < 0)
        return -1;
    unlink(address.sun_path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || chmod(address.sun_path, mode) != 0 ||
        listen(fd, 128) != 0)
        return -1;
    return fd;
}

static FILE *opened(const char *folder, const char *name, const char *mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

static const char *folder_of(const char *variable, const char *usual)
{
    const char *chosen = getenv(variable);
    return chosen == NULL || *chosen == '\0' ? usual : chosen;
}

static int refuse(const char *text)
{
    fprintf(stderr, "%s\n", text);
    note("%s", text);
    return 1;
}

static int run_daemon(bool background)
{
    const char *pipes = folder_of("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES);
    const char *logs = folder_of("CUDA_MPS_LOG_DIRECTORY", MPS_LOGS);
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    mkdir(pipes, 0755);
    mkdir(logs, 0755);
    control.log = opened(logs, "control.log", "ae");
    if (control.log == NULL)
        return refuse("Failed to open the log in CUDA_MPS_LOG_DIRECTORY");
    if (mps_socket_path(MPS_PRIVILEGED, path, sizeof path) != 0)
        return refuse("CUDA_MPS_PIPE_DIRECTORY is too long for a socket");
    FILE *lock = opened(pipes, "control_lock", "ae");
    if (lock == NULL)
        return refuse("Failed to create the files in CUDA_MPS_PIPE_DIRECTORY");
    if (flock(fileno(lock), LOCK_EX | LOCK_NB) != 0)
        return refuse("An instance of this daemon is already running");
    if (!find_gpus())
        return refuse("No CUDA-capable device is available to MPS");
    int plain = listening(MPS_CONTROL, 0666), privileged = listening(MPS_PRIVILEGED, 0600);
    if (plain < 0 || privileged < 0)
        return refuse("Failed to listen in CUDA_MPS_PIPE_DIRECTORY");
    if (background && daemon(0, 0) != 0)
        return refuse("Failed to go to the background");
    FILE *pid = opened(pipes, "nvidia-cuda-mps-control.pid", "we");
    if (pid != NULL) {
        fprintf(pid, "%d\n", (int)getpid());
        fclose(pid);
    }
    for (int i = 0; i < MAX_PEERS; i++)
        control.peers[i].fd = -1;
    note("Starting control daemon using socket %s/%s (simulated by Divvy)", pipes, MPS_CONTROL);
    return control_run(plain, privileged);
}

static int connected(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (mps_socket_path(name, address.sun_path, sizeof address.sun_path) != 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Bring one command and print what comes back; 0, or 1 where it failed. */
static int bring(const char *line)
{
    struct mps_request request = {.magic = MPS_MAGIC, .kind = MPS_COMMAND};
    struct mps_answer answer;
    char text[4096];
    int fd = connected(MPS_PRIVILEGED);
    if (fd < 0)
        fd = connected(MPS_CONTROL);
    snprintf(request.command, sizeof request.command, "%s", line);
    if (fd < 0 || send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
        recv(fd, &answer, sizeof answer, MSG_WAITALL) != sizeof answer) {
        fputs("Cannot find MPS control daemon process\n", stderr);
        return 1;
    }
    for (uint32_t left = answer.length; left > 0;) {
        ssize_t got = recv(fd, text, left < sizeof text ? left : sizeof text, 0);
        if (got <= 0)
            break;
        fwrite(text, 1, (size_t)got, stdout);
        left -= (uint32_t)got;
    }
    close(fd);
    return answer.code;
}

static int prompt(void)
{
    char line[MPS_TEXT];
    int worst = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (line[strspn(line, " \t\n")] != '\0' && bring(line) != 0)
            worst = 1;
        fflush(stdout);
    }
    return worst;
}

int main(int argc, char **argv)
{
    bool background = false, foreground = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-d") == 0)
            background = true;
        else if (strcmp(argv[i], "-f") == 0)
            foreground = true;
        else if (strcmp(argv[i], "-multiuser-server") == 0)
            control.multiuser = true;
        else
            return usage();
    }
    if (background && foreground)
        return usage();
    return background || foreground ? run_daemon(background) : prompt();
}
