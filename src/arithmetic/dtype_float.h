/* dtype_float.h: small floats, of 4 to 16 bits, as doubles.
 *
 * Threads: pure functions over constant data.
 * Source:  the names, as ml_dtypes and dlpack.h read them: float8_e4m3fn has 4 bits of
 *          exponent and 3 of mantissa; "fn" means no infinity, "uz" no negative zero, and the
 *          OCP Microscaling Formats Specification v1.0, section 5.3, for those of 4 and 6
 *          bits, which have no NaN either.
 */
#ifndef MD_DTYPE_FLOAT_H
#define MD_DTYPE_FLOAT_H

#include <stdbool.h>
#include <stdint.h>

/* The value that `bits` stand for; bits above the type's width are not looked at. */
double dtype_decode_float(uint8_t code, uint32_t bits);

/* `value` rounded once, to nearest, ties to even (float8_e8m0fnu: upwards).  Past the largest
 * number: infinity, else NaN, else the largest number.  False: a NaN, and the type has none. */
bool dtype_encode_float(uint8_t code, double value, uint32_t *out);

#endif /* MD_DTYPE_FLOAT_H */
