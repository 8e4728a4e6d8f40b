// device.cpp: see torch_mps.h.
#include "torch_mps.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

namespace torch::mps { // queue_events.cpp
void *get_command_buffer();
void *get_dispatch_queue();
} // namespace torch::mps

namespace torch_mps {

const metal_for_torch *metal;
const c10::Device the_device(c10::DeviceType::MPS, 0);

// ---- random numbers: the CPU's, in a sequence of their own ----

namespace {

struct MetalGenerator final : c10::GeneratorImpl {
    at::Generator cpu;
    std::atomic<uint64_t> draws = 0; // operators that have drawn since the seed

    explicit MetalGenerator(at::Generator cpu)
        : GeneratorImpl(the_device, c10::DispatchKeySet(c10::DispatchKey::MPS)),
          cpu(std::move(cpu))
    {
    }
    // The lock of operators that draw; torch holds this generator's own.
    std::unique_lock<std::mutex> locked() const
    {
        return std::unique_lock<std::mutex>(cpu.unsafeGetGeneratorImpl()->mutex_);
    }
    void set_current_seed(uint64_t seed) override
    {
        auto lock = locked();
        cpu.set_current_seed(seed);
        draws = 0;
    }
    void set_offset(uint64_t offset) override
    {
        TORCH_CHECK(offset == 0 || offset == draws.load(),
                    "An mps generator on the software Metal draws from the CPU's sequence, in "
                    "which it cannot go to offset ",
                    offset, "; set_state goes back to a state that get_state gave.");
        if (offset == 0) {
            set_current_seed(current_seed());
        }
    }
    uint64_t get_offset() const override
    {
        return draws.load();
    }
    uint64_t current_seed() const override
    {
        return cpu.current_seed();
    }
    uint64_t seed() override
    {
        auto lock = locked();
        draws = 0;
        return cpu.seed();
    }
    // The CPU's state, and the offset behind it: the 44 bytes of a Mac's name no place in the CPU's sequence.
    void set_state(const c10::TensorImpl &state) override
    {
        at::detail::check_rng_state(state);
        auto *bytes = static_cast<const char *>(state.data());
        auto lock = locked();
        int64_t of_cpu = cpu.unsafeGetGeneratorImpl()->get_state()->numel();
        uint64_t offset;
        TORCH_CHECK(state.numel() == of_cpu + int64_t(sizeof offset),
                    "RNG state is wrong size: it has ", state.numel(),
                    " bytes, and one of mps ", of_cpu + int64_t(sizeof offset), ".");
        at::Tensor first = at::detail::empty_cpu(of_cpu, c10::kByte);
        memcpy(first.mutable_data_ptr(), bytes, size_t(of_cpu));
        cpu.unsafeGetGeneratorImpl()->set_state(*first.unsafeGetTensorImpl());
        memcpy(&offset, bytes + of_cpu, sizeof offset);
        draws = offset;
    }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        auto lock = locked();
        at::Tensor first(cpu.unsafeGetGeneratorImpl()->get_state());
        uint64_t offset = draws;
        at::Tensor state =
            at::detail::empty_cpu(first.numel() + int64_t(sizeof offset), c10::kByte);
        auto *bytes = static_cast<char *>(state.mutable_data_ptr());
        memcpy(bytes, first.const_data_ptr(), first.nbytes());
        memcpy(bytes + first.nbytes(), &offset, sizeof offset);
        return state.getIntrusivePtr();
    }
    MetalGenerator *clone_impl() const override
    {
        auto lock = locked();
        auto *clone = new MetalGenerator(cpu.clone());
        clone->draws = draws.load();
        return clone;
    }
};

MetalGenerator *
ours_of(const at::Generator &generator)
{
    return static_cast<MetalGenerator *>(generator.unsafeGetGeneratorImpl());
}

at::Generator
new_generator(uint64_t seed)
{
    return at::make_generator<MetalGenerator>(at::detail::createCPUGenerator(seed));
}

} // namespace

at::Generator &
default_generator()
{
    static at::Generator generator = new_generator(c10::detail::getNonDeterministicRandom());
    return generator;
}

at::Generator
draw_from(const at::Generator &generator)
{
    TORCH_CHECK(generator.device().is_mps(),
                "Expected a 'mps' device type for generator but found '",
                generator.device().type(), "'");
    ours_of(generator)->draws += 1;
    return ours_of(generator)->cpu;
}

// ---- the device ----

namespace {

uint32_t
number_of(void *event)
{
    return uint32_t(reinterpret_cast<uintptr_t>(event));
}

c10::Stream
stream_of(int number)
{
    return c10::Stream(c10::Stream::UNSAFE, the_device, number);
}

// What torch asks, and what is said or done.
#define ANSWER(result, question, ...) \
    result question const override \
    { \
        return __VA_ARGS__; \
    }

// Source: ATen/mps/MPSGuardImpl.h, which has these functions and no others.
struct Guard : c10::impl::DeviceGuardImplInterface {
    ANSWER(c10::DeviceType, type(), c10::DeviceType::MPS)
    ANSWER(c10::Device, exchangeDevice(c10::Device), the_device)
    ANSWER(c10::Device, getDevice(), the_device)
    void setDevice(c10::Device device) const override
    {
        TORCH_CHECK(device.is_mps(), "Expected a MPS device, but got ", device);
    }
    void uncheckedSetDevice(c10::Device) const noexcept override
    {
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return 1;
    }
#if TORCH_HAS_CAPABILITY
    c10::DeviceCapability getDeviceCapability(c10::Device) const override
    {
        c10::DeviceCapability capability;
        capability.capability_data.capability_bits = 0;
        for (int kind :
             {c10::kIndex_Byte, c10::kIndex_Char, c10::kIndex_Short, c10::kIndex_Int,
              c10::kIndex_Long, c10::kIndex_Half, c10::kIndex_Float, c10::kIndex_ComplexHalf,
              c10::kIndex_ComplexFloat, c10::kIndex_Bool, c10::kIndex_BFloat16,
              c10::kIndex_UInt16, c10::kIndex_UInt32, c10::kIndex_UInt64}) {
            capability.capability_data.capability_bits |= uint64_t(1) << kind;
        }
        return capability;
    }
#endif
    ANSWER(c10::Stream, getStream(c10::Device), stream_of(stream_current()))
    ANSWER(c10::Stream, getDefaultStream(c10::Device), stream_of(0))
    ANSWER(c10::Stream, getNewStream(c10::Device, int), stream_of(stream_of_pool()))
    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        int before = stream_current();
        stream_set_current(int(stream.id()));
        return stream_of(before);
    }
    ANSWER(void, synchronizeDevice(const c10::DeviceIndex), queue_synchronize_all())
    // `*event` holds one of queue.cpp's numbers.
    void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override
    {
        event_drop(number_of(event));
    }
    void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
                const c10::EventFlag flag) const override
    {
        if (*event == nullptr) {
            bool is_timed = flag == c10::EventFlag::BACKEND_DEFAULT;
            *event = reinterpret_cast<void *>(uintptr_t(event_acquire(is_timed)));
        }
        event_record(number_of(*event), int(stream.id()));
    }
    ANSWER(void, block(void *event, const c10::Stream &stream),
           event_block(number_of(event), int(stream.id())))
    ANSWER(bool, queryEvent(void *event), event == nullptr || event_query(number_of(event)))
    ANSWER(void, synchronizeEvent(void *event), event_synchronize(number_of(event)))
    double elapsedTime(void *from, void *to, const c10::DeviceIndex) const override
    {
        TORCH_CHECK(from != nullptr && to != nullptr,
                    "Both events must be recorded before calculating elapsed time.");
        return event_elapsed_ms(number_of(from), number_of(to));
    }
};

struct Hooks final : at::MPSHooksInterface {
    ANSWER(void, init(), void())
    ANSWER(bool, hasMPS(), true)
    ANSWER(bool, isBuilt(), true)
    ANSWER(bool, isAvailable(), true)
    ANSWER(bool, isOnMacOSorNewer(unsigned, unsigned), true)
    ANSWER(bool, hasPrimaryContext(c10::DeviceIndex), true)
    ANSWER(c10::DeviceIndex, deviceCount(), 1)
    ANSWER(void, setCurrentDevice(c10::DeviceIndex), void())
    ANSWER(c10::DeviceIndex, getCurrentDevice(), 0)
    ANSWER(c10::DeviceIndex, exchangeDevice(c10::DeviceIndex), 0)
    ANSWER(c10::DeviceIndex, maybeExchangeDevice(c10::DeviceIndex), 0)
    ANSWER(const at::Generator &, getDefaultGenerator(c10::DeviceIndex), default_generator())
    ANSWER(at::Generator, getNewGenerator(c10::DeviceIndex),
           new_generator(c10::default_rng_seed_val))
    ANSWER(c10::Allocator *, getMPSDeviceAllocator(), &metal_memory())
    // As on a Mac, where torch then refuses pin_memory(): that memory is not the CPU's.
    ANSWER(c10::Allocator *, getPinnedMemoryAllocator(), &metal_memory())
    ANSWER(void, deviceSynchronize(), queue_synchronize_all())
    ANSWER(void, commitStream(), queue_commit())
    ANSWER(void *, getCommandBuffer(), torch::mps::get_command_buffer())
    ANSWER(void *, getDispatchQueue(), torch::mps::get_dispatch_queue())
    ANSWER(void, emptyCache(), metal->empty_pool())
    ANSWER(size_t, getCurrentAllocatedMemory(), allocated_nbytes())
    ANSWER(size_t, getDriverAllocatedMemory(), metal->device_allocated())
    ANSWER(size_t, getRecommendedMaxMemory(), metal->device_recommended())
    void setMemoryFraction(double ratio) const override
    {
        TORCH_CHECK(ratio >= 0 && ratio <= 2, "invalid high watermark ratio ", ratio);
        limit_memory(ratio == 0 ? no_limit
                                : uint64_t(ratio * double(metal->device_recommended())));
    }
    ANSWER(uint32_t, acquireEvent(bool is_timed), event_acquire(is_timed))
    ANSWER(void, releaseEvent(uint32_t id), event_drop(id))
    ANSWER(void, recordEvent(uint32_t id), event_record(id, stream_current()))
    ANSWER(void, waitForEvent(uint32_t id), event_block(id, stream_current()))
    ANSWER(void, synchronizeEvent(uint32_t id), event_synchronize(id))
    ANSWER(bool, queryEvent(uint32_t id), event_query(id))
    ANSWER(double, elapsedTimeOfEvents(uint32_t from, uint32_t to), event_elapsed_ms(from, to))
};

#undef ANSWER

Hooks hooks;

} // namespace

// Torch asked for its hooks when it was imported, and keeps the objects: they have no members, so the table of their
// functions is all that there is.
template <typename Interface>
void
replace_hooks(const Interface &torchs, const Interface &ours)
{
    static_assert(sizeof(Interface) == sizeof(void *));
    memcpy(const_cast<void *>(static_cast<const void *>(&torchs)),
           static_cast<const void *>(&ours), sizeof(void *));
}

namespace {

thread_local bool is_asking;

struct AskingGuard final : Guard {
    c10::DeviceType type() const override
    {
        return is_asking ? throw Asked() : c10::DeviceType::MPS;
    }
    struct Asked {};
};

// Before its first backward torch counts the devices, once, and starts a thread for each.  An exception leaves it as it
// was: whether it comes tells whether that is still to be.
struct Engine : torch::autograd::Engine {
    static bool has_counted()
    {
        c10::impl::DeviceGuardImplRegistrar asking(c10::DeviceType::MPS, new AskingGuard());
        is_asking = true;
        try {
            get_default_engine().initialize_device_threads_pool();
        } catch (const AskingGuard::Asked &) {
            is_asking = false;
            return false;
        }
        is_asking = false;
        return true;
    }

    // As torch does it.
    static void count_again()
    {
        auto &engine = get_default_engine();
        auto start = &Engine::start_device_threads;
        if ((engine.*&Engine::device_ready_queues_).empty()) {
            (engine.*start)();
        }
    }
};

} // namespace

void
install_device()
{
    bool has_counted = Engine::has_counted();
    static c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::MPS, new Guard());
    static at::CUDAHooksInterface no_cuda; // as in a build without it
    c10::SetAllocator(c10::DeviceType::MPS, &metal_memory());
    replace_cpu_allocator();
    replace_hooks<at::MPSHooksInterface>(at::detail::getMPSHooks(), hooks);
    // A process has one accelerator, and that of a build for CUDA would be CUDA, GPU or no GPU.
    replace_hooks<at::CUDAHooksInterface>(at::detail::getCUDAHooks(), no_cuda);
    if (has_counted) {
        Engine::count_again();
    }
}

} // namespace torch_mps
