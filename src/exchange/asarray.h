/* asarray.h: anything as an Array. */
#ifndef MD_ASARRAY_H
#define MD_ASARRAY_H

#include "exchange/foreign_tensor.h"
#include "python/state.h"

/* Owned (+1), or NULL with what asarray raises.  See core_asarray. */
PyObject *asarray_import(md_state *state, PyObject *x, const import_request *request);

/* ---- asarray_numbers.c ---- */

/* The kind of x's dtype, a NumPy letter: 'f', 'U' ...  '\0': it has none, or there is an
 * exception. */
char asarray_numbers_kind(PyObject *x);

/* The numbers in new memory of shared storage, in C order: 1, and `*out` is owned (+1).  Each
 * becomes an item of request->dtype by one rounding; a float becomes an integer without its
 * fraction.  Without a dtype of one lane: see nested_numbers_dtype.
 * 0: an array or another sequence is among them, which NumPy must read.  -1 with TypeError (no
 * number, complex for real), ValueError (ragged lists) or OverflowError (a number that does not
 * fit). */
int asarray_numbers(md_state *state, PyObject *x, const import_request *request,
                    PyObject **out);

/* The same where NumPy reads `x`; request->dtype has one lane. */
PyObject *asarray_numbers_by_numpy(md_state *state, PyObject *x, const import_request *request);

extern PyMethodDef asarray_functions[];

#endif /* MD_ASARRAY_H */
