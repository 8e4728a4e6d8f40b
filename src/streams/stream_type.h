/* stream_type.h: the Python type `Stream`, as other types see it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_TYPE_H
#define MD_STREAM_TYPE_H

#include "metal/stream.h"
#include "python/state.h"
#include "streams/stream_object.h"

/* Wait for all work on all streams of a device.  -1 with MetalError. */
int stream_synchronize_device(md_state *state, const char *function,
                              const device_record *device);

#endif /* MD_STREAM_TYPE_H */
