/* softmetal_kernel.h: what a compiled kernel and the run time of the software Metal know of each
 * other: C for the run time, C++ for the kernel.
 *
 * Owns:    nothing; an image exports one soft_image, the run time fills its `runtime`.
 * Calls:   nothing, and includes nothing: the kernel's compiler has no headers but ours.
 * Threads: a soft_thread belongs to the OS thread that runs its threadgroup.
 */
#ifndef SOFTMETAL_KERNEL_H
#define SOFTMETAL_KERNEL_H

#define SOFT_KERNEL_ABI 5
#define SOFT_MOST_BUFFERS 31
#define SOFT_MOST_TEXTURES 128
#define SOFT_MOST_SAMPLERS 16
#define SOFT_MOST_LEVELS 15    /* of a texture: 16,384 pixels and its halves */
#define SOFT_MOST_THREADS 1024 /* of a threadgroup */
#define SOFT_MOST_PARAMETERS 128
#define SOFT_MOST_THREADGROUP_NBYTES 32768
#define SOFT_SIMD_WIDTH 32
#define SOFT_SIMD_SLOT 64 /* bytes that a lane can give to the others at once */
#define SOFT_ALL_LANES (1u << 31)
/* What the lanes give each other at once, `nbytes` each, lies side by side; values of another size,
 * which lanes elsewhere give, lie in other bytes. */
#define SOFT_SIMD_STRIDE(nbytes)                                                               \
    ((nbytes) <= 1    ? 1u                                                                     \
     : (nbytes) <= 2  ? 2u                                                                     \
     : (nbytes) <= 4  ? 4u                                                                     \
     : (nbytes) <= 8  ? 8u                                                                     \
     : (nbytes) <= 16 ? 16u                                                                    \
     : (nbytes) <= 32 ? 32u                                                                    \
                      : 64u)
#define SOFT_SIMD_PLANE(nbytes) (SOFT_SIMD_WIDTH * (SOFT_SIMD_STRIDE(nbytes) - 1))
#define SOFT_SIMD_NBYTES (SOFT_SIMD_WIDTH * (2 * SOFT_SIMD_SLOT - 1))

typedef __UINT8_TYPE__ soft_u8;
typedef __UINT16_TYPE__ soft_u16;
typedef __UINT32_TYPE__ soft_u32;
typedef __UINT64_TYPE__ soft_u64;

/* A buffer that the kernel may reach by an address that it reads, or a texture's bytes.  The checker's, as what is
 * marked so below. */
typedef struct soft_reached {
    void *address;
    soft_u64 nbytes;
    struct soft_fresh *fresh;
    const struct soft_texture *texture; /* it may be gone; NULL: a buffer */
    soft_u32 number;                    /* in reports; of an argument its index */
    soft_u8 is_written, is_foreign, is_argument, pixel_nbytes;
} soft_reached;

/* A texture: what a kernel has of it is the address of this, which is its gpuResourceID.  It never changes.
 * A pixel lies x * the format's bytes + y * row_nbytes + i * image_nbytes behind its level, where i is z or the slice:
 * a texture has a depth or slices, never both. */
typedef struct soft_texture {
    soft_u8 *pixels;
    soft_u64 nbytes; /* from there on */
    soft_u32 type;   /* MTLTextureType */
    soft_u32 format; /* MTLPixelFormat */
    soft_u32 width, height, depth;
    soft_u32 slices; /* of an array; six for each cube */
    soft_u32 levels;
    struct {
        soft_u64 offset, row_nbytes, image_nbytes;
    } level[SOFT_MOST_LEVELS];
} soft_texture;

/* A sampler is a number; for MTLSamplerState it is the gpuResourceID.  Its bits, from the lowest on: */
#define SOFT_SAMPLER(min, mag, mip, s, t, r, is_pixel, compare, border, anisotropy, lod_min,   \
                     lod_max)                                                                  \
    ((soft_u64)(min) |            /* 1: MTLSamplerMinMagFilter */                              \
     (soft_u64)(mag) << 1 |       /* 1: the same */                                            \
     (soft_u64)(mip) << 2 |       /* 2: MTLSamplerMipFilter */                                 \
     (soft_u64)(s) << 4 |         /* 3: MTLSamplerAddressMode */                               \
     (soft_u64)(t) << 7 |         /* 3 */                                                      \
     (soft_u64)(r) << 10 |        /* 3 */                                                      \
     (soft_u64)(is_pixel) << 13 | /* 1: coordinates are pixels, not parts of the whole */      \
     (soft_u64)(compare) << 14 |  /* 3: MTLCompareFunction */                                  \
     (soft_u64)(border) << 17 |   /* 2: MTLSamplerBorderColor */                               \
     (soft_u64)((anisotropy) - 1) << 19 | /* 4: 1 to 16 */                                     \
     (soft_u64)(lod_min) << 23 |          /* 16: in parts of 4096, 0 to 65535 */               \
     (soft_u64)(lod_max) << 39)           /* 16: the same; 65535: no limit */

/* Bits 55 and 56 of a sampler of the language: its reduction, which MTLSamplerState has not. */
#define SOFT_REDUCTION_SHIFT 55
enum { SOFT_REDUCTION_AVERAGE, SOFT_REDUCTION_LEAST, SOFT_REDUCTION_GREATEST };
/* From bit 57 on, with a sign: what is added to each level, in parts of 4. */
#define SOFT_BIAS_SHIFT 57

/* Four channels: floats, or the bits of integers. */
typedef soft_u32 soft_pixel __attribute__((vector_size(16)));
typedef float soft_floats __attribute__((vector_size(16)));

/* What a sampler is asked for, with a gather's component and how many pixels (-8 to 7) it is moved by. */
enum { SOFT_SAMPLE, SOFT_GATHER = 1, SOFT_COMPARE = 2 }; /* both: gather_compare */
#define SOFT_SAMPLING(what, component, x, y, z)                                                \
    ((soft_u32)(what) | (soft_u32)(component) << 2 | ((soft_u32)((x) + 8) & 15) << 4 |         \
     ((soft_u32)((y) + 8) & 15) << 8 | ((soft_u32)((z) + 8) & 15) << 12)
#define SOFT_MOST_TEXELS 16 /* that one sample is made of: eight on each of two levels */

/* One launch; read only while it runs. */
typedef struct soft_launch {
    soft_u32 grid[3];                 /* threads_per_grid */
    soft_u32 groups[3];               /* threadgroups_per_grid */
    soft_u32 group[3];                /* dispatch_threads_per_threadgroup */
    void *buffers[SOFT_MOST_BUFFERS]; /* address of the first byte bound; NULL: nothing */
    soft_u32 threadgroup_nbytes[SOFT_MOST_BUFFERS]; /* setThreadgroupMemoryLength:atIndex: */
    /* Bytes of the view; how many of them lie before the address.  The checker's. */
    soft_u64 buffer_nbytes[SOFT_MOST_BUFFERS], buffer_before[SOFT_MOST_BUFFERS];
    const char *kernel; /* its name, for the checker's reports; NULL: not known */
    /* Set if a launch counts: whom it is for (counts.h), and which buffers are memory of another
     * library's: bit i of `foreign`. */
    soft_u64 count_tag;
    soft_u32 foreign;
    /* Per buffer: the bytes that nobody has written (fresh.h); NULL: all are written.  The checker's. */
    struct soft_fresh *const *fresh;
    const struct soft_given *given; /* The checker's: of some arguments, what they were given */
    const soft_reached *reached;    /* The checker's */
    soft_u32 reached_count;
    /* Any buffer that has the byte at `address`, and from where on; 0: none has.  The checker's. */
    soft_u64 (*find_buffer)(soft_u64 address, soft_u64 *base);
    /* setTexture:atIndex:, setSamplerState:atIndex:; NULL: the launch has none. */
    const soft_texture *const *textures; /* SOFT_MOST_TEXTURES, each NULL where nothing is */
    const soft_u64 *samplers;            /* SOFT_MOST_SAMPLERS */
} soft_launch;

/* One thread of a kernel: what its attributes ask for. */
typedef struct soft_thread {
    const soft_launch *launch;
    soft_u32 position_in_grid[3];
    soft_u32 position_in_group[3];
    soft_u32 group_position[3];
    soft_u32 group_size[3]; /* threads_per_threadgroup: smaller at the edges of a grid */
    soft_u32 index;         /* thread_index_in_threadgroup */
    soft_u32 lane, simdgroup, simdgroups;
} soft_thread;

/* How a checked kernel touches memory. */
enum {
    SOFT_ACCESS_WRITE = 1,
    SOFT_ACCESS_ATOMIC = 2,
    SOFT_ACCESS_READ = 4,    /* beside WRITE: the old value counts */
    SOFT_ACCESS_FENCE = 8,   /* no bytes: atomic_thread_fence */
    SOFT_ACCESS_BRANCH = 16, /* of a counting image: no bytes; the address is the condition */
};

/* Why a checked kernel must not go on, and the two numbers that are told with it. */
enum {
    SOFT_STOP_ARRAY,      /* an index, and how many items there are; both 0: not known */
    SOFT_STOP_VECTOR,     /* the same */
    SOFT_STOP_DIVISION,   /* of an integer by zero; none */
    SOFT_STOP_SHIFT,      /* by how much, and how many bits the number has */
    SOFT_STOP_LANE,       /* the lane, and how many its group has */
    SOFT_STOP_MISALIGNED, /* the address, and what it is to be a multiple of */
};

/* What an instruction of a checked kernel may touch before it asks: one for each place in the code
 * that touches memory.  `code` is the linker's, the rest the run time's. */
typedef struct soft_site {
    const void *code; /* an address within the instruction */
    /* Reads that begin at `low` or up to `span` bytes after it need no question. */
    soft_u64 low, span;
    /* Neither does thread t at `key` + `step` * t, which says so in `seen`[t]. */
    soft_u64 key, step;
    soft_u8 *seen;
    const void *range; /* what was touched last ... */
    soft_u32 era;      /* ... and when that was so */
    soft_u32 wrote;    /* when it last wrote */
    soft_u64 idle;     /* so many accesses are not counted */
} soft_site;
#define SOFT_NO_KEY (1ull << 63) /* no address is near it */

/* In a counting image: what the lanes of a SIMD-group did together, each coming to
 * one access for the n-th time.  The k-th of them touched `first` + `step` * k, or each[k]. */
typedef struct soft_together {
    soft_u64 next; /* where the next lane's would be; SOFT_NO_KEY: nowhere */
    soft_u64 step, first;
    soft_u64 *each; /* NULL: they are such a series */
    soft_u32 lanes; /* bit i: lane i; 0: none yet */
} soft_together;

/* An access of a counting kernel.  The first fields are the translator's (counted_code.py), the rest
 * the run time's. */
typedef struct soft_counted {
    const char *file;
    soft_u32 line, column, nbytes, how;
    /* No thread comes here twice: count_once.c says what these are, and the four after them are not used.
     * `once` NULL: it is in a loop. */
    soft_u64 *once;
    soft_u64 ahead, step, due, begin, apart;
    soft_u32 many, left;
    soft_u32 thread; /* whose accesses `at` counts */
    soft_u32
        room; /* how many there are from `first` on; behind them is one that none matches */
    soft_together *at, *first;
    soft_u64 low, span; /* an access that begins there is within `range` */
    const void *range;
    void *rows;                /* what was counted */
    struct soft_counted *next; /* of those that were carried out since all lanes met */
    soft_u64 is_used;          /* it is among them */
} soft_counted;

/* What a checked image and the checker know of the launch that runs; there is one at a time. */
typedef struct soft_watch {
    soft_u32 thread; /* index in the threadgroup of the thread that runs */
    soft_u32 is_taken;
    soft_site *sites, *sites_end;
    /* In a counting image, else NULL: its accesses; how often each block of code that computes was
     * carried out, and what it computes: lines "block line what type count". */
    soft_counted *counted, *counted_end;
    soft_u64 *executions, *executions_end;
    const char *operations;
} soft_watch;

/* What the run time does for a kernel.  Each call is made on the stack of the thread that asks. */
typedef struct soft_runtime {
    const soft_thread *(*self)(void);
    /* Return once every thread of the threadgroup that still runs has come. */
    void (*threadgroup_barrier)(soft_u32 mem_flags, const void *site);
    /* Return once every lane of the SIMD-group that can come has come to the same site, with what
     * each gave: lane i's bytes at `*values` + i * SOFT_SIMD_STRIDE(nbytes), good until this lane's
     * next call; the result has bit i set for each lane that came.  With SOFT_ALL_LANES in nbytes
     * all lanes of the SIMD-group must come; that alone is a simdgroup_barrier.  Without `bytes`
     * the lane has put them where `simd_values` says.  `order`: the site's number in the order of
     * the source, in which lanes at several sites go on; 0: that of the addresses. */
    soft_u32 (*simd_exchange)(const void *bytes, soft_u32 nbytes, const soft_u8 **values,
                              const void *site, soft_u32 order);
    /* Threadgroup memory: a variable of the kernel, by its number; an argument, by its index. */
    void *(*threadgroup_variable)(soft_u32 number, soft_u64 nbytes, soft_u64 alignment);
    void *(*threadgroup_argument)(soft_u32 index);
    /* The rest is called by checked images alone, before the bytes are touched.  A `const void`
     * site is an address within the instruction that asks. */
    void (*access)(const void *address, soft_u64 nbytes, soft_u32 how, soft_site *site);
    /* Never returns. */
    void (*stop)(soft_u32 why, soft_u64 first, soft_u64 second, const void *site);
    /* For counting images, instead of `access`. */
    void (*count)(const void *address, soft_counted *counted, const void *site);
    /* For plain images: where the lanes put values of this size before they come; or, `is_given`,
     * where those lie that came. */
    soft_u8 *(*simd_values)(soft_u32 nbytes, soft_u32 is_given);
    /* Textures, which may be NULL.  `z` is the slice of a texture that has slices.  What lies outside is read as
     * zeros and not written. */
    soft_pixel (*texture_read)(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                               soft_u32 level);
    void (*texture_write)(const soft_texture *texture, soft_pixel pixel, soft_u32 x, soft_u32 y,
                          soft_u32 z, soft_u32 level);
    /* Where a pixel of so many bytes lies, for atomics; NULL: nowhere. */
    void *(*texture_place)(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                           soft_u32 nbytes);
    /* `at` ends with what is compared, `level` is the level and the least one; `how`: SOFT_SAMPLING. */
    soft_pixel (*texture_sample)(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                                 soft_floats level, soft_u32 slice, soft_u32 how);
    /* The level that suits how fast `at` changes from pixel to pixel. */
    float (*texture_level)(const soft_texture *texture, soft_floats at, soft_floats along_x,
                           soft_floats along_y);
    /* Checked images ask these before: where the pixels lie that are read, or the one that is written (`how` as
     * of `access`), and how many bytes one has.  None lies outside; that is told.  With SOFT_ACCESS_FENCE no pixel
     * is touched: whoever has a handle that is no texture's does not go on, here and with any pixel. */
    soft_u32 (*texture_look)(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                             soft_u32 level, soft_u32 how, const void *site, void **place);
    soft_u32 (*texture_look_around)(const soft_texture *texture, soft_u64 sampler,
                                    soft_floats at, soft_floats level, soft_u32 slice,
                                    soft_u32 how, const void *site,
                                    void *places[SOFT_MOST_TEXELS], soft_u32 *count);
    /* fence(): the thread sees what it wrote to the texture. */
    void (*texture_fence)(const soft_texture *texture);
} soft_runtime;

typedef enum {
    SOFT_ARGUMENT_BUFFER,
    SOFT_ARGUMENT_THREADGROUP,
    SOFT_ARGUMENT_TEXTURE,
    SOFT_ARGUMENT_SAMPLER,
} soft_argument_kind;

/* One parameter that something is bound to, in the order of the signature. */
typedef struct soft_argument_facts {
    const char *name;
    soft_u8 kind;
    soft_u8 is_written; /* not const; of a texture: its access is write or read_write */
    soft_u16 index;
    soft_u32
        data_type; /* MTLDataType of what is pointed at; of a texture, of what it gives; 0: none is known */
    soft_u32 nbytes; /* sizeof what is pointed at */
    soft_u32 alignment;
    /* A texture's: MTLTextureType; is it one of depths; is it read (access::read, read_write and sample); of an
     * array of textures or samplers how many there are, else 1. */
    soft_u8 texture_type, is_depth, is_read;
    soft_u32 count;
} soft_argument_facts;

/* ---- regions: what threads do between two waits (regions.py) ---- */

/* What threads that go on together are given: those of a SIMD-group or, where no lane waits for
 * another, of a threadgroup.  region_loops.py knows where each field lies. */
typedef struct soft_step {
    void *const *row;                /* the arguments */
    const soft_thread *origin;       /* the threadgroup's first thread */
    soft_u8 *slots;                  /* what each thread keeps, and its variables */
    soft_u8 *shared_in, *shared_out; /* what they keep together: as it was, and as it becomes */
    soft_u8 *memory;                 /* of the threadgroup ... */
    const soft_u64 *variables;       /* ... and where in it each variable lies */
    const soft_u8 *given;            /* by the lanes that met */
    soft_u8 *give;                   /* at the next wait */
    soft_u16 *next; /* of each thread: the wait that it came to, if they come to several */
    soft_u32 met;   /* bit i: lane i came to the wait that they go on from */
    soft_u32 width, height; /* of the threadgroup */
} soft_step;

/* Run threads `first` to `first` + `count` - 1 from a wait on.  Returns the wait that they came to,
 * SOFT_REGION_END, or SOFT_REGION_SEVERAL. */
typedef soft_u32 soft_region(const soft_step *step, soft_u32 first, soft_u32 count);
#define SOFT_REGION_END 0xFFFFu
#define SOFT_REGION_SEVERAL 0xFFFEu

enum { SOFT_WAIT_GROUP = 1, SOFT_WAIT_LANES, SOFT_WAIT_ALL_LANES };
typedef struct soft_wait {
    soft_u32 kind;
    soft_u32 nbytes; /* that a lane gives */
} soft_wait;

typedef struct soft_variable {
    soft_u64 number, nbytes, alignment;
} soft_variable;

/* What a kernel was split into; the first region begins at the entry, the others behind their waits. */
typedef struct soft_regions {
    soft_u32 count;
    soft_u16 has_lanes; /* lanes wait for each other */
    soft_u16 is_free;   /* no wait is the kernel's own: a thread may as well run to its end */
    soft_u64 slots_nbytes, shared_nbytes;
    soft_region *const *runs;
    const soft_wait *waits;
    const soft_variable *variables; /* in threadgroup memory */
    soft_u64 variable_count;
} soft_regions;

/* What an image exports, under the name softmetal_image. */
typedef struct soft_image {
    soft_u32 abi; /* SOFT_KERNEL_ABI */
    soft_u32 argument_count;
    const soft_argument_facts *arguments;
    soft_u64 threadgroup_nbytes; /* of its variables; 0 where they are not known beforehand */
    soft_u8 has_syncs;           /* barriers or SIMD-group functions: threads take turns */
    soft_u8 is_checked;
    soft_u8 is_counting;  /* and then is_checked too: it stops where it would do harm */
    soft_u8 is_groupless; /* no thread knows, or shares, anything of its threadgroup */
    void (*run_thread)(const soft_thread *thread);
    /* `count` threads along x from this one on, one after the other, and as many of each of the rows
     * behind it; not for has_syncs */
    void (*run_rows)(const soft_thread *first, soft_u32 count, soft_u32 rows);
    const soft_runtime *runtime; /* the run time sets it */
    soft_watch *watch;           /* NULL: it is not checked */
    /* NULL: it was not split.  Else run_thread and run_rows are NULL, unless it is free of waits, and `prepare`
     * fills a row of arguments. */
    const soft_regions *regions;
    void (*prepare)(const soft_launch *launch, void **row);
    const char *const
        *variable_names; /* by their numbers; NULL: there are none, or they are not known */
} soft_image;

#endif /* SOFTMETAL_KERNEL_H */
