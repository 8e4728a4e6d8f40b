// queue.cpp: see torch_mps.h.
//
// Torch's operators compute on the calling thread, at once.  Where nothing delays the software Metal, they compute in
// the buffers, and the queue is told afterwards what they have used: that is what the search for races needs.  With
// SOFTMETAL_LATENCY_US they compute in shadows, and the bytes arrive when the queue comes to them: until then whoever
// reads the buffer without waiting sees what was there before, as on a Mac.
//
// Owns:  one queue, its open command buffer, the event that each committed one signals.
// Locks: `encoding`, round everything on the queue, also while Metal makes us wait; then `shadow_lock`, which the
//        thread of Metal's takes alone.
#include "torch_mps.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>

namespace torch_mps {

namespace {

constexpr size_t most_uses = 64; // of one command buffer

std::recursive_mutex encoding;
void *queue, *done_event;
void *commands;     // owned (+1); null: none is open
uint64_t committed; // the event's value behind the last one
uint64_t epoch = 1; // see Shadow
bool has_foreign;   // somebody else has encoded on the queue: it may wait for anything
size_t uses;        // of the open command buffer

std::mutex shadow_lock;
std::condition_variable completed_more;
uint64_t completed; // behind it, as the next
std::unordered_map<void *, ShadowRef> shadows;

double
now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

struct Event {
    void *event;
    uint64_t value;
    double reached_ms;
};
std::unordered_map<uint32_t, std::shared_ptr<Event>> events; // behind `encoding`
uint32_t last_event;

// What a command buffer keeps until it is complete.
struct Arrival {
    void *handle;
    Use use;
};
struct Kept {
    std::vector<std::unique_ptr<Arrival>> arrivals;
    std::vector<std::shared_ptr<Event>> events;
    uint64_t value;
};
std::unique_ptr<Kept> kept; // of the open command buffer

void
let_go_locked(void *handle, const ShadowRef &shadow)
{
    shadow->arrivals -= 1;
    auto found = shadows.find(handle);
    if (shadow->arrivals == 0 && found != shadows.end() && found->second == shadow) {
        shadows.erase(found);
    }
}

void
complete(void *context)
{
    std::unique_ptr<Kept> over(static_cast<Kept *>(context));
    for (auto &event : over->events) {
        event->reached_ms = now_ms();
    }
    std::lock_guard<std::mutex> guard(shadow_lock);
    for (auto &arrival : over->arrivals) {
        if (arrival->use.shadow) {
            let_go_locked(arrival->handle, arrival->use.shadow);
        }
    }
    completed = std::max(completed, over->value);
    completed_more.notify_all();
}

// Behind `encoding`.
void
open_commands()
{
    if (queue == nullptr) {
        queue = metal->queue_new();
        done_event = metal->event_new();
        TORCH_CHECK(queue != nullptr && done_event != nullptr,
                    "The software Metal gives no queue for torch's mps.");
    }
    if (commands == nullptr) {
        commands = metal->commands_new(queue);
        TORCH_CHECK(
            commands != nullptr,
            "The software Metal gives no command buffer for torch's mps; there may be too "
            "many threads, or this is a forked child.");
        kept = std::make_unique<Kept>();
    }
}

void
commit()
{
    if (commands != nullptr) {
        committed += 1;
        metal->encode_signal(commands, done_event, committed);
        kept->value = committed;
        metal->commands_commit(std::exchange(commands, nullptr), complete, kept.release());
        epoch += 1;
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
        int64_t offset = 0;
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

void
arrive(void *context, void *address)
{
    const Use &use = static_cast<Arrival *>(context)->use;
    copy_items(static_cast<char *>(address), use.shadow->bytes + use.range.offset, use);
}

ShadowRef
new_shadow(size_t nbytes)
{
    auto shadow = std::make_shared<Shadow>();
    shadow->nbytes = nbytes;
    return shadow;
}

} // namespace

bool
queue_begin()
{
    bool is_late = metal->latency_us() != 0;
    bool must_wait;
    {
        std::lock_guard<std::recursive_mutex> guard(encoding);
        std::lock_guard<std::mutex> inner(shadow_lock);
        must_wait = has_foreign || (!is_late && !shadows.empty());
    }
    if (must_wait) {
        queue_synchronize();
    }
    return is_late;
}

char *
queue_read(void *handle, ShadowRef *keep)
{
    std::lock_guard<std::mutex> guard(shadow_lock);
    auto found = shadows.find(handle);
    if (found == shadows.end()) {
        return static_cast<char *>(metal->buffer_contents(handle));
    }
    *keep = found->second;
    return found->second->bytes;
}

char *
queue_write(void *handle, ShadowRef *keep)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    std::lock_guard<std::mutex> guard(shadow_lock);
    auto found = shadows.find(handle);
    if (found == shadows.end() || found->second->epoch != epoch) {
        const char *from = found == shadows.end()
                               ? static_cast<char *>(metal->buffer_contents(handle))
                               : found->second->bytes;
        size_t nbytes = metal->buffer_nbytes(handle);
        nbytes = found == shadows.end() ? nbytes : std::min(nbytes, found->second->nbytes);
        ShadowRef shadow = new_shadow(nbytes);
        shadow->owned.reset(new char[nbytes]);
        shadow->bytes = shadow->owned.get();
        memcpy(shadow->bytes, from, nbytes);
        shadows[handle] = shadow;
        found = shadows.find(handle);
        shadow->epoch = epoch;
    }
    found->second->arrivals += 1;
    *keep = found->second;
    return found->second->bytes;
}

ShadowRef
queue_adopt(void *handle, const c10::Storage &cpu)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    std::lock_guard<std::mutex> guard(shadow_lock);
    ShadowRef shadow = new_shadow(cpu.nbytes());
    shadow->kept = cpu;
    shadow->bytes = static_cast<char *>(const_cast<void *>(cpu.data()));
    shadow->epoch = epoch;
    shadow->arrivals = 1;
    shadows[handle] = shadow;
    return shadow;
}

void
queue_let_go(const ShadowRef &shadow)
{
    std::lock_guard<std::mutex> guard(shadow_lock);
    for (auto &item : shadows) {
        if (item.second == shadow) {
            let_go_locked(item.first, shadow);
            return;
        }
    }
}

bool
queue_is_recording()
{
    return metal->is_watching() || metal->latency_us() != 0;
}

void
queue_use(const std::vector<Use> &written, const std::vector<metal_range> &read)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    open_commands();
    bool is_encoded = true;
    if (written.empty() && !read.empty()) {
        is_encoded = metal->encode_use(commands, nullptr, nullptr, nullptr, read.data(),
                                       int(read.size()));
    }
    for (size_t i = 0; i < written.size(); i++) {
        auto arrival = std::make_unique<Arrival>(Arrival{written[i].range.handle, written[i]});
        if (arrival->use.shadow) {
            std::lock_guard<std::mutex> guard(shadow_lock);
            arrival->use.shadow->arrivals += 1;
        }
        is_encoded &= metal->encode_use(commands, &written[i].range,
                                        arrival->use.shadow ? arrive : nullptr, arrival.get(),
                                        read.data(), i == 0 ? int(read.size()) : 0);
        kept->arrivals.push_back(std::move(arrival));
    }
    TORCH_CHECK(is_encoded,
                "The software Metal has no room to encode an operator of torch's mps.");
    uses += 1 + written.size();
    if (uses > most_uses) {
        commit();
    }
}

void
queue_commit()
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    commit();
}

void
queue_synchronize()
{
    uint64_t value;
    {
        std::lock_guard<std::recursive_mutex> outer(encoding);
        commit();
        has_foreign = false;
        value = committed;
    }
    if (value != 0) {
        metal->event_wait(done_event, value);
        std::unique_lock<std::mutex> guard(shadow_lock);
        completed_more.wait(guard, [&] { return completed >= value; });
    }
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
event_acquire(bool)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    void *event = metal->event_new();
    TORCH_CHECK(event != nullptr, "The software Metal gives no event.");
    last_event += 1;
    events[last_event] = std::shared_ptr<Event>(new Event{event, 0, 0}, [](Event *gone) {
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
event_record(uint32_t id)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    open_commands();
    event->value += 1;
    metal->encode_signal(commands, event->event, event->value);
    kept->events.push_back(event);
    commit();
}

void
event_block(uint32_t id)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    open_commands();
    epoch += 1;
    metal->encode_wait(commands, event->event, event->value);
    has_foreign = true;
}

bool
event_query(uint32_t id)
{
    std::lock_guard<std::recursive_mutex> outer(encoding);
    auto event = event_of(id);
    return metal->event_value(event->event) >= event->value;
}

void
event_synchronize(uint32_t id)
{
    std::shared_ptr<Event> event;
    {
        std::lock_guard<std::recursive_mutex> outer(encoding);
        event = event_of(id);
    }
    metal->event_wait(event->event, event->value);
}

double
event_elapsed_ms(uint32_t from, uint32_t to)
{
    queue_synchronize();
    std::lock_guard<std::recursive_mutex> outer(encoding);
    return event_of(to)->reached_ms - event_of(from)->reached_ms;
}

} // namespace torch_mps

// ---- what torch's own library exports on a Mac ----

namespace torch::mps {

__attribute__((visibility("default"))) void *
get_command_buffer()
{
    using namespace torch_mps;
    std::lock_guard<std::recursive_mutex> outer(encoding);
    open_commands();
    epoch += 1;
    has_foreign = true;
    return commands;
}

__attribute__((visibility("default"))) void *
get_dispatch_queue()
{
    return &torch_mps::encoding;
}

__attribute__((visibility("default"))) void
commit()
{
    torch_mps::queue_commit();
}

} // namespace torch::mps

// Grand Central Dispatch, as far as the core asks for it: the one serial queue is a lock.
TORCH_MPS_EXPORT void
dispatch_sync_f(void *, void *context, void (*work)(void *))
{
    std::lock_guard<std::recursive_mutex> outer(torch_mps::encoding);
    work(context);
}

TORCH_MPS_EXPORT void
dispatch_retain(void *)
{
}
