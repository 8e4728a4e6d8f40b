/* metal_type.h: what a kernel's parameter points at, as an element type.
 *
 * Owns:    the table of Metal's scalar types.
 * Threads: pure functions over constant data.
 * Source:  MTLArgument.h MTLDataType.
 */
#ifndef MD_METAL_TYPE_H
#define MD_METAL_TYPE_H

#include "arithmetic/dtype.h"

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

#endif /* MD_METAL_TYPE_H */
