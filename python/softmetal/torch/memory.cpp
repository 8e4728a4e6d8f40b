// memory.cpp: see torch_mps.h.
//
// Owns: the length of each piece of memory that torch has, by its address; the figures of torch.accelerator.
// Note: torch's figures count MTLBuffers, as memory_stats() does: lengths are those of size classes.
#include "torch_mps.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace torch_mps {

namespace {

// Never destroyed: torch frees memory until the very end of the process.
std::mutex &lock = *new std::mutex;
std::unordered_map<void *, size_t> &lengths =
    *new std::unordered_map<void *, size_t>; // behind the lock
c10::CachingDeviceAllocator::DeviceStats &stats =
    *new c10::CachingDeviceAllocator::DeviceStats; // the same
std::atomic<size_t> allocated;
std::atomic<uint64_t> most = no_limit;

constexpr size_t small_nbytes = 1 << 20; // torch's: pieces below it are counted apart

thread_local bool gives_buffers;

[[noreturn]] void
refuse(size_t nbytes)
{
    auto mib = [](double n) { return n / (1 << 20); };
    uint64_t limit = most.load();
    TORCH_CHECK_WITH(OutOfMemoryError, false, "MPS backend out of memory (MPS allocated: ",
                     mib(double(allocated.load())), " MiB, max allowed: ",
                     mib(double(limit == no_limit ? metal->device_recommended() : limit)),
                     " MiB). Tried to allocate ", mib(double(nbytes)), " MiB.",
                     limit == no_limit
                         ? ""
                         : " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper "
                           "limit for memory allocations (may cause system failure).");
    std::abort(); // TORCH_CHECK has thrown
}

// Behind the lock; each piece is a buffer of its own.
template <typename Change>
void
count(size_t nbytes, Change change)
{
    using c10::CachingAllocator::StatType;
    auto pool = nbytes < small_nbytes ? StatType::SMALL_POOL : StatType::LARGE_POOL;
    for (auto kind : {StatType::AGGREGATE, pool}) {
        for (auto *pieces : {&stats.allocation, &stats.active, &stats.segment}) {
            change((*pieces)[size_t(kind)], 1);
        }
        for (auto *bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes,
                            &stats.reserved_bytes}) {
            change((*bytes)[size_t(kind)], nbytes);
        }
    }
}

// Each figure that `count` counts.
template <typename Change>
void
change_all(Change change)
{
    std::lock_guard<std::mutex> guard(lock);
    for (size_t nbytes : {size_t(0), small_nbytes}) {
        count(nbytes, [&](auto &figure, size_t) { change(figure); });
    }
}

struct Memory {
    void *address, *handle;
};

// Null: there is no room.
Memory
try_memory(size_t nbytes)
{
    uint64_t limit = most.load();
    if (limit != no_limit && (nbytes > limit || allocated.load() > limit - nbytes)) {
        return {nullptr, nullptr};
    }
    void *address = metal->memory_new(nbytes);
    void *handle = address == nullptr ? nullptr : metal->memory_handle(address, nbytes);
    if (handle == nullptr) {
        return {nullptr, nullptr};
    }
    size_t length = metal->buffer_nbytes(handle);
    std::lock_guard<std::mutex> guard(lock);
    lengths[address] = length;
    allocated += length;
    count(length, [](auto &figure, size_t amount) { figure.increase(amount); });
    return {address, handle};
}

Memory
memory_new(size_t nbytes)
{
    Memory memory = try_memory(nbytes);
    if (memory.address == nullptr) {
        // What is in flight keeps buffers that nobody else has any more.
        queue_let_go();
        metal->empty_pool();
        memory = try_memory(nbytes);
    }
    if (memory.address == nullptr) {
        refuse(nbytes);
    }
    return memory;
}

c10::DeleterFnPtr usual_deleter;

bool
forget(void *address)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = lengths.find(address);
    if (found == lengths.end()) {
        return false;
    }
    allocated -= found->second;
    count(found->second, [](auto &figure, size_t amount) { figure.decrease(amount); });
    lengths.erase(found);
    return true;
}

void
memory_free(void *address)
{
    if (forget(address)) {
        metal->memory_free(address);
    }
    else if (address != nullptr && usual_deleter != nullptr) {
        usual_deleter(address);
    }
}

struct MetalMemory final : c10::DeviceAllocator {
    c10::DataPtr allocate(size_t nbytes) override
    {
        if (nbytes == 0) {
            return {nullptr, the_device};
        }
        Memory memory = memory_new(nbytes);
        return {memory.handle, memory.address, memory_free, the_device};
    }

    void copy_data(void *to, const void *from, size_t nbytes) const override
    {
        queue_synchronize();
        memcpy(metal->buffer_contents(to), metal->buffer_contents(const_cast<void *>(from)),
               nbytes);
    }

    // ---- of torch.accelerator ----

    bool initialized() override
    {
        return true;
    }
    void emptyCache(c10::MempoolId_t) override
    {
        metal->empty_pool();
    }
    void recordStream(const c10::DataPtr &, c10::Stream) override
    {
    }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override
    {
        std::lock_guard<std::mutex> guard(lock);
        return stats;
    }
    void resetAccumulatedStats(c10::DeviceIndex) override
    {
        change_all([](auto &figure) { figure.reset_accumulated(); });
    }
    void resetPeakStats(c10::DeviceIndex) override
    {
        change_all([](auto &figure) { figure.reset_peak(); });
    }
};

struct ComputedMemory final : c10::Allocator {
    c10::Allocator *usual = nullptr;

    c10::DataPtr allocate(size_t nbytes) override
    {
        if (!gives_buffers || nbytes == 0) {
            return usual->allocate(nbytes);
        }
        void *address = memory_new(nbytes).address;
        return {address, address, memory_free, c10::Device(c10::DeviceType::CPU)};
    }

    // The deleter for raw_allocate, which cannot say whose the memory is.
    c10::DeleterFnPtr raw_deleter() const override
    {
        return memory_free;
    }

    void copy_data(void *to, const void *from, size_t nbytes) const override
    {
        default_copy_data(to, from, nbytes);
    }
};

ComputedMemory computed_memory;

} // namespace

c10::Allocator &
metal_memory()
{
    static MetalMemory memory;
    return memory;
}

void
replace_cpu_allocator()
{
    computed_memory.usual = c10::GetCPUAllocator();
    usual_deleter = computed_memory.usual->raw_deleter();
    c10::SetCPUAllocator(&computed_memory);
    // The lock is free in a child, which frees what it inherits.
    (void)pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });
}

Computing::Computing(bool is_direct) : before(std::exchange(gives_buffers, is_direct))
{
}

Computing::~Computing()
{
    gives_buffers = before;
}

c10::DataPtr
take_memory(const c10::Storage &cpu)
{
    void *address = const_cast<void *>(cpu.data());
    {
        std::lock_guard<std::mutex> guard(lock);
        if (lengths.find(address) == lengths.end()) {
            return {nullptr, the_device};
        }
    }
    void *handle = metal->memory_handle(address, cpu.nbytes());
    return {handle, new c10::Storage(cpu),
            [](void *kept) { delete static_cast<c10::Storage *>(kept); }, the_device};
}

size_t
allocated_nbytes()
{
    return allocated.load();
}

void
limit_memory(uint64_t nbytes)
{
    most.store(nbytes);
}

} // namespace torch_mps
