/* foreign_tensor.h: another library's tensor: asked for, opened, checked, taken, let go of.
 *
 * Rule:    the one place that opens one, to import it or to look at it.  It is checked before it is
 *          taken, taken by renaming its capsule, and from then on deleted exactly once.
 * Threads: the GIL is held; the producer's code runs with it.
 */
#ifndef MD_FOREIGN_TENSOR_H
#define MD_FOREIGN_TENSOR_H

#include <dlpack/dlpack.h>

#include "exchange/dlpack_check.h"
#include "metal/storage.h"
#include "streams/device.h"
#include "streams/stream_object.h"

/* The names of DLPack's capsules, SPEC python_spec, dlpack.h: of a tensor, before and after a
 * consumer took it. */
#define CAPSULE_LEGACY "dltensor"
#define CAPSULE_LEGACY_USED "used_dltensor"
#define CAPSULE_VERSIONED "dltensor_versioned"
#define CAPSULE_VERSIONED_USED "used_dltensor_versioned"

/* How another library's memory is to be taken. */
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

typedef struct foreign_tensor {
    PyObject *capsule;      /* owned; NULL: it came without one */
    const char *maker;      /* the producer's type, for messages; until its code runs */
    void *managed;          /* NULL: given to an owner, or never there */
    const DLTensor *tensor; /* within `managed`; NULL: of another major version, of which
                               nothing else is known */
    DLPackVersion version;  /* 0.0: of a legacy tensor */
    uint64_t flags;         /* 0: of a legacy tensor */
    bool is_versioned;
    bool is_ours;   /* ours to delete: it came without a capsule, or is taken */
    bool is_honest; /* of CPU memory: see host_items */
    /* owned: an Event or an object with __metal_stream__ that says when the GPU work on it is
     * finished; NULL: it is */
    PyObject *moment;
    /* owned: keeps the memory as well as `managed` does, and is given away with it; or NULL */
    PyObject *keeper;
    dlpack_facts facts; /* once checked */
} foreign_tensor;

/* Ask for the tensor of a producer or a capsule: by the exchange table of its type, else by
 * __dlpack__.  With a request, to import it: the producer's device is looked at first, and its GPU
 * work is waited for as the request says.  Without one, to look at it: copy=False, no wait.
 * -1 with AttributeError (no producer), what the producer raised, TypeError (no capsule), or
 * BufferError (another device, another kind of capsule, a used one). */
int foreign_open(md_state *state, const char *function, PyObject *producer,
                 const import_request *request, foreign_tensor *out);

/* Open what __dlpack__ answered, which is stolen; NULL with an exception is allowed. */
int foreign_open_answer(const char *function, PyObject *capsule, const char *maker,
                        foreign_tensor *out);

/* Open a tensor without a capsule, which is stolen. */
void foreign_open_managed(DLManagedTensorVersioned *managed, const char *maker,
                          foreign_tensor *out);

/* Version, device, shape, strides, element type, and the range in the CPU's memory: fills facts.
 * No message is sent to an object. */
bool foreign_check(foreign_tensor *self, dlpack_fault *fault);

/* The MTLBuffer of checked items on Metal, and its device.  `known`: our storage of this handle,
 * which then needs no proof; or NULL. */
bool foreign_check_buffer(const foreign_tensor *self, const metal_storage *known,
                          const device_record **device, dlpack_fault *fault);

/* BufferError that names the fault: -1. */
int foreign_refuse(const char *function, const foreign_tensor *self, const dlpack_fault *fault);

/* Take the tensor, so that its capsule's destructor and later consumers leave it alone.  -1 with
 * an exception. */
int foreign_take(foreign_tensor *self);

/* The last call for a tensor: deletes what is ours and no owner has, releases the capsule.  An
 * exception that is set stays set. */
void foreign_let_go(foreign_tensor *self);

static inline void
foreign_close(foreign_tensor *self)
{
    /* a tensor of a table that an owner has: nothing is left */
    if (self->managed != NULL || self->capsule != NULL || self->moment != NULL) {
        foreign_let_go(self);
    }
}

#endif /* MD_FOREIGN_TENSOR_H */
