/* element.h: one item between its bytes and a Python number.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_ELEMENT_H
#define MD_ELEMENT_H

#include "dtype.h"
#include "state.h"

/* Can items of this type be read and written here? Whole bytes, one lane, and a Python number that
 * stands for them. */
bool element_is_number(DLDataType dtype);

/* The item at `bytes` as bool, int, float or complex: owned (+1).  Only for element_is_number. */
PyObject *element_unpack(DLDataType dtype, const char *bytes);

/* `value` as the item's bytes, rounded to nearest even where the type is narrower.  -1 with
 * TypeError (not a number, complex for real) or OverflowError (an int that does not fit). */
int element_pack(const char *function, DLDataType dtype, PyObject *value, char *bytes);

#endif /* MD_ELEMENT_H */
