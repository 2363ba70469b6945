/* Questions about the system, and the names of errors. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../common/version.h"
#include "handles.h"

/* By this symbol a program tells the simulated library from NVIDIA's. */
EXPORT const char *divvySimulated(void)
{
    return "simulated by Divvy: no GPU is behind this library";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return session_open() ? copy_text(version, length, sim_version()) : SIM_ERR_UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%s", sim_cuda_version(sim_version()) / 1000, sim_version());
    return copy_text(version, length, text);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (version == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    *version = sim_cuda_version(sim_version());
    return 0;
}

ALSO(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion, (int *version), (version))

/* As the caller's own view of the processes has it. */
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[64], text[1024];
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (name == NULL || length == 0)
        return SIM_ERR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return SIM_ERR_NOT_FOUND;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return SIM_ERR_NOT_FOUND;
    text[got] = '\0';
    snprintf(name, length, "%s", text);
    return 0;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [0] = "Success", [1] = "Uninitialized", [2] = "Invalid Argument", [3] = "Not Supported",
        [4] = "Insufficient Permissions", [5] = "Already Initialized", [6] = "Not Found",
        [7] = "Insufficient Size", [8] = "Insufficient External Power", [9] = "Driver Not Loaded",
        [10] = "Timeout", [11] = "Interrupt Request Issue", [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found", [14] = "Corrupted infoROM", [15] = "GPU is lost",
        [16] = "GPU requires reset", [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch", [19] = "In use by another client",
        [20] = "Insufficient Memory", [21] = "No data", [22] = "VGPU ECC not supported",
        [23] = "Insufficient Resources", [24] = "Frequency not supported",
        [25] = "Argument version mismatch", [26] = "Deprecated", [27] = "Not Ready",
        [28] = "GPU not found", [29] = "Invalid state", [30] = "Reset type not supported"};
    if (result >= 0 && result < (int)(sizeof texts / sizeof *texts))
        return texts[result];
    return "Unknown Error";
}
