// queue_events.cpp: events between queues, and what torch's own library exports on a Mac; after queue_uses.cpp in
// all.cpp.

namespace torch_mps {

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
