// refusals.cpp: see torch_mps.h.
//
// On a Mac an operator has a kernel of MPS, or is made of others that have, or is refused.  The first kind is a list
// (native_functions.py): those run as the CPU's.  Everything else that comes here is refused in torch's words, or, where
// PYTORCH_ENABLE_MPS_FALLBACK allows it, computed with torch's warning.
//
// Source: the registrations of MPS in the wheels of torch 2.9, 2.13 and 2.15 for macOS, and the texts there.
#include "torch_mps.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_linalg_svd.h>
#include <c10/util/ScopeExit.h>
#include <caffe2/core/common.h>
#include <torch/library.h>

namespace torch_mps {

// Names, and null at the end: native_functions.py makes them for this torch.
extern const char *const kernels_of_mps[], *const kernels_of_sparse_mps[];

std::atomic<bool> allows_fallback;

namespace {

using torch::jit::Stack;

thread_local bool is_allowed_here; // inside an operator that falls back without being allowed

// Kernels of MPS in torchvision 0.29 for macOS; its wheel for Linux has the CPU's alone.
constexpr const char *kernels_of_torchvision[] = {
    "deform_conv2d", "nms",
    "roi_align",     "_roi_align_backward",
    "roi_pool",      "_roi_pool_backward",
    "ps_roi_align",  "_ps_roi_align_backward",
    "ps_roi_pool",   "_ps_roi_pool_backward",
};

void
warn(const c10::OperatorName &name)
{
    TORCH_WARN_ONCE(
        "The operator '", name,
        "' is not currently supported on the MPS backend and will fall back to run on "
        "the CPU. This may have performance implications.");
}

// The CPU gets copies, as on a Mac: what it keeps of them is its own.
void
fall_back(const c10::OperatorHandle &op, Stack *stack)
{
    warn(op.schema().operator_name());
    at::native::cpu_fallback(op, stack);
}

void
refuse(const c10::OperatorHandle &op, Stack *stack)
{
    auto name = op.schema().operator_name();
    bool is_distributed = name.getNamespace().value_or("") == "c10d";
    if (is_allowed_here) {
        compute(op, stack);
        return;
    }
    if (allows_fallback && !is_distributed) {
        fall_back(op, stack);
        return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, is_distributed ? "The distributed operator '" : "The operator '", name,
        "' is not currently implemented for the MPS device. If you want this op to be "
        "considered "
        "for addition please comment on https://github.com/pytorch/pytorch/issues/141287 and "
        "mention use-case, that resulted in missing op as well as commit hash ",
        caffe2::GetBuildOptions().at("COMMIT_SHA"),
        is_distributed ? ". Please note, that distributed operators can not fall back to CPU"
                       : ". As a temporary fix, you can set the environment variable "
                         "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for "
                         "this op. WARNING: "
                         "this will be slower than running natively on MPS.");
}

bool
is_listed(const std::string &name)
{
    for (const char *const *one = kernels_of_mps; *one != nullptr; one++) {
        if ("aten::" + name == *one) {
            return true;
        }
    }
    return false;
}

// Until 2.13; later MPS has what it is made of.
bool
svd_falls_back()
{
    return !is_listed("_linalg_svd.U");
}

// A Mac falls back to the CPU for this one as well.  It is made of another operator, which has the gradient.
std::tuple<at::Tensor, at::Tensor, at::Tensor>
singular_values(const at::Tensor &a, bool has_full_matrices,
                std::optional<c10::string_view> driver)
{
    warn({"aten::linalg_svd", ""});
    bool before = std::exchange(is_allowed_here, true);
    auto restored = c10::make_scope_exit([before] { is_allowed_here = before; });
    return at::_linalg_svd(a, has_full_matrices, true, driver);
}

void
lack(const c10::OperatorHandle &op, Stack *)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "softmetal.torch_mps: the operator '", op.schema().operator_name(),
        "' has a kernel on a Mac alone, so that this MPS device cannot compute it. "
        "Use a Mac, or another operator.");
}

bool
has_kernel(const c10::OperatorHandle &op, std::initializer_list<c10::DispatchKey> keys)
{
    return std::any_of(keys.begin(), keys.end(),
                       [&](auto key) { return op.hasKernelForDispatchKey(key); });
}

using Boxed = void(const c10::OperatorHandle &, Stack *);
using Key = c10::DispatchKey;

template <Boxed *computes>
void
register_listed(torch::Library &library, const char *const *names, Key ours, Key cpu)
{
    for (; *names != nullptr; names++) {
        auto op = c10::Dispatcher::singleton().findOp(torch::jit::parseName(*names));
        if (!op || has_kernel(*op, {ours})) {
            continue;
        }
        if (has_kernel(*op, {cpu})) {
            library.impl(*names, torch::CppFunction::makeFromBoxedFunction<computes>());
        }
        else if (!has_kernel(*op, {Key::CompositeImplicitAutograd,
                                   Key::CompositeExplicitAutograd})) {
            library.impl(*names, torch::CppFunction::makeFromBoxedFunction<&lack>());
        }
    }
}

} // namespace

void
register_sparse_operators(torch::Library &library)
{
    register_listed<compute_sparse>(library, kernels_of_sparse_mps, Key::SparseMPS,
                                    Key::SparseCPU);
}

void
register_operators(torch::Library &library)
{
    register_listed<compute>(library, kernels_of_mps, Key::MPS, Key::CPU);
    if (!is_listed("embedding_renorm_")) { // on a Mac, too, the CPU computes it, allowed or not
        library.impl("embedding_renorm_",
                     torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    }
    if (svd_falls_back()) {
        library.impl("linalg_svd", singular_values);
        library.impl("linalg_svd.U", torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    }
}

void
register_autograd(torch::Library &library)
{
    if (svd_falls_back()) {
        library.impl("linalg_svd", singular_values);
    }
}

} // namespace torch_mps

TORCH_LIBRARY_IMPL(_, MPS, library)
{
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&torch_mps::refuse>());
}

TORCH_LIBRARY_IMPL(torchvision, MPS, library)
{
    for (const char *name : torch_mps::kernels_of_torchvision) {
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&torch_mps::compute>());
    }
}
