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
constexpr size_t most_reads = 28;                   // of one use: metal.h
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

// ---- what operators use ----

bool
queue_begin()
{
    refuse_in_child();
    bool is_late = metal->latency_us() != 0;
    bool must_wait, has_late;
    {
        std::lock_guard<std::recursive_mutex> guard(encoding);
        std::lock_guard<std::mutex> inner(arrival_lock);
        must_wait = current_queue().may_wait();
        has_late = !is_late && !arriving.empty();
    }
    if (has_late) { // on any stream: operators compute in the buffers from now on
        for (Queue &queue : queues) {
            catch_up(queue);
        }
    }
    else if (must_wait) {
        catch_up(current_queue());
    }
    return is_late;
}

ShadowRef
queue_shadow(void *handle, size_t begin, size_t end, bool is_written)
{
    // First the list: what arrives after this is in both.
    std::vector<ArrivalRef> late = arrivals_of(handle, begin, end);
    if (late.empty() && !is_written) {
        return nullptr;
    }
    auto shadow = std::make_shared<Shadow>();
    shadow->owned.reset(new char[metal->buffer_nbytes(handle)]);
    shadow->bytes = shadow->owned.get();
    const char *contents = static_cast<char *>(metal->buffer_contents(handle));
    memcpy(shadow->bytes + begin, contents + begin, end - begin);
    for (const ArrivalRef &arrival : late) {
        copy_items(shadow->bytes, arrival->use.shadow->bytes, arrival->use);
    }
    return shadow;
}

ShadowRef
shadow_of_result(const c10::Storage &cpu)
{
    auto shadow = std::make_shared<Shadow>();
    shadow->kept = cpu;
    shadow->bytes = static_cast<char *>(const_cast<void *>(cpu.data()));
    return shadow;
}

bool
queue_is_recording()
{
    return metal->is_watching() || metal->latency_us() != 0;
}

namespace {

// A null `written`: nothing is.
bool
encode(Queue &queue, const Use *written, const metal_range *read, size_t read_count)
{
    auto arrival = std::make_shared<Arrival>();
    bool is_late = written != nullptr && written->shadow != nullptr;
    if (written != nullptr) {
        arrival->use = *written;
        arrival->stream = queue.stream();
        arrival->value = queue.committed + 1;
    }
    if (!metal->encode_use(queue.commands, written == nullptr ? nullptr : &written->range,
                           is_late ? arrive : nullptr, arrival.get(), read, int(read_count))) {
        return false;
    }
    if (is_late) {
        queue.kept->arrivals.push_back(arrival);
        std::lock_guard<std::mutex> guard(arrival_lock);
        arriving[written->range.handle].push_back(arrival);
        late_nbytes += written->range.nbytes;
    }
    return true;
}

bool
encode_all(Queue &queue, const std::vector<Use> &written, const std::vector<metal_range> &read)
{
    size_t last = written.empty() ? 0 : read.size() % most_reads; // go with what is written
    size_t first = read.size() - last;
    bool is_encoded = true;
    for (size_t i = 0; i < first && is_encoded; i += most_reads) {
        is_encoded = encode(queue, nullptr, &read[i], std::min(most_reads, first - i));
    }
    for (size_t i = 0; i < written.size() && is_encoded; i++) {
        is_encoded = encode(queue, &written[i], read.data() + first, i == 0 ? last : 0);
    }
    return is_encoded;
}

} // namespace

void
queue_use(const std::vector<Use> &written, const std::vector<metal_range> &read)
{
    Queue &queue = current_queue();
    bool is_full;
    {
        std::lock_guard<std::recursive_mutex> outer(encoding);
        queue.open();
        bool is_encoded = encode_all(queue, written, read);
        queue.uses += 1 + written.size();
        if (queue.uses > most_uses) {
            queue.commit();
        }
        TORCH_CHECK(is_encoded,
                    "The software Metal has no room to encode an operator of torch's mps.");
        std::lock_guard<std::mutex> guard(arrival_lock);
        is_full = late_nbytes > most_late_nbytes;
    }
    if (is_full) {
        catch_up(queue);
    }
}

namespace {

// The buffer for the stream's error messages; zeros at first.
metal_argument
bind_errors(Queue &queue, unsigned index)
{
    TORCH_CHECK(errors_nbytes != 0, "error_buf_idx: this torch has no c10/metal/error.h.");
    if (queue.errors == nullptr) {
        queue.errors = metal->memory_new(errors_nbytes);
        TORCH_CHECK(queue.errors != nullptr,
                    "The software Metal has no room for error messages.");
        memset(queue.errors, 0, errors_nbytes);
    }
    void *handle = metal->memory_handle(queue.errors, errors_nbytes);
    return {index, {handle, 0, errors_nbytes}, nullptr};
}

} // namespace

void
queue_launch(void *kernel, std::vector<metal_argument> arguments, const size_t threads[3],
             const size_t group[3], int error_index)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    Queue &queue = current_queue();
    queue.open();
    if (error_index >= 0) {
        arguments.push_back(bind_errors(queue, unsigned(error_index)));
    }
    bool is_encoded = metal->encode_kernel(queue.commands, kernel, arguments.data(),
                                           int(arguments.size()), threads, group);
    // Operators do not know what it writes: the next one waits for it.
    queue.has_foreign = queue.kept->has_kernel = true;
    queue.uses += 1;
    if (queue.uses > most_uses) {
        queue.commit();
    }
    TORCH_CHECK(is_encoded,
                "The software Metal has no room to encode a kernel on torch's mps.");
}

void
queue_commit()
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    current_queue().commit();
}

void
queue_synchronize()
{
    stream_synchronize(current);
}

void
queue_commit_all()
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    for (Queue &queue : queues) {
        queue.commit();
    }
}

void
queue_synchronize_all()
{
    queue_commit_all(); // one may wait for another
    for (int stream = 0; stream < stream_count; stream++) {
        stream_synchronize(stream);
    }
}

void
queue_let_go()
{
    queue_synchronize_all();
    {
        // A command buffer lets go after its handlers, before those behind it are complete.
        std::lock_guard<std::recursive_mutex> outer(encoding);
        for (Queue &queue : queues) {
            if (queue.committed != 0) {
                queue.open();
            }
        }
    }
    queue_synchronize_all();
}

// ---- events ----

namespace {

std::shared_ptr<Event>
event_of(uint32_t id)
{
    auto found = events.find(id);
    TORCH_CHECK(found != events.end(), "There is no mps event ", id, ".");
    return found->second;
}

} // namespace

uint32_t
event_acquire(bool is_timed)
{
    refuse_in_child();
    std::lock_guard<std::recursive_mutex> outer(encoding);
    void *event = metal->event_new();
    TORCH_CHECK(event != nullptr, "The software Metal gives no event.");
    last_event += 1;
    events[last_event] =
        std::shared_ptr<Event>(new Event{event, is_timed, 0, 0, {}}, [](Event *gone) {
            metal->event_release(gone->event);
            delete gone;
        });
    return last_event;
}

void
event_drop(uint32_t id)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    events.erase(id);
}

void
event_record(uint32_t id, int stream)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    Queue &queue = queue_of(stream);
    queue.open();
    event->value += 1;
    metal->encode_signal(queue.commands, event->event, event->value);
    queue.kept->events.push_back(event);
    queue.commit();
    event->moment = queue.known;
    event->moment[size_t(stream)] = queue.committed;
}

namespace {

// Somebody else's commands come before: what they write is known to nobody but the GPU.
bool
follows_foreign(const Queue &queue, uint64_t value)
{
    std::lock_guard<std::mutex> guard(arrival_lock);
    return queue.foreign > queue.completed && value > queue.completed;
}

} // namespace

void
event_block(uint32_t id, int stream)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    Queue &queue = queue_of(stream);
    queue.open();
    metal->encode_wait(queue.commands, event->event, event->value);
    queue.has_wait = true;
    for (size_t other = 0; other < stream_count; other++) {
        queue.known[other] = std::max(queue.known[other], event->moment[other]);
        if (follows_foreign(queues[other], event->moment[other])) {
            queue.has_foreign = true;
        }
    }
}

bool
event_query(uint32_t id)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    return event->value != 0 && metal->event_value(event->event) >= event->value;
}

void
event_synchronize(uint32_t id)
{
    std::shared_ptr<Event> event;
    uint64_t value;
    {
        std::lock_guard<std::recursive_mutex> outer(encoding);
        refuse_in_child();
        event = event_of(id);
        value = event->value;
    }
    wait_for_event(event->event, value);
}

double
event_elapsed_ms(uint32_t from, uint32_t to)
{
    queue_synchronize_all();
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto begin = event_of(from), end = event_of(to);
    TORCH_CHECK(begin->is_timed && end->is_timed,
                "Events were not created with argument 'enable_timing=True'");
    TORCH_CHECK(begin->value != 0 && end->value != 0,
                "Both events must be recorded before calculating elapsed time");
    TORCH_CHECK(end->reached_ms >= begin->reached_ms, "End event ", to,
                " was not recorded after start event ", from);
    return end->reached_ms - begin->reached_ms;
}

} // namespace torch_mps

// ---- what torch's own library exports on a Mac ----

namespace torch::mps {

// About the stream that is current on the calling thread.

__attribute__((visibility("default"))) void *
get_command_buffer()
{
    using namespace torch_mps;
    std::lock_guard<std::recursive_mutex> outer(encoding);
    Queue &queue = current_queue();
    queue.open();
    queue.has_foreign = queue.has_wait = true;
    return queue.commands;
}

__attribute__((visibility("default"))) void *
get_dispatch_queue()
{
    return &torch_mps::current_queue();
}

__attribute__((visibility("default"))) void
commit()
{
    torch_mps::queue_commit();
}

} // namespace torch::mps

// Grand Central Dispatch, as far as the core asks for it: the serial queues are one lock.
TORCH_MPS_EXPORT void
dispatch_sync_f(void *, void *context, void (*work)(void *))
{
    std::lock_guard<std::recursive_mutex> outer(torch_mps::encoding);
    torch_mps::Deaf deaf;
    work(context);
}

TORCH_MPS_EXPORT void
dispatch_retain(void *)
{
}
