// shaders.cpp: a call of a kernel of torch.mps.compile_shader: what it binds, and the launch on torch's stream.
//
// Owns:    the memory of values that a kernel may write, until the call ends: the command buffer keeps it.
// Threads: with the GIL, which is released while the queue's lock is waited for.
// Source:  torch/csrc/mps/Module.cpp and aten/src/ATen/native/mps/OperationUtils.h of 2.9 to 2.15: an argument's
//          index is its position, tensors are bound as they lie; of the kernel's types only their size is looked at.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "torch_mps.h"

namespace torch_mps {

namespace {

constexpr size_t most_arguments = 31;
constexpr size_t value_nbytes = 16; // of the widest item

class Arguments {
  public:
    Arguments(PyObject *kernel, const std::string &name) : kernel(kernel), name(name)
    {
    }
    ~Arguments()
    {
        for (void *room : rooms) {
            metal->memory_free(room);
        }
    }
    Arguments(const Arguments &) = delete;

    void add(unsigned index, PyObject *value);
    // Notes what was added last: a Note of given.py.  False: an exception is set.
    bool note(PyObject *given);
    std::vector<metal_argument> bound;

  private:
    void add_tensor(unsigned index, const metal_parameter &parameter, const at::Tensor &tensor);
    void add_number(unsigned index, const metal_parameter &parameter, const at::Tensor &tensor);
    void add_addresses(unsigned index, const metal_parameter &parameter, PyObject *tensors);
    void check_place(unsigned index, const at::Tensor &tensor);
    void add_bytes(unsigned index, const metal_parameter &parameter, const void *bytes,
                   size_t nbytes);
    void add_room(unsigned index, const void *bytes, size_t nbytes);

    PyObject *kernel;
    const std::string &name;
    std::vector<void *> rooms;
    std::vector<std::unique_ptr<char[]>> numbers;
    std::vector<std::unique_ptr<size_t[][2]>> steps;
    unsigned resources = 0;
};

void
Arguments::add(unsigned index, PyObject *value)
{
    metal_parameter parameter = metal->kernel_parameter(kernel, index);
    if (THPVariable_Check(value)) {
        add_tensor(index, parameter, THPVariable_Unpack(value));
    }
    else if (PyTuple_Check(value)) {
        add_addresses(index, parameter, value);
    }
    else {
        add_bytes(index, parameter, PyBytes_AS_STRING(value), size_t(PyBytes_GET_SIZE(value)));
    }
}

bool
Arguments::note(PyObject *given)
{
    metal_argument &last = bound.back();
    PyObject *axes;
    int is_strided;
    if (!PyArg_ParseTuple(given, "spnO!", &last.given, &is_strided, &last.item_nbytes,
                          &PyTuple_Type, &axes)) {
        return false;
    }
    last.is_strided = is_strided != 0;
    last.axes = int(PyTuple_GET_SIZE(axes));
    steps.emplace_back(new size_t[size_t(last.axes)][2]);
    last.steps = steps.back().get();
    for (int axis = 0; axis < last.axes; axis++) {
        size_t *step = steps.back()[size_t(axis)];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(axes, axis), "nn", &step[0], &step[1])) {
            return false;
        }
    }
    return true;
}

void
Arguments::check_place(unsigned index, const at::Tensor &tensor)
{
    TORCH_CHECK(tensor.is_mps() && tensor.layout() == at::kStrided, "argument ", index, " of ",
                name, " is a tensor on ", tensor.device(), " with the layout ", tensor.layout(),
                "; a kernel takes dense tensors on mps.");
}

// A list of tensors: the kernel reaches them by their addresses.
void
Arguments::add_addresses(unsigned index, const metal_parameter &parameter, PyObject *tensors)
{
    size_t count = size_t(PyTuple_GET_SIZE(tensors));
    std::vector<uint64_t> addresses(count);
    for (size_t i = 0; i < count; i++) {
        const at::Tensor &tensor = THPVariable_Unpack(PyTuple_GET_ITEM(tensors, i));
        check_place(index, tensor);
        if (tensor.numel() != 0 && tensor.storage().data() != nullptr) {
            metal_range range = range_of(tensor);
            addresses[i] =
                uint64_t(uintptr_t(metal->buffer_contents(range.handle))) + range.offset;
            bound.push_back({resources++, range, nullptr});
            bound.back().is_resource = true;
        }
    }
    numbers.emplace_back(new char[count * sizeof addresses[0]]);
    memcpy(numbers.back().get(), addresses.data(), count * sizeof addresses[0]);
    add_bytes(index, parameter, numbers.back().get(), count * sizeof addresses[0]);
}

void
Arguments::add_tensor(unsigned index, const metal_parameter &parameter,
                      const at::Tensor &tensor)
{
    if (tensor.device().is_cpu()) {
        TORCH_CHECK(tensor.dim() == 0, "Passed CPU tensor to MPS op: argument ", index, " of ",
                    name, " has ", tensor.dim(), " axes; move it by .to(\"mps\").");
        add_number(index, parameter, tensor);
        return;
    }
    check_place(index, tensor);
    if (!parameter.is_bound) {
        return;
    }
    if (tensor.numel() == 0 || tensor.storage().data() == nullptr) {
        add_room(index, nullptr, 0);
        return;
    }
    metal_range range = range_of(tensor);
    TORCH_CHECK(range.offset % parameter.alignment == 0, "argument ", index, " of ", name,
                " begins at byte ", range.offset,
                " of its buffer, and the parameter's type needs a multiple of ",
                parameter.alignment, "; give a clone() of it.");
    bound.push_back({index, range, nullptr});
}

// A tensor of the CPU's without axes.  As torch does it: float64 becomes float32, and others are read from where
// their storage begins.
void
Arguments::add_number(unsigned index, const metal_parameter &parameter,
                      const at::Tensor &tensor)
{
    at::Tensor narrow = tensor.scalar_type() == at::kDouble ? tensor.to(at::kFloat)
                        : tensor.scalar_type() == at::kComplexDouble
                            ? tensor.to(at::kComplexFloat)
                            : tensor;
    numbers.emplace_back(new char[value_nbytes]);
    memcpy(numbers.back().get(), narrow.storage().data(), narrow.element_size());
    add_bytes(index, parameter, numbers.back().get(), narrow.element_size());
}

void
Arguments::add_bytes(unsigned index, const metal_parameter &parameter, const void *bytes,
                     size_t nbytes)
{
    TORCH_CHECK(nbytes <= MOST_BYTES, "argument ", index, " of ", name, " has ", nbytes,
                " bytes, and Metal takes at most ", MOST_BYTES,
                " by value; give a tensor on mps.");
    if (!parameter.is_bound) {
        return;
    }
    TORCH_CHECK(nbytes >= parameter.least_nbytes, "argument ", index, " of ", name, " has ",
                nbytes, " bytes, and the kernel reads ", parameter.least_nbytes,
                " there: a Mac would give it what lies behind them; give more items, a wider "
                "arg_casts=, or a tensor on mps.");
    if (parameter.is_written) {
        add_room(index, bytes, nbytes);
    }
    else if (nbytes < parameter.nbytes) { // three items: the fourth is nobody's
        numbers.emplace_back(new char[parameter.nbytes]());
        memcpy(numbers.back().get(), bytes, nbytes);
        bound.push_back({index, {nullptr, 0, parameter.nbytes}, numbers.back().get()});
    }
    else {
        bound.push_back({index, {nullptr, 0, nbytes}, bytes});
    }
}

// Memory that nobody else sees: Metal's validation forbids bytes where a kernel may write.
void
Arguments::add_room(unsigned index, const void *bytes, size_t nbytes)
{
    size_t room_nbytes = std::max(nbytes, value_nbytes);
    void *room = metal->memory_new(room_nbytes);
    TORCH_CHECK(room != nullptr, "The software Metal has no room for argument ", index, " of ",
                name, ".");
    rooms.push_back(room);
    if (nbytes != 0) {
        memcpy(room, bytes, nbytes);
    }
    bound.push_back({index, {metal->memory_handle(room, room_nbytes), 0, nbytes}, nullptr});
}

PyObject *
launch_kernel(PyObject *, PyObject *given)
{
    HANDLE_TH_ERRORS
    PyObject *kernel, *values, *notes;
    const char *name;
    size_t threads[3], group[3];
    int error_index;
    if (!PyArg_ParseTuple(given, "OsO!(nnn)(nnn)iO", &kernel, &name, &PyTuple_Type, &values,
                          &threads[0], &threads[1], &threads[2], &group[0], &group[1],
                          &group[2], &error_index, &notes)) {
        return nullptr;
    }
    std::string text(name);
    Arguments arguments(kernel, text);
    TORCH_CHECK(size_t(PyTuple_GET_SIZE(values)) <= most_arguments, text, ": ",
                PyTuple_GET_SIZE(values), " arguments are given, and Metal binds at most ",
                most_arguments, ".");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
        if (i == error_index) {
            continue;
        }
        size_t count = arguments.bound.size();
        arguments.add(unsigned(i), PyTuple_GET_ITEM(values, i));
        PyObject *note = notes == Py_None ? Py_None : PyList_GET_ITEM(notes, i);
        if (note != Py_None && arguments.bound.size() > count && !arguments.note(note)) {
            return nullptr;
        }
    }
    if (threads[0] != 0 && threads[1] != 0 && threads[2] != 0) {
        pybind11::gil_scoped_release released;
        queue_launch(kernel, std::move(arguments.bound), threads, group, error_index);
    }
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

} // namespace

PyMethodDef shader_functions[] = {
    {"_mps_launch_kernel", launch_kernel, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace torch_mps
