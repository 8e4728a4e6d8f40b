// operators.cpp: see torch_mps.h.
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

// ---- what comes back ----

c10::DataPtr
Call::memory_back(const c10::Storage &cpu, ShadowRef *shadow)
{
    if (cpu.nbytes() == 0) {
        return {nullptr, the_device};
    }
    if (!is_late) {
        c10::DataPtr taken = take_memory(cpu);
        if (taken.get() != nullptr) {
            return taken;
        }
    }
    c10::DataPtr copy = metal_memory().allocate(cpu.nbytes());
    if (is_late) {
        *shadow = shadow_of_result(cpu);
    }
    else { // of an allocator of its own: it does not lie in a buffer
        memcpy(metal->buffer_contents(copy.get()), cpu.data(), cpu.nbytes());
    }
    return copy;
}

c10::Storage
Call::storage_back(const c10::Storage &cpu)
{
    for (Side &side : sides) {
        if (side.cpu.get() == cpu.unsafeGetStorageImpl()) {
            return c10::Storage(StoragePtr::reclaim_copy(side.ours));
        }
    }
    ShadowRef shadow;
    c10::DataPtr memory = memory_back(cpu, &shadow);
    auto ours = c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), cpu.nbytes(),
                                                 std::move(memory), &metal_memory(), true);
    kept.push_back(ours);
    sides.push_back({ours.get(), StoragePtr::reclaim_copy(cpu.unsafeGetStorageImpl()),
                     const_cast<void *>(cpu.data()), cpu.nbytes(), shadow, true, true});
    return c10::Storage(ours);
}

// What stands for a tensor that the operator was given.
const Tensor *
Call::known(const Tensor &cpu) const
{
    for (const Pair &pair : pairs) {
        if (pair.cpu.is_same(cpu)) {
            return &pair.ours;
        }
    }
    for (const Pair &pair : sparse_pairs) {
        if (pair.cpu.is_same(cpu)) {
            return &pair.ours;
        }
    }
    bool is_theirs =
        std::find(theirs.begin(), theirs.end(), cpu.unsafeGetTensorImpl()) != theirs.end();
    return is_theirs ? &cpu : nullptr;
}

// As on a Mac, mps has dense tensors and sparse ones in coordinates.
void
Call::check_layout(const Tensor &tensor) const
{
    TORCH_CHECK_NOT_IMPLEMENTED(!at::sparse_csr::is_sparse_compressed(tensor),
                                "Could not run 'new_compressed_tensor' from the '", the_device,
                                "' device.)");
    TORCH_CHECK_NOT_IMPLEMENTED((tensor.layout() == c10::kStrided || tensor.is_sparse()) &&
                                    !tensor.is_quantized() && !tensor.is_nested(),
                                "Could not run '", op.operator_name(),
                                "' with arguments from the 'MPS' backend.");
}

Tensor
Call::sparse_back(const Tensor &tensor)
{
    auto *impl = at::sparse::get_sparse_impl(tensor);
    Tensor indices = tensor_back(impl->indices()), values = tensor_back(impl->values());
    Tensor ours =
        at::detail::make_tensor<at::SparseTensorImpl>(sparse_mps_keys, tensor.dtype());
    set_sparse(ours, tensor, indices, values);
    sparse_pairs.push_back({ours, tensor, false});
    return ours;
}

Tensor
Call::tensor_back(const Tensor &tensor)
{
    if (!tensor.defined() || tensor.device().type() != c10::DeviceType::CPU) {
        return tensor;
    }
    if (const Tensor *found = known(tensor)) {
        return *found;
    }
    check_layout(tensor);
    check_dtype(tensor.scalar_type());
    if (tensor.layout() == c10::kSparse) {
        return sparse_back(tensor);
    }
    const Pair *base = nullptr;
    for (const Pair &pair : pairs) {
        if (pair.cpu.storage().unsafeGetStorageImpl() ==
            tensor.storage().unsafeGetStorageImpl()) {
            base = &pair;
            break;
        }
    }
    c10::Storage storage = storage_back(tensor.storage());
    Tensor ours;
    if (base == nullptr) {
        ours = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), mps_keys,
                                                        tensor.dtype());
        pairs.push_back({ours, tensor, true});
    }
    else {
        // A view is for autograd what its base is.
        auto keys = base->ours.key_set()
                        .remove(c10::DispatchKey::Conjugate)
                        .remove(c10::DispatchKey::Negative);
        ours =
            at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage),
                                                     keys, tensor.dtype());
    }
    copy_facts(tensor, ours);
    return ours;
}

c10::IValue
Call::value_back(const c10::IValue &value)
{
    if (value.isTensor()) {
        return tensor_back(value.toTensor());
    }
    if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor &tensor : value.toTensorVector()) {
            list.push_back(tensor_back(tensor));
        }
        return list;
    }
    return value;
}

// A storage that the operator made longer has memory of its own now.
void
Call::settle_storages()
{
    for (size_t i = 0, count = sides.size(); i < count; i++) {
        Side &side = sides[i];
        if (side.cpu->nbytes() != side.nbytes || side.cpu->data() != side.address) {
            ShadowRef shadow;
            side.ours->set_data_ptr_noswap(memory_back(c10::Storage(side.cpu), &shadow));
            side.ours->set_nbytes(side.cpu->nbytes());
            side.shadow = shadow;
            side.is_written = side.is_new = true;
        }
    }
}

// What the operator changed of its arguments: by out=, resize_, set_, transpose_ and the like.
void
Call::settle()
{
    settle_storages();
    for (size_t i = 0, count = pairs.size(); i < count; i++) {
        Tensor ours = pairs[i].ours, cpu = pairs[i].cpu;
        auto *impl = ours.unsafeGetTensorImpl();
        c10::Storage storage = storage_back(cpu.storage());
        if (storage.unsafeGetStorageImpl() != ours.storage().unsafeGetStorageImpl()) {
            // a kernel in Python may have kept its bytes
            kept.push_back(StoragePtr::reclaim_copy(ours.storage().unsafeGetStorageImpl()));
            impl->set_storage_keep_dtype(std::move(storage));
        }
        if (ours.sizes() != cpu.sizes() || ours.strides() != cpu.strides() ||
            ours.storage_offset() != cpu.storage_offset()) {
            impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
        }
    }
    for (size_t i = 0, count = sparse_pairs.size(); i < count; i++) {
        Pair pair = sparse_pairs[i];
        if (pair.is_written) {
            auto *impl = at::sparse::get_sparse_impl(pair.cpu);
            Tensor indices = tensor_back(impl->indices()), values = tensor_back(impl->values());
            set_sparse(pair.ours, pair.cpu, indices, values);
        }
    }
}

Use
use_of(const Tensor &tensor, const ShadowRef &shadow)
{
    Use use{range_of(tensor), shadow, tensor.itemsize(), tensor.sizes().vec(),
            tensor.strides().vec()};
    for (int64_t &stride : use.strides) {
        stride *= int64_t(use.itemsize);
    }
    return use;
}

// To the queue: which bytes are read, which are written.
void
Call::tell()
{
    std::vector<Use> written;
    std::vector<metal_range> read;
    for (const Side &side : sides) {
        if (side.is_new && side.ours->nbytes() != 0) {
            metal_range all{side.ours->mutable_data(), 0, side.ours->nbytes()};
            written.push_back({all, side.shadow, all.nbytes, {}, {}});
        }
    }
    for (const Pair &pair : pairs) {
        const Tensor &tensor = pair.ours;
        if (tensor.numel() == 0 || tensor.storage().data() == nullptr) {
            continue;
        }
        const auto *side = std::find_if(sides.begin(), sides.end(), [&](const Side &one) {
            return one.ours == tensor.storage().unsafeGetStorageImpl();
        });
        if (side != sides.end() && side->is_new) {
            continue;
        }
        if (!pair.is_written) {
            read.push_back(range_of(tensor));
        }
        else {
            written.push_back(use_of(tensor, side == sides.end() ? nullptr : side->shadow));
        }
    }
    if (!written.empty() || !read.empty()) {
        queue_use(written, read);
    }
}

// What a kernel in Python has kept is over bytes that were lent: they live as long as it does.
Call::~Call()
{
    for (Pair &pair : pairs) {
        pair.cpu.reset();
    }
    for (Pair &pair : sparse_pairs) {
        pair.cpu.reset();
    }
    for (Side &side : sides) {
        if (!side.is_new && side.address != nullptr && side.cpu.use_count() > 1) {
            auto *lender = new Lender{StoragePtr::reclaim_copy(side.ours), side.shadow};
            auto end = [](void *context) { delete static_cast<Lender *>(context); };
            side.cpu->set_data_ptr_noswap({side.address, lender, end, c10::kCPU});
        }
    }
}

// Takes the first storage that it writes.
void
Call::show(double started)
{
    void *written = nullptr;
    for (const Pair &pair : pairs) {
        if (pair.is_written && written == nullptr) {
            written = pair.ours.storage().mutable_data();
        }
    }
    for (const Side &side : sides) {
        if (side.is_new && written == nullptr) {
            written = side.ours->mutable_data();
        }
    }
    metal->timeline_operator(started, op.schema().name().c_str(), written);
}

void
Call::run()
{
    double started = metal->timeline_begin();
    bool looks = !only_views();
    bool waits = looks && must_wait();
    if (looks) {
        for_each_tensor([&](const Tensor &tensor, const c10::Argument &argument) {
            check_device(op, tensor, argument.name());
        });
        is_late = queue_begin();
        if (is_late) { // a storage that is read and written has one memory: before any goes to the CPU
            for_each_tensor([&](const Tensor &tensor, const c10::Argument &argument) {
                add_part(tensor, argument);
            });
        }
    }
    for (size_t i = 0; i < op.schema().arguments().size(); i++) {
        to_cpu(i);
    }
    {
        Computing computing(!is_late);
        op.redispatchBoxed(keys, stack);
    }
    settle();
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
        (*stack)[i] = value_back((*stack)[i]);
    }
    if (looks && queue_is_recording()) {
        tell();
    }
    if (looks && started != 0) {
        show(started);
    }
    if (waits) { // behind its own use: whoever has the number may write the memory
        queue_synchronize();
    }
}

} // namespace

void
compute(const c10::OperatorHandle &op, Stack *stack)
{
    Call(op, cpu_keys, stack).run();
}

void
compute_sparse(const c10::OperatorHandle &op, Stack *stack)
{
    Call(op, sparse_cpu_keys, stack).run();
}

namespace {

// What makes sparse tensors, and asks what they are made of, is the same for all devices.
void
ask_sparse(const c10::OperatorHandle &op, Stack *stack)
{
    op.redispatchBoxed(sparse_cpu_keys, stack);
}

// ---- operators with a kernel of their own ----

Tensor
empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
      std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format)
{
    check_dtype(c10::dtype_or_default(dtype));
    TORCH_CHECK(size.size() <= 16, "MPS supports tensors with dimensions <= 16, but got ",
                size.size(), "."); // as on a Mac, where views and empty_strided take more
    return at::detail::empty_generic(size, &metal_memory(), mps_keys,
                                     c10::dtype_or_default(dtype), format);
}

Tensor
empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
              std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
              std::optional<c10::Device>, std::optional<bool>)
{
    check_dtype(c10::dtype_or_default(dtype));
    return at::detail::empty_strided_generic(size, stride, &metal_memory(), mps_keys,
                                             c10::dtype_or_default(dtype));
}

// All zeros, of no bytes: what gradients that are not there are.
Tensor
zero_tensor(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
            std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>)
{
    static at::native::ZeroTensorAllocator allocator(the_device);
    check_dtype(c10::dtype_or_default(dtype));
    return at::detail::empty_generic(size, &allocator,
                                     mps_keys.add(c10::DispatchKey::ZeroTensor),
                                     c10::dtype_or_default(dtype), std::nullopt);
}

const c10::OperatorHandle &
named(const char *name)
{
    static std::unordered_map<std::string, c10::OperatorHandle> found;
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    auto place = found.find(name);
    if (place == found.end()) {
        place =
            found.emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).first;
    }
    return place->second;
}

// For a device that is not its own, torch asks for these in place of a convolution.
void
convolution(const c10::OperatorHandle &, Stack *stack)
{
    const Tensor &input = (*stack)[stack->size() - 9].toTensor();
    const Tensor &weight = (*stack)[stack->size() - 8].toTensor();
    TORCH_CHECK(input.device() == weight.device(), "Input type (", input.toString(),
                ") and weight type (", weight.toString(),
                ") should be the same: the two must be on the same device.");
    compute(named("aten::convolution"), stack);
}

// convolution_backward has one argument more, after the weight: the shape of the bias.
void
convolution_backward(const c10::OperatorHandle &, Stack *stack)
{
    size_t weight_at = stack->size() - 8;
    const Tensor weight = (*stack)[weight_at].toTensor();
    bool is_transposed = (*stack)[weight_at + 4].toBool();
    int64_t groups = (*stack)[weight_at + 6].toInt();
    std::vector<int64_t> bias{is_transposed ? weight.size(1) * groups : weight.size(0)};
    stack->insert(stack->begin() + int64_t(weight_at) + 1, c10::IValue(bias));
    compute(named("aten::convolution_backward"), stack);
}

// What an operator of the CPU's gives, even one that is refused on mps.
Tensor
computed(const char *name, Stack stack)
{
    compute(named(name), &stack);
    return stack.back().toTensor();
}

// The CPU's would draw from the CPU's generator.
std::tuple<Tensor, Tensor>
dropout(const Tensor &input, double p, std::optional<bool> is_training)
{
    auto mask_options = input.options().dtype(c10::kBool);
    if (input.numel() == 0 || !is_training.value_or(true)) {
        return {input.clone(), at::ones_like(input, mask_options)};
    }
    Tensor mask = at::empty_like(input, mask_options).bernoulli_(1 - p);
    return {input.mul(mask).mul_(p == 1 ? 0 : 1 / (1 - p)), mask};
}

// Behind an operator that fell back: what the CPU's left in an argument.
Tensor
copy_and_resize(const Tensor &cpu, const Tensor &ours)
{
    if (ours.sizes() != cpu.sizes()) {
        ours.resize_(cpu.sizes());
        if (cpu.is_non_overlapping_and_dense()) {
            ours.as_strided_(cpu.sizes(), cpu.strides());
        }
    }
    return ours.copy_(cpu);
}

// The CPU adds weights of other types up in float64; MPS whole numbers as int32.
Tensor
bincount(const Tensor &self, const std::optional<Tensor> &weights, int64_t least)
{
    bool is_taken = !weights || !weights->defined() || weights->scalar_type() == c10::kFloat ||
                    (weights->scalar_type() == c10::kDouble && allows_float64);
    if (!is_taken) {
        bool is_whole = c10::isIntegralType(weights->scalar_type(), true);
        return at::bincount(self, weights->to(c10::kFloat), least)
            .to(is_whole ? c10::kInt : c10::kFloat);
    }
    return computed("aten::bincount", {self, weights, least});
}

// Weights of four bits each, packed as the CPU's kernels want them, in the shape that MPS gives.
Tensor
pack_int4(const Tensor &weight, int64_t tiles)
{
    TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == c10::kByte,
                "_convert_weight_to_int4pack: expected a uint8 tensor of two axes, got ",
                weight.scalar_type(), " of ", weight.sizes());
    TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8,
                "_convert_weight_to_int4pack: innerKTiles is 2, 4 or 8, not ", tiles);
    int64_t n = weight.size(0), k = weight.size(1) * 2;
    TORCH_CHECK(n % 8 == 0 && k % (tiles * 16) == 0,
                "_convert_weight_to_int4pack: expected a multiple of 8 rows and of ", tiles * 8,
                " columns, got ", weight.sizes());
    Tensor each = at::stack({weight.__rshift__(4), weight.bitwise_and(15)}, 2);
    Tensor packed = computed("aten::_convert_weight_to_int4pack_for_cpu",
                             {each.reshape({n, k}).to(c10::kInt), tiles});
    return packed.view(c10::kInt).view({n / 8, k / (tiles * 16), 32, tiles / 2});
}

Tensor
multiply_int4(const Tensor &a, const Tensor &packed, int64_t group, const Tensor &scales)
{
    int64_t n = packed.size(0) * 8;
    return computed("aten::_weight_int4pack_mm_for_cpu",
                    {a, packed.view({n, -1}).view(c10::kByte), group, scales});
}

// Returns what a mask of true and false adds.
std::optional<Tensor>
added_mask(const std::optional<Tensor> &mask, const Tensor &query)
{
    if (!mask || !mask->defined() || mask->scalar_type() != c10::kBool) {
        return mask;
    }
    auto infinity = std::numeric_limits<double>::infinity();
    return at::zeros_like(*mask, query.options()).masked_fill_(mask->logical_not(), -infinity);
}

// Torch asks a table of devices, which has no row for mps, which form to take: it is the CPU's.
Tensor
attention(const Tensor &query, const Tensor &key, const Tensor &value,
          const std::optional<Tensor> &mask, double dropout, bool is_causal,
          std::optional<double> scale, bool enable_gqa)
{
    bool mask_is_trained = mask && mask->defined() && mask->requires_grad();
    bool is_plain = query.dim() != 4 || mask_is_trained; // 2.15 chooses flash for three, too
    int64_t form = is_plain ? int64_t(at::SDPBackend::math)
                            : at::_fused_sdp_choice(query, key, value, mask, dropout, is_causal,
                                                    scale, enable_gqa);
    if (form == int64_t(at::SDPBackend::flash_attention)) {
        return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout, is_causal, added_mask(mask, query), scale));
    }
    return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value,
                                                              added_mask(mask, query), dropout,
                                                              is_causal, std::nullopt, scale,
                                                              enable_gqa));
}

// MPS's own form, which also tells the weights of the attention.  Before 2.12 it takes no enable_gqa.
void
attention_with_weights(const c10::OperatorHandle &op, Stack *stack)
{
    std::vector<c10::IValue> given = torch::jit::pop(*stack, op.schema().arguments().size());
    auto tensor = [&](size_t index) { return given[index].toOptional<Tensor>(); };
    auto [output, weights] =
        at::_scaled_dot_product_attention_math(*tensor(0), *tensor(1), *tensor(2),
                                               added_mask(tensor(3), *tensor(0)),
                                               given[4].toDouble(), given[5].toBool(),
                                               tensor(6), given[7].toOptional<double>(),
                                               given.size() > 8 && given[8].toBool());
    torch::jit::push(*stack, output, weights);
}

#if TORCH_HAS_MPS_STREAMS
// Work in flight holds the buffers that it uses, on whatever stream.
void
record_stream(Tensor &, c10::Stream)
{
}
#endif

} // namespace

} // namespace torch_mps

TORCH_LIBRARY_IMPL(aten, MPS, library)
{
    library.impl("empty.memory_format", torch_mps::empty);
    library.impl("empty_strided", torch_mps::empty_strided);
    library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&torch_mps::compute>());
    library.impl("convolution_overrideable",
                 torch::CppFunction::makeFromBoxedFunction<&torch_mps::convolution>());
    library.impl("convolution_backward_overrideable",
                 torch::CppFunction::makeFromBoxedFunction<&torch_mps::convolution_backward>());
    library.impl("scaled_dot_product_attention", torch_mps::attention);
    library.impl(
        "_scaled_dot_product_attention_math_for_mps",
        torch::CppFunction::makeFromBoxedFunction<&torch_mps::attention_with_weights>());
    library.impl("_convert_weight_to_int4pack", torch_mps::pack_int4);
    library.impl("_weight_int4pack_mm", torch_mps::multiply_int4);
    library.impl("bincount", torch_mps::bincount);
    library.impl("native_dropout", torch_mps::dropout);
    library.impl("_copy_from_and_resize", torch_mps::copy_and_resize);
    for (const char *name :
         {"_fused_sdp_choice", "_scaled_dot_product_flash_attention_for_cpu",
          "_scaled_dot_product_flash_attention_for_cpu_backward"}) { // which `attention` calls
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&torch_mps::compute>());
    }
    library.impl("_efficientzerotensor", torch_mps::zero_tensor);
#if TORCH_HAS_MPS_STREAMS
    library.impl("record_stream", torch_mps::record_stream);
#endif
    torch_mps::register_operators(library);
}

TORCH_LIBRARY_IMPL(aten, SparseMPS, library)
{
    for (const char *name :
         {"_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
          "empty.memory_format", "empty_like", "sparse_dim", "dense_dim", "_nnz",
          "is_coalesced", "_coalesced_", "indices", "_indices", "values", "_values",
          "is_pinned"}) {
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&torch_mps::ask_sparse>());
    }
    torch_mps::register_sparse_operators(library);
}

TORCH_LIBRARY_IMPL(aten, AutogradMPS, library)
{
    torch_mps::register_autograd(library);
    library.impl("scaled_dot_product_attention", torch_mps::attention);
}
