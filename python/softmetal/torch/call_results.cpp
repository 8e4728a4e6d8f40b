// call_results.cpp: what an operator has made comes back to mps; its call is in call.cpp, before this in all.cpp.

namespace torch_mps {

namespace {

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

} // namespace

} // namespace torch_mps
