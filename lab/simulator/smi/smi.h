/* Parts of the nvidia-smi work-alike. Each returns the exit code. */
#ifndef DIVVY_SMI_H
#define DIVVY_SMI_H

#include "library.h"

#define MAX_GPUS 64

struct selection { /* the GPUs a command is about, in NVML's order */
    unsigned count;
    unsigned index[MAX_GPUS];
    nvmlDevice_t device[MAX_GPUS];
    nvmlReturn_t status[MAX_GPUS]; /* why there is no device */
};

/* selection.c */
bool select_gpus(const char *wanted, struct selection *gpus); /* NULL: all; else a list */
nvmlReturn_t bus_of(nvmlDevice_t gpu, nvmlPciInfo_t *pci);

/* list.c */
int list_gpus(const struct selection *gpus);
void mig_short_name(nvmlDevice_t mig, char *name, unsigned size); /* "1g.5gb" */

/* table.c */
int print_table(const struct selection *gpus);
int print_versions(void);

/* query.c */
int query_gpus(const struct selection *gpus, const char *fields, const char *format);
int query_processes(const struct selection *gpus, const char *fields, const char *format);

/* details.c, xml.c */
int print_details(const struct selection *gpus, const char *display);
int print_xml(const struct selection *gpus);

/* settings.c */
int set_mig_mode(const struct selection *gpus, const char *value);
int set_compute_mode(const struct selection *gpus, const char *value);
int set_timeslice(const struct selection *gpus, const char *value);
int list_compute_policies(const struct selection *gpus);
int reset_gpus(const struct selection *gpus);

/* memory_limits.c */
int set_memory_limits(const struct selection *gpus, const char *group, const char *soft, const char *hard);
int get_memory_limits(const struct selection *gpus, const char *group);

/* mig_tables.c, mig_changes.c */
int mig_command(int argc, char **argv);
bool chosen(const char *list, unsigned id); /* of comma-separated numbers; NULL: all */
int mig_list_profiles(const struct selection *gpus);
int mig_list_placements(const struct selection *gpus);
int mig_list_instances(const struct selection *gpus);
int mig_list_compute_profiles(const struct selection *gpus, const char *gi);
int mig_list_compute_instances(const struct selection *gpus, const char *gi);
int mig_create(const struct selection *gpus, const char *profiles, bool compute);
int mig_create_compute(const struct selection *gpus, const char *profiles, const char *gi);
int mig_destroy(const struct selection *gpus, const char *gi);
int mig_destroy_compute(const struct selection *gpus, const char *gi, const char *ci);

/* A GPU instance with its profile. */
struct found_instance {
    unsigned gpu; /* its index */
    nvmlGpuInstance_t handle;
    nvmlGpuInstanceInfo_t info;
    nvmlGpuInstanceProfileInfo_v2_t profile;
};
/* Those with one of the numbers in a list (NULL: all) on the GPUs that answer; valid until the next call. */
struct found_instance *chosen_instances(const struct selection *gpus, const char *wanted, unsigned *count);
#define GPU_INSTANCE_PROFILES 18
bool gpu_profile(nvmlDevice_t gpu, unsigned number, nvmlGpuInstanceProfileInfo_v2_t *info);
bool mig_is_on(nvmlDevice_t gpu);
const char *short_name(const nvmlGpuInstanceProfileInfo_v2_t *info);
void compute_name(const struct found_instance *gi, unsigned slices, char *name, size_t size);
int nothing(const char *what); /* says so; the exit code */

#endif
