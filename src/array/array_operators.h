/* array_operators.h: the operators that Array answers with the way out.
 *
 * Rule: the function of a slot nb_NAME is array_NAME; module/array_type.c makes the slots of
 *       these lists.
 */
#ifndef MD_ARRAY_OPERATORS_H
#define MD_ARRAY_OPERATORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* X(slot, sign): two operands. */
#define ARRAY_BINARY_LIST(X) \
    X(add, "+") \
    X(subtract, "-") \
    X(multiply, "*") \
    X(matrix_multiply, "@") \
    X(true_divide, "/") \
    X(floor_divide, "//") \
    X(remainder, "%") \
    X(divmod, "divmod") \
    X(lshift, "<<") \
    X(rshift, ">>") \
    X(and, "&") \
    X(or, "|") \
    X(xor, "^")

/* X(slot, sign): two operands, the left one an Array that would be changed. */
#define ARRAY_INPLACE_LIST(X) \
    X(inplace_add, "+=") \
    X(inplace_subtract, "-=") \
    X(inplace_multiply, "*=") \
    X(inplace_matrix_multiply, "@=") \
    X(inplace_true_divide, "/=") \
    X(inplace_floor_divide, "//=") \
    X(inplace_remainder, "%=") \
    X(inplace_lshift, "<<=") \
    X(inplace_rshift, ">>=") \
    X(inplace_and, "&=") \
    X(inplace_or, "|=") \
    X(inplace_xor, "^=")

/* X(slot, sign): one operand. */
#define ARRAY_UNARY_LIST(X) \
    X(negative, "-") \
    X(positive, "+") \
    X(absolute, "abs ") \
    X(invert, "~")

#define DECLARE_BINARY(name, sign) PyObject *array_##name(PyObject *left, PyObject *right);
#define DECLARE_UNARY(name, sign) PyObject *array_##name(PyObject *op);
ARRAY_BINARY_LIST(DECLARE_BINARY)
ARRAY_INPLACE_LIST(DECLARE_BINARY)
ARRAY_UNARY_LIST(DECLARE_UNARY)
#undef DECLARE_BINARY
#undef DECLARE_UNARY

PyObject *array_power(PyObject *left, PyObject *right, PyObject *modulus);
PyObject *array_inplace_power(PyObject *left, PyObject *right, PyObject *modulus);
PyObject *array_richcompare(PyObject *op, PyObject *other, int comparison);
int array_contains(PyObject *op, PyObject *value);
/* By identity. */
Py_hash_t array_hash(PyObject *op);

#endif /* MD_ARRAY_OPERATORS_H */
