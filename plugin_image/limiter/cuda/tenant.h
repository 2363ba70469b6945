/* This process: its share, its account, and which of the driver's devices are of the share. */
#ifndef DIVVY_TENANT_H
#define DIVVY_TENANT_H

#include "../share/account.h"
#include "cuda.h"

/* Read the limits and take a slot; once, and again after a fork. 0, or why CUDA cannot be used. */
CUresult tenant_start(void);

/* Index of a device in the share and the account; FOREIGN for one that the limits do not name, on which nothing is
 * given; NO_DEVICE for one that the driver does not tell. */
enum { NO_DEVICE = -1, FOREIGN = -2 };
int tenant_device(CUdevice ordinal);
int tenant_current_device(void); /* of the calling thread's context */

/* Say on standard error, once, that nothing is given on a device. */
void tenant_say_foreign(void);

const struct share_device *tenant_share(unsigned device);
const char *tenant_folder(void); /* where the files of the share are */

/* Reserve within the device's limit, else count a refusal. */
bool tenant_reserve(unsigned device, uint64_t bytes);

#endif
