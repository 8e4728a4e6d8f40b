/* other_abi.c: an image of another version of the interface. */
#include "image.h"

soft_image softmetal_image = {.abi = SOFT_KERNEL_ABI + 1};
