/* copy_kernel.h: strided copies as compute kernels, in Metal Shading Language that is C too.
 *
 * Owns:    nothing.
 * Rule:    whoever includes it defines COPY_KERNEL_TEXT(...): to make a string of the text, or to
 *          compile it as C, as copy_kernel.c does both.  So there is no include guard, inside of
 *          the text stands no line of the preprocessor, and what the two languages spell
 *          differently has a name in capitals or is a macro of who includes it.
 * Threads: one call of a kernel moves one unit; units do not depend on each other.
 * Units:   offsets and steps count units of the kernel's size, 1 to 16 bytes.
 * Source:  Metal Shading Language Specification, 2.1 (scalar types), 4 (address spaces), 5.2
 *          (attributes).
 */
/* clang-format off */
/* The same for each size of a unit: expanded before a string is made of it. */
#define COPY_KERNEL(size, type) \
kernel void \
metal_dlpack_copy_##size(device type *dst BUFFER(0), device const type *src BUFFER(1), \
                  constant copy_kernel_shape *shape BUFFER(2), uint3 position POSITION_IN_GRID) \
{ \
    copy_kernel_places at = copy_kernel_find(shape, position); \
    dst[at.dst] = src[at.src]; \
}

COPY_KERNEL_TEXT(

typedef struct copy_kernel_shape {
    int64_t dst_first;      /* the unit where element 0 goes to */
    int64_t src_first;
    int64_t dst_steps[66];  /* axis 0 is the one that is densest in the destination */
    int64_t src_steps[66];
    uint32_t extents[66];
    uint32_t naxes;         /* at least 2 */
} copy_kernel_shape;

typedef struct copy_kernel_places {
    int64_t dst;
    int64_t src;
} copy_kernel_places;

/* The grid has the extents of axis 0, axis 1, and all others multiplied. */
static copy_kernel_places
copy_kernel_find(constant copy_kernel_shape *shape, uint3 position)
{
    copy_kernel_places at;
    uint32_t rest = position.z;
    at.dst = shape->dst_first + (int64_t)position.x * shape->dst_steps[0] +
             (int64_t)position.y * shape->dst_steps[1];
    at.src = shape->src_first + (int64_t)position.x * shape->src_steps[0] +
             (int64_t)position.y * shape->src_steps[1];
    for (uint32_t axis = 2; axis < shape->naxes; axis++) {
        int64_t index = (int64_t)(rest % shape->extents[axis]);
        rest = rest / shape->extents[axis];
        at.dst += index * shape->dst_steps[axis];
        at.src += index * shape->src_steps[axis];
    }
    return at;
}

COPY_KERNEL(1, uint8_t)
COPY_KERNEL(2, uint16_t)
COPY_KERNEL(4, uint32_t)
COPY_KERNEL(8, uint64_t)
COPY_KERNEL(16, uint4)

)
/* clang-format on */
