/* event_type.h: the Python type `Event`, as other types see it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_EVENT_TYPE_H
#define MD_EVENT_TYPE_H

#include "metal/stream.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    metal_stream *stream; /* owned (+1): whose moment it is; NULL: of no stream that we know */
    bridge_event *event;  /* owned (+1); NULL: it was never recorded, and is reached */
    uint64_t value;
    PyObject *weakrefs; /* keeps nothing alive */
} EventObject;

static inline EventObject *
event_cast(PyObject *op)
{
    return (EventObject *)op;
}

/* An Event of nothing: owned (+1), or NULL with MemoryError. */
PyObject *event_new_object(md_state *state);
/* From now on it is the moment when `event`, the stream's if it is not NULL, reaches the value. */
void event_set(EventObject *self, metal_stream *stream, bridge_event *event, uint64_t value);

#endif /* MD_EVENT_TYPE_H */
