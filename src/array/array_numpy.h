/* array_numpy.h: the items of an Array as a NumPy array, and what NumPy does for us.
 *
 * Rule:    NumPy is imported by the first call that needs it, never by importing the package.
 * Threads: the GIL is held.
 */
#ifndef MD_ARRAY_NUMPY_H
#define MD_ARRAY_NUMPY_H

#include "array/array.h"

/* numpy, imported: owned (+1).  ImportError that says who asks for it. */
PyObject *array_numpy_module(const char *function);

/* For what NumPy is to read: of nested lists and tuples the same in tuples that nobody else has, and
 * `op` itself if it is neither; owned (+1).  NumPy borrows the items of a list while it converts
 * them, and their conversion can change the list. */
PyObject *array_numpy_freeze(PyObject *op);

/* numpy.asarray(op): owned (+1).  ImportError as above. */
PyObject *array_numpy_asarray(const char *function, PyObject *op);

/* Is it an ndarray, and no subclass?  Does not import NumPy. */
bool array_numpy_is_array(PyObject *op);

/* Does what `op` says of its memory come from the memory's owner?  Of a NumPy array and of a
 * memoryview the innermost object counts: an array that owns its items, or any exporter of the
 * buffer protocol, which carries read-only.  False for arrays over torch's memory, and for all
 * other producers: they may have dropped DLPack's flag.  True at once when no read-only memory
 * was given away.  Raises nothing. */
bool array_numpy_is_honest(PyObject *op);

/* NumPy's dtype.isbuiltin: one of its own types in the machine's byte order, or one that
 * another library registered.  Any other number: neither.  Raises nothing, and clears what
 * is raised. */
enum { NUMPY_OWN = 1, NUMPY_REGISTERED = 2 };
long array_numpy_builtin(PyObject *dtype);

/* dtype.numpy of the Array's dtype: owned (+1).  TypeError: NumPy and ml_dtypes have no such
 * type. */
PyObject *array_numpy_dtype(ArrayObject *self);

/* The items, of an Array or of a NumPy array, as unsigned integers of their size, which every
 * library can name: op.view("uint8"), owned (+1). */
PyObject *array_numpy_as_integers(PyObject *op, DLDataType dtype);

/* Can NumPy look at the memory itself?  Not into private storage, nor at packed items. */
bool array_numpy_can_view(const ArrayObject *self);

/* A NumPy array over the same memory, which it can look at: owned (+1).  TypeError for element types
 * that NumPy and ml_dtypes have not. */
PyObject *array_numpy_view(const char *function, ArrayObject *self);

/* A NumPy array of a copy, in C order: owned (+1).  Sub-byte items have a byte each there. */
PyObject *array_numpy_copy(const char *function, ArrayObject *self);

/* Write anything that NumPy can make an array of, converting and broadcasting as NumPy does. */
int array_numpy_assign(const char *function, ArrayObject *dst, PyObject *value);

/* The items as numbers of another type, in new memory: owned (+1). */
PyObject *array_numpy_convert(const char *function, ArrayObject *self, DLDataType dtype,
                              bridge_storage mode);

/* Improve the exception that a producer's __dlpack__ has set: if NumPy refused an element
 * type, say which one, and what to do.  Any other exception stays. */
void array_numpy_explain_refusal(const char *function, PyObject *producer);

#endif /* MD_ARRAY_NUMPY_H */
