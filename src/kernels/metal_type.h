/* metal_type.h: what a kernel's parameter points at, as an element type.
 *
 * Owns:    the table of Metal's scalar types.
 * Threads: pure functions over constant data.
 * Source:  MTLArgument.h MTLDataType.
 */
#ifndef MD_METAL_TYPE_H
#define MD_METAL_TYPE_H

#include "arithmetic/dtype.h"
#include "python/state.h"

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

/* The scalar of Metal's that holds such items: NULL for types that Metal lacks. */
const char *metal_type_name_for(DLDataType dtype);

/* ---- Python's numbers as scalars and vectors of Metal's ---- */

#define KERNEL_NUMBER_MAX 32 /* bytes of a long4 */

/* A number, or for a vector a tuple or list of one each, as Metal has it in memory: rounded to
 * nearest where the type is a narrower float.  The rest of `bytes` is 0.  `where` begins the
 * sentence.  -1 with TypeError (not such a number, 1.5 for an integer, a matrix), ValueError
 * (another count of lanes), or OverflowError (it does not fit). */
int kernel_numbers_pack(const char *where, const metal_type *type, PyObject *value,
                        char bytes[KERNEL_NUMBER_MAX]);

#endif /* MD_METAL_TYPE_H */
