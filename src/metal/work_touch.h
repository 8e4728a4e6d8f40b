/* work_touch.h: a command that uses a buffer and changes no byte of it.
 *
 * Owns:    one compiled kernel a device, for the life of the process.
 * Calls:   metal_bridge.h.
 * Threads: any, without the GIL.
 * Why:     Apple's pages disagree on what a wait on the GPU holds back: all later work of the
 *          queue, or the rest of its command buffer.  In a queue of somebody else's, whose later
 *          command buffers we do not make, a wait with a touch behind it is right either way:
 *          Metal keeps commands of one queue that use a tracked buffer in order.  SPEC
 *          MTLHazardTrackingModeTracked
 */
#ifndef MD_WORK_TOUCH_H
#define MD_WORK_TOUCH_H

#include "metal/storage.h"

/* Compile the kernel where that is not done yet: some milliseconds, under no lock of work.h's.
 * False: it cannot be had, and nothing may be touched. */
bool work_touch_prepare(const device_record *device);

/* Encode it: the buffer is retained until the work is complete. */
bridge_status work_touch(bridge_commands *commands, const metal_storage *storage);

#endif /* MD_WORK_TOUCH_H */
