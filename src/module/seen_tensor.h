/* seen_tensor.h: a producer's tensor, to be looked at and released.
 *
 * Rule:    nothing is copied or taken where the producer understands copy=False; a capsule
 *          that was given stays as it was.
 * Threads: the GIL is held; the producer's code runs with it.
 */
#ifndef MD_SEEN_TENSOR_H
#define MD_SEEN_TENSOR_H

#include <dlpack/dlpack.h>

#include "exchange/dlpack_check.h"
#include "python/state.h"

/* `managed`, `tensor`: valid until seen_close. */
typedef struct seen_tensor {
    PyObject *capsule;      /* owned; NULL where the tensor came without one */
    void *managed;          /* owned if there is no capsule */
    const DLTensor *tensor; /* NULL: another major version, of which nothing else is known */
    DLPackVersion version;  /* 0.0 for a legacy tensor */
    uint64_t flags;
    bool is_versioned;
} seen_tensor;

/* A capsule, or what __dlpack__ gives for keywords (borrowed; may be NULL).  0, or -1 with the
 * producer's exception, TypeError (no capsule) or BufferError (another kind of capsule, a used
 * one). */
int seen_open_capsule(const char *function, PyObject *capsule, seen_tensor *out);
int seen_open_call(const char *function, PyObject *producer, PyObject *keywords,
                   seen_tensor *out);

/* By the exchange table of the producer's type, or by __dlpack__(max_version=, copy=False). */
int seen_open(md_state *state, const char *function, PyObject *producer, seen_tensor *out);

/* Release it.  An exception that is set stays set. */
void seen_close(seen_tensor *seen);

/* dlpack_check of it.  BufferError names the fault. */
int seen_check(const char *function, const seen_tensor *seen, dlpack_facts *facts);

#endif /* MD_SEEN_TENSOR_H */
