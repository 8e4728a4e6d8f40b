// torch_mps.h: the parts of torch's mps device over the software Metal.
//
//     call.cpp, call_results.cpp   an operator is torch's own for the CPU, over the bytes of MTLBuffers
//     operators.cpp   those with a kernel of their own, and the table
//     refusals.cpp    which operators those are, and what is said of the others
//     memory.cpp      tensors' memory: the core's pool
//     queue.cpp, queue_uses.cpp, queue_events.cpp   the work on torch's queue: what it uses, when its bytes arrive
//     device.cpp      what torch asks of a device: guard, hooks, random numbers
//     functions.cpp   the functions of torch._C that a build for a Mac has
//     shaders.cpp     a kernel of torch.mps.compile_shader: what a call binds
//
// Threads: any, with or without the GIL, as torch calls its operators.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <memory>
#include <vector>

#include "metal.h"
#include "versions.h"

#define TORCH_MPS_EXPORT extern "C" __attribute__((visibility("default")))

namespace c10 {
class OperatorHandle;
}
namespace torch {
class Library;
}
struct PyMethodDef;

namespace torch_mps {

extern const metal_for_torch *metal; // set once, before anything else
extern const c10::Device the_device; // mps:0
extern bool allows_float64;

// ---- functions.cpp ----

// What a wait on the main thread does now and then.  False: a signal's handler has raised, which raise_heard() throws.
bool hear_signals();
[[noreturn]] void raise_heard();

// Behind a lock that somebody with the GIL may want, signals wait until Python comes to them.
class Deaf {
  public:
    Deaf();
    ~Deaf();
    Deaf(const Deaf &) = delete;
};

// ---- call.cpp ----

// Boxed kernels: torch's own for the CPU, over the same bytes, which it is lent; and for operators with a sparse tensor among their
// arguments.
void compute(const c10::OperatorHandle &op, torch::jit::Stack *stack);
void compute_sparse(const c10::OperatorHandle &op, torch::jit::Stack *stack);
// From the first item to the last; a tensor with items.
metal_range range_of(const at::Tensor &tensor);

// ---- refusals.cpp ----

extern std::atomic<bool> allows_fallback; // PYTORCH_ENABLE_MPS_FALLBACK
// All that have no kernel yet.
void register_operators(torch::Library &aten);
void register_autograd(torch::Library &aten);
void register_sparse_operators(torch::Library &aten);

// ---- memory.cpp ----

// For tensors on mps: `data` of a DataPtr is the MTLBuffer.
c10::Allocator &metal_memory();
// What the CPU's allocator is from now on: inside `Computing` it gives memory of MTLBuffers, so that results lie
// where they are wanted.
void replace_cpu_allocator();

class Computing {
  public:
    explicit Computing(bool is_direct);
    ~Computing();
    Computing(const Computing &) = delete;

  private:
    bool before;
    Deaf deaf; // torch's kernels allocate behind locks of their own
};

// A DataPtr on mps over the memory of a storage of the CPU's, which it keeps: no copy.  Empty: the memory lies in no
// of our MTLBuffers from its first byte on.
c10::DataPtr take_memory(const c10::Storage &cpu);

size_t allocated_nbytes();
constexpr uint64_t no_limit = UINT64_MAX;
void limit_memory(uint64_t nbytes);

// ---- queue.cpp ----

// Where the bytes of a buffer are for one operator, at the places that they have in the buffer: a copy, of the bytes
// that it uses, or a new result.  Nobody changes it once the operator has ended.
struct Shadow {
    char *bytes;
    std::unique_ptr<char[]> owned;
    c10::Storage kept; // or the memory is a storage's
};
using ShadowRef = std::shared_ptr<Shadow>;

// Part of an MTLBuffer that an operator uses: the items of a tensor, or all bytes.
struct Use {
    metal_range range;
    ShadowRef shadow; // of what is written: from where the bytes arrive; null: they are there
    size_t itemsize;
    std::vector<int64_t> sizes, strides; // in bytes
};

// Before an operator: what others have encoded on the queue is done.  True: its bytes arrive later.
bool queue_begin();
// The bytes from `begin` to `end` of a buffer as torch's queue will leave them, for an operator that begins.  Null:
// they are in the buffer, and it does not write.
ShadowRef queue_shadow(void *handle, size_t begin, size_t end, bool is_written);
ShadowRef shadow_of_result(const c10::Storage &cpu);

bool queue_is_recording(); // uses are to be told
// Behind all that was told before.  What is written with a shadow arrives when the queue comes to it.
void queue_use(const std::vector<Use> &written, const std::vector<metal_range> &read);
// A kernel on the current stream; `kernel` is a Kernel object.  `error_index` is where it finds the stream's
// c10::metal::ErrorMessages; -1: nowhere.
void queue_launch(void *kernel, std::vector<metal_argument> arguments, const size_t threads[3],
                  const size_t group[3], int error_index);
// What torch was asked for on the calling thread's current stream; or on all of them.
void queue_commit();
void queue_commit_all();
// These raise what a kernel reported, and why one failed.
void queue_synchronize();
void queue_synchronize_all();
void queue_let_go(); // the same, and no command buffer keeps memory any more

// torch's streams by their numbers: 0 is the default one.  Other numbers than these are refused.
constexpr int stream_count = 33;
int stream_current(); // of the calling thread
void stream_set_current(int stream);
int stream_of_pool(); // each in turn; the default one where torch has no others
void stream_synchronize(int stream);

uint32_t event_acquire(bool is_timed);
void event_drop(uint32_t id);
void event_record(uint32_t id, int stream);
void event_block(uint32_t id, int stream);
bool event_query(uint32_t id);
void event_synchronize(uint32_t id);
double event_elapsed_ms(uint32_t from, uint32_t to);

// ---- shaders.cpp ----

extern PyMethodDef shader_functions[]; // of torch._C; shaders.py calls them

// ---- device.cpp ----

at::Generator &default_generator();
// The CPU's generator from which an operator draws that was given our generator; any other is refused.
at::Generator draw_from(const at::Generator &generator);
void install_device(); // once a process, after `metal` is set

} // namespace torch_mps
