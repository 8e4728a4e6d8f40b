/* kernel_object.h: the Python types `Kernel` and `Library`, as the files of this folder see them.
 *
 * Owns:      the rule that a Kernel never changes after it was made.
 * Threads:   the GIL is held; released while Metal compiles, which can take seconds.
 */
#ifndef MD_KERNEL_OBJECT_H
#define MD_KERNEL_OBJECT_H

#include "arithmetic/dtype.h"
#include "bridge/metal_bridge.h"
#include "metal/devices.h"
#include "python/state.h"

/* ---- metal_type.c: what a parameter points at, as an element type; Source: MTLArgument.h MTLDataType ---- */

#define METAL_TYPE_NAME_MAX 16

/* A scalar, a vector or a matrix of scalars.  Structs and what Metal does not tell have no
 * scalar: lanes 0. */
typedef struct metal_type {
    const char *scalar_name; /* "float", "uint" ...; NULL: none */
    DLDataType scalar;
    int lanes;      /* of a vector, all of a matrix; 1: a scalar; 0: no scalar */
    int columns;    /* of a matrix; 0: it is none */
    bool is_struct; /* or an array */
} metal_type;

metal_type metal_type_of(unsigned data_type);

/* "float4", "half2x3", "struct", or "" where the type is not known. */
void metal_type_write_name(const metal_type *type, char out[METAL_TYPE_NAME_MAX]);

/* May items of `dtype` be read as these?  The same scalars; complex numbers as vectors of two;
 * types that Metal lacks as uchar; anything where there is no scalar. */
bool metal_type_takes(const metal_type *type, DLDataType dtype);

/* The Metal scalar that holds such items: NULL for types that Metal lacks. */
const char *metal_type_name_for(DLDataType dtype);

/* `_core._metal_scalars`: the name of the element type by the scalar's.  -1 with an exception. */
int metal_type_add_names(PyObject *module);

/* ---- Python's numbers as Metal scalars and vectors ---- */

#define KERNEL_NUMBER_MAX 32 /* bytes of a long4 */

/* A number, or for a vector a tuple or list of one each, as Metal has it in memory: rounded to
 * nearest where the type is a narrower float.  The rest of `bytes` is 0.  `where` begins the
 * sentence.  -1 with TypeError (not such a number, 1.5 for an integer, a matrix), ValueError
 * (another count of lanes), or OverflowError (it does not fit). */
int kernel_numbers_pack(const char *where, const metal_type *type, PyObject *value,
                        char bytes[KERNEL_NUMBER_MAX]);

/* ---- kernel_type.c ---- */

/* One parameter that something is bound to. */
typedef struct kernel_parameter {
    PyObject *name;    /* owned, interned */
    PyObject *subject; /* owned: "softmax: argument 'x'", with which a refusal begins */
    metal_type type;   /* of what it points at */
    size_t nbytes;     /* of what it points at; 0: not known */
    size_t alignment;  /* of what is bound; at least 1 */
    unsigned index;
    bridge_parameter_kind kind;
    bool is_unlisted; /* Metal binds nothing there: it takes a place in a call, and no more */
    bool is_read, is_written;
    /* what a texture is; `count`: how many an array of them has, else 1; of samplers how many there is room for */
    bool is_depth;
    unsigned texture_type; /* MTLTextureType */
    size_t count;
} kernel_parameter;

/* False: threadgroup memory, which is given by size and takes no position in a call. */
static inline bool
kernel_parameter_is_given(const kernel_parameter *parameter)
{
    return parameter->kind != BRIDGE_PARAMETER_THREADGROUP;
}

/* kernel_signature.c: "buffer", "texture", by bridge_parameter_kind; "" for others. */
extern const char *const kernel_kind_names[];

#define KERNEL_MOST_BUFFERS 31
#define KERNEL_MOST_SAMPLERS 16
#define KERNEL_MOST_PARAMETERS \
    (31 + 31 + 128 + KERNEL_MOST_SAMPLERS) /* in threadgroup memory, textures, samplers */

typedef struct {
    PyObject_VAR_HEAD /* ob_size is the number of parameters */
    vectorcallfunc vectorcall;
    bridge_kernel *kernel;       /* owned (+1) */
    const device_record *device; /* borrowed for ever */
    PyObject *name;              /* owned */
    PyObject
        *recipe; /* owned: (text, constants or None, language or None) that it was made of */
    const char *function;      /* the same text, with which errors begin: borrowed from it */
    size_t width, max_threads; /* of a threadgroup */
    size_t threadgroup_nbytes, max_threadgroup_nbytes;
    int buffer_count;              /* parameters that take a position */
    int texture_count;             /* of all its textures and samplers */
    kernel_parameter parameters[]; /* in the order of the signature */
} KernelObject;

static inline KernelObject *
kernel_cast(PyObject *op)
{
    return (KernelObject *)op;
}

static inline const char *
kernel_subject(const kernel_parameter *parameter)
{
    const char *text = PyUnicode_AsUTF8(parameter->subject);
    return text == NULL ? "a kernel" : text; /* it is cached since the kernel was made */
}

/* kernel_signature.c: the parameters that take a position: "x, y, count".  Owned (+1). */
PyObject *kernel_names(const KernelObject *self);

/* kernel_signature.c: k[grid, block] raises TypeError with the way out. */
PyObject *kernel_subscript(PyObject *op, PyObject *key);

/* A Kernel of a pipeline: owned (+1).  It takes over `kernel`, whatever the result; `facts` and
 * `order`, of kernel_order_of, stay the caller's; `order` NULL: an exception is set.  NULL with
 * MemoryError, or TypeError where a parameter can be given nothing. */
PyObject *kernel_new_object(md_state *state, const device_record *device, PyObject *name,
                            bridge_kernel *kernel, const bridge_kernel_facts *facts,
                            PyObject *order);
/* Note what it was made of; `language` NULL: none was given.  -1 with MemoryError. */
int kernel_set_recipe(PyObject *kernel, PyObject *text, PyObject *constants,
                      PyObject *language);

/* kernel_signature.c: a list of (place in `facts` or -1, name, is it threadgroup memory, is it in
 * the constant address space), in the order in which a call gives arguments; `text` is the source.
 * Owned (+1).  NULL with TypeError where the two disagree. */
PyObject *kernel_order_of(PyObject *text, PyObject *name, const bridge_kernel_facts *facts);

/* kernel() of the module. */
extern PyMethodDef kernel_functions[];

/* ---- kernel_source.c: the values of a kernel's function constants ---- */

typedef struct kernel_constants {
    bridge_constant *values; /* owned, with what they point at; NULL: none */
    size_t count;
    PyObject *key; /* owned: bytes, the same for the same values */
} kernel_constants;

/* Read `given`, a dict of values by name or index, or None.  `facts` are what the kernel has.
 * -1 with TypeError (no such constant, one that must be there is missing, not such a number) or
 * OverflowError; nothing is owned then. */
int kernel_constants_read(PyObject *kernel_name, PyObject *given,
                          const bridge_constant_facts *facts, size_t count,
                          kernel_constants *out);
void kernel_constants_free(kernel_constants *constants);

/* ---- kernel_source.c: Metal source, and what a compiler says of it ---- */

/* What a user asks for; the objects are borrowed, NULL: the default. */
typedef struct kernel_source {
    const char *function; /* for errors */
    PyObject *source, *device, *name, *defines, *include, *math, *language;
} kernel_source;

/* What is compiled, of a request: owned (+1), and how.  NULL with TypeError or ValueError. */
PyObject *kernel_source_text(const kernel_source *request, bridge_compile_options *chosen);

/* +1, or NULL with CompileError or MetalError. */
bridge_library *kernel_source_compile(md_state *state, const char *function,
                                      const device_record *device, PyObject *text,
                                      const bridge_compile_options *chosen);

/* CompileError where `text`, the source (borrowed), is at fault, else MetalError.  Frees
 * `message`, the compiler's words, which may be NULL. */
void kernel_source_raise(md_state *state, const char *where, bridge_status status,
                         char *message, PyObject *text);

#endif /* MD_KERNEL_OBJECT_H */
