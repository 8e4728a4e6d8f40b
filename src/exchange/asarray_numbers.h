/* asarray_numbers.h: nested lists of numbers as an Array of a given element type. */
#ifndef MD_ASARRAY_NUMBERS_H
#define MD_ASARRAY_NUMBERS_H

#include "exchange/import_request.h"
#include "python/state.h"

/* The kind of x's dtype, a letter of NumPy's: 'f', 'U' ...  '\0': it has none, or there is an
 * exception. */
char asarray_numbers_kind(PyObject *x);

/* The numbers in new memory of shared storage, in C order: owned (+1).  Each becomes an item of
 * request->dtype, which has one lane, by one rounding; a float becomes an integer without its
 * fraction.  NULL with TypeError (no number, complex for real), ValueError (ragged lists) or
 * OverflowError (a number that does not fit). */
PyObject *asarray_numbers(md_state *state, PyObject *x, const import_request *request);

#endif /* MD_ASARRAY_NUMBERS_H */
