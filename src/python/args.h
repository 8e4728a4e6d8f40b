/* args.h: arguments of FASTCALL functions, by a list of names.
 *
 * Owns:    nothing; every value handed out is borrowed from the caller's arguments.
 * Threads: the GIL is held.
 * Failure: -1 with one exception set, whose sentence begins with the function's name.
 */
#ifndef MD_ARGS_H
#define MD_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "python/state.h"

#define ARGS_MAX 12

/* A signature: names in order; the first `positional_only` have no keyword, the first
 * `positional` may stand without one, the first `required` must be there. */
typedef struct args_spec {
    const char *function;
    int positional_only, positional, required;
    const char *names[ARGS_MAX + 1]; /* ended by NULL */
} args_spec;

/* Fill values[i] (borrowed) for names[i]; NULL where nothing was given. */
int args_parse(const args_spec *spec, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **values);
/* A function of MD_FASTCALL, whose body follows: it gets what args_parse has filled in, `subject` (the
 * object, type or module that was called), and its own name for messages.  ARGS_METHOD is for what
 * a header declares. */
#define ARGS_METHOD(name, subject, name_in_messages, ...) \
    static PyObject *name##_parsed(PyObject *subject, const char *function, \
                                   PyObject **values); \
    PyObject *name(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) \
    { \
        static const args_spec spec = ARGS_SPEC(name_in_messages, __VA_ARGS__); \
        PyObject *values[ARGS_MAX]; \
        return args_parse(&spec, args, nargs, kwnames, values) < 0 \
                   ? NULL \
                   : name##_parsed(op, spec.function, values); \
    } \
    static PyObject *name##_parsed(PyObject *subject, \
                                   __attribute__((unused)) const char *function, \
                                   PyObject **values)
#define ARGS_FUNCTION(name, ...) \
    static PyObject *name(PyObject *op, PyObject *const *args, Py_ssize_t nargs, \
                          PyObject *kwnames); \
    ARGS_METHOD(name, __VA_ARGS__)
#define ARGS_SPEC(function, positional_only, positional, required, ...) \
    { \
        function, positional_only, positional, required, \
        { \
            __VA_ARGS__, NULL \
        } \
    }

/* The same for tp_new, whose body gets `type`; NULL is the name where there is none. */
#define ARGS_NEW(name, name_in_messages, ...) \
    static PyObject *name##_parsed(PyTypeObject *type, const char *function, \
                                   PyObject **values); \
    static PyObject *name(PyTypeObject *type, PyObject *args, PyObject *kwargs) \
    { \
        static const args_spec spec = ARGS_SPEC(name_in_messages, __VA_ARGS__); \
        PyObject *values[ARGS_MAX]; \
        return args_parse_tuple(&spec, args, kwargs, values) < 0 \
                   ? NULL \
                   : name##_parsed(type, spec.function, values); \
    } \
    static PyObject *name##_parsed(PyTypeObject *type, \
                                   __attribute__((unused)) const char *function, \
                                   __attribute__((unused)) PyObject **values)

/* As args_parse, for tp_new and tp_call: a tuple and a dict. */
int args_parse_tuple(const args_spec *spec, PyObject *args, PyObject *kwargs,
                     PyObject **values);

/* Is an optional argument there, and not None? */
static inline bool
args_is_given(PyObject *value)
{
    return value != NULL && value != Py_None;
}

/* Read an int of one digit without a call; nearly all arguments are.  False: something else.
 * Only this function knows how CPython stores an int.  With calls a[1:, 2] takes 12 % more
 * instructions. */
static inline bool
args_small_int(PyObject *value, int64_t *out)
{
    if (!PyLong_CheckExact(value)) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)value)) {
        return false;
    }
    *out = PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
    Py_ssize_t size = Py_SIZE(value); /* its sign is the number's */
    if (size < -1 || size > 1) {
        return false;
    }
    *out = size == 0 ? 0 : size * (int64_t)((PyLongObject *)value)->ob_digit[0];
#endif
    return true;
}

/* -1 with TypeError: "<function>: <what> must be <wanted>, not <type of value>." */
int args_refuse_type(const char *function, const char *what, const char *wanted,
                     PyObject *value);

/* Any object with __index__ as an int64.  TypeError or OverflowError otherwise; the sentence
 * names `what`. */
int args_int64(const char *function, const char *what, PyObject *value, int64_t *out);

/* The address of an Objective-C object: an int, or an object of PyObjC, which is asked for its
 * own by __c_void_p__.  TypeError otherwise; the sentence names `kind`.  What is there is not
 * looked at. */
int args_address(md_state *state, const char *function, const char *kind, PyObject *value,
                 void **out);

/* The same; ValueError where nothing of that `kind` is there, as `is_there` says. */
int args_handle(md_state *state, const char *function, const char *kind,
                bool (*is_there)(const void *handle), PyObject *value, void **out);

/* A str as UTF-8, borrowed from `value`.  TypeError; ValueError where it holds a null
 * character, at which C would cut it. */
int args_text(const char *function, const char *what, PyObject *value, const char **out);

/* The same; NULL for None, and where the argument was not given. */
int args_text_or_none(const char *function, const char *what, PyObject *value,
                      const char **out);

/* A shape, strides or axes: one int, or a sequence of at most `capacity` ints. */
int args_int64s(const char *function, const char *what, PyObject *value, int64_t *out,
                int capacity, int *count);

/* True or False: 1 or 0 in `*out`.  TypeError for the rest, which says that None is allowed too. */
int args_bool(const char *function, const char *what, PyObject *value, int *out);

/* The same, or -1 for None, and where the argument was not given. */
static inline int
args_tristate(const char *function, const char *what, PyObject *value, int *out)
{
    *out = -1;
    return args_is_given(value) ? args_bool(function, what, value, out) : 0;
}

#endif /* MD_ARGS_H */
