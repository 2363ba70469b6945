/* nvidia-smi: the work-alike of Divvy, through NVML only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

static int initialise(void)
{
    if (!library_load())
        return 12;
    nvmlReturn_t status = lib.nvmlInit_v2();
    if (status == SIM_ERR_DRIVER_NOT_LOADED)
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
               "sure that the latest NVIDIA driver is installed and running.\n\n");
    else if (status != 0)
        printf("Failed to initialize NVML: %s\n", lib.nvmlErrorString(status));
    return status;
}

int main(int argc, char **argv)
{
    struct selection gpus;
    int status = initialise();
    if (status != 0)
        return status > 255 ? 255 : status;
    (void)argc, (void)argv;
    if (!select_gpus(NULL, &gpus))
        return 6;
    return list_gpus(&gpus);
}
