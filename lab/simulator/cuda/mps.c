/* A process as a client of MPS: where a control daemon answers in its pipe folder, it is one. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/mps.h"
#include "state.h"

static int connection = -1;
static struct mps_answer granted = {.gpus = ~0u, .percentage = 100};

/* "0=1G,1=512M": by the server's ordinals. What is no such list limits nothing. */
static void read_limits(uint64_t *limits)
{
    const char *words = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char list[1024], *rest = NULL;
    if (words == NULL)
        return;
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        char *equals;
        unsigned long ordinal = strtoul(word, &equals, 10);
        if (equals != word && *equals == '=' && ordinal < SIM_MAX_GPUS)
            limits[ordinal] = mps_size(equals + 1);
    }
}

static uint32_t read_percentage(void)
{
    const char *word = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double number = word == NULL ? 100 : atof(word);
    return number > 0 && number < 100 ? (number < 1 ? 1 : (uint32_t)number) : 100;
}

/* Make the file that the server is to find in its own /dev/shm; 0, or -1 without room or right. */
static int share_memory(struct mps_request *request, char *path, unsigned length)
{
    if (getrandom(request->nonce, MPS_NONCE, 0) != MPS_NONCE)
        return -1;
    unsigned long long number;
    memcpy(&number, request->nonce, sizeof number);
    snprintf(request->memory, sizeof request->memory, "cuda.shm.%u.%d.%llx", (unsigned)geteuid(), (int)getpid(), number);
    snprintf(path, length, "%s/%s", MPS_MEMORY, request->memory);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    ssize_t written = write(fd, request->nonce, MPS_NONCE);
    close(fd);
    if (written == MPS_NONCE)
        return 0;
    unlink(path);
    return -1;
}

CUresult mps_join(void)
{
    struct mps_request request = {.magic = MPS_MAGIC, .kind = MPS_CLIENT, .percentage = read_percentage()};
    struct mps_answer answer;
    char memory[PATH_MAX];
    int fd = mps_connect(MPS_CONTROL);
    if (fd < 0)
        return 0; /* without a daemon a program computes as ever */
    read_limits(request.limits);
    if (share_memory(&request, memory, sizeof memory) != 0) {
        close(fd);
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    bool answered = send(fd, &request, sizeof request, MSG_NOSIGNAL) == sizeof request &&
                    recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer;
    unlink(memory);
    if (!answered || answer.magic != MPS_MAGIC) {
        close(fd);
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    if (answer.code != 0) {
        close(fd);
        return (CUresult)answer.code;
    }
    connection = fd;
    granted = answer;
    return 0;
}

void mps_leave(void)
{
    if (connection >= 0)
        close(connection);
    connection = -1;
}

bool mps_hides(uint32_t gpu)
{
    return (granted.gpus >> gpu & 1) == 0;
}

uint32_t mps_sms(uint32_t sms)
{
    /* SMs come in pairs: NVIDIA's 25 % of 188 are 46, 10 % are 18. */
    uint32_t part = sms * granted.percentage / 100 / 2 * 2;
    return granted.percentage == 100 ? sms : part < 2 ? 2 : part;
}
