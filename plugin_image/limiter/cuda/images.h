/* Images of programs for the GPU: how much memory their variables take. */
#ifndef DIVVY_IMAGES_H
#define DIVVY_IMAGES_H

#include <stddef.h>
#include <stdint.h>

/* Of PTX text and of a cubin (ELF), within `length`; 0 for what is bundled or compressed. */
uint64_t image_bytes(const void *image, size_t length);

#endif
