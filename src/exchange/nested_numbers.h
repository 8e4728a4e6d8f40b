/* nested_numbers.h: the numbers in nested lists, and the shape that the lists have.
 *
 * Owns:    a reference to each number, until nested_numbers_clear.
 * Threads: the GIL is held.
 */
#ifndef MD_NESTED_NUMBERS_H
#define MD_NESTED_NUMBERS_H

#include "arithmetic/dtype.h"
#include "arithmetic/layout.h"
#include "python/state.h"

typedef struct nested_numbers {
    PyObject **items; /* in C order, owned */
    Py_ssize_t count, capacity;
    int ndim;
    bool is_shape_known; /* the first number, or an empty list, was reached */
    int64_t shape[LAYOUT_MAX_NDIM];
    Py_ssize_t place[LAYOUT_MAX_NDIM]; /* of what is being read, for messages */
} nested_numbers;

/* Read `x`: a number, or lists, tuples and ranges of what is read likewise.  `out` is empty
 * before, and to be cleared whatever the answer.
 * 1: it was read; an item can still be no number.  0: an array or another sequence is in it,
 * which NumPy must read.  -1 with ValueError: lists of different lengths or depths, or more
 * than 64 axes. */
int nested_numbers_read(md_state *state, PyObject *x, nested_numbers *out);

void nested_numbers_clear(nested_numbers *numbers);

/* bool, int64, float32 or complex64: NumPy's choice, narrowed to the widest that Metal computes
 * with.  -1 with TypeError: an item is not a number of Python's, or an int beyond int64, of
 * which NumPy makes uint64, inexact floats or objects; the sentence names the type of `x`. */
int nested_numbers_dtype(const nested_numbers *numbers, PyObject *x, DLDataType *out);

#endif /* MD_NESTED_NUMBERS_H */
