// operators.cpp: operators with a kernel of their own, and the table of all; after call.cpp in all.cpp.
#include "torch_mps.h"

namespace torch_mps {

namespace {

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

// Conversions to and from 8-bit floats: bytes go anywhere, and from the CPU they are converted there.
//
// Source: reports of bugs from Macs have this text; PyTorch's pull request 194074 (September 2026) adds e4m3fn.  That 2.15
//         has it is an inference from the date.
void
copy(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    const Tensor &to = stack->at(stack->size() - 3).toTensor(),
                 &from = stack->at(stack->size() - 2).toTensor();
    if (from.scalar_type() != to.scalar_type() && from.is_mps() && to.numel() > 0) {
        for (auto dtype : {from.scalar_type(), to.scalar_type()}) {
            bool is_known = TORCH_IS_FROM(15) && dtype == c10::kFloat8_e4m3fn;
            TORCH_CHECK_TYPE(
                !c10::isFloat8Type(dtype) || is_known, "Trying to convert ", dtype,
                " to the MPS backend but it does not have support for that dtype.");
        }
    }
    compute(op, stack);
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
    library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&torch_mps::copy>());
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
