/* metal_nanobind.cpp: nb::ndarray on Metal, both ways, beside metal_dlpack.
 *
 * Rule:    data_handle() is the id<MTLBuffer> and byte_offset() counts from its start.  data()
 *          adds the two, which means nothing on Metal.
 * Owns:    an nb::ndarray keeps the tensor that it came from; one that is made here keeps its
 *          `owner`.
 */
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <metal_dlpack.h>

namespace nb = nanobind;

/* any dtype; read-only Arrays as well */
using AnyMetal = nb::ndarray<nb::ro, nb::device::metal>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::device::metal>;
using HostVector = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu>;
/* What is returned: an object with __dlpack__, for any framework's from_dlpack. */
using Result = nb::ndarray<nb::array_api, float, nb::device::metal>;

static nb::tuple
describe(AnyMetal array)
{
    nb::list shape, strides;
    for (size_t axis = 0; axis < array.ndim(); axis++) {
        shape.append(array.shape(axis));
        strides.append(array.stride(axis));
    }
    return nb::make_tuple((uintptr_t)array.data_handle(), array.byte_offset(), nb::tuple(shape),
                          nb::tuple(strides));
}

/* The items from `start` on: the same MTLBuffer, another offset.  The result keeps the ndarray
 * that it was cut from, and that the memory. */
static Result
tail(Vector array, size_t start)
{
    if (start > array.shape(0)) {
        throw nb::index_error("tail: start passes the end.");
    }
    const size_t shape[] = {array.shape(0) - start};
    const int64_t strides[] = {array.stride(0)};
    nb::capsule owner(new Vector(array), [](void *kept) noexcept { delete (Vector *)kept; });
    return Result(array.data_handle(), 1, shape, owner, strides, nb::dtype<float>(),
                  nb::device::metal::value, 0, 'A',
                  array.byte_offset() + start * array.stride(0) * sizeof(float));
}

/* Memory of metal_dlpack's, made in C++ by its C API. */
static Result
zeros(size_t count)
{
    const int64_t extent = (int64_t)count;
    metal_dlpack_view view;
    metal_dlpack_access access;
    nb::object array =
        nb::steal(metal_dlpack->array_new(1, &extent, {2, 32, 1}, METAL_DLPACK_DEFAULT));
    if (!array.is_valid() || metal_dlpack->array_begin(array.ptr(), 1, &access) < 0) {
        throw nb::python_error();
    }
    for (size_t i = 0; i < count; i++) {
        ((float *)access.address)[i] = 0;
    }
    if (metal_dlpack->array_end(array.ptr(), &access, 1) < 0 ||
        metal_dlpack->array_get(array.ptr(), &view) < 0) {
        throw nb::python_error();
    }
    const size_t shape[] = {count};
    return Result(view.handle, 1, shape, array, nullptr, nb::dtype<float>(),
                  nb::device::metal::value, 0, 'C', (uint64_t)view.byte_offset);
}

/* A C++ object that goes on using the memory when Python has dropped the Array. */
struct Keeper {
    Vector kept;
    explicit Keeper(Vector array) : kept(std::move(array))
    {
    }
    Vector get() const
    {
        return kept;
    } /* Python gets back the very object that was given */
    Result view() const
    {
        return tail(kept, 0);
    }
};

/* On the CPU an ndarray is an address: give it `array.host`. */
static double
total(HostVector array)
{
    double sum = 0;
    for (size_t i = 0; i < array.shape(0); i++) {
        sum += array(i);
    }
    return sum;
}

NB_MODULE(metal_nanobind, module)
{
    if (metal_dlpack_import() < 0) {
        throw nb::python_error();
    }
    module.def("describe", describe, "describe(array): handle, byte offset, shape, strides.");
    module.def("tail", tail, "tail(array, start): the items from `start` on, shared.");
    module.def("zeros", zeros, "zeros(count): a new vector.");
    module.def("total", total, "total(array.host): the sum of a vector's items.");
    nb::class_<Keeper>(module, "Keeper", "Keeps a vector's memory.")
        .def(nb::init<Vector>())
        .def("get", &Keeper::get, "The object that was given.")
        .def("view", &Keeper::view, "Its items as another tensor.");
}
