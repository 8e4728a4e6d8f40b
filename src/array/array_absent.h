/* array_absent.h: attributes that other arrays have and Array has not.
 *
 * Rule:    reading one raises AttributeError with the way out, so hasattr(a, name) is False;
 *          dir(), vars() and help() do not show them.
 * Threads: the GIL is held.
 */
#ifndef MD_ARRAY_ABSENT_H
#define MD_ARRAY_ABSENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* X(name): what NumPy and torch compute by methods of one name. */
#define ARRAY_MATHS_LIST(X) \
    X("all") \
    X("any") \
    X("argmax") \
    X("argmin") \
    X("argsort") \
    X("clip") \
    X("cumprod") \
    X("cumsum") \
    X("diagonal") \
    X("dot") \
    X("max") \
    X("mean") \
    X("min") \
    X("nonzero") \
    X("prod") \
    X("repeat") \
    X("round") \
    X("sort") \
    X("std") \
    X("sum") \
    X("take") \
    X("trace") \
    X("var")

/* X(name, what to write instead) */
#define ARRAY_ABSENT_LIST(X) \
    X("abs", "abs(np.asarray(a)), or a.to(torch.Tensor).abs()") \
    X("bfloat16", "a.astype('bfloat16')") \
    X("bool", "a.astype('bool')") \
    X("byte", "a.astype('uint8')") \
    X("clone", "a.copy()") \
    X("contiguous", "a.copy(), which is contiguous") \
    X("copy_", "a.copy_from(src), or a[...] = src, which converts") \
    X("cpu", "np.asarray(a) or a.host, the same memory on the CPU") \
    X("cuda", "a.to(torch); an Array lies on Metal") \
    X("data", "memoryview(a), or a.buffer.address") \
    X("data_ptr", \
      "a.buffer.handle for the MTLBuffer and a.byte_offset in it, or a.buffer.address") \
    X("detach", "a itself; an Array has no gradients") \
    X("dim", "a.ndim") \
    X("double", "a.astype('float64')") \
    X("element_size", "a.itemsize") \
    X("expand", "a.broadcast_to(shape)") \
    X("fill_", "a.fill(value)") \
    X("flat", "a.reshape(-1)") \
    X("float", "a.astype('float32')") \
    X("half", "a.astype('float16')") \
    X("int", "a.astype('int32')") \
    X("is_contiguous", "a.layout.is_contiguous_c") \
    X("long", "a.astype('int64')") \
    X("matmul", "np.asarray(a) @ b, or a.to(torch.Tensor) @ b") \
    X("moveaxis", "a.permute(axes)") \
    X("mps", "a.to(torch.Tensor); an Array lies on Metal already") \
    X("numel", "a.size") \
    X("numpy", "np.asarray(a), which shares the memory") \
    X("ravel", "a.reshape(-1)") \
    X("swapaxes", "a.permute(axes), or a.mT for the last two") \
    X("tobytes", "bytes(memoryview(a).cast('B')), or np.asarray(a).tobytes()") \
    X("transpose", "a.permute(axes) or a.T") \
    X("type", "a.astype(dtype), or a.dtype") \
    X("unsqueeze", "a.expand_dims(axis)") \
    X("zero_", "a.fill(0)")

/* Give the Array type these names.  0, or -1 with an exception. */
int array_absent_add(PyObject *module, PyTypeObject *array_type);

#endif /* MD_ARRAY_ABSENT_H */
