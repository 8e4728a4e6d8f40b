/* finding.h: what the checker found, as values, and the sentence that they make.
 *
 * Owns:    nothing.
 * Calls:   softmetal_kernel.h for the names of arguments.
 * Threads: any; a finding belongs to the launch that made it.
 */
#ifndef SOFT_FINDING_H
#define SOFT_FINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/shim/softmetal_kernel.h"

/* X(name, word): the kinds.  The word is a report's name for it, and stays as it is. */
#define SOFT_FOUND_LIST(X) \
    X(SOFT_FOUND_NO_MEMORY, "checker-memory") \
    X(SOFT_FOUND_OUTSIDE, "out-of-bounds") \
    X(SOFT_FOUND_CONST, "write-to-const") \
    X(SOFT_FOUND_NULL, "null-pointer") \
    X(SOFT_FOUND_STRAY, "stray-pointer") \
    X(SOFT_FOUND_FAULT, "unmapped-address") \
    X(SOFT_FOUND_NOT_RESIDENT, "not-resident") \
    X(SOFT_FOUND_MISALIGNED, "misaligned") \
    X(SOFT_FOUND_RACE, "race") \
    X(SOFT_FOUND_GROUP_RACE, "race-of-threadgroups") \
    X(SOFT_FOUND_UNWRITTEN, "unwritten-threadgroup-memory") \
    X(SOFT_FOUND_UNWRITTEN_READ, "unwritten-memory") \
    X(SOFT_FOUND_UNWRITTEN_OUTPUT, "unwritten-output") \
    X(SOFT_FOUND_BARRIER, "barrier-divergence") \
    X(SOFT_FOUND_LANES, "simdgroup-divergence") \
    X(SOFT_FOUND_ARRAY, "array-index") \
    X(SOFT_FOUND_VECTOR, "vector-index") \
    X(SOFT_FOUND_DIVISION, "division-by-zero") \
    X(SOFT_FOUND_SHIFT, "shift-amount") \
    X(SOFT_FOUND_LANE, "lane-index") \
    X(SOFT_FOUND_TYPE, "argument-type") \
    X(SOFT_FOUND_STRIDES, "argument-strides") \
    X(SOFT_FOUND_PIXEL, "pixel-coordinate") \
    X(SOFT_FOUND_NO_TEXTURE, "no-texture") \
    X(SOFT_FOUND_FENCE, "texture-fence") \
    X(SOFT_FOUND_STACK, "stack-overflow") \
    X(SOFT_FOUND_OVERDUE, "timeout")

#define SOFT_AS_ENUM(name, word) name,
typedef enum { SOFT_FOUND_LIST(SOFT_AS_ENUM) SOFT_FOUND_COUNT } soft_found;
#undef SOFT_AS_ENUM

const char *soft_found_word(soft_found kind);

/* A thread of the kernel at an instruction. */
typedef struct soft_at {
    uint32_t offset; /* of the instruction in the image; 0: not known */
    uint32_t thread[3];
    uint32_t group[3];
} soft_at;

/* A buffer's view, or a piece of threadgroup memory.  A device memory from this number on is a resource,
 * which no argument is: less this, the caller's number of it. */
#define SOFT_FIRST_RESOURCE SOFT_MOST_BUFFERS
/* From here on it is a texture: less this, its index. */
#define SOFT_FIRST_TEXTURE (1u << 16)
typedef struct soft_found_memory {
    bool is_known;    /* else the rest is 0 */
    bool is_device;   /* else of the threadgroup */
    bool is_variable; /* of the kernel, not an argument */
    uint32_t number;  /* index of the argument, or the translator's of the variable */
    size_t nbytes;
} soft_found_memory;

typedef struct soft_finding {
    soft_found kind;
    int count;        /* of `at` */
    soft_at at[2];    /* of two accesses the earlier one first */
    bool is_write[2]; /* does the access of at[i] write? */
    soft_found_memory memory;
    int64_t offset;         /* of the access, in bytes from the beginning of that memory */
    size_t nbytes;          /* of the access; of a race those that are named: 1 */
    bool is_mixed;          /* a race: one of the two is atomic, the other not */
    soft_found_memory twin; /* of a race: another buffer that has its byte */
    bool stays_unwritten;   /* UNWRITTEN: no thread of the threadgroup wrote it later, either */
    bool is_advice;         /* it fails nothing, and only a report has it */
    bool has_returned; /* whom the others wait for: `returned`, in the threadgroup of at[0] */
    uint32_t returned[3]; /* a thread */
    /* NULL, STRAY, FAULT: the address.  NOT_RESIDENT: where the access is in its buffer, whose address is at
     * `offset` of `memory`, and that buffer's bytes.  MISALIGNED: how far past a multiple, of what.  ARRAY,
     * VECTOR: the index, and how many items there are.  SHIFT: by how much, and the bits of the
     * number.  PIXEL: x and y in 32 bits each, z and the level.  LANE: the lane, and how many its group has.  UNWRITTEN_OUTPUT: how many items, and the
     * last one.  OVERDUE: seconds.  NO_MEMORY: 1, if a loop is too long to be
     * counted; SOFT_ROOM_IS_MEANT, if silenced findings took all the room. */
    uint64_t first, second;
    uint64_t times;    /* in this launch */
    uint32_t sides[3]; /* PIXEL: of the level; all 0: there is no such level */
    const char *given; /* TYPE, STRIDES: how the sentence ends; borrowed from the launch */
} soft_finding;

#define SOFT_ROOM_IS_MEANT 2
#define SOFT_TEXT_NBYTES 704

/* What is wrong: no line, no thread.  `image` has the names of the arguments. */
void soft_finding_describe(const soft_finding *finding, const soft_image *image,
                           char text[SOFT_TEXT_NBYTES]);

/* The facts of the argument that memory is of; NULL: of a variable, or there are none. */
/* The name that the source has for an argument or a variable; NULL: it is not known. */
const char *soft_found_name(const soft_image *image, const soft_found_memory *memory);
const soft_argument_facts *soft_found_facts(const soft_image *image,
                                            const soft_found_memory *memory);
/* Find an argument's facts by its kind and index; NULL: the kernel has none. */
const soft_argument_facts *soft_facts_find(const soft_image *image, soft_argument_kind kind,
                                           uint32_t index);

static inline uint32_t
soft_reached_number(const soft_reached *reached)
{
    return (reached->is_argument ? SOFT_FIRST_TEXTURE : SOFT_FIRST_RESOURCE) + reached->number;
}

static inline bool
soft_found_is_texture(const soft_found_memory *memory)
{
    return memory->is_device && memory->number >= SOFT_FIRST_TEXTURE;
}

static inline bool
soft_found_is_resource(const soft_found_memory *memory)
{
    return memory->is_device && memory->number >= SOFT_FIRST_RESOURCE;
}

#endif /* SOFT_FINDING_H */
