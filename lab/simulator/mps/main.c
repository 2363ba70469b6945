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

struct control control = {.protocol = 2, .percentage = 100, .servers[0] = {.percentage = 100, .fd = -1}};

static int usage(FILE *stream)
{
    fputs("usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n", stream);
    if (atoi(sim_version()) >= VERSION_3_SINCE)
        fputs("       nvidia-cuda-mps-control -p 3 [-d | -f] [-m] [-a FILE] | -q\n"
              "       nvidia-cuda-mps-control -p 3 MODULE VERB [ARGUMENT...] [--KEY=VALUE...]\n"
              "modules: server, namespace, client\n",
              stream);
    fputs("Simulated by Divvy: no GPU is behind it.\n", stream);
    return stream == stderr;
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

bool mps_names(const char *words, const struct sim_gpu *gpu, uint32_t ordinal)
{
    char list[2048], *rest = NULL;
    if (words == NULL)
        return true;
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (strcasecmp(word, gpu->uuid) == 0 || (*word >= '0' && *word <= '9' && strtoul(word, NULL, 10) == ordinal))
            return true;
    return false;
}

static bool find_gpus(void)
{
    struct sim_hello hello;
    int driver = sim_connect(sim_root(), SIM_CLIENT_TOOL, &hello);
    if (driver < 0)
        return false;
    for (uint32_t i = 0; i < hello.gpu_count; i++) {
        struct sim_gpu gpu = {.index = i};
        if (sim_call(driver, SIM_GPU, &gpu, sizeof gpu) == 0 && !gpu.lost && !gpu.mig_mode &&
            sim_gpu_hidden(gpu.minor) == 0 && mps_names(getenv("CUDA_VISIBLE_DEVICES"), &gpu, i))
            control.gpus[control.gpu_count++] = gpu;
    }
    close(driver);
    return control.gpu_count > 0;
}

int listening(const char *name, mode_t mode)
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

const char *mps_pipes(void)
{
    return folder_of("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES);
}

const char *mps_logs(void)
{
    return folder_of("CUDA_MPS_LOG_DIRECTORY", MPS_LOGS);
}

static int refuse(const char *text)
{
    fprintf(stderr, "%s\n", text);
    note("%s", text);
    return 1;
}

static int run_daemon(bool background, const char *config)
{
    const char *pipes = mps_pipes(), *logs = mps_logs();
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
    /* Version 3 asks whose a command is, not by which socket it comes. */
    if (mps_socket_path(MPS_PRIVILEGED, path, sizeof path) == 0)
        unlink(path);
    int plain = listening(MPS_CONTROL, 0666);
    int privileged = control.protocol == 3 ? -1 : listening(MPS_PRIVILEGED, 0600);
    if (plain < 0 || (privileged < 0 && control.protocol == 2))
        return refuse("Failed to listen in CUDA_MPS_PIPE_DIRECTORY");
    if (control.protocol == 3) {
        printf("To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=%s\n", pipes);
        fflush(stdout);
    }
    if (background && daemon(0, 0) != 0)
        return refuse("Failed to go to the background");
    for (int i = 0; i < MAX_PEERS; i++)
        control.peers[i].fd = -1;
    if (config != NULL && apply_config(config) != 0)
        return 1;
    FILE *pid = opened(pipes, "nvidia-cuda-mps-control.pid", "we");
    if (pid != NULL) {
        fprintf(pid, "%d\n", (int)getpid());
        fclose(pid);
    }
    note("Starting control daemon using socket %s/%s (simulated by Divvy)", pipes, MPS_CONTROL);
    return control_run(plain, privileged);
}

struct choice {
    bool background, foreground, quit, version, help;
    const char *config;
    int rest; /* of the arguments: a module and what follows, 0 without one */
};

static bool is(const char *argument, const char *one, const char *other)
{
    return strcmp(argument, one) == 0 || strcmp(argument, other) == 0;
}

/* The options of version 2, and from driver 615 on those of version 3; false for any other. */
static bool read_options(int argc, char **argv, struct choice *choice)
{
    bool knows_3 = atoi(sim_version()) >= VERSION_3_SINCE;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "-d") == 0 || (knows_3 && strcmp(argv[i], "--daemon") == 0))
            choice->background = true;
        else if (strcmp(argv[i], "-f") == 0 || (knows_3 && strcmp(argv[i], "--foreground") == 0))
            choice->foreground = true;
        else if (strcmp(argv[i], "-multiuser-server") == 0)
            control.multiuser = true;
        else if (!knows_3)
            return false;
        else if (is(argv[i], "-m", "--multiuser"))
            control.multiuser = true;
        else if (is(argv[i], "-q", "--quit"))
            choice->quit = true;
        else if (is(argv[i], "-v", "--version"))
            choice->version = true;
        else if (is(argv[i], "-h", "--help"))
            choice->help = true;
        else if (is(argv[i], "-a", "--apply") && has_value)
            choice->config = argv[++i];
        else if (is(argv[i], "-p", "--protocol") && has_value && is(argv[i + 1], "2", "3"))
            control.protocol = (uint32_t)atoi(argv[++i]);
        else if (argv[i][0] != '-') {
            choice->rest = i;
            break;
        } else
            return false;
    }
    const char *chosen = getenv("CUDA_MPS_PROTOCOL_VERSION");
    if (knows_3 && chosen != NULL && is(chosen, "2", "3"))
        control.protocol = (uint32_t)atoi(chosen);
    return !(choice->background && choice->foreground) && (choice->config == NULL || control.protocol == 3);
}

static int bring_words(int count, char **words)
{
    char line[MPS_TEXT] = "";
    for (int i = 0; i < count; i++) {
        size_t length = strlen(line);
        if (length + strlen(words[i]) + 2 > sizeof line) {
            fputs("The command is too long\n", stderr);
            return 1;
        }
        snprintf(line + length, sizeof line - length, "%s%s", i == 0 ? "" : " ", words[i]);
    }
    return bring(line);
}

/* It is the program of the driver that is loaded when it starts, and of no later one. */
static void take_version(void)
{
    struct sim_hello hello;
    int driver = sim_connect(sim_root(), SIM_CLIENT_TOOL, &hello);
    if (driver < 0)
        return;
    sim_set_version(hello.version);
    close(driver);
}

int main(int argc, char **argv)
{
    struct choice choice = {0};
    take_version();
    if (!read_options(argc, argv, &choice))
        return usage(stderr);
    if (choice.help)
        return usage(stdout);
    if (choice.version) {
        printf("%s\n", sim_version());
        return 0;
    }
    if (control.protocol == 3 && geteuid() == 0)
        setenv("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES_3, 0);
    if (choice.background || choice.foreground)
        return run_daemon(choice.background, choice.config);
    if (choice.quit)
        return bring("-q");
    return choice.rest > 0 ? bring_words(argc - choice.rest, argv + choice.rest) : prompt();
}
