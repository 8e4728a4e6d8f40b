/* library_object.h: the Library type, as its two files see it.
 *
 * Threads: the GIL is held; released while Metal compiles, which can take seconds.
 */
#ifndef MD_LIBRARY_OBJECT_H
#define MD_LIBRARY_OBJECT_H

#include "kernels/kernel_object.h"

typedef struct {
    PyObject_HEAD
    bridge_library *library;     /* owned (+1) */
    const device_record *device; /* borrowed for ever */
    PyObject *text;              /* owned: the source, as it was compiled */
    PyObject *name;              /* owned: the source's, in errors */
    PyObject *language;          /* owned; NULL: the newest that the system has */
    PyObject *kernels;           /* owned: a tuple of names */
    PyObject *
        made; /* owned: (name, constants) -> Kernel; the text with an instantiation -> Library */
    bridge_compile_options chosen; /* how it was compiled */
} LibraryObject;

#define LIBRARY_TEMPLATE_HINT \
    "A template becomes a kernel by its arguments: Library(source).kernel('name', T='float')."

static inline LibraryObject *
library_cast(PyObject *op)
{
    return (LibraryObject *)op;
}

/* library_kernels.c: of a text as it goes to the compiler: owned (+1), or NULL with an exception.
 * `language` is as in LibraryObject. */
PyObject *library_of_text(md_state *state, const char *function, const device_record *device,
                          PyObject *text, const bridge_compile_options *chosen, PyObject *name,
                          PyObject *language);

/* library_kernels.c: the kernel of this name with `constants`, a dict or NULL.  Owned (+1), or NULL
 * with KeyError, TypeError, OverflowError, CompileError or MetalError. */
PyObject *library_find(PyObject *library, PyObject *name, PyObject *constants);

/* library_kernels.c: Library's method kernel, and how its kernels are reached as items and attributes. */
PyObject *library_kernel(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
extern const char library_kernel_doc[];
PyObject *library_subscript(PyObject *op, PyObject *name);
PyObject *library_getattro(PyObject *op, PyObject *name);
PyObject *library_dir(PyObject *op, PyObject *unused);

#endif /* MD_LIBRARY_OBJECT_H */
