/* element.h: one item between its bytes and a Python number.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_ELEMENT_H
#define MD_ELEMENT_H

#include "arithmetic/dtype.h"
#include "python/state.h"

/* One of Python's own numbers, or of a type made from one? */
static inline bool
element_is_number(PyObject *op)
{
    return PyFloat_Check(op) || PyLong_Check(op) || PyComplex_Check(op);
}

/* What Python's numbers are, in the order in which one gives way to the next. */
typedef enum element_kind {
    ELEMENT_NONE, /* no Python number, or an int beyond int64 */
    ELEMENT_BOOL,
    ELEMENT_INT,
    ELEMENT_FLOAT,
    ELEMENT_COMPLEX,
} element_kind;

element_kind element_kind_of(PyObject *op);

/* bool, int64, float32 or complex64: NumPy's choice, narrowed to the widest that Metal computes
 * with; of no kind: float32. */
DLDataType element_kind_dtype(element_kind kind);

/* The item at bit `first_bit` after `bytes`: a bool, int, float or complex; of several lanes a
 * tuple of them.  Owned (+1). */
PyObject *element_unpack(DLDataType dtype, const char *bytes, int64_t first_bit);

/* `value`, a number, or for several lanes a sequence of one each, as the item's bytes: rounded
 * to nearest even where the type is narrower, lanes packed, what is left of a byte 0.  -1 with
 * TypeError (not a number, complex for real), ValueError (another count of lanes) or
 * OverflowError (an int that does not fit, a NaN for a type that has none). */
int element_pack(const char *function, DLDataType dtype, PyObject *value, char *bytes);

#endif /* MD_ELEMENT_H */
