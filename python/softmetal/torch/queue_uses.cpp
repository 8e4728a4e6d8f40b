// queue_uses.cpp: what an operator uses on a queue: bytes to come, waits, and what the software Metal is told; after
// queue.cpp in all.cpp.

namespace torch_mps {

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
    size_t last = written.empty() ? 0 : read.size() % MOST_READS; // go with what is written
    size_t first = read.size() - last;
    bool is_encoded = true;
    for (size_t i = 0; i < first && is_encoded; i += MOST_READS) {
        is_encoded = encode(queue, nullptr, &read[i], std::min<size_t>(MOST_READS, first - i));
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

} // namespace torch_mps
