/* array_absent.c: see array_absent.h.
 *
 * Owns:      nothing: the Array type keeps the type of the names alive.
 * Invariant: Array's tp_getattro is PyObject_GenericGetAttr.  With a __getattr__ the type would
 *            lose the interpreter's fast method calls, a.__dlpack__() among them; so the names
 *            are getters, which cost nothing until one is read.
 */
#include "array/array_absent.h"

static PyObject *
absent_get(PyObject *Py_UNUSED(op), void *text)
{
    return PyErr_Format(PyExc_AttributeError, "Array has no attribute %s.", (const char *)text);
}

/* `a.data = x`: the type of these names, which nobody knows, is not spoken of. */
static int
absent_set(PyObject *op, PyObject *Py_UNUSED(value), void *text)
{
    (void)absent_get(op, text);
    return -1;
}

#define MATHS_ROW(name) \
    {name, absent_get, absent_set, NULL, \
     (void *)("'" name "': it does no arithmetic; call np.asarray(a)." name \
              "() or a.to(torch.Tensor)." name "(), which share its memory")},
#define ABSENT_ROW(name, instead) \
    {name, absent_get, absent_set, NULL, (void *)("'" name "'; write " instead)},
static PyGetSetDef absent_getset[] = {
    ARRAY_MATHS_LIST(MATHS_ROW) ARRAY_ABSENT_LIST(ABSENT_ROW){NULL, NULL, NULL, NULL, NULL},
};
#undef MATHS_ROW
#undef ABSENT_ROW

static PyType_Slot absent_slots[] = {
    {Py_tp_getset, absent_getset},
    {0, NULL},
};

static PyType_Spec absent_spec = {
    .name = "metal_dlpack._AbsentNames",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = absent_slots,
};

/* Put the names into the type's MRO only.  Look-ups go through the MRO; dir() goes through
 * __bases__, and would list those of a base. */
int
array_absent_add(PyObject *module, PyTypeObject *array_type)
{
    PyObject *names = PyType_FromModuleAndSpec(module, &absent_spec, NULL);
    PyObject *mro = names == NULL ? NULL
                                  : PyTuple_Pack(3, (PyObject *)array_type, names,
                                                 (PyObject *)&PyBaseObject_Type);
    Py_XDECREF(names);
    if (mro == NULL) {
        return -1;
    }
    Py_SETREF(array_type->tp_mro, mro);
    PyType_Modified(array_type);
    return 0;
}
