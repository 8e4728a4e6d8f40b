/* metal_bridge.h: the only door between C and Metal.
 *
 * Owns:    the rule that a handle IS the Objective-C object: a `bridge_buffer *` is an
 *          id<MTLBuffer>, never a wrapper, so that DLPack's `data` and PyObjC's pointers are
 *          the same value.
 * Calls:   Metal.framework on macOS, src/softmetal/ elsewhere.  Never Python.
 * Threads: every function may be called from any thread, with or without the GIL, and makes
 *          its own autorelease pool, but for those that only read a number.  Functions named
 *          `..._and_wait` block until the GPU is done.
 * Names:   `new` and `copy` return +1, `retain` adds 1, `release` drops 1, all else borrows.
 * Fork:    in a forked child every function that would talk to Metal fails with BRIDGE_FORKED
 *          or does nothing, releases too: Metal's connection to the GPU does not survive
 *          fork().
 */
#ifndef MD_METAL_BRIDGE_H
#define MD_METAL_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bridge_surface bridge_surface; /* an IOSurfaceRef */
typedef struct bridge_device bridge_device;   /* an id<MTLDevice>; never defined, on purpose */
typedef struct bridge_buffer bridge_buffer;   /* an id<MTLBuffer> */
typedef struct bridge_queue bridge_queue;     /* an id<MTLCommandQueue> */
typedef struct bridge_event bridge_event;     /* an id<MTLSharedEvent> */
typedef struct bridge_commands bridge_commands;   /* an id<MTLCommandBuffer> */
typedef struct bridge_library bridge_library;     /* an id<MTLLibrary> */
typedef struct bridge_kernel bridge_kernel;       /* an id<MTLComputePipelineState> */
typedef struct bridge_residency bridge_residency; /* an id<MTLResidencySet> */
typedef struct bridge_texture bridge_texture;     /* an id<MTLTexture> */
typedef struct bridge_sampler bridge_sampler;     /* an id<MTLSamplerState> */

/* One list makes the enum and the texts, so they cannot drift apart. */
#define BRIDGE_STATUS_LIST(X) \
    X(BRIDGE_OK, "ok") \
    X(BRIDGE_NO_DEVICE, "no Metal device is available") \
    X(BRIDGE_NOT_UNIFIED, \
      "managed storage needs a device with unified memory; use 'shared' or 'private'") \
    X(BRIDGE_TOO_LARGE, "the length is larger than the device's maxBufferLength") \
    X(BRIDGE_NO_MEMORY, "Metal could not allocate the buffer") \
    X(BRIDGE_OVER_LIMIT, "it would exceed the limit set by set_memory_limit()") \
    X(BRIDGE_NOT_PAGES, "Metal wraps only whole pages of memory") \
    X(BRIDGE_OTHER_PAGES, "Metal gave a buffer that does not lie over the given pages") \
    X(BRIDGE_STALE_FILE, \
      "the GPU of a virtual machine with macOS 14 reads old bytes where a file is mapped") \
    X(BRIDGE_NO_SURFACES, \
      "IOSurface is part of macOS, and this build stands on the software Metal") \
    X(BRIDGE_NOT_A_SURFACE, \
      "the handle is neither an IOSurface nor a CVPixelBuffer that lies in one") \
    X(BRIDGE_NO_ADDRESS, "the IOSurface has no memory that the CPU can see") \
    X(BRIDGE_NO_COMMAND, \
      "Metal gave no command buffer or encoder; there may be too many threads, or too little " \
      "memory") \
    X(BRIDGE_NO_KERNEL, "Metal could not compile a kernel") \
    X(BRIDGE_COMMAND_FAILED, "a command buffer failed") \
    X(BRIDGE_NO_CAPTURE, \
      "Metal writes GPU traces only where Python was started with METAL_CAPTURE_ENABLED=1 in " \
      "the environment") \
    X(BRIDGE_CAPTURING, "a capture is on, and Metal takes one at a time; end it first") \
    X(BRIDGE_NO_RESIDENCY, "Metal has residency sets since macOS 15") \
    X(BRIDGE_NO_TEXTURE, "Metal gave no texture") \
    X(BRIDGE_NO_SAMPLER, "Metal gave no sampler") \
    X(BRIDGE_NO_TRACE, "Metal does not begin to write the trace") \
    X(BRIDGE_FORKED, "Metal cannot be used in a forked child; start it with 'spawn' instead")

#define BRIDGE_AS_ENUM(name, text) name,
typedef enum { BRIDGE_STATUS_LIST(BRIDGE_AS_ENUM) } bridge_status;
#undef BRIDGE_AS_ENUM

const char *bridge_status_text(bridge_status status);

/* Who may touch a buffer's bytes.  On unified memory managed storage is one allocation, as shared
 * storage is, and Metal may ignore what keeps two copies equal.  SPEC MTLResource.h MTLStorageMode;
 * page "Synchronizing a managed resource in macOS" */
#define BRIDGE_STORAGE_LIST(X) \
    X(BRIDGE_SHARED, "shared") /* one memory for CPU and GPU */ \
    X(BRIDGE_MANAGED, \
      "managed") /* the same, on unified memory; storage.c refuses any other */ \
    X(BRIDGE_PRIVATE, "private") /* the GPU only */

#define BRIDGE_AS_ENUM(name, text) name,
typedef enum { BRIDGE_STORAGE_LIST(BRIDGE_AS_ENUM) } bridge_storage;
#undef BRIDGE_AS_ENUM

/* Metal's words about a failed command buffer, and what it ran; text is "" without any.  There is room for the
 * report on a kernel that was stopped. */
typedef struct bridge_error {
    long code; /* MTLCommandBufferError */
    char text[2000];
} bridge_error;

static inline void
bridge_error_clear(bridge_error *error)
{
    error->code = 0;
    error->text[0] = '\0';
}

/* ---- devices ---- */

typedef struct bridge_device_facts {
    char name[128];
    uint64_t registry_id;
    uint64_t max_buffer_length;           /* bytes */
    uint64_t recommended_max_working_set; /* bytes */
    bool has_unified_memory;
    bool is_software;       /* src/softmetal/ answers, not a GPU */
    bool reads_stale_files; /* no buffer may lie over pages of a file */
} bridge_device_facts;

/* Write at most `capacity` devices, each +1, the system's default first.  Returns how many. */
size_t bridge_device_copy_all(bridge_device **out, size_t capacity);
void bridge_device_describe(bridge_device *device, bridge_device_facts *out);
uint64_t bridge_device_allocated_nbytes(bridge_device *device);

/* ---- buffers ---- */

/* Allocate `nbytes` (> 0); the bytes are not defined.  On BRIDGE_OK `*out` is +1; on any other
 * status it is NULL. */
bridge_status bridge_buffer_new(bridge_device *device, size_t nbytes, bridge_storage storage,
                                bridge_buffer **out);
/* Called once the last retain of such a buffer is gone, a command buffer's too: the pages may
 * go.  On the thread of the last release, ours or a Metal thread.  It must not wait. */
typedef void bridge_pages_done(void *context);
/* Shared storage over the caller's own memory: whole pages, mapped until `done`.  Result as
 * above; if it is not BRIDGE_OK, `done` is never called. */
bridge_status bridge_buffer_new_over_pages(bridge_device *device, void *pages, size_t nbytes,
                                           bridge_pages_done *done, void *context,
                                           bridge_buffer **out);
typedef enum { BRIDGE_NO_FILE, BRIDGE_FILE, BRIDGE_PRIVATE_FILE } bridge_map;

/* Is a file mapped at the address, and is it a private map: are writes this process's alone?  One
 * system call on a Mac; slow elsewhere. */
bridge_map bridge_map_at(const void *address);
void bridge_buffer_retain(bridge_buffer *buffer);
void bridge_buffer_release(bridge_buffer *buffer); /* NULL is allowed */
/* Does only the caller hold the buffer, and is it as we made it: unnamed and not purgeable?
 * True means that no command buffer retains it, so that its memory may be reused: one with
 * unretained references is for whoever made it to outlive.  PyTorch's allocator decides the same
 * way.  SPEC torch ATen/mps/MPSAllocator.h BufferBlock::retainCount,
 * buffers_pending_free */
bool bridge_buffer_is_only_ours(bridge_buffer *buffer);

/* Does `handle` point at an object of a class that is an MTLBuffer?  Reads no memory that is
 * not mapped, sends no message to what is not an object. */
bool bridge_handle_is_buffer(const void *handle);

size_t bridge_buffer_nbytes(bridge_buffer *buffer);
void *bridge_buffer_contents(bridge_buffer *buffer); /* CPU address; NULL for private storage */
uint64_t bridge_buffer_gpu_address(bridge_buffer *buffer); /* of byte 0 */
bridge_storage bridge_buffer_storage(bridge_buffer *buffer);
/* Does Metal itself keep commands that use the buffer in order, within one queue?  No, where it
 * does not say so. */
bool bridge_buffer_is_tracked(bridge_buffer *buffer);
bridge_device *bridge_buffer_device(bridge_buffer *buffer); /* borrowed from the buffer */
/* The label as UTF-8, cut to `capacity` - 1 bytes; "" where there is none. */
void bridge_buffer_copy_label(bridge_buffer *buffer, char *out, size_t capacity);
void bridge_buffer_set_label(bridge_buffer *buffer, const char *label);

/* ---- IOSurfaces: memory that processes and frameworks share; macOS only ---- */

/* The surface that `handle` (an IOSurfaceRef or a CVPixelBufferRef) is or lies in: +1, and in
 * use, so that no pool of pixel buffers takes it back.  `*pages` is its first byte, good while
 * the surface is kept.  On any status but BRIDGE_OK both are NULL. */
bridge_status bridge_surface_copy(const void *handle, bridge_surface **out, void **pages,
                                  size_t *nbytes);
void bridge_surface_release(bridge_surface *surface);

/* ---- textures and samplers ---- */

/* The extents are the first level's, and none beyond the type's is 0. */
typedef struct bridge_texture_facts {
    unsigned type;   /* MTLTextureType */
    unsigned format; /* MTLPixelFormat */
    size_t width, height, depth;
    size_t slices;   /* of an array, else 1 */
    size_t levels;   /* 1 of a linear texture */
    bool is_written; /* kernels may write to it too */
} bridge_texture_facts;

/* A texture whose bytes are its own and lie as the GPU likes: private storage.  `*out` is +1 on BRIDGE_OK, else NULL,
 * here and below. */
bridge_status bridge_texture_new(bridge_device *device, const bridge_texture_facts *facts,
                                 bridge_texture **out);
/* What the offset and the bytes from row to row of a linear texture are multiples of; `is_line`: of a texture
 * buffer. */
size_t bridge_texture_alignment(bridge_device *device, unsigned format, bool is_line);
/* Over a buffer's own bytes, which it keeps: 2D, or a texture buffer. */
bridge_status bridge_texture_new_linear(bridge_buffer *buffer,
                                        const bridge_texture_facts *facts, size_t offset_bytes,
                                        size_t row_nbytes, bridge_texture **out);
void bridge_texture_release(bridge_texture *texture); /* NULL is allowed */
uint64_t bridge_texture_resource_id(bridge_texture *texture);
void bridge_texture_copy_label(bridge_texture *texture, char *out, size_t capacity);
void bridge_texture_set_label(bridge_texture *texture, const char *label);

/* Each as Metal numbers it. */
typedef struct bridge_sampler_facts {
    unsigned min_filter, mag_filter, mip_filter, address[3], border, compare, max_anisotropy;
    bool is_normalized;
    float lod_min, lod_max;
} bridge_sampler_facts;

bridge_status bridge_sampler_new(bridge_device *device, const bridge_sampler_facts *facts,
                                 bridge_sampler **out);
void bridge_sampler_release(bridge_sampler *sampler); /* NULL is allowed */
uint64_t bridge_sampler_resource_id(bridge_sampler *sampler);

/* ---- queues ---- */

bridge_queue *bridge_queue_new(bridge_device *device); /* +1; NULL: Metal gave none */
void bridge_queue_retain(bridge_queue *queue);
void bridge_queue_release(bridge_queue *queue); /* NULL is allowed */

/* As bridge_handle_is_buffer, for an MTLCommandQueue. */
bool bridge_handle_is_queue(const void *handle);
bridge_device *bridge_queue_device(bridge_queue *queue); /* borrowed from the queue */
void bridge_queue_copy_label(bridge_queue *queue, char *out, size_t capacity);
void bridge_queue_set_label(bridge_queue *queue, const char *label);

/* ---- shared events: a value that only grows, which queues and the CPU signal and
 * await ---- */

bridge_event *bridge_event_new(bridge_device *device); /* +1; NULL: Metal gave none */
void bridge_event_retain(bridge_event *event);
void bridge_event_release(bridge_event *event); /* NULL is allowed */

/* As bridge_handle_is_buffer, for an MTLSharedEvent. */
bool bridge_handle_is_event(const void *handle);
uint64_t bridge_event_value(bridge_event *event);
/* The CPU signals `value`, unless the event has it already. */
void bridge_event_raise(bridge_event *event, uint64_t value);
/* Blocks until the event has `value`.  False: not within `timeout_ms`. */
bool bridge_event_wait(bridge_event *event, uint64_t value, uint64_t timeout_ms);

/* ---- work that is encoded now and done later ---- */

/* A command buffer: +1, used by one thread at a time, ended by commit or release.  Blocks
 * while as many as the queue takes are not complete.  NULL: Metal gave none. */
bridge_commands *bridge_commands_new(bridge_queue *queue);
void bridge_commands_release(bridge_commands *commands); /* without commit; NULL is allowed */

/* Everything encoded after it, on this queue, waits for the event on the GPU. */
void bridge_encode_wait(bridge_commands *commands, bridge_event *event, uint64_t value);
/* The event gets `value` once all that was encoded or committed before it is done. */
void bridge_encode_signal(bridge_commands *commands, bridge_event *event, uint64_t value);

/* The event has `value` once the command buffer is complete, even if that failed and signalled
 * nothing.  To be called before commit, whoever commits. */
void bridge_raise_when_completed(bridge_commands *commands, bridge_event *event,
                                 uint64_t value);

typedef struct bridge_run {
    size_t src_offset_bytes, dst_offset_bytes, nbytes;
} bridge_run;

/* The buffers are retained until the work is complete.  BRIDGE_NO_COMMAND: nothing was
 * encoded. */
bridge_status bridge_encode_copies(bridge_commands *commands, bridge_buffer *src,
                                   bridge_buffer *dst, const bridge_run *runs, size_t count);
bridge_status bridge_encode_fill(bridge_commands *commands, bridge_buffer *buffer,
                                 size_t offset_bytes, size_t nbytes, uint8_t value);

/* All of a texture's level to or from a buffer, in which rows and images lie apart by so much; `images` are z or
 * slices. */
typedef struct bridge_box {
    size_t level, width, height, images;
    bool is_deep;      /* the images are a depth */
    bool is_generated; /* the smaller levels are, of what was copied to the first */
    size_t offset_bytes, row_nbytes, image_nbytes;
} bridge_box;

bridge_status bridge_encode_to_texture(bridge_commands *commands, bridge_buffer *src,
                                       bridge_texture *dst, const bridge_box *box);
bridge_status bridge_encode_from_texture(bridge_commands *commands, bridge_texture *src,
                                         bridge_buffer *dst, const bridge_box *box);

/* ---- kernels ---- */

/* How far a compiler may go with floating-point arithmetic: MTLMathMode, and of the functions (exp,
 * sin, ...) the precise ones where it is safe.  SPEC MTLLibrary.h MTLMathMode */
typedef enum { BRIDGE_MATH_SAFE, BRIDGE_MATH_RELAXED, BRIDGE_MATH_FAST } bridge_math;

/* A version of Metal's language, as MTLLanguageVersion has it. */
#define BRIDGE_LANGUAGE(major, minor) ((unsigned)(major) << 16 | (unsigned)(minor))
/* The newest that this system's Metal has; 0 in a forked child, where nobody knows. */
unsigned bridge_language_newest(void);

typedef struct bridge_compile_options {
    bridge_math math;
    unsigned language; /* 0: the newest */
} bridge_compile_options;

/* Compile Metal Shading Language: +1 on BRIDGE_OK, NULL on anything else.  BRIDGE_NO_KERNEL:
 * `*message` holds the compiler's words (malloc'ed, the caller frees it; NULL: none are known), and
 * `*is_source` says whether the source is at fault.  Takes up to seconds, and where no GPU is the
 * GIL: the caller holds neither that nor a lock that whoever holds it may want. */
bridge_status bridge_library_new(bridge_device *device, const char *source,
                                 const bridge_compile_options *chosen, bridge_library **out,
                                 char **message, bool *is_source);
void bridge_library_release(bridge_library *library); /* NULL is allowed */

/* The names of the kernels; one malloc'ed block, which the caller frees.  NULL: there is no memory, or this is a forked child. */
char **bridge_library_names(bridge_library *library, size_t *count);

typedef struct bridge_constant_facts {
    const char *name;
    unsigned data_type; /* MTLDataType */
    unsigned index;
    bool is_required;
} bridge_constant_facts;

/* The function constants that a kernel uses, in the order of their indices; one malloc'ed block
 * (NULL: none), which the caller frees.  BRIDGE_NO_KERNEL: the library has no such function. */
bridge_status bridge_library_constants(bridge_library *library, const char *function,
                                       bridge_constant_facts **out, size_t *count);

/* The value of a function constant. */
typedef struct bridge_constant {
    unsigned index, data_type; /* MTLDataType */
    const void *value;
} bridge_constant;

typedef enum {
    BRIDGE_PARAMETER_BUFFER,
    BRIDGE_PARAMETER_THREADGROUP,
    BRIDGE_PARAMETER_TEXTURE,
    BRIDGE_PARAMETER_SAMPLER,
    BRIDGE_PARAMETER_OTHER /* an acceleration structure, ... */
} bridge_parameter_kind;

/* One parameter that something is bound to.  SPEC MTLArgument.h MTLBinding */
typedef struct bridge_parameter {
    const char *name;
    bridge_parameter_kind kind;
    bool is_read, is_written;
    bool is_used; /* false: the compiler found that it changes nothing */
    unsigned index;
    unsigned
        data_type; /* MTLDataType of what is pointed at, or a texture gives; 0: none is known */
    size_t nbytes; /* of what is pointed at */
    size_t alignment;      /* of what is bound */
    unsigned texture_type; /* MTLTextureType */
    bool is_depth;         /* a texture of depths */
    size_t count;          /* of an array of textures, else 1 */
} bridge_parameter;

typedef struct bridge_kernel_facts {
    size_t width;                  /* threads that run in step */
    size_t max_threads;            /* of a threadgroup */
    size_t threadgroup_nbytes;     /* of the kernel's own variables */
    size_t max_threadgroup_nbytes; /* of the device: those, and what is bound */
    size_t count;
    bridge_parameter *parameters; /* in Metal's order; malloc'ed, one block with the names */
} bridge_kernel_facts;

/* One kernel of a library, specialised by these constants: result as bridge_library_new's.
 * `facts` may be NULL; it is filled on BRIDGE_OK alone. */
bridge_status bridge_kernel_new(bridge_library *library, const char *function,
                                const bridge_constant *constants, size_t count,
                                bridge_kernel **out, bridge_kernel_facts *facts, char **message,
                                bool *is_source);
void bridge_kernel_release(bridge_kernel *kernel); /* NULL is allowed */

/* What is bound at an index: part of a buffer, up to 4096 bytes that are copied, room in
 * threadgroup memory, a texture or a sampler.  Or part of a buffer, or a texture, that the kernel reaches by what it
 * reads. */
typedef struct bridge_argument {
    unsigned index;        /* of a resource: the caller's number of it, for the checker */
    bool is_resource;      /* made resident, and bound nowhere */
    bool is_read_only;     /* a resource: the kernel writes nothing there */
    bool is_threadgroup;   /* `nbytes` of threadgroup memory, a multiple of 16 */
    bridge_buffer *buffer; /* NULL: bytes, or what follows */
    bridge_texture *texture;
    bridge_sampler *sampler;
    size_t offset_bytes; /* of the buffer */
    const void *bytes;
    bool is_empty; /* `bytes` are there since Metal wants some: the kernel may touch none */
    /* of `bytes`, of threadgroup memory; of a buffer: what the kernel may touch, 0 for all from the
     * offset on (only the software Metal's checker asks) */
    size_t nbytes;
    size_t nbytes_before; /* of a buffer: how many of `nbytes` lie before the offset */
} bridge_argument;

/* How many threads, and in which threadgroups; each extent > 0. */
typedef struct bridge_grid {
    size_t size[3]; /* threads, or threadgroups */
    size_t
        group[3];   /* threads of a threadgroup; of threads only: group[0] 0, as many as suit */
    bool is_groups; /* `size` counts threadgroups */
} bridge_grid;

/* Every thread of a grid.  The encoder gets the kernel's name, and so do our commands, for Xcode,
 * Instruments and errors.  BRIDGE_NO_COMMAND: nothing was encoded. */
bridge_status bridge_encode_kernel(bridge_commands *commands, bool is_ours,
                                   bridge_kernel *kernel, const bridge_argument *arguments,
                                   int count, const bridge_grid *grid);

/* ---- captures ---- */

/* From now on Metal writes what the device's command buffers do, those that are made and committed until the end,
 * into a GPU trace.  BRIDGE_NO_TRACE: `*message` says why (malloc'ed, the caller frees it; NULL: nobody knows). */
bridge_status bridge_capture_begin(bridge_device *device, const char *path, char **message);
void bridge_capture_end(void);

/* ---- residency ---- */

/* A set of buffers whose residency is requested; they must live until its end, since nothing says that the set keeps
 * them.  Since macOS 26 wiring lapses when the GPU has been idle for a second, so ask again more often.
 * SPEC llama.cpp pull request 17766 */
bridge_status bridge_residency_new(bridge_device *device, bridge_buffer *const *buffers,
                                   size_t count, bridge_residency **out);
void bridge_residency_request(bridge_residency *set);
/* Takes over `set`. */
void bridge_residency_end(bridge_residency *set);

/* ---- completion ---- */

/* Called once, on a Metal thread, when the work is complete: BRIDGE_OK, or
 * BRIDGE_COMMAND_FAILED with Metal's words.  It must not wait for other work.  `commands` is
 * borrowed until it returns. */
typedef void bridge_completed(void *context, bridge_commands *commands, bridge_status status,
                              const bridge_error *error);
/* The times of complete commands, in seconds of Metal's clock: when the CPU began to schedule them, and when
 * the GPU began and ended. */
typedef struct bridge_times {
    double scheduled, started, ended;
} bridge_times;

void bridge_commands_times(bridge_commands *commands, bridge_times *out);
/* Takes over `commands`.  `event`, which may be NULL, gets `value` behind all that was encoded. */
void bridge_commands_commit(bridge_commands *commands, bridge_event *event, uint64_t value,
                            bridge_completed *completed, void *context);

/* Call `work(context)` inside an autorelease pool, for calls into a framework that autoreleases
 * and makes no pool of its own: what it leaves is released before this returns, and not when
 * the thread ends. */
void bridge_in_pool(void (*work)(void *context), void *context);

extern bool bridge_forked; /* atomic; written once, in a child that has no second thread yet */

/* Is this process a forked child?  Nothing committed before the fork completes in it.  One load. */
static inline bool
bridge_is_forked(void)
{
    return __atomic_load_n(&bridge_forked, __ATOMIC_RELAXED);
}

#endif /* MD_METAL_BRIDGE_H */
