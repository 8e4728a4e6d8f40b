/* devices.h: the machine's Metal devices, found once a process, and kernels of our own, each
 * compiled for a device when it is first needed.
 *
 * Owns:    one record a device, and the compiled kernels, for the life of the process.
 * Calls:   metal_bridge.h; softmetal.h, which takes kernels in C and compiles nothing.  Never
 *          Python.
 * Threads: any thread; the table is filled under pthread_once and then only read.
 * Fork:    a child has the table of its parent; it is empty if the parent never asked.
 */
#ifndef MD_DEVICES_H
#define MD_DEVICES_H

#include <stddef.h>

#include "bridge/metal_bridge.h"

#define DEVICES_MAX 16

typedef struct device_record {
    int index;             /* 0 is the system's default */
    bridge_device *handle; /* owned (+1) by the table */
    bridge_device_facts facts;
} device_record;

int devices_count(void);
/* The record of an index in 0 .. devices_count() - 1: borrowed, valid for ever. */
const device_record *devices_get(int index);
/* The record of a device by its registry ID; NULL: a device that is not in the table. */
const device_record *devices_find(bridge_device *device);

/* ---- kernels of our own ---- */

/* A kernel as C: every call of a grid. */
typedef void device_kernel_run(void *const *arguments, const size_t grid[3]);

/* Argument 0 of the kernel is written, and nothing else. */
typedef struct device_kernel {
    const char *source; /* Metal Shading Language; names this kernel, and may have others */
    const char *name;
    device_kernel_run *run;           /* not asked on a Mac; NULL: no call touches a byte */
    bridge_kernel *made[DEVICES_MAX]; /* each owned (+1), atomic; NULL: not yet */
} device_kernel;

/* `*out` is borrowed for ever, NULL on anything but BRIDGE_OK.  Compiling takes some milliseconds,
 * under a lock of its own: load before the lock that orders submissions is taken. */
bridge_status device_kernel_load(device_kernel *kernel, const device_record *device,
                                 bridge_kernel **out);

#endif /* MD_DEVICES_H */
