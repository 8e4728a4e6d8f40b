/* kernel_call.h: one call of a kernel, from its Python arguments to its submission.
 *
 *     k(x, y, n=1000, stream=s)
 *       │  │    │        │
 *       │  │    └────────┴──► launch[]: what is for the launch    kernel_signature.c
 *       └──┴────► values[]: one object a parameter                kernel_signature.c
 *                   │                                           kernel_outputs.c: those of out=
 *                   ├─► arguments[]: what Metal binds             kernel_arguments.c, kernel_textures.c
 *                   ├─► operands[]: the buffers in use            kernel_resources.c: those of resources=
 *                   └─► kept[], rooms[], guests[]: what is held   kernel_arguments.c
 *                         │
 *                         └─► a grid, a command buffer            kernel_launch.c
 *
 * Owns:    its stream, `kept`, `rooms` and `lists`, until the call ends.
 * Threads: the GIL is held; released while submitting and waiting.
 * Cost:    nothing is allocated for Arrays and numbers that are arguments, and nothing here is
 *          cleared that is not used.
 */
#ifndef MD_KERNEL_CALL_H
#define MD_KERNEL_CALL_H

#include "array/array.h"
#include "kernels/kernel_object.h"
#include "metal/work.h"

/* The keywords that are for the launch, and no parameter's. */
#define LAUNCH_KEYWORD_LIST(X) \
    X(n) \
    X(threads) \
    X(groups) \
    X(group) \
    X(stream) \
    X(threadgroup_memory) \
    X(strides) \
    X(out) \
    X(resources)

#define LAUNCH_AS_ENUM(name) LAUNCH_##name,
enum { LAUNCH_KEYWORD_LIST(LAUNCH_AS_ENUM) LAUNCH_KEYWORDS };
#undef LAUNCH_AS_ENUM

/* A tensor of another framework, and our Array of the same bytes. */
typedef struct kernel_guest {
    PyObject *tensor; /* borrowed from the caller */
    PyObject *array;  /* borrowed from `kept` */
} kernel_guest;

typedef struct kernel_call {
    KernelObject *kernel; /* borrowed */
    md_state *state;
    metal_stream *stream; /* owned (+1); NULL before it is chosen */
    bool
        is_stream_named; /* by the caller: who waits for other frameworks, see kernel_launch.c */
    int argument_count, operand_count, kept_count, room_count, guest_count;
    PyObject *outputs; /* owned: what the call returns; NULL: nothing was asked for by out= */
    PyObject *launch[LAUNCH_KEYWORDS];        /* borrowed; NULL: not given */
    PyObject *values[KERNEL_MOST_PARAMETERS]; /* borrowed; NULL: not given */
    /* One a parameter that has a buffer, one a texture, sampler or resource: those of `few`, or of `lists`. */
    bridge_argument *arguments;
    work_operand *operands;
    PyObject **kept; /* each owned */
    kernel_guest *guests;
    struct {
        bridge_argument arguments[2 * KERNEL_MOST_BUFFERS]; /* as many in threadgroup memory */
        work_operand operands[KERNEL_MOST_BUFFERS];
        PyObject *kept[KERNEL_MOST_BUFFERS];
        kernel_guest guests[KERNEL_MOST_BUFFERS];
    } few;
    void *lists; /* owned; NULL: there are no resources, textures or samplers */
    metal_storage *rooms[KERNEL_MOST_BUFFERS]; /* owned (+1); for Arrays without items */
    char numbers[KERNEL_MOST_BUFFERS][KERNEL_NUMBER_MAX]; /* by parameter's place */
} kernel_call;

/* kernel_launch.c: is softmetal/report/ told what each call gives?  With the GIL. */
extern bool kernel_calls_are_told;

/* kernel_signature.c: fill `launch` and `values`.  -1 with TypeError. */
int kernel_call_read(kernel_call *call, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames);

/* kernel_outputs.c: Arrays of out= among `values`, and `outputs`.  -1 with TypeError, ValueError,
 * MemoryError or MetalError. */
int kernel_call_add_outputs(kernel_call *call);

/* kernel_arguments.c: fill `arguments` and what they need.  -1 with TypeError, ValueError,
 * OverflowError, BufferError, or what a foreign tensor raised. */
int kernel_call_bind(kernel_call *call);

/* kernel_arguments.c: an Array of the same bytes, borrowed from `kept`; the stream waits for the work of the
 * object's framework.  0 and NULL: a copy is needed.  -1 with what the object raised. */
int kernel_call_import(kernel_call *call, PyObject *value, ArrayObject **out);
/* kernel_arguments.c: how many bytes the items reach, and how many of them lie before the first. */
void kernel_argument_set_reach(const ArrayObject *array, bridge_argument *argument);

/* kernel_textures.c: a Texture or a tuple of them, a Sampler, among `arguments` and `operands`; and a Texture that
 * resources= names.  -1 with TypeError, ValueError or MemoryError. */
int kernel_call_bind_texture(kernel_call *call, const kernel_parameter *parameter,
                             PyObject *value);
int kernel_call_bind_sampler(kernel_call *call, const kernel_parameter *parameter,
                             PyObject *value);
int kernel_call_bind_texture_resource(kernel_call *call, Py_ssize_t place, PyObject *value);

/* kernel_resources.c: room for what resources= names, and for textures and samplers, before kernel_call_bind.  -1 with TypeError or
 * MemoryError. */
int kernel_call_make_room(kernel_call *call);
/* kernel_resources.c, after it: what resources= names, among `arguments` and `operands`.  -1 alike. */
int kernel_call_bind_resources(kernel_call *call);

/* kernel_grid.c: room in threadgroup memory, among the arguments.  -1 with TypeError or
 * ValueError. */
int kernel_call_bind_threadgroup(kernel_call *call);

/* kernel_grid.c: 1: `*out` is how many threads.  0: none at all.  -1 with TypeError or
 * ValueError. */
int kernel_call_read_grid(const kernel_call *call, bridge_grid *out);

/* kernel_launch.c: the whole call.  `*seconds` NULL: it returns once the kernel is submitted;
 * else once it is done, with the time that the GPU took.  What it returns is owned (+1): None, or
 * what out= asked for; NULL with an exception. */
PyObject *kernel_call_launch(PyObject *kernel, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames, double *seconds);

#endif /* MD_KERNEL_CALL_H */
