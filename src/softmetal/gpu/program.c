/* program.c: builds, runs and frees the passes of command buffers; see program.h. */
#include "softmetal/gpu/program.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/host.h"
#include "softmetal/kernels/texture.h"

#define LOOK_BACK 16 /* how many bound storages are compared before one is bound twice */

soft_pass *
soft_program_add_pass(soft_program *program, soft_pass_kind kind)
{
    if (!soft_grow((void **)&program->passes, program->pass_count, &program->pass_capacity,
                   sizeof *program->passes)) {
        return NULL;
    }
    soft_pass *pass = &program->passes[program->pass_count];
    *pass = (soft_pass){.kind = kind};
    program->pass_count += 1;
    return pass;
}

static bool
bind_storage(soft_program *program, soft_storage *storage)
{
    if (storage == NULL) {
        return true;
    }
    size_t count = program->bound_count;
    for (size_t back = 1; back <= LOOK_BACK && back <= count; back++) {
        if (program->bound[count - back] == storage) {
            return true;
        }
    }
    if (!soft_grow((void **)&program->bound, count, &program->bound_capacity,
                   sizeof *program->bound)) {
        return false;
    }
    program->bound[count] = soft_storage_retain(storage);
    program->bound_count = count + 1;
    return true;
}

int
soft_command_storage_count(const soft_command *command)
{
    return command->kind == SOFT_DISPATCH
               ? command->dispatch->count + (int)soft_dispatch_reached_count(command->dispatch)
               : 2;
}

soft_storage *
soft_command_storage(const soft_command *command, int index, bool *is_written)
{
    if (command->kind == SOFT_DISPATCH && index >= command->dispatch->count) {
        size_t at = (size_t)(index - command->dispatch->count);
        soft_resource resource = soft_dispatch_reached(command->dispatch, at);
        *is_written = resource.is_written;
        return resource.storage;
    }
    if (command->kind == SOFT_DISPATCH) {
        *is_written = (command->dispatch->kernel.written >> index & 1) != 0;
        return command->dispatch->arguments[index].storage;
    }
    *is_written = index == 0;
    return index == 0 ? command->destination : command->source;
}

void
soft_command_clear(const soft_command *command)
{
    soft_dispatch_free(command->dispatch);
    free(command->box);
    soft_pixels_release(command->pixels);
}

bool
soft_program_add_command(soft_program *program, soft_pass *pass, soft_command command)
{
    bool is_written;
    if (!soft_grow((void **)&pass->commands, pass->command_count, &pass->command_capacity,
                   sizeof *pass->commands)) {
        return false;
    }
    for (int index = 0; index < soft_command_storage_count(&command); index++) {
        if (!bind_storage(program, soft_command_storage(&command, index, &is_written))) {
            return false;
        }
    }
    pass->commands[pass->command_count] = command;
    pass->command_count += 1;
    return true;
}

bool
soft_program_add_event(soft_program *program, soft_pass_kind kind, soft_event *event,
                       uint64_t value)
{
    soft_pass *pass = soft_program_add_pass(program, kind);
    if (pass == NULL) {
        return false;
    }
    pass->event = soft_event_retain(event);
    pass->value = value;
    return true;
}

bool
soft_pass_add_fence(soft_event ***fences, size_t *count, soft_event *fence)
{
    soft_event **larger = realloc(*fences, (*count + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    larger[*count] = soft_event_retain(fence);
    *fences = larger;
    *count += 1;
    return true;
}

void
soft_program_begin(soft_program *program)
{
    program->is_begun = true;
    for (size_t index = 0; index < program->bound_count; index++) {
        __atomic_add_fetch(&program->bound[index]->pending_uses, 1, __ATOMIC_RELAXED);
    }
}

static void
clear_fences(soft_event **fences, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        soft_event_release(fences[index]);
    }
    free(fences);
}

void
soft_program_clear(soft_program *program)
{
    for (size_t index = 0; index < program->pass_count; index++) {
        soft_pass *pass = &program->passes[index];
        clear_fences(pass->updated, pass->updated_count);
        clear_fences(pass->awaited, pass->awaited_count);
        soft_event_release(pass->event);
        free(pass->known);
        for (size_t command = 0; command < pass->command_count; command++) {
            soft_command_clear(&pass->commands[command]);
        }
        free(pass->commands);
    }
    free(program->passes);
    for (size_t index = 0; index < program->bound_count; index++) {
        if (program->is_begun) {
            __atomic_sub_fetch(&program->bound[index]->pending_uses, 1, __ATOMIC_RELEASE);
        }
        soft_storage_release(program->bound[index]);
    }
    free(program->bound);
    *program = (soft_program){0};
}

static bool
begin_use(soft_storage *storage)
{
    if (storage == NULL) {
        return true;
    }
    __atomic_add_fetch(&storage->running_uses, 1, __ATOMIC_SEQ_CST);
    return !__atomic_load_n(&storage->is_orphan, __ATOMIC_SEQ_CST);
}

static void
end_use(soft_storage *storage)
{
    if (storage != NULL) {
        __atomic_sub_fetch(&storage->running_uses, 1, __ATOMIC_SEQ_CST);
    }
}

static void
copy_rows(const soft_command *command)
{
    const soft_box *box = command->box;
    for (size_t image = 0; image < box->images; image++) {
        for (size_t row = 0; row < box->rows; row++) {
            size_t to = command->destination_offset + row * box->destination_row +
                        image * box->destination_image;
            memmove(command->destination->bytes + to,
                    command->source->bytes + command->source_offset + row * box->source_row +
                        image * box->source_image,
                    box->row_nbytes);
            soft_storage_written(command->destination, to, box->row_nbytes);
        }
    }
}

static void
generate(const soft_pixels *pixels)
{
    soft_texture_generate(&pixels->as);
    size_t first = (size_t)pixels->as.level[1].offset;
    soft_storage_written(pixels->storage, soft_pixels_offset(pixels, 1, 0, 0, 0),
                         (size_t)pixels->as.nbytes - first);
}

static soft_run_end
move_bytes(const soft_command *command, char **text)
{
    switch (command->kind) {
    case SOFT_COPY:
        memmove(command->destination->bytes + command->destination_offset,
                command->source->bytes + command->source_offset, command->nbytes);
        soft_storage_written(command->destination, command->destination_offset,
                             command->nbytes);
        break;
    case SOFT_COPY_BOX: copy_rows(command); break;
    case SOFT_MIP: generate(command->pixels); break;
    case SOFT_FILL:
        memset(command->destination->bytes + command->destination_offset, command->value,
               command->nbytes);
        soft_storage_written(command->destination, command->destination_offset,
                             command->nbytes);
        break;
    case SOFT_DISPATCH:
        if (!soft_dispatch_run(command->dispatch, text)) {
            return SOFT_RUN_KERNEL_STOPPED;
        }
        break;
    }
    return SOFT_RUN_DONE;
}

soft_run_end
soft_command_run(const soft_command *command, char **text)
{
    bool alive = true, is_written;
    soft_run_end end = SOFT_RUN_BUFFER_GONE;
    int count = soft_command_storage_count(command);
    for (int index = 0; index < count; index++) {
        alive = begin_use(soft_command_storage(command, index, &is_written)) && alive;
    }
    if (alive) {
        end = move_bytes(command, text);
    }
    for (int index = 0; index < count; index++) {
        end_use(soft_command_storage(command, index, &is_written));
    }
    return end;
}
