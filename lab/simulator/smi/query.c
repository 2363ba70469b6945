/* --query-gpu and --query-compute-apps: fields as comma-separated values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"

struct format {
    bool header, units;
};

static bool parse_format(const char *text, struct format *format)
{
    char copy[128], *rest = NULL;
    bool csv = false;
    *format = (struct format){true, true};
    snprintf(copy, sizeof copy, "%s", text == NULL ? "" : text);
    for (char *word = strtok_r(copy, ", ", &rest); word != NULL; word = strtok_r(NULL, ", ", &rest)) {
        if (strcmp(word, "csv") == 0)
            csv = true;
        else if (strcmp(word, "noheader") == 0)
            format->header = false;
        else if (strcmp(word, "nounits") == 0)
            format->units = false;
        else
            csv = false;
    }
    if (!csv)
        puts("\"--format=\" switch is missing or invalid. It must be csv[,noheader][,nounits].");
    return csv;
}

/* " [MiB]" → " MiB" */
static void print_unit(const char *unit)
{
    if (*unit != '\0')
        printf(" %.*s", (int)strlen(unit) - 3, unit + 2);
}

int query_gpus(const struct selection *gpus, const char *fields, const char *format_text)
{
    const struct field *chosen[64];
    char names[1024], *asked[64], *rest = NULL;
    unsigned count = 0;
    struct format format;
    if (!parse_format(format_text, &format))
        return 2;
    snprintf(names, sizeof names, "%s", fields);
    for (char *word = strtok_r(names, ", ", &rest); word != NULL; word = strtok_r(NULL, ", ", &rest)) {
        const struct field *field = find_field(word);
        if (field == NULL || count == 64) {
            printf("Field \"%s\" is not a valid field to query.\n\n", word);
            return 2;
        }
        asked[count] = word;
        chosen[count++] = field;
    }
    for (unsigned f = 0; format.header && f < count; f++)
        printf("%s%s%s", f ? ", " : "", asked[f], format.units ? chosen[f]->unit : "");
    if (format.header)
        putchar('\n');
    for (unsigned i = 0; i < gpus->count; i++) {
        if (gpus->status[i] != 0) {
            printf("Unable to determine the device handle for gpu %u: %s\n", gpus->index[i],
                   lib.nvmlErrorString(gpus->status[i]));
            continue;
        }
        for (unsigned f = 0; f < count; f++) {
            char text[160] = "";
            bool read = chosen[f]->read(gpus->index[i], gpus->device[i], text, sizeof text);
            printf("%s%s", f ? ", " : "", read ? text : "[N/A]");
            if (read && format.units)
                print_unit(chosen[f]->unit);
        }
        putchar('\n');
    }
    return 0;
}

static bool print_app(const char *name, bool header, const struct format *format, nvmlDevice_t gpu,
                      const nvmlProcessInfo_t *process)
{
    char text[256] = "[Not Found]";
    bool memory_field = strcmp(name, "used_memory") == 0 || strcmp(name, "used_gpu_memory") == 0;
    if (memory_field) {
        if (header)
            printf("used_gpu_memory%s", format->units ? " [MiB]" : "");
        else
            printf("%llu%s", process->usedGpuMemory >> 20, format->units ? " MiB" : "");
        return true;
    }
    if (strcmp(name, "pid") == 0) {
        if (!header)
            snprintf(text, sizeof text, "%u", process->pid);
    } else if (strcmp(name, "process_name") == 0 || strcmp(name, "name") == 0) {
        name = "process_name";
        if (!header)
            lib.nvmlSystemGetProcessName(process->pid, text, sizeof text);
    } else if (strcmp(name, "gpu_uuid") == 0) {
        if (!header)
            lib.nvmlDeviceGetUUID(gpu, text, sizeof text);
    } else if (strcmp(name, "gpu_name") == 0) {
        if (!header)
            lib.nvmlDeviceGetName(gpu, text, sizeof text);
    } else if (strcmp(name, "gpu_bus_id") == 0) {
        nvmlPciInfo_t pci;
        if (!header && bus_of(gpu, &pci) == 0)
            snprintf(text, sizeof text, "%s", pci.busId);
    } else
        return false;
    printf("%s", header ? name : text);
    return true;
}

int query_processes(const struct selection *gpus, const char *fields, const char *format_text)
{
    static nvmlProcessInfo_t running[256];
    char names[512], *asked[16], *rest = NULL;
    unsigned count = 0;
    struct format format;
    if (!parse_format(format_text, &format))
        return 2;
    snprintf(names, sizeof names, "%s", fields);
    for (char *word = strtok_r(names, ", ", &rest); word != NULL && count < 16;
         word = strtok_r(NULL, ", ", &rest))
        asked[count++] = word;
    static const char *const known[] = {"pid", "process_name", "name", "used_memory", "used_gpu_memory",
                                        "gpu_uuid", "gpu_name", "gpu_bus_id"};
    for (unsigned f = 0; f < count; f++) {
        bool valid = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            valid = valid || strcmp(asked[f], known[k]) == 0;
        if (!valid) {
            printf("Field \"%s\" is not a valid field to query.\n\n", asked[f]);
            return 2;
        }
    }
    for (unsigned f = 0; format.header && f < count; f++) {
        printf("%s", f ? ", " : "");
        print_app(asked[f], true, &format, NULL, NULL);
    }
    if (format.header)
        putchar('\n');
    for (unsigned i = 0; i < gpus->count; i++) {
        unsigned found = 256;
        if (gpus->status[i] != 0 ||
            lib.nvmlDeviceGetComputeRunningProcesses_v3(gpus->device[i], &found, running) != 0)
            continue;
        for (unsigned p = 0; p < found; p++) {
            for (unsigned f = 0; f < count; f++) {
                printf("%s", f ? ", " : "");
                print_app(asked[f], false, &format, gpus->device[i], &running[p]);
            }
            putchar('\n');
        }
    }
    return 0;
}
