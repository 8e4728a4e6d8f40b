// call.cpp: one operator of torch, called on the CPU over the bytes of an mps tensor; see torch_mps.h.
//
// An operator gets, for each tensor on mps, one on the CPU over the same bytes, and runs as torch's own for the CPU.
// What comes back over one of those bytes is a view of the tensor on mps; anything else is new, and lies in an
// MTLBuffer already, since the CPU's allocator gives such memory meanwhile.
#include "torch_mps.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>
#include <set>

namespace torch_mps {

bool allows_float64;

namespace {

using at::Tensor;
using c10::StorageImpl;
using torch::jit::Stack;
using StoragePtr = c10::intrusive_ptr<StorageImpl>;

const c10::DispatchKeySet mps_keys(c10::DispatchKey::MPS);
const c10::DispatchKeySet cpu_keys(c10::DispatchKey::CPU);
const c10::DispatchKeySet sparse_mps_keys(c10::DispatchKey::SparseMPS);
const c10::DispatchKeySet sparse_cpu_keys(c10::DispatchKey::SparseCPU);

void
check_dtype(c10::ScalarType dtype)
{
    TORCH_CHECK_TYPE(dtype != c10::kDouble || allows_float64,
                     "Cannot convert a MPS Tensor to float64 dtype as the MPS framework "
                     "doesn't support float64. "
                     "Please use float32 instead.");
    TORCH_CHECK_TYPE(dtype != c10::kComplexDouble || allows_float64,
                     "Trying to convert ComplexDouble to the MPS backend but it does not have "
                     "support for that dtype.");
}

// ---- the call of one operator ----

// A storage on mps and its bytes as the CPU's.
struct Side {
    StorageImpl *ours; // borrowed from an argument, or kept
    StoragePtr cpu;
    void *address; // as it was when the operator began
    size_t nbytes;
    ShadowRef shadow; // null: the bytes are in the buffer
    bool is_written;
    bool is_new; // its memory is the operator's result, all of it
};

// Whose bytes a storage of the CPU's is over.
struct Lender {
    StoragePtr ours;
    ShadowRef shadow;
};

// Which bytes of a storage the operator uses, known before it begins.
struct Part {
    StorageImpl *storage; // borrowed from an argument
    size_t begin, end;
    bool is_written;
};

struct Pair {
    Tensor ours, cpu;
    bool is_written;
};

class Call {
  public:
    // `keys` says whose kernel runs: the CPU's for dense tensors, or for sparse ones.
    Call(const c10::OperatorHandle &op, c10::DispatchKeySet keys, Stack *stack)
        : op(op), keys(keys), stack(stack),
          begin(stack->size() - op.schema().arguments().size())
    {
    }
    ~Call();
    Call(const Call &) = delete;

    void run();

  private:
    template <typename Work> void for_each_tensor(Work work) const;
    void add_part(const Tensor &tensor, const c10::Argument &argument);
    void to_cpu(size_t position);
    Tensor tensor_to_cpu(const Tensor &tensor, bool is_written);
    Tensor sparse_to_cpu(const Tensor &tensor, bool is_written);
    StoragePtr storage_to_cpu(StorageImpl *ours, bool is_written);
    void settle();
    void show(double started);
    void settle_storages();
    void tell();
    c10::IValue value_back(const c10::IValue &value);
    Tensor tensor_back(const Tensor &tensor);
    Tensor sparse_back(const Tensor &tensor);
    const Tensor *known(const Tensor &cpu) const;
    void check_layout(const Tensor &tensor) const;
    c10::Storage storage_back(const c10::Storage &cpu);
    c10::DataPtr memory_back(const c10::Storage &cpu, ShadowRef *shadow);
    ShadowRef shadow_of(StorageImpl *ours, void *handle);
    bool must_wait() const;
    bool only_views() const;

    const c10::OperatorHandle &op;
    c10::DispatchKeySet keys;
    Stack *stack;
    size_t begin;
    bool is_late = false;
    c10::SmallVector<Part, 6> parts; // where bytes arrive later
    c10::SmallVector<Side, 6> sides;
    c10::SmallVector<Pair, 6> pairs;               // dense tensors, also those in a sparse one
    c10::SmallVector<Pair, 2> sparse_pairs;        // their indices and values are in `pairs`
    c10::SmallVector<c10::TensorImpl *, 4> theirs; // arguments on the CPU
    c10::SmallVector<StoragePtr, 2> kept;
};

bool
is_mps(const Tensor &tensor)
{
    return tensor.defined() && tensor.device().type() == c10::DeviceType::MPS;
}

// Torch's schemas do not say of these that they are written.
bool
is_running_figure(const std::string &name)
{
    return name == "running_mean" || name == "running_var";
}

bool
is_written(const c10::Argument &argument)
{
    const c10::AliasInfo *alias = argument.alias_info();
    return (alias != nullptr && alias->isWrite()) || is_running_figure(argument.name());
}

// Arguments that torch takes from the CPU beside tensors on mps.
bool
may_be_the_cpus(const c10::OperatorHandle &op, const std::string &argument)
{
    static const std::set<std::string> arguments{"indices",        "lengths",
                                                 "batch_sizes",    "input_lengths",
                                                 "target_lengths", "state_steps"};
    static const std::set<std::string> operators{"aten::copy_", "aten::_foreach_copy_",
                                                 "aten::set_", "aten::_copy_from",
                                                 "aten::_copy_from_and_resize"};
    return arguments.count(argument) != 0 ||
           operators.count(op.schema().operator_name().name) != 0;
}

// One of an operator beside tensors on mps; a number in a tensor goes with any device.
void
check_device(const c10::OperatorHandle &op, const Tensor &tensor, const std::string &argument)
{
    if (tensor.defined() && tensor.device().type() == c10::DeviceType::CPU &&
        tensor.dim() > 0) {
        TORCH_CHECK(may_be_the_cpus(op, argument),
                    "Expected all tensors to be on the same device, but found at least two "
                    "devices, mps:0 and cpu! (",
                    argument, " of ", op.schema().operator_name().name, " is on the CPU.)");
    }
}

// Whether the CPU knows something when it returns: a number, or bytes of its own.
bool
Call::must_wait() const
{
    for (const auto &returned : op.schema().returns()) {
        auto kind = returned.type()->kind();
        if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) {
            return true;
        }
    }
    const auto &arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++) {
        const c10::IValue &value = (*stack)[begin + i];
        if (is_written(arguments[i]) && value.isTensor() && value.toTensor().defined() &&
            !is_mps(value.toTensor())) {
            return true;
        }
    }
    return false;
}

// One after the other; what stands for none is undefined.
template <typename Work>
void
Call::for_each_tensor(Work work) const
{
    const auto &arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++) {
        const c10::IValue &value = (*stack)[begin + i];
        if (value.isTensor()) {
            work(value.toTensor(), arguments[i]);
        }
        else if (value.isTensorList()) {
            for (const Tensor &tensor : value.toTensorVector()) {
                work(tensor, arguments[i]);
            }
        }
        else if (value.isOptionalTensorList()) {
            for (const std::optional<Tensor> &tensor : value.toOptionalTensorVector()) {
                work(tensor.value_or(Tensor()), arguments[i]);
            }
        }
    }
}

// Whether the operator looks at no item, mostly as its results are views of its arguments.  For a sparse tensor they
// are none.
bool
Call::only_views() const
{
    const auto &schema = op.schema();
    auto is_view = [](const c10::Argument &returned) {
        return returned.alias_info() != nullptr && !returned.alias_info()->isWrite();
    };
    if (schema.name() == "aten::_fused_sdp_choice") {
        return true; // shapes are enough
    }
    return keys == cpu_keys && !schema.returns().empty() &&
           std::all_of(schema.returns().begin(), schema.returns().end(), is_view) &&
           std::none_of(schema.arguments().begin(), schema.arguments().end(), is_written);
}

} // namespace

metal_range
range_of(const Tensor &tensor)
{
    size_t itemsize = tensor.itemsize(), last = 0;
    for (int64_t axis = 0; axis < tensor.dim(); axis++) {
        last += size_t(tensor.size(axis) - 1) * size_t(tensor.stride(axis));
    }
    return {const_cast<void *>(tensor.storage().data()),
            size_t(tensor.storage_offset()) * itemsize, (last + 1) * itemsize};
}

namespace {

void
Call::add_part(const Tensor &tensor, const c10::Argument &argument)
{
    bool writes = is_written(argument);
    if (is_mps(tensor) && tensor.is_sparse()) {
        auto *impl = at::sparse::get_sparse_impl(tensor);
        add_part(impl->indices(), argument);
        add_part(impl->values(), argument);
        return;
    }
    if (!is_mps(tensor) || tensor.storage().data() == nullptr ||
        (tensor.numel() == 0 && !writes)) {
        return;
    }
    Part part{tensor.storage().unsafeGetStorageImpl(), 0, tensor.storage().nbytes(), writes};
    // What gets another size takes all of the old bytes along.
    bool may_grow = writes && (tensor.numel() == 0 || argument.is_out() ||
                               op.schema().name().find("resize") != std::string::npos);
    if (!may_grow) {
        metal_range range = range_of(tensor);
        part.begin = range.offset;
        part.end = range.offset + range.nbytes;
    }
    for (Part &other : parts) {
        if (other.storage == part.storage) {
            other.begin = std::min(other.begin, part.begin);
            other.end = std::max(other.end, part.end);
            other.is_written |= part.is_written;
            return;
        }
    }
    parts.push_back(part);
}

ShadowRef
Call::shadow_of(StorageImpl *ours, void *handle)
{
    for (const Part &part : parts) {
        if (part.storage == ours) {
            return queue_shadow(handle, part.begin, part.end, part.is_written);
        }
    }
    return nullptr;
}

StoragePtr
Call::storage_to_cpu(StorageImpl *ours, bool is_written)
{
    for (Side &side : sides) {
        if (side.ours == ours) {
            side.is_written |= is_written;
            return side.cpu;
        }
    }
    void *handle = ours->mutable_data();
    size_t nbytes = ours->nbytes();
    ShadowRef shadow;
    char *address = nullptr;
    if (handle != nullptr && nbytes != 0) {
        shadow = shadow_of(ours, handle);
        address = shadow ? shadow->bytes : static_cast<char *>(metal->buffer_contents(handle));
        TORCH_CHECK(address != nullptr,
                    "The tensor lies in private storage, which the CPU cannot reach.");
    }
    auto cpu = c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), nbytes,
                                                c10::DataPtr(address,
                                                             c10::Device(c10::DeviceType::CPU)),
                                                c10::GetAllocator(c10::DeviceType::CPU), true);
    sides.push_back({ours, cpu, address, nbytes, shadow, is_written, false});
    return cpu;
}

void
copy_facts(const Tensor &from, const Tensor &to)
{
    auto *impl = to.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
    if (from.is_conj()) {
        impl->_set_conj(true);
    }
    if (from.is_neg()) {
        impl->_set_neg(true);
    }
    if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
        impl->set_wrapped_number(true);
    }
}

// Finds a tensor that is given twice, as out= beside an argument: torch's operators ask whether it is the same.
template <typename Pairs>
Pair *
find_pair(Pairs &pairs, const Tensor &ours)
{
    auto *found = std::find_if(pairs.begin(), pairs.end(),
                               [&](const Pair &pair) { return pair.ours.is_same(ours); });
    return found == pairs.end() ? nullptr : found;
}

Tensor
Call::tensor_to_cpu(const Tensor &tensor, bool is_written)
{
    if (!is_mps(tensor)) {
        if (tensor.defined()) {
            theirs.push_back(tensor.unsafeGetTensorImpl());
        }
        return tensor;
    }
    if (Pair *pair = find_pair(pairs, tensor)) {
        pair->is_written |= is_written;
        return pair->cpu;
    }
    if (tensor.layout() == c10::kSparse) {
        return sparse_to_cpu(tensor, is_written);
    }
    StoragePtr storage = storage_to_cpu(tensor.storage().unsafeGetStorageImpl(), is_written);
    Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), cpu_keys,
                                                          tensor.dtype());
    copy_facts(tensor, cpu);
    pairs.push_back({tensor, cpu, is_written});
    return cpu;
}

void
set_sparse(const Tensor &sparse, const Tensor &like, const Tensor &indices,
           const Tensor &values)
{
    auto *impl = at::sparse::get_sparse_impl(sparse), *from = at::sparse::get_sparse_impl(like);
    impl->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    impl->set_indices_and_values_unsafe(indices, values);
    impl->set_coalesced(from->coalesced());
}

// Its indices and values are dense tensors, over the same bytes as any.
Tensor
Call::sparse_to_cpu(const Tensor &tensor, bool is_written)
{
    if (Pair *pair = find_pair(sparse_pairs, tensor)) {
        pair->is_written |= is_written;
        return pair->cpu;
    }
    auto *impl = at::sparse::get_sparse_impl(tensor);
    Tensor cpu = at::detail::make_tensor<at::SparseTensorImpl>(sparse_cpu_keys, tensor.dtype());
    set_sparse(cpu, tensor, tensor_to_cpu(impl->indices(), is_written),
               tensor_to_cpu(impl->values(), is_written));
    sparse_pairs.push_back({tensor, cpu, is_written});
    return cpu;
}

void
Call::to_cpu(size_t position)
{
    const c10::Argument &argument = op.schema().arguments()[position];
    c10::IValue &value = (*stack)[begin + position];
    bool writes = is_written(argument);
    if (value.isTensor()) {
        value = tensor_to_cpu(value.toTensor(), writes);
    }
    else if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor &tensor : value.toTensorVector()) {
            list.push_back(tensor_to_cpu(tensor, writes));
        }
        value = list;
    }
    else if (value.isOptionalTensorList()) {
        c10::List<std::optional<Tensor>> list;
        for (const std::optional<Tensor> &tensor : value.toOptionalTensorVector()) {
            list.push_back(tensor ? std::optional<Tensor>(tensor_to_cpu(*tensor, writes))
                                  : std::nullopt);
        }
        value = list;
    }
    else if (value.isDevice()) {
        if (value.toDevice().type() == c10::DeviceType::MPS) {
            value = c10::Device(c10::DeviceType::CPU);
        }
    }
    else if (value.isStorage()) {
        c10::Storage storage = value.toStorage();
        if (storage.device().type() == c10::DeviceType::MPS) {
            value = c10::Storage(storage_to_cpu(storage.unsafeGetStorageImpl(), writes));
        }
    }
    else if (value.isGenerator()) {
        value = draw_from(value.toGenerator());
    }
    else if (value.isNone() && argument.type()->kind() == c10::TypeKind::OptionalType) {
        const auto &inner = argument.type()->castRaw<c10::OptionalType>()->getElementType();
        if (inner->kind() == c10::TypeKind::GeneratorType) {
            value = draw_from(default_generator());
        }
    }
}

} // namespace

} // namespace torch_mps
