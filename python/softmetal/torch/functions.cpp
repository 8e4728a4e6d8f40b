// functions.cpp: the functions of torch._C that torch's Python calls on a Mac, by their names there.
//
// Threads: with the GIL, which is released where a call may wait.
// Source:  torch/mps, torch/backends/mps of 2.9 to 2.15, which call them.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/detail/MPSHooksInterface.h>

#include "torch_mps.h"

namespace torch_mps {

namespace {

thread_local int deaf_count;

using TorchHooks = at::MPSHooksInterface;

const TorchHooks &
hooks_of_torch()
{
    return at::detail::getMPSHooks();
}

class WithoutGil {
  public:
    WithoutGil() : thread(PyEval_SaveThread())
    {
    }
    ~WithoutGil()
    {
        PyEval_RestoreThread(thread);
    }
    WithoutGil(const WithoutGil &) = delete;

  private:
    PyThreadState *thread;
};

// The bodies of the functions: `work` runs without the GIL and returns what `make` gives to Python.
template <typename Work>
PyObject *
answer(Work work)
{
    HANDLE_TH_ERRORS
    using Result = decltype(work());
    if constexpr (std::is_void_v<Result>) {
        {
            WithoutGil released;
            work();
        }
        Py_RETURN_NONE;
    }
    else {
        Result result;
        {
            WithoutGil released;
            result = work();
        }
        if constexpr (std::is_same_v<Result, bool>) {
            return PyBool_FromLong(result);
        }
        else if constexpr (std::is_floating_point_v<Result>) {
            return PyFloat_FromDouble(result);
        }
        else {
            return PyLong_FromUnsignedLongLong(result);
        }
    }
    END_HANDLE_TH_ERRORS
}

template <bool is_so>
PyObject *
say(PyObject *, PyObject *)
{
    return PyBool_FromLong(is_so);
}

PyObject *
is_in_bad_fork(PyObject *, PyObject *)
{
    return PyBool_FromLong(metal->is_forked());
}

PyObject *
get_default_generator(PyObject *, PyObject *)
{
    HANDLE_TH_ERRORS
    return THPGenerator_initDefaultGenerator(default_generator());
    END_HANDLE_TH_ERRORS
}

PyObject *
get_name(PyObject *, PyObject *)
{
    return PyUnicode_FromString("Apple (software Metal)");
}

PyObject *
get_core_count(PyObject *, PyObject *)
{
    return PyLong_FromLong(1);
}

template <auto hook>
PyObject *
call_hook(PyObject *, PyObject *)
{
    return answer([] { return (hooks_of_torch().*hook)(); });
}

PyObject *
set_memory_fraction(PyObject *, PyObject *fraction)
{
    double ratio = PyFloat_AsDouble(fraction);
    if (PyErr_Occurred()) {
        return nullptr;
    }
    return answer([ratio] { hooks_of_torch().setMemoryFraction(ratio); });
}

PyObject *
acquire_event(PyObject *, PyObject *timed)
{
    bool is_timed = PyObject_IsTrue(timed) == 1;
    return answer([is_timed] { return hooks_of_torch().acquireEvent(is_timed); });
}

// What is done to one event, whose number Python keeps.
template <auto hook>
PyObject *
with_event(PyObject *, PyObject *number)
{
    unsigned long id = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred()) {
        return nullptr;
    }
    return answer([id] { return (hooks_of_torch().*hook)(uint32_t(id)); });
}

PyObject *
elapsed_time(PyObject *, PyObject *arguments)
{
    unsigned int from, to;
    if (!PyArg_ParseTuple(arguments, "II", &from, &to)) {
        return nullptr;
    }
    return answer([from, to] { return hooks_of_torch().elapsedTimeOfEvents(from, to); });
}

// Signposts are read by Instruments, on a Mac: here nobody asks for them.
PyObject *
start_trace(PyObject *, PyObject *arguments)
{
    const char *mode;
    int waits;
    if (!PyArg_ParseTuple(arguments, "sp", &mode, &waits)) {
        return nullptr;
    }
    for (const char *known : {"interval", "event", "interval,event", "event,interval"}) {
        if (strcmp(mode, known) == 0) {
            Py_RETURN_NONE;
        }
    }
    return PyErr_Format(
        PyExc_RuntimeError,
        "Invalid Signpost trace mode: %s; it is 'interval', 'event' or 'interval,event'.",
        mode);
}

PyObject *
get_none(PyObject *, PyObject *)
{
    Py_RETURN_NONE;
}

PyObject *
start_capture(PyObject *, PyObject *)
{
    PyErr_SetString(PyExc_RuntimeError, "Metal capture is not enabled: the software Metal "
                                        "writes no .gputrace, which Xcode reads.");
    return nullptr;
}

PyObject *
synchronize_stream(PyObject *, PyObject *number)
{
    long stream = PyLong_AsLong(number);
    if (PyErr_Occurred()) {
        return nullptr;
    }
    return answer([stream] { stream_synchronize(int(stream)); });
}

PyMethodDef functions[] = {
    {"_mps_is_available", say<true>, METH_NOARGS, nullptr},
    {"_mps_is_on_macos_or_newer", say<true>, METH_VARARGS, nullptr},
    {"_mps_is_in_bad_fork", is_in_bad_fork, METH_NOARGS, nullptr},
    {"_mps_get_default_generator", get_default_generator, METH_NOARGS, nullptr},
    {"_mps_get_name", get_name, METH_NOARGS, nullptr},
    {"_mps_get_core_count", get_core_count, METH_NOARGS, nullptr},
    {"_mps_deviceSynchronize", call_hook<&TorchHooks::deviceSynchronize>, METH_NOARGS, nullptr},
    {"_mps_emptyCache", call_hook<&TorchHooks::emptyCache>, METH_NOARGS, nullptr},
    {"_mps_setMemoryFraction", set_memory_fraction, METH_O, nullptr},
    {"_mps_currentAllocatedMemory", call_hook<&TorchHooks::getCurrentAllocatedMemory>,
     METH_NOARGS, nullptr},
    {"_mps_driverAllocatedMemory", call_hook<&TorchHooks::getDriverAllocatedMemory>,
     METH_NOARGS, nullptr},
    {"_mps_recommendedMaxMemory", call_hook<&TorchHooks::getRecommendedMaxMemory>, METH_NOARGS,
     nullptr},
    {"_mps_acquireEvent", acquire_event, METH_O, nullptr},
    {"_mps_releaseEvent", with_event<&TorchHooks::releaseEvent>, METH_O, nullptr},
    {"_mps_recordEvent", with_event<&TorchHooks::recordEvent>, METH_O, nullptr},
    {"_mps_waitForEvent", with_event<&TorchHooks::waitForEvent>, METH_O, nullptr},
    {"_mps_synchronizeEvent", with_event<&TorchHooks::synchronizeEvent>, METH_O, nullptr},
    {"_mps_queryEvent", with_event<&TorchHooks::queryEvent>, METH_O, nullptr},
    {"_mps_elapsedTimeOfEvents", elapsed_time, METH_VARARGS, nullptr},
    {"_mps_profilerStartTrace", start_trace, METH_VARARGS, nullptr},
    {"_mps_profilerStopTrace", get_none, METH_NOARGS, nullptr},
    {"_mps_isCaptureEnabled", say<false>, METH_NOARGS, nullptr},
    {"_mps_isCapturing", say<false>, METH_NOARGS, nullptr},
    {"_mps_startCapture", start_capture, METH_O, nullptr},
    {"_mps_stopCapture", get_none, METH_NOARGS, nullptr},
    {"_mps_synchronizeStream", synchronize_stream, METH_O, nullptr}, // of python_side.py
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

Deaf::Deaf()
{
    deaf_count += 1;
}

Deaf::~Deaf()
{
    deaf_count -= 1;
}

bool
hear_signals()
{
    return deaf_count != 0 || metal->hear_signals();
}

void
raise_heard()
{
    python_error raised;
    raised.persist();
    throw raised;
}

} // namespace torch_mps

// Once a process: torch's mps device is this one from now on.  `module` is torch._C, which gets the functions above;
// 0, or -1 with an exception.
TORCH_MPS_EXPORT int
torch_mps_install(PyObject *module, PyObject *capsule)
{
    auto *table = PyCapsule_GetPointer(capsule, METAL_FOR_TORCH_CAPSULE);
    if (table == nullptr) {
        return -1;
    }
    torch_mps::metal = static_cast<const metal_for_torch *>(table);
    torch_mps::install_device();
    return PyModule_AddFunctions(module, torch_mps::functions) < 0
               ? -1
               : PyModule_AddFunctions(module, torch_mps::shader_functions);
}

// Without the GIL.  Autograd's thread for mps has let go of all that it has computed before: it takes one piece after
// the other, and this one is behind them.  Its own tensors have no Python objects, for whose end it would want the GIL.
TORCH_MPS_EXPORT void
torch_mps_let_autograd_finish()
{
    torch_mps::Deaf deaf; // Ctrl-C would be lost here
    try {
        at::Tensor x =
            at::empty({1}, at::TensorOptions(torch_mps::the_device)).requires_grad_();
        torch::autograd::grad({x.view({1})}, {x}, {at::empty_like(x)});
    } catch (const std::exception &) {
        // such as memory's limit: nothing is worse than it was
    }
}

TORCH_MPS_EXPORT void
torch_mps_commit()
{
    torch_mps::queue_commit_all();
}

TORCH_MPS_EXPORT void
torch_mps_allow_fallback(int is_allowed)
{
    torch_mps::allows_fallback = is_allowed != 0;
}

TORCH_MPS_EXPORT void
torch_mps_allow_float64(int is_allowed)
{
    torch_mps::allows_float64 = is_allowed != 0;
}
