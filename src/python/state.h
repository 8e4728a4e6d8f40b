/* state.h: what one module object owns.  One struct, no C globals.
 *
 * Owns:    the types, exceptions and names of one interpreter's metal_dlpack._core.
 * Threads: written once by module.c's exec slot, then only read.
 */
#ifndef MD_STATE_H
#define MD_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "python/place.h"

/* Every type the module makes: field, spec, public (1: added to the module under its name).
 * module.c walks this list to make, visit and clear them, and the leak test walks it through
 * _core._types(). */
#define MD_TYPE_LIST(X) \
    X(dtype_type, dtype_spec, 1) \
    X(layout_type, layout_spec, 1) \
    X(device_type, device_spec, 1) \
    X(buffer_type, buffer_spec, 1) \
    X(array_type, array_spec, 1) \
    X(host_view_type, host_view_spec, 1) \
    X(stream_type, stream_spec, 1) \
    X(event_type, event_spec, 1) \
    X(library_type, library_spec, 1) \
    X(kernel_type, kernel_spec, 1) \
    X(texture_type, texture_spec, 1) \
    X(sampler_type, sampler_spec, 1) \
    X(argument_type, argument_spec, 1)

/* Every object of another kind that the state owns.  exec fills each before any is used. */
#define MD_OBJECT_LIST(X) \
    X(copy_required_error) /* CopyRequiredError(BufferError, ValueError) */ \
    X(metal_error)         /* MetalError(RuntimeError) */ \
    X(dtype_cache)         /* dict: public name -> dtype, one object a name */ \
    X(named_dtypes)        /* tuple: those of dtype_table, row by row */ \
    X(default_streams)     /* dict: device index -> Stream; made on first use */ \
    X(entered_streams) /* ContextVar: tuple of entered_mark and the streams, innermost last */ \
    X(entered_mark)    /* more references than ours: a context is in a block */ \
    X(devices)         /* tuple of Device, the default first; made on first use */ \
    X(max_version)     /* (1, 3), what from_dlpack asks producers for */ \
    X(keywords_version)     /* ("max_version",) */ \
    X(keywords_copy)        /* ("max_version", "copy") */ \
    X(keywords_stream)      /* ("max_version", "stream") */ \
    X(keywords_stream_copy) /* ("max_version", "stream", "copy") */ \
    X(unheard)              /* what a buffer request raised last, see array_request.c */ \
    X(minus_one)            /* -1, a stream's number */

/* Interned names for look-ups and calls: state->str_NAME. */
#define MD_NAME_LIST(X) \
    X(__dlpack__) \
    X(__dlpack_device__) \
    X(__dlpack_c_exchange_api__) \
    X(__metal_stream__) \
    X(__array_interface__) \
    X(__array__) \
    X(__c_void_p__) \
    X(__name__) \
    X(dtype) \
    X(shape) \
    X(Tensor) \
    X(torch) \
    X(from_dlpack) \
    X(requires_grad) \
    X(is_neg) \
    X(untyped_storage) \
    X(copy) \
    X(max_version) \
    X(stream) \
    X(n) \
    X(threads) \
    X(groups) \
    X(group) \
    X(threadgroup_memory) \
    X(strides) \
    X(resources) \
    X(out)

/* What is known of a type that was imported from or exported to: see foreign_types.h. */
#define MD_FOREIGN_TYPES 4
typedef struct foreign_type {
    PyTypeObject *type; /* owned: so that its address cannot become another type's */
    const struct DLPackExchangeAPI *table; /* static for the process; NULL: it has none */
    PyObject *requires_grad; /* owned: torch's attribute of that name; NULL: it has none */
    /* the C getter behind it, which lives as long; NULL: it is not C's */
    const struct PyGetSetDef *gradient;
    /* the C function of torch's untyped_storage(); static; NULL: it has none */
    const struct PyMethodDef *untyped_storage;
    bool speaks_metal_stream; /* it has __metal_stream__ */
    bool is_torchs;           /* a torch class is among its bases */
    bool has_torch_queue;     /* torch's queues wait for us and we for them: torch.h */
    /* owned: what to call before its Metal tensor is read; NULL: nothing */
    PyObject *sync;
} foreign_type;

/* As many dimensions, less one, as most Arrays have. */
#define MD_SPARE_ARRAYS 5

#define MD_TYPE_FIELD(field, spec, is_public) PyTypeObject *field;
#define MD_OBJECT_FIELD(field) PyObject *field;
#define MD_NAME_FIELD(name) PyObject *str_##name;
/*   md_state
 *   ├─ types, objects, names    made by exec, cleared with the module
 *   ├─ foreign_types[4]         the last types; foreign_last was found last, foreign_next is
 *   │                           overwritten next
 *   ├─ torch_is_checked         torch takes our Metal memory rightly; see torch.h
 *   ├─ modules_without_torch    how many there were when torch was looked for last
 *   ├─ entered_streams, entered_mark   `with stream:`, by context
 *   ├─ spare_arrays[5]          dead Arrays by ndim: memory for the next one; see array.h
 *   ├─ unheard                  an exception, raised for the Array at unheard_of
 *   ├─ storage_choice           the environment's word
 *   ├─ timelines                of this interpreter that somebody may read
 *   └─ owners                   what waits for this interpreter's GIL */
typedef struct md_state {
    MD_TYPE_LIST(MD_TYPE_FIELD)
    MD_OBJECT_LIST(MD_OBJECT_FIELD)
    MD_NAME_LIST(MD_NAME_FIELD)
    foreign_type foreign_types[MD_FOREIGN_TYPES]; /* the types seen last */
    int foreign_next;                             /* the slot to be overwritten next */
    PyObject *spare_arrays[MD_SPARE_ARRAYS];      /* owned memory, no references */
    int foreign_last;                             /* the slot that was found last */
    const void *unheard_of;    /* the Array that `unheard` is about: compared, never followed */
    const void *unheard_frame; /* the frame that ran, and its instruction: compared only */
    int unheard_instruction;
    int storage_choice;    /* METAL_DLPACK_STORAGE_MODE once read; see storage_mode.h */
    bool torch_is_checked; /* false: not known yet, or it does not */
    Py_ssize_t modules_without_torch; /* -1: torch is among them */
    size_t timelines;                 /* that somebody may read; see place.h */
    struct owner_list *owners;        /* of foreign memory, waiting for the GIL; see owners.h */
} md_state;
#undef MD_TYPE_FIELD
#undef MD_OBJECT_FIELD
#undef MD_NAME_FIELD

#define MD_TYPE_SPEC(field, spec, is_public) extern PyType_Spec spec;
MD_TYPE_LIST(MD_TYPE_SPEC)
#undef MD_TYPE_SPEC

/* A FASTCALL function in a method table: the flags beside it tell CPython how to call it. */
#define MD_FASTCALL(function) \
    ((PyCFunction)(void (*)(void))(function)), METH_FASTCALL | METH_KEYWORDS

/* What a call returns that runs without the GIL. */
#define WITHOUT_GIL(call) \
    ({ \
        place_note(); \
        PyThreadState *saved_thread = PyEval_SaveThread(); \
        __typeof__(call) result_of_call = (call); \
        PyEval_RestoreThread(saved_thread); \
        result_of_call; \
    })

/* A getter: `value`, of `op`. */
#define MD_GETTER(name, value) \
    static PyObject *name(PyObject *op, void *Py_UNUSED(closure)) \
    { \
        return value; \
    }

/* A label that Metal has, as str; None for "": owned (+1).  What is cut in the middle of a character ends before it. */
static inline PyObject *
state_label(const char *label)
{
    return label[0] == '\0' ? Py_NewRef(Py_None)
                            : PyUnicode_DecodeUTF8(label, (Py_ssize_t)strlen(label), "ignore");
}

/* A row of a type's attributes: TYPE_get_NAME; and the last row. */
#define MD_FACT(type, name, doc) {#name, type##_get_##name, NULL, PyDoc_STR(doc), NULL}
#define MD_LAST_FACT {NULL, NULL, NULL, NULL, NULL}

/* The spec of an immutable type with the slots NAME_slots, which the collector knows. */
#define MD_SPEC(name, python_name, nbytes, item_nbytes, more_flags) \
    PyType_Spec name##_spec = {"metal_dlpack." python_name, (int)(nbytes), (int)(item_nbytes), \
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | \
                                   Py_TPFLAGS_IMMUTABLETYPE | (more_flags), \
                               name##_slots}

/* A tp_new that refuses, with the sentence that says who makes such an object. */
#define MD_REFUSE_NEW(name, sentence) \
    static PyObject *name(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(args), \
                          PyObject *Py_UNUSED(kwargs)) \
    { \
        return PyErr_Format(PyExc_TypeError, sentence); \
    }

/* The state behind an instance of one of our types, none of which can be subclassed. */
static inline md_state *
state_of(PyObject *op)
{
    return (md_state *)PyType_GetModuleState(Py_TYPE(op));
}

/* False: the garbage collector has taken the module from the type, as it clears both in any
 * order. */
static inline bool
state_is_alive(PyObject *op)
{
    /* mutant survives (comparison): then what the state knows is found out */
    return ((PyHeapTypeObject *)Py_TYPE(op))->ht_module != NULL;
}

/* As state_of, for a dealloc: NULL without an exception where the state is not alive. */
static inline md_state *
state_if_alive(PyObject *op)
{
    return state_is_alive(op) ? state_of(op) : NULL;
}

/* The tp_traverse of a type whose objects lead to nothing but their type. */
static inline int
state_visit_type(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

/* Put `item`, which is stolen, into a tuple that is being made.  NULL, with an exception: the tuple
 * is given up, and NULL from then on. */
static inline void
state_fill_tuple(PyObject **tuple, Py_ssize_t place, PyObject *item)
{
    if (item == NULL) {
        Py_CLEAR(*tuple);
        return;
    }
    PyTuple_SET_ITEM(*tuple, place, item);
}

/* Likewise, at the end of a list. */
static inline void
state_append(PyObject **list, PyObject *item)
{
    if (item == NULL || PyList_Append(*list, item) < 0) {
        Py_CLEAR(*list);
    }
    Py_XDECREF(item);
}

/* The end of a dealloc: the object's memory, and its reference to the type. */
static inline void
state_free_object(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static inline md_state *
state_of_module(PyObject *module)
{
    return (md_state *)PyModule_GetState(module);
}

/* The state of the interpreter that calls, for C functions that get none of our Python objects.
 * Borrowed; NULL with ImportError. */
md_state *state_of_interpreter(void);

#endif /* MD_STATE_H */
