/* nvidia-smi: the work-alike of Divvy, through NVML only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "smi.h"

struct options {
    const char *gpus, *display, *query_gpu, *query_apps, *format, *mig_mode, *compute_mode;
    bool list, details, xml, reset, versions;
    unsigned loop_ms;
};

static void help(void)
{
    puts("nvidia-smi, the work-alike of Divvy\n\n"
         "    nvidia-smi [-i GPUS] [-l SECONDS | -lms MILLISECONDS]\n"
         "        (nothing)                      table of GPUs, MIG devices and processes\n"
         "        -L                             list\n"
         "        --version                      versions of the driver and of CUDA\n"
         "        -q [-x] [-d TYPES]             details; as XML; of some types\n"
         "        --query-gpu=FIELDS --format=csv[,noheader][,nounits]\n"
         "        --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]\n"
         "        -mig 0|1                       MIG mode\n"
         "        -c 0|2|3                       compute mode\n"
         "        --gpu-reset\n"
         "    nvidia-smi mig [-i GPUS] -lgip | -lgipp | -lgi | -lcip [-gi IDS] | -lci [-gi IDS]\n"
         "        -cgi PROFILES [-C] | -cci [PROFILES] [-gi IDS]\n"
         "        -dci [-gi IDS] [-ci IDS] | -dgi [-gi IDS]\n"
         "    nvidia-smi compute-policy [-i GPUS] -l | --set-timeslice 0|1|2|3\n"
         "    nvidia-smi memory-limits [-i GPUS] -n GROUP --get\n"
         "        | --set --soft-limit MIB|max --hard-limit MIB|max");
}

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
    return status > 255 ? 255 : status;
}

/* The value of `-x value` or `--long=value`; NULL if this is another option. */
static const char *value_of(char **argv, int argc, int *at, const char *brief, const char *full)
{
    const char *word = argv[*at];
    size_t length = full == NULL ? 0 : strlen(full);
    if (full != NULL && strncmp(word, full, length) == 0 && word[length] == '=')
        return word + length + 1;
    bool same = (brief != NULL && strcmp(word, brief) == 0) || (full != NULL && strcmp(word, full) == 0);
    return same && *at + 1 < argc ? argv[++*at] : NULL;
}

static int wrong(const char *word)
{
    printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help. (%s)\n", word);
    return 2;
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        if (strcmp(word, "-L") == 0 || strcmp(word, "--list-gpus") == 0)
            o->list = true;
        else if (strcmp(word, "-q") == 0 || strcmp(word, "--query") == 0)
            o->details = true;
        else if (strcmp(word, "-x") == 0 || strcmp(word, "--xml-format") == 0)
            o->xml = true;
        else if (strcmp(word, "--version") == 0)
            o->versions = true;
        else if (strcmp(word, "-r") == 0 || strcmp(word, "--gpu-reset") == 0)
            o->reset = true;
        else if ((value = value_of(argv, argc, &i, "-i", "--id")) != NULL)
            o->gpus = value;
        else if ((value = value_of(argv, argc, &i, "-d", "--display")) != NULL)
            o->display = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--query-gpu")) != NULL)
            o->query_gpu = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--query-compute-apps")) != NULL)
            o->query_apps = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--format")) != NULL)
            o->format = value;
        else if ((value = value_of(argv, argc, &i, "-mig", "--multi-instance-gpu")) != NULL)
            o->mig_mode = value;
        else if ((value = value_of(argv, argc, &i, "-c", "--compute-mode")) != NULL)
            o->compute_mode = value;
        else if ((value = value_of(argv, argc, &i, "-lms", "--loop-ms")) != NULL)
            o->loop_ms = (unsigned)atoi(value);
        else if ((value = value_of(argv, argc, &i, "-l", "--loop")) != NULL)
            o->loop_ms = 1000u * (unsigned)atoi(value);
        else if (strcmp(word, "-l") == 0 || strcmp(word, "--loop") == 0)
            o->loop_ms = 5000;
        else {
            wrong(word);
            return false;
        }
    }
    return true;
}

static int once(const struct options *o)
{
    struct selection gpus;
    if (o->versions)
        return print_versions();
    if (!select_gpus(o->gpus, &gpus))
        return 6;
    if (o->list)
        return list_gpus(&gpus);
    if (o->mig_mode != NULL)
        return set_mig_mode(&gpus, o->mig_mode);
    if (o->compute_mode != NULL)
        return set_compute_mode(&gpus, o->compute_mode);
    if (o->reset)
        return reset_gpus(&gpus);
    if (o->query_gpu != NULL)
        return query_gpus(&gpus, o->query_gpu, o->format);
    if (o->query_apps != NULL)
        return query_processes(&gpus, o->query_apps, o->format);
    if (o->xml)
        return o->details ? print_xml(&gpus) : wrong("-x without -q");
    if (o->details)
        return print_details(&gpus, o->display);
    return print_table(&gpus);
}

int mig_command(int argc, char **argv)
{
    const char *gpus_wanted = NULL, *gi = NULL, *ci = NULL, *profiles = NULL, *action = NULL, *value;
    bool compute = false;
    struct selection gpus;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if ((value = value_of(argv, argc, &i, "-i", "--id")) != NULL)
            gpus_wanted = value;
        else if ((value = value_of(argv, argc, &i, "-gi", "--gpu-instance-id")) != NULL)
            gi = value;
        else if ((value = value_of(argv, argc, &i, "-ci", "--compute-instance-id")) != NULL)
            ci = value;
        else if (strcmp(word, "-C") == 0 || strcmp(word, "--default-compute-instance") == 0)
            compute = true;
        else if (action != NULL)
            return wrong(word);
        else if ((value = value_of(argv, argc, &i, "-cgi", "--create-gpu-instance")) != NULL) {
            action = "-cgi";
            profiles = value;
        } else if (strcmp(word, "-cci") == 0) {
            action = "-cci";
            if (i + 1 < argc && argv[i + 1][0] != '-')
                profiles = argv[++i];
        } else
            action = word;
    }
    if (action == NULL)
        return wrong("mig");
    if (!select_gpus(gpus_wanted, &gpus))
        return 6;
    if (strcmp(action, "-lgip") == 0 || strcmp(action, "--list-gpu-instance-profiles") == 0)
        return mig_list_profiles(&gpus);
    if (strcmp(action, "-lgipp") == 0 || strcmp(action, "--list-gpu-instance-possible-placements") == 0)
        return mig_list_placements(&gpus);
    if (strcmp(action, "-lgi") == 0 || strcmp(action, "--list-gpu-instances") == 0)
        return mig_list_instances(&gpus);
    if (strcmp(action, "-lcip") == 0 || strcmp(action, "--list-compute-instance-profiles") == 0)
        return mig_list_compute_profiles(&gpus, gi);
    if (strcmp(action, "-lci") == 0 || strcmp(action, "--list-compute-instances") == 0)
        return mig_list_compute_instances(&gpus, gi);
    if (strcmp(action, "-cgi") == 0)
        return mig_create(&gpus, profiles, compute);
    if (strcmp(action, "-cci") == 0)
        return mig_create_compute(&gpus, profiles == NULL ? "" : profiles, gi);
    if (strcmp(action, "-dgi") == 0 || strcmp(action, "--destroy-gpu-instance") == 0)
        return mig_destroy(&gpus, gi);
    if (strcmp(action, "-dci") == 0 || strcmp(action, "--destroy-compute-instance") == 0)
        return mig_destroy_compute(&gpus, gi, ci);
    return wrong(action);
}

static int policy_command(int argc, char **argv)
{
    const char *gpus_wanted = NULL, *timeslice = NULL, *value;
    bool list = false;
    struct selection gpus;
    for (int i = 0; i < argc; i++) {
        if ((value = value_of(argv, argc, &i, "-i", "--id")) != NULL)
            gpus_wanted = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--set-timeslice")) != NULL)
            timeslice = value;
        else if (strcmp(argv[i], "-l") == 0 || strcmp(argv[i], "--list") == 0)
            list = true;
        else
            return wrong(argv[i]);
    }
    if (list == (timeslice != NULL))
        return wrong("compute-policy");
    if (!select_gpus(gpus_wanted, &gpus))
        return 6;
    return list ? list_compute_policies(&gpus) : set_timeslice(&gpus, timeslice);
}

static int limits_command(int argc, char **argv)
{
    const char *gpus_wanted = NULL, *group = NULL, *soft = NULL, *hard = NULL, *value;
    bool set = false, get = false;
    struct selection gpus;
    for (int i = 0; i < argc; i++) {
        if ((value = value_of(argv, argc, &i, "-i", "--id")) != NULL)
            gpus_wanted = value;
        else if ((value = value_of(argv, argc, &i, "-n", "--namespace")) != NULL)
            group = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--soft-limit")) != NULL)
            soft = value;
        else if ((value = value_of(argv, argc, &i, NULL, "--hard-limit")) != NULL)
            hard = value;
        else if (strcmp(argv[i], "--set") == 0)
            set = true;
        else if (strcmp(argv[i], "--get") == 0)
            get = true;
        else
            return wrong(argv[i]);
    }
    bool both = soft != NULL && hard != NULL;
    if (!lib.has_memory_limits || set == get || group == NULL || (set && !both))
        return wrong("memory-limits");
    if (!select_gpus(gpus_wanted, &gpus))
        return 6;
    return set ? set_memory_limits(&gpus, group, soft, hard) : get_memory_limits(&gpus, group);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    bool mig = argc > 1 && strcmp(argv[1], "mig") == 0;
    bool policy = argc > 1 && strcmp(argv[1], "compute-policy") == 0;
    bool limits = argc > 1 && strcmp(argv[1], "memory-limits") == 0;
    if (argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        help();
        return 0;
    }
    if (!mig && !policy && !limits && !parse(argc, argv, &o))
        return 2;
    int status = initialise();
    if (status != 0)
        return status;
    if (mig)
        return mig_command(argc - 2, argv + 2);
    if (policy)
        return policy_command(argc - 2, argv + 2);
    if (limits)
        return limits_command(argc - 2, argv + 2);
    do {
        status = once(&o);
        fflush(stdout);
        if (o.loop_ms > 0)
            usleep(o.loop_ms * 1000u);
    } while (status == 0 && o.loop_ms > 0);
    return status;
}
