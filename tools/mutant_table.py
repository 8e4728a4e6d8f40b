"""Mutants by hand: what goes wrong at the bridge, the storage and the streams that no rule of mutant_rules.py makes."""

# ruff: noqa: E501  (a table of texts as they stand in the sources)

from dataclasses import dataclass

BRIDGE, STORAGE, MANAGED = "src/metal_bridge.m", "src/metal/storage.c", "src/metal/managed_tensor.c"
SHARING, BYTES = "src/metal/storage_sharing.c", "src/metal/storage_bytes.c"
STAGING, WAIT_RULE = "src/metal/staging.c", "src/streams/wait_rule.c"
WORK, TRACKING = "src/metal/work.c", "src/metal/tracking.c"
POOL, PAGES, STREAM = "src/metal/pool.c", "src/metal/pages.c", "src/metal/stream.c"
EXPORT = "src/exchange/dlpack_export.c"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    text: str  # stands once in the file
    instead: str

    def span(self, text: str) -> tuple[int, int]:
        start = text.index(self.text)
        return start, start + len(self.text)

    def apply(self, text: str) -> str:
        return text.replace(self.text, self.instead)


MUTANTS = [
    # ---- who owns what ----
    Mutant(
        "one GPU with two objects is two devices",
        BRIDGE,
        "if ([device_object(out[i]) registryID] == [device registryID])",
        "if ((void *)out[i] == (void *)device)",
    ),
    Mutant("no retain of a device in the table", BRIDGE, "        [device retain];\n", ""),
    Mutant("no release of the list of devices", BRIDGE, "    [all release];\n", ""),
    Mutant("no retain of a wrapped buffer", STORAGE, "    bridge_buffer_retain(buffer);\n", ""),
    Mutant("no release of a buffer", BRIDGE, "    [(id<NSObject>)handle release];\n", ""),
    Mutant(
        "no release of the storage's buffer",
        STORAGE,
        "    /* of pages: ends in end_pages, now or when the GPU is done */\n    bridge_buffer_release(storage->handle);\n",
        "",
    ),
    Mutant(
        "no release of a buffer of our own",
        POOL,
        "    bridge_buffer_release(storage->handle);\n    free(storage);\n",
        "    free(storage);\n",
    ),
    Mutant(
        "a buffer that others know is reused",
        STORAGE,
        "(!is_known || bridge_buffer_is_only_ours(storage->handle))",
        "(is_known || true)",
    ),
    Mutant("a refused buffer does not empty the cache", STORAGE, "        (void)pool_empty(NULL);\n", "        ;\n"),
    Mutant(
        "no release of the staging buffer",
        "src/metal/staging.c",
        "    storage_release(range->stage);\n    range->stage = NULL;",
        "    range->stage = NULL;",
    ),
    Mutant("no retain of an exported storage", MANAGED, "    storage_retain(storage);\n", ""),
    Mutant("no release of an exported storage", MANAGED, "    storage_release(block->storage);\n", ""),
    Mutant(
        "the pages go while the GPU has them",
        STORAGE,
        "    bool is_over_pages = storage->is_over_pages;\n",
        "    bool is_over_pages = storage->is_over_pages = false;\n",
    ),
    Mutant(
        "Metal does not say when it is done with the pages", BRIDGE, "deallocator:(id)(void *)&block", "deallocator:nil"
    ),
    # ---- pools ----
    Mutant(
        "no pool round a label",
        BRIDGE,
        "    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];\n"
        "    [buffer_object(buffer) setLabel:[NSString stringWithUTF8String:label]];\n    [pool drain];\n",
        "    [buffer_object(buffer) setLabel:[NSString stringWithUTF8String:label]];\n",
    ),
    Mutant(
        "no pool round a command",
        "src/metal_bridge.m",
        "    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];\n    id<MTLComputeCommandEncoder> encoder",
        "    NSAutoreleasePool *pool = nil;\n    id<MTLComputeCommandEncoder> encoder",
    ),
    Mutant(
        "a pool that is not drained",
        "src/metal_bridge.m",
        "    [pool drain];\n    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;",
        "    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;",
    ),
    # ---- commands ----
    Mutant(
        "no wait",
        "src/metal/staging.c",
        "return submitted == BRIDGE_OK ? tracking_wait(storage->handle, true, error) : submitted;",
        "return submitted;",
    ),
    Mutant(
        "no commit",
        "src/metal_bridge.m",
        "    [commands_object(commands) commit];\n",
        "",
    ),
    Mutant("no endEncoding", BRIDGE, "    [encoder endEncoding];\n", ""),
    Mutant(
        "no look at the status",
        BRIDGE,
        "if ([commands status] == MTLCommandBufferStatusCompleted)",
        "if ([commands status] >= MTLCommandBufferStatusCompleted)",
    ),
    Mutant("no code of an error", BRIDGE, "failure == nil ? 0 : [failure code]", "0"),
    Mutant(
        "no text of an error",
        BRIDGE,
        "    copy_text([failure localizedDescription], error->text, sizeof error->text);\n",
        "",
    ),
    Mutant(
        "source and destination at the same place",
        BRIDGE,
        "destinationOffset:run->dst_offset_bytes",
        "destinationOffset:run->src_offset_bytes",
    ),
    Mutant(
        "no encoder is no matter",
        BRIDGE,
        "        return BRIDGE_NO_COMMAND;\n    }\n    switch",
        "        return BRIDGE_OK;\n    }\n    switch",
    ),
    # ---- waits: those of the GPU for the GPU, and those of the CPU ----
    Mutant(
        "no wait of a stream for another",
        WORK,
        "        bridge_encode_wait(commands, marks[i].stream->event, marks[i].value);\n",
        "        (void)commands, (void)marks;\n",
    ),
    Mutant(
        "no wait of a consumer's stream",
        WORK,
        "    return submit_wait(stream, (event_wait){NULL, 0}, storage);\n",
        "    return BRIDGE_OK;\n",
    ),
    Mutant(
        "a piece overtakes one that waits",
        WORK,
        "        waits += work_encode_wait(commands, stream->event, stream->waiting);\n",
        "        waits++;\n",
    ),
    Mutant(
        "the piece behind one that waits is not waited for",
        WORK,
        "        waits += work_encode_wait(commands, stream->event, stream->waiting);\n",
        "        (void)work_encode_wait(commands, stream->event, stream->waiting);\n",
    ),
    Mutant("a wait of a queue touches nothing", WORK, "can_touch ? encode_touch : NULL", "NULL"),
    Mutant("blits are not cut", BRIDGE, "return softmetal_blit_limit() / 2;", "return SIZE_MAX / 2;"),
    Mutant(
        "a buffer over other pages is taken",
        BRIDGE,
        "if ([buffer contents] != pages || [buffer length] != nbytes) {",
        "if ([buffer contents] == NULL) {",
    ),
    Mutant(
        "the deallocator of a refused buffer is heard",
        BRIDGE,
        "*claim = (pages_claim){.holders = 1, .context = context};",
        "*claim = (pages_claim){.holders = 1, .done = done, .context = context};",
    ),
    Mutant("no wait for what Metal does not track", WORK, "bridge_buffer_is_tracked(handle), marks", "true, marks"),
    Mutant(
        "no wait of the CPU for a stream",
        WAIT_RULE,
        "        waiting_for_busy_storage(state_of(op), function",
        "        function == NULL && waiting_for_busy_storage(state_of(op), function",
    ),
    Mutant(
        "no wait of a writer for readers",
        TRACKING,
        "for (int i = 0; is_for_writing && i < found->read_count; i++)",
        "for (int i = 0; is_for_writing && i < 0 * found->read_count; i++)",
    ),
    # ---- managed and private storage ----
    Mutant(
        "no didModifyRange",
        BRIDGE,
        "    [buffer_object(buffer) didModifyRange:NSMakeRange(offset_bytes, nbytes)];\n",
        "",
    ),
    Mutant("no synchronizeResource", BRIDGE, "[encoder synchronizeResource:blit->dst]; ", ""),
    Mutant(
        "no didModifyRange after a host write",
        "src/metal/host_access.c",
        "        bridge_buffer_did_modify(storage->handle, offset_bytes, nbytes);\n",
        "",
    ),
    Mutant(
        "no didModifyRange at export",
        SHARING,
        "        bridge_buffer_did_modify(storage->handle, 0, storage->nbytes);\n",
        "",
    ),
    Mutant(
        "no didModifyRange when a host view closes",
        "src/metal/storage_sharing.c",
        "        storage_flush_host_views_locked(storage);\n        storage_count_views_locked(storage, 0, -1);",
        "        storage_count_views_locked(storage, 0, -1);",
    ),
    Mutant(
        "no synchronising before a host read",
        "src/metal/host_access.c",
        "return must_fetch(storage, wanted) ? synchronize(storage, error) : BRIDGE_OK;",
        "return must_fetch(storage, wanted) && false ? synchronize(storage, error) : BRIDGE_OK;",
    ),
    Mutant(
        "a read-only host view is not brought along",
        WAIT_RULE,
        "is_readonly ? host_access_open_readonly_view : host_access_open_view",
        "is_readonly ? host_access_begin_read : host_access_open_view",
    ),
    Mutant(
        "a read-only host view that is gone is brought along",
        "src/metal/storage_sharing.c",
        "        storage_count_views_locked(storage, -1, 0);",
        "        storage_count_views_locked(storage, 0, 0);",
    ),
    Mutant(
        "synchronising under a host view",
        "src/metal/host_access.c",
        "(storage_is_exported(storage) && !storage_has_host_writers(storage));",
        "storage_is_exported(storage);",
    ),
    Mutant(
        "contents of a private buffer are asked for",
        BRIDGE,
        "if (bridge_buffer_storage(buffer) == BRIDGE_PRIVATE)",
        "if (buffer == NULL)",
    ),
    Mutant(
        "managed storage is made shared",
        BRIDGE,
        "return MTLResourceStorageModeManaged;\n",
        "return MTLResourceStorageModeShared;\n",
    ),
    # ---- bounds ----
    Mutant(
        "no largest length",
        BRIDGE,
        "return nbytes > [device maxBufferLength] ? BRIDGE_TOO_LARGE : BRIDGE_OK;",
        "(void)device;\n    return BRIDGE_OK;",
    ),
    Mutant(
        "lengths are not whole blit units",
        STORAGE,
        "*capacity = pool_round(nbytes);",
        "*capacity = nbytes;",
    ),
    Mutant(
        "a range is not widened at its start",
        STAGING,
        "size_t first = range->offset_bytes / STORAGE_UNIT * STORAGE_UNIT;",
        "size_t first = range->offset_bytes;",
    ),
    Mutant(
        "a range is not widened at its end",
        "src/metal/staging.c",
        "size_t last = (end + STORAGE_UNIT - 1) / STORAGE_UNIT * STORAGE_UNIT;",
        "size_t last = end;",
    ),
    Mutant(
        "a range is widened past the end",
        STAGING,
        "return last > bridge_buffer_nbytes(range->storage->handle) ?",
        "return last > SIZE_MAX / 2 ?",
    ),
    Mutant(
        "the neighbours' bytes are lost",
        "src/metal/staging.c",
        "    status = read_widened(stream, range, wide, around, error);\n    if (status",
        "    status = BRIDGE_OK;\n    if (status",
    ),
    Mutant(
        "a fill of any length",
        "src/metal/storage_bytes.c",
        "if (is_whole && host_access_leaves_to_gpu(storage, nbytes)) {",
        "if (host_access_leaves_to_gpu(storage, nbytes)) {",
    ),
    Mutant(
        "a label one byte too long",
        BRIDGE,
        "        strncpy(out, utf8, capacity - 1);\n        out[capacity - 1] = '\\0';\n",
        "        strncpy(out, utf8, capacity);\n",
    ),
    # ---- handles ----
    Mutant(
        "any memory is readable",
        BRIDGE,
        "return !(result == -1 && errno == EFAULT);",
        "return result != 7 || errno == 0;",
    ),
    Mutant(
        "any word is a class",
        BRIDGE,
        "        is_known = known[i] == candidate;",
        "        is_known = candidate != Nil;",
    ),
    Mutant("any object is a buffer", BRIDGE, "if (class_conformsToProtocol(c, protocol))", "if (c != Nil)"),
    # ---- fork ----
    Mutant("a forked child releases", BRIDGE, "    if (handle == NULL || is_forked()) {", "    if (handle == NULL) {"),
    Mutant(
        "a forked child runs commands",
        "src/metal/work.c",
        "    if (bridge_is_forked()) {\n        return BRIDGE_FORKED;\n    }\n    piece *work",
        "    piece *work",
    ),
    Mutant(
        "a forked child flushes managed buffers",
        BRIDGE,
        "    if (is_forked()) {\n        return;\n    }\n    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];\n    [buffer_object(buffer) didModify",
        "    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];\n    [buffer_object(buffer) didModify",
    ),
    # ---- streams ----
    Mutant(
        "stream: no wait on the GPU",
        WORK,
        "        bridge_encode_wait(commands, marks[i].stream->event, marks[i].value);\n",
        "        (void)commands;\n        (void)marks;\n",
    ),
    Mutant(
        "stream: no wait on the CPU",
        "src/streams/wait_rule.h",
        "    return waiting_for_busy_storage(state, function, storage, is_for_writing);\n",
        "    return 0;\n",
    ),
    Mutant(
        "stream: no wait of arrays on the CPU",
        WAIT_RULE,
        "    if (!tracking_is_quiet() &&\n",
        "    if (!tracking_is_quiet() && function == NULL &&\n",
    ),
    Mutant(
        "stream: operands are not kept",
        WORK,
        "        storage_retain(operands[i].storage);\n",
        "",
    ),
    Mutant(
        "stream: those that wait for failed work wait for ever",
        WORK,
        "    bridge_event_raise(done->stream->event, done->value);\n",
        "",
    ),
    Mutant("stream: a failure that nobody can hear of is not reported", STREAM, "    tell();\n", ""),
    Mutant(
        "stream: a wait that is interrupted loses the failure",
        TRACKING,
        "found->failed != NULL && !stream_has_failure(found->failed)",
        "found->in_flight > 0 && found->failed != NULL",
    ),
    Mutant(
        "stream: a failure is told to who has the buffer next",
        TRACKING,
        "marks[i].is_of_earlier_owner = (*link)->is_forgotten;",
        "marks[i].is_of_earlier_owner = false;",
    ),
    Mutant(
        "stream: a buffer that is wrapped twice is forgotten with one of them",
        TRACKING,
        "(*link)->held == 0) {",
        "(*link)->held < 9) {",
    ),
    Mutant(
        "stream: a copy for torch's queue is not waited for",
        "src/exchange/dlpack_export.c",
        "    of_copy.order.is_ordered = false;\n",
        "",
    ),
    Mutant("stream: a failure is not noted", WORK, "        stream_note_failure(done->stream, error);\n", ""),
    Mutant(
        "stream: a failed buffer is forgotten",
        TRACKING,
        "    if (has_failed && found->failed == NULL) {",
        "    if (has_failed && found->failed == stream) {",
    ),
    Mutant(
        "stream: reads in flight are not remembered",
        TRACKING,
        "        add_read(found, stream, value);\n",
        "        if (found->read_count > TRACKING_READS) {\n            add_read(found, stream, value);\n        }\n",
    ),
    Mutant(
        "stream: untracked buffers are taken for tracked",
        WORK,
        "bridge_buffer_is_tracked(handle), marks);",
        "true, marks);",
    ),
    Mutant(
        "stream: what a view wrote is not published",
        WORK,
        "        storage_flush_host_views_locked(operands[i].storage);\n",
        "        (void)operands;\n",
    ),
    Mutant(
        "stream: what a view wrote is published over what the GPU is writing",
        "src/metal/storage_sharing.c",
        " && is_current) {",
        ") {",
    ),
    Mutant(
        "stream: what the GPU wrote stays there",
        "src/metal/work.c",
        "uint64_t number = storage_note_gpu_write_locked(operand->storage);",
        "uint64_t number = 0;",
    ),
    # ---- exports and imports ----
    Mutant(
        "an export for the GPU waits for writes only",
        WAIT_RULE,
        ": waiting_for_busy_storage(state, function, storage, true);",
        ": waiting_for_busy_storage(state, function, storage, false);",
    ),
    Mutant(
        "an export for the CPU waits for writes only",
        "src/exchange/dlpack_export.c",
        'return wait_rule_for_host_view(op, "Array.__dlpack__", &bytes, self->is_readonly);',
        'return wait_rule_for_cpu(op, "Array.__dlpack__", &bytes, false);',
    ),
    Mutant(
        "a read-only export for the CPU counts as written",
        "src/exchange/dlpack_export.c",
        'return wait_rule_for_host_view(op, "Array.__dlpack__", &bytes, self->is_readonly);',
        'return wait_rule_for_host_view(op, "Array.__dlpack__", &bytes, false);',
    ),
    Mutant("an export is not published", EXPORT, "        storage_publish(storage);\n", ""),
    Mutant(
        "private storage that was given away is not waited for",
        "src/streams/wait_rule.c",
        "return storage->mode == BRIDGE_PRIVATE && !storage_is_exported(storage);",
        "return storage->mode == BRIDGE_PRIVATE;",
    ),
    Mutant(
        "a read-only tensor has writable storage",
        "src/exchange/dlpack_import.c",
        "storage->is_readonly |= is_readonly || readonly_knows_handle(storage->handle);",
        "storage->is_readonly |= readonly_knows_handle(storage->handle);",
    ),
    Mutant(
        "an end address may pass the largest",
        "src/exchange/dlpack_check.c",
        "        __builtin_add_overflow(first, facts->end_nbytes, &end)) {",
        "        (__builtin_add_overflow(first, facts->end_nbytes, &end), false)) {",
    ),
    # ---- the pool and the pages ----
    Mutant(
        "what is given back is not trimmed",
        POOL,
        "    trim_locked(pool, cache_room(pool, device), &popped); /* the storage itself may go too */\n",
        "    (void)cache_room;\n",
    ),
    Mutant(
        "a range may pass the end of the pages by one",
        "src/metal/pages.h",
        "nbytes <= room - offset;",
        "nbytes <= room - offset + 1;",
    ),
    Mutant(
        "a range may not fill the pages", "src/metal/pages.h", "nbytes <= room - offset;", "nbytes < room - offset;"
    ),
    Mutant(
        "pages on their way out are retained",
        PAGES,
        "!storage_retain_if_alive(found)",
        "(storage_retain(found), false)",
    ),
    Mutant(
        "plain memory is freed by an address inside",
        PAGES,
        "found != NULL && found->address == address &&",
        "found != NULL &&",
    ),
    Mutant(
        "a buffer in use again stays forgotten",
        TRACKING,
        "    found->is_forgotten = false; /* the buffer is in use again: see pool.h */\n",
        "",
    ),
    Mutant(
        "stream: a wait ends at the first change",
        STREAM,
        "    while (!stream_has_reached(stream, value) && is_in_time) {",
        "    if (!stream_has_reached(stream, value) && is_in_time) {",
    ),
    # ---- what a model of everything found, and must find again: tests/support/model.py ----
    Mutant(
        "a GPU write that was submitted meanwhile counts as fetched",
        "src/metal/host_access.c",
        "storage_note_fetched(storage, number);",
        "storage_note_fetched(storage, storage_count_gpu_writes(storage));",
    ),
    Mutant(
        "the CPU writes managed memory that the GPU uses",
        "src/metal/host_access.c",
        "bool is_idle = tracking_is_idle_locked(storage->handle) && !storage_is_exported(storage) &&\n                   storage_has_fetched(storage, storage_count_gpu_writes(storage));",
        "bool is_idle = true;",
    ),
    Mutant(
        "nobody waits while anything is in flight",
        "src/streams/wait_rule.c",
        "return stream == NULL && !(",
        "return stream == NULL && tracking_is_quiet() && !(",
    ),
    Mutant(
        "read-only memory is forgotten by its address",
        "src/exchange/host_memory.c",
        "if (!storage->is_readonly && !bytes->is_honest) {",
        "if (false) {",
    ),
    Mutant(
        "read-only memory is forgotten by its handle",
        "src/exchange/dlpack_import.c",
        "is_readonly || readonly_knows_handle(storage->handle)",
        "is_readonly",
    ),
    Mutant(
        "a buffer's handle makes it writable",
        "src/array/buffer_handle.c",
        "    storage->is_readonly |= readonly_knows_handle(handle);\n",
        "",
    ),
    Mutant(
        "a buffer of ours is wrapped as a foreign one",
        "src/array/buffer_handle.c",
        "    if (parent == NULL) {",
        "    if (parent == NULL || true) {",
    ),
    Mutant(
        "numbers are narrowed before their dtype",
        "src/exchange/asarray.c",
        "return has_dtype ? asarray_numbers_by_numpy(state, x, request)\n"
        "                     : array_of_numbers(state, x, request);",
        "return array_of_numbers(state, x, request);",
    ),
]
