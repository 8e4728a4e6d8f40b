/* import_request.h: how another library's memory is to be taken.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_IMPORT_REQUEST_H
#define MD_IMPORT_REQUEST_H

#include "arithmetic/dtype.h"
#include "python/state.h"
#include "streams/device.h"
#include "streams/stream_object.h"

typedef struct import_request {
    const device_record *device; /* NULL: where the data is; the default device for CPU data */
    int copy;                    /* -1: if needed, 0: never, 1: always */
    stream_order order;          /* who waits for the producer's GPU work */
    /* borrowed: of numbers and lists, which have no element type of their own; NULL: what
     * NumPy makes of them, floats narrowed */
    const DLDataType *dtype;
} import_request;

/* The device that CPU memory goes to.  NULL with MetalError: there is none. */
static inline const device_record *
import_request_device(md_state *state, const char *function, const import_request *request)
{
    return request->device != NULL ? request->device : device_convert(state, function, NULL);
}

#endif /* MD_IMPORT_REQUEST_H */
