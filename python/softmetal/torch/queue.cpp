// queue.cpp: see torch_mps.h.
//
// Torch's operators compute on the calling thread, at once.  Where nothing delays the software Metal, they compute in
// the buffers, and the queue is told afterwards what they have used: that is what the search for races needs.  With
// SOFTMETAL_LATENCY_US they compute in shadows, and the bytes arrive when the queue comes to them: until then whoever
// reads the buffer without waiting sees what was there before, as on a Mac.  An operator that comes meanwhile gets the
// buffer's bytes with all that is to arrive laid over them; what is to arrive on another stream, only where its own
// has waited for that.
//
// Owns:  for each of torch's streams a queue, its open command buffer, the event that each committed one signals.
// Locks: `encoding`, round everything on any queue, also while Metal makes us wait; then `arrival_lock`, which the
//        thread of Metal's takes alone.  fork holds both.
#include "torch_mps.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#if __has_include(<c10/metal/error.h>) // after 2.9
#include <c10/metal/error.h>
#define TORCH_HAS_KERNEL_ERRORS 1
#else
#define TORCH_HAS_KERNEL_ERRORS 0
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>

namespace torch_mps {

namespace {

constexpr std::chrono::milliseconds wait_slice(50); // between two looks for Ctrl-C
constexpr size_t most_uses = 64;                    // of one command buffer
constexpr size_t most_late_nbytes =
    256 << 20; // then an operator waits until the queue has come so far

double
now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Per stream: the last event value that this work is ordered after.
using Moment = std::array<uint64_t, stream_count>;

struct Event {
    void *event;
    bool is_timed;
    uint64_t value; // 0: it was not recorded
    double reached_ms;
    Moment moment; // when it was recorded
};

struct Arrival {
    Use use;
    int stream;
    uint64_t value; // of the stream's event, with which it is complete
    // Set before anybody can know that it is there by an event, which comes before the completion.
    std::atomic<bool> is_here{false};
};
using ArrivalRef = std::shared_ptr<Arrival>;

// What a command buffer keeps until it is complete.
struct Kept {
    std::vector<ArrivalRef> arrivals;
    std::vector<std::shared_ptr<Event>> events;
    int stream;
    uint64_t value;
    bool has_kernel;
};

// One of torch's streams, made when it is first used.
struct Queue {
    void *queue, *done_event;
    void *commands;     // owned (+1); null: none is open
    Kept *kept;         // of the open command buffer
    uint64_t committed; // the event's value behind the last one
    size_t uses;        // of the open command buffer
    bool has_foreign;   // somebody else has encoded on it: it may wait for anything
    bool has_wait;      // the open command buffer has one, or the one before it had
    Moment known;       // what its next command comes behind, of other streams
    // both behind arrival_lock
    uint64_t completed; // behind it, as the next
    uint64_t foreign;   // the last committed value behind which somebody else has encoded
    std::string *
        failure; // owned: of the first kernel that failed, until a wait raises it; null: none did
    void *
        errors; // owned: memory, where kernels find c10::metal::ErrorMessages; null: none asked

    int stream() const;
    void open();
    void keep_order();
    void commit();
    bool may_wait();
    void raise_failure();
    void raise_reported();
};

// None is ever destroyed: at the end of the process a Metal thread may still use them.
std::recursive_mutex &encoding = *new std::recursive_mutex;
Queue queues[stream_count];
thread_local int current;
int last_of_pool;
std::unordered_map<uint32_t, std::shared_ptr<Event>> &events =
    *new std::unordered_map<uint32_t, std::shared_ptr<Event>>;
uint32_t last_event;

std::mutex &arrival_lock = *new std::mutex;
std::condition_variable &completed_more = *new std::condition_variable;
size_t late_nbytes; // still to arrive
// By buffer, in the order in which torch was asked.
std::unordered_map<void *, std::vector<ArrivalRef>> &arriving =
    *new std::unordered_map<void *, std::vector<ArrivalRef>>;

void
forget_locked(const ArrivalRef &arrival)
{
    auto found = arriving.find(arrival->use.range.handle);
    if (found == arriving.end()) {
        return;
    }
    auto &list = found->second;
    auto place = std::find(list.begin(), list.end(), arrival);
    if (place != list.end()) {
        list.erase(place);
        late_nbytes -= arrival->use.range.nbytes;
    }
    if (list.empty()) {
        arriving.erase(found);
    }
}

// On a Metal thread, also where the command buffer failed: then its bytes never arrive.
void
complete(void *context, const char *failure)
{
    std::unique_ptr<Kept> over(static_cast<Kept *>(context));
    for (auto &event : over->events) {
        event->reached_ms = now_ms();
    }
    std::lock_guard<std::mutex> guard(arrival_lock);
    for (auto &arrival : over->arrivals) {
        forget_locked(arrival);
    }
    Queue &queue = queues[over->stream];
    queue.completed = std::max(queue.completed, over->value);
    if (failure != nullptr && over->has_kernel && queue.failure == nullptr) {
        queue.failure = new std::string(failure);
    }
    completed_more.notify_all();
}

void
refuse_in_child()
{
    TORCH_CHECK(!metal->is_forked(),
                "Cannot re-initialize MPS in forked subprocess. To use MPS with "
                "multiprocessing, you must use the 'spawn' start method.");
}

// Before a fork nobody is amid the lists; a recursive mutex belongs to a thread that the child does not have.
void
watch_fork()
{
    static bool is_watched = false;
    if (!std::exchange(is_watched, true)) {
        (void)pthread_atfork(
            [] {
                encoding.lock();
                arrival_lock.lock();
            },
            [] {
                arrival_lock.unlock();
                encoding.unlock();
            },
            [] {
                new (&arrival_lock) std::mutex;
                new (&encoding) std::recursive_mutex;
            });
    }
}

Queue &
current_queue()
{
    return queues[current];
}

Queue &
queue_of(int stream)
{
    TORCH_CHECK(stream >= 0 && stream < stream_count, "There is no mps stream ", stream, ".");
    return queues[stream];
}

int
Queue::stream() const
{
    return int(this - queues);
}

// Behind `encoding`, as the next.
void
Queue::open()
{
    refuse_in_child();
    if (queue == nullptr) {
        watch_fork();
        queue = metal->queue_new();
    }
    if (done_event == nullptr) {
        done_event = metal->event_new();
    }
    TORCH_CHECK(queue != nullptr && done_event != nullptr,
                "The software Metal gives no queue for torch's mps.");
    if (commands == nullptr) {
        commands = metal->commands_new(queue);
        TORCH_CHECK(commands != nullptr,
                    "The software Metal gives no command buffer for torch's mps; there may be "
                    "too many threads, or the queue is full of work that waits.");
        kept = new Kept{};
        keep_order();
    }
}

// torch assumes that a wait delays all later work of the queue; Metal may delay one command buffer only.
void
Queue::keep_order()
{
    if (has_wait) {
        std::lock_guard<std::mutex> guard(arrival_lock);
        has_wait = completed < committed;
    }
    if (has_wait) {
        metal->encode_wait(commands, done_event, committed);
    }
}

void
Queue::commit()
{
    if (commands != nullptr && !metal->is_forked()) {
        committed += 1;
        metal->encode_signal(commands, done_event, committed);
        kept->stream = stream();
        kept->value = committed;
        if (std::exchange(has_foreign, false)) {
            std::lock_guard<std::mutex> guard(arrival_lock);
            foreign = committed;
        }
        metal->commands_commit(std::exchange(commands, nullptr), complete,
                               std::exchange(kept, nullptr));
        uses = 0;
    }
}

// One item or a run of them after the other.
void
copy_items(char *to, const char *from, const Use &use)
{
    size_t axes = use.sizes.size(), run = use.itemsize;
    while (axes > 0 && (use.strides[axes - 1] == int64_t(run) || use.sizes[axes - 1] == 1)) {
        axes -= 1;
        run *= size_t(use.sizes[axes]);
    }
    std::vector<int64_t> at(axes, 0);
    for (;;) {
        int64_t offset = int64_t(use.range.offset);
        for (size_t axis = 0; axis < axes; axis++) {
            offset += at[axis] * use.strides[axis];
        }
        memcpy(to + offset, from + offset, run);
        size_t axis = axes;
        while (axis > 0 && ++at[axis - 1] == use.sizes[axis - 1]) {
            at[--axis] = 0;
        }
        if (axis == 0) {
            return;
        }
    }
}

// `address` is where the range begins.
void
arrive(void *context, void *address)
{
    auto *arrival = static_cast<Arrival *>(context);
    const Use &use = arrival->use;
    copy_items(static_cast<char *>(address) - use.range.offset, use.shadow->bytes, use);
    arrival->is_here.store(true, std::memory_order_release);
}

// Pending writes to this range that the current stream must see, oldest first.
std::vector<ArrivalRef>
arrivals_of(void *handle, size_t begin, size_t end)
{
    std::vector<ArrivalRef> found;
    std::lock_guard<std::recursive_mutex> outer(encoding);
    std::lock_guard<std::mutex> guard(arrival_lock);
    auto comes_before = [](const Arrival &arrival) {
        return arrival.stream == current ||
               arrival.value <= current_queue().known[size_t(arrival.stream)];
    };
    auto list = arriving.find(handle);
    if (list != arriving.end()) {
        // The last is asked first: it comes after the others, so that none of them is laid over
        // what has arrived since it was asked.
        for (auto place = list->second.rbegin(); place != list->second.rend(); ++place) {
            const ArrivalRef &arrival = *place;
            const metal_range &range = arrival->use.range;
            if (range.offset < end && begin < range.offset + range.nbytes &&
                comes_before(*arrival) && !arrival->is_here.load(std::memory_order_acquire)) {
                found.push_back(arrival);
            }
        }
    }
    std::reverse(found.begin(), found.end());
    return found;
}

void
wait_for(const Queue &queue, uint64_t value)
{
    std::unique_lock<std::mutex> guard(arrival_lock);
    auto is_reached = [&] { return queue.completed >= value; };
    while (!completed_more.wait_for(guard, wait_slice, is_reached)) {
        guard.unlock(); // whoever holds the GIL may want it
        if (!hear_signals()) {
            raise_heard();
        }
        guard.lock();
    }
}

// The CPU knows then, as the search for races is told.
void
wait_for_event(void *event, uint64_t value)
{
    if (!metal->event_wait(event, value, hear_signals)) {
        raise_heard();
    }
}

uint64_t
commit_whole(Queue &queue)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    refuse_in_child();
    queue.commit();
    return queue.committed;
}

// Not as torch.mps.synchronize() does: on a Mac the GPU waits, and the CPU learns nothing.
void
catch_up(Queue &queue)
{
    wait_for(queue, commit_whole(queue));
}

// Behind both locks.
bool
Queue::may_wait()
{
    return has_foreign || foreign > completed;
}

void
Queue::raise_failure()
{
    std::unique_ptr<std::string> raised;
    {
        std::lock_guard<std::mutex> guard(arrival_lock);
        raised.reset(std::exchange(failure, nullptr));
    }
    TORCH_CHECK(raised == nullptr, *raised);
}

#if TORCH_HAS_KERNEL_ERRORS
constexpr size_t errors_nbytes = sizeof(c10::metal::ErrorMessages);

void
Queue::raise_reported()
{
    auto *messages = static_cast<c10::metal::ErrorMessages *>(errors);
    if (messages != nullptr && __atomic_exchange_n(&messages->count, 0, __ATOMIC_ACQ_REL) > 0) {
        const c10::metal::ErrorMessage &first = messages->msg[0];
        throw c10::AcceleratorError({first.func, first.file, first.line}, 1, first.message);
    }
}
#else
constexpr size_t errors_nbytes = 0;

void
Queue::raise_reported()
{
}
#endif

} // namespace

// ---- streams ----

int
stream_current()
{
    return current;
}

void
stream_set_current(int stream)
{
    current = queue_of(stream).stream();
}

int
stream_of_pool()
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    last_of_pool = TORCH_HAS_MPS_STREAMS ? last_of_pool % (stream_count - 1) + 1 : 0;
    return last_of_pool;
}

void
stream_synchronize(int stream)
{
    Queue &queue = queue_of(stream);
    uint64_t value = commit_whole(queue);
    if (value != 0) {
        wait_for_event(queue.done_event, value);
        wait_for(queue, value);
    }
    queue.raise_failure();
    queue.raise_reported();
}

} // namespace torch_mps
