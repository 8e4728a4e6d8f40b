/* exchange.h: DLPack's C exchange API, called by a C library that knows no framework.
 *
 * Each takes tensors of any type that has __dlpack_c_exchange_api__: metal_dlpack.Array,
 * torch.Tensor.
 * Threads: the GIL is held.
 * Failure: NULL with the exception of the tensor's framework, or TypeError: the type has no
 *          table.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <Python.h>

PyObject *exchange_describe(PyObject *module, PyObject *op);
PyObject *exchange_round_trip(PyObject *module, PyObject *op);
PyObject *exchange_allocate_like(PyObject *module, PyObject *args); /* (type, prototype) */
PyObject *exchange_work_stream(PyObject *module, PyObject *op);

#endif /* EXCHANGE_H */
