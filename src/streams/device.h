/* device.h: the Python type `Device`.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_DEVICE_H
#define MD_DEVICE_H

#include "metal/devices.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    const device_record *record; /* borrowed for ever */
} DeviceObject;

static inline const device_record *
device_record_of(PyObject *op)
{
    return ((DeviceObject *)op)->record;
}

/* The Device of a record: owned (+1), the same object each time. NULL with an exception. */
PyObject *device_of_record(md_state *state, const device_record *record);

/* None or NULL (the default), a Device, "metal" or "metal:1" as a record; "mps" is
 * another name of "metal", and a torch.device goes by its name.  NULL with TypeError,
 * ValueError (no such device) or MetalError (no Metal at all). */
const device_record *device_convert(md_state *state, const char *function, PyObject *value);

/* device()s of the module. */
extern PyMethodDef device_functions[];

#endif /* MD_DEVICE_H */
