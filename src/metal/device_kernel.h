/* device_kernel.h: kernels of our own, each compiled for a device when it is first needed.
 *
 * Owns:    the compiled ones, for the life of the process.
 * Calls:   metal_bridge.h; softmetal.h, which takes them in C and compiles nothing.
 * Threads: any, without the GIL.  Compiling takes some milliseconds, under a lock of its own:
 *          load before the lock that orders submissions is taken.
 */
#ifndef MD_DEVICE_KERNEL_H
#define MD_DEVICE_KERNEL_H

#include <stddef.h>

#include "metal/devices.h"

/* A kernel as C: every call of a grid. */
typedef void device_kernel_run(void *const *arguments, const size_t grid[3]);

/* Argument 0 of the kernel is written, and nothing else. */
typedef struct device_kernel {
    const char *source; /* Metal Shading Language; names this kernel, and may have others */
    const char *name;
    device_kernel_run *run;           /* not asked on a Mac; NULL: no call touches a byte */
    bridge_kernel *made[DEVICES_MAX]; /* each owned (+1), atomic; NULL: not yet */
} device_kernel;

/* `*out` is borrowed for ever, NULL on anything but BRIDGE_OK. */
bridge_status device_kernel_load(device_kernel *kernel, const device_record *device,
                                 bridge_kernel **out);

#endif /* MD_DEVICE_KERNEL_H */
