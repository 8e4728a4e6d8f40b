/* metal.h: what torch's mps device asks of the core: memory, a queue, work on it.
 *
 * Owns:    nothing: a table, static for the process.
 * Calls:   the core's functions behind it; torch is not known there.
 * Threads: every function from any thread, with or without the GIL.
 * Names:   `new` returns +1, `retain` adds 1, `release` drops 1.
 */
#ifndef MD_TORCH_MPS_METAL_H
#define MD_TORCH_MPS_METAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METAL_FOR_TORCH_CAPSULE "metal_dlpack._core._softmetal_torch"
#define MOST_READS 28   /* of one use: of the 31 buffers of a kernel */
#define MOST_BYTES 4096 /* of an argument. SPEC setBytes:length:atIndex: */

/* Bytes of an MTLBuffer. */
typedef struct metal_range {
    void *handle;
    size_t offset, nbytes;
} metal_range;

/* A parameter of a kernel that has a buffer. */
typedef struct metal_parameter {
    bool is_bound,
        is_written;   /* not bound: there is none at the index, or the kernel does not use it */
    size_t alignment; /* of the offset; at least 1 */
    size_t nbytes;    /* of what it points at; 0: not known */
    size_t least_nbytes; /* of them those that hold something: 12 of a float3's 16 */
} metal_parameter;

/* What is bound at an index. */
typedef struct metal_argument {
    unsigned index;
    metal_range range; /* the kernel may touch these bytes alone; `nbytes` 0: none */
    const void *bytes; /* or NULL; else `nbytes` of the range are copied from here */
    bool
        is_resource; /* bound nowhere, and reached by its address; `index` is its number in reports */
    /* For the checker, where the parameter does not say what is given: softmetal_given.  NULL: it does */
    const char *given;
    bool is_strided;
    int axes;
    const size_t (*steps)[2];
    size_t item_nbytes;
} metal_argument;

/* Called on the queue's thread when the GPU would write: the bytes reach `address`. */
typedef void metal_arrive(void *context, void *address);
/* `failure` is why the work failed, in Metal's words; NULL: it did not. */
typedef void metal_completed(void *context, const char *failure);

typedef struct metal_for_torch {
    /* ---- memory: shared, of the pool, at a page's beginning ---- */

    /* The address; NULL: there is no room. */
    void *(*memory_new)(size_t nbytes);
    /* False: it is no address of memory_new. */
    bool (*memory_free)(void *address);
    /* The MTLBuffer that has this address, borrowed as long as the memory lives; NULL: it is not ours. */
    void *(*memory_handle)(void *address, size_t nbytes);
    void *(*buffer_contents)(void *handle); /* NULL: private storage */
    size_t (*buffer_nbytes)(void *handle);

    /* ---- a queue, whose command buffers one thread at a time encodes ---- */

    void *(*queue_new)(void);           /* NULL: Metal gives none */
    void *(*commands_new)(void *queue); /* NULL: Metal gives none */
    /* The operator's use of memory: MOST_READS ranges are read, one (or NULL) is written.  `arrive` (or NULL: the
     * bytes are there) is called when the GPU comes to it.  False: nothing is encoded. */
    bool (*encode_use)(void *commands, const metal_range *written, metal_arrive *arrive,
                       void *context, const metal_range *read, int read_count);
    /* A kernel with at most 31 arguments, and resources; `kernel` is an object of the type Kernel, with whose GIL this is called.
     * False: nothing is encoded. */
    bool (*encode_kernel)(void *commands, void *kernel, const metal_argument *arguments,
                          int count, const size_t threads[3], const size_t group[3]);
    metal_parameter (*kernel_parameter)(void *kernel, unsigned index);
    /* Takes over `commands`.  `completed` is called on a Metal thread, also where the work failed. */
    void (*commands_commit)(void *commands, metal_completed *completed, void *context);

    /* ---- events ---- */

    void *(*event_new)(void);
    void (*event_release)(void *event);
    /* Behind all that is encoded; the event has the value even if the work fails. */
    void (*encode_signal)(void *commands, void *event, uint64_t value);
    void (*encode_wait)(void *commands, void *event, uint64_t value);
    uint64_t (*event_value)(void *event);
    /* `goes_on` is asked now and then.  False: it did not want to. */
    bool (*event_wait)(void *event, uint64_t value, bool (*goes_on)(void));
    /* On the main thread the handlers of signals run, and take the GIL.  False: one has raised, and it is set. */
    bool (*hear_signals)(void);

    /* ---- the software Metal's settings and figures ---- */

    bool (*is_watching)(void); /* races are looked for */
    bool (*is_forked)(void);
    uint64_t (*latency_us)(void); /* SOFTMETAL_LATENCY_US */
    uint64_t (*device_allocated)(void);
    uint64_t (*device_recommended)(void);
    void (*empty_pool)(void);

    /* ---- timelines ---- */

    double (*timeline_begin)(void); /* seconds; 0: none is open */
    /* An operator that has computed on this thread since then; `written` is the first buffer that it writes,
     * or NULL. */
    void (*timeline_operator)(double started, const char *name, void *written);
} metal_for_torch;

#endif /* MD_TORCH_MPS_METAL_H */
