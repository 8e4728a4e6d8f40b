/* finding.c: see finding.h.  Each sentence stands here once. */
#include "softmetal/checker/finding.h"

#include <stdio.h>

#include "softmetal/fiber.h"

#define NAME_NBYTES 160

#define AS_WORD(name, word) word,
static const char *const words[] = {SOFT_FOUND_LIST(AS_WORD)};
#undef AS_WORD

const char *
soft_found_word(soft_found kind)
{
    return words[kind];
}

const soft_argument_facts *
soft_facts_find(const soft_image *image, soft_argument_kind kind, uint32_t index)
{
    for (uint32_t i = 0; i < image->argument_count; i++) {
        if (image->arguments[i].kind == kind && image->arguments[i].index == index) {
            return &image->arguments[i];
        }
    }
    return NULL;
}

const soft_argument_facts *
soft_found_facts(const soft_image *image, const soft_found_memory *memory)
{
    if (!memory->is_known || memory->is_variable) {
        return NULL;
    }
    for (uint32_t i = 0; soft_found_is_texture(memory) && i < image->argument_count; i++) {
        const soft_argument_facts *facts = &image->arguments[i];
        uint32_t index = memory->number - SOFT_FIRST_TEXTURE;
        if (facts->kind == SOFT_ARGUMENT_TEXTURE && index - facts->index < facts->count) {
            return facts;
        }
    }
    return soft_facts_find(image,
                           memory->is_device ? SOFT_ARGUMENT_BUFFER : SOFT_ARGUMENT_THREADGROUP,
                           memory->number);
}

const char *
soft_found_name(const soft_image *image, const soft_found_memory *memory)
{
    if (memory->is_variable) {
        return image->variable_names == NULL ? NULL : image->variable_names[memory->number];
    }
    const soft_argument_facts *facts = soft_found_facts(image, memory);
    return facts == NULL ? NULL : facts->name;
}

/* "buffer 1 (y)", "resource 0", "threadgroup variable tile" */
static void
name_memory(const soft_found_memory *memory, const soft_image *image, char text[NAME_NBYTES])
{
    const char *name = soft_found_name(image, memory);
    name = name == NULL ? "?" : name;
    if (memory->is_variable) {
        snprintf(text, NAME_NBYTES, "threadgroup variable %.100s", name);
        return;
    }
    if (soft_found_is_texture(memory)) {
        snprintf(text, NAME_NBYTES, "texture %u (%.100s)", memory->number - SOFT_FIRST_TEXTURE,
                 name);
        return;
    }
    if (soft_found_is_resource(memory)) {
        snprintf(text, NAME_NBYTES, "resource %u", memory->number - SOFT_FIRST_RESOURCE);
        return;
    }
    snprintf(text, NAME_NBYTES, "%s %u (%.100s)",
             memory->is_device ? "buffer" : "threadgroup argument", memory->number, name);
}

/* "byte 4000", "bytes 4000 to 4003" */
static void
name_bytes(int64_t first, size_t nbytes, char *text, size_t size)
{
    if (nbytes == 1) {
        snprintf(text, size, "byte %lld", (long long)first);
    }
    else {
        snprintf(text, size, "bytes %lld to %lld", (long long)first,
                 (long long)(first + (int64_t)nbytes - 1));
    }
}

static void
describe_access(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    const char *does = finding->is_write[0] ? "a thread writes" : "a thread reads";
    char bytes[64];
    switch (finding->kind) {
    case SOFT_FOUND_CONST:
        snprintf(text, SOFT_TEXT_NBYTES, "%s %s, which %s", does, name,
                 soft_found_is_resource(&finding->memory) ? "it was given to read only"
                                                          : "it declares const");
        break;
    case SOFT_FOUND_NOT_RESIDENT:
        name_bytes((int64_t)finding->first, finding->nbytes, bytes, sizeof bytes);
        snprintf(
            text, SOFT_TEXT_NBYTES,
            "%s %s of a buffer of %zu bytes that was not made resident (resources=, in Metal "
            "useResource); its address is at byte %lld of %s",
            does, bytes, (size_t)finding->second, (long long)finding->offset, name);
        break;
    case SOFT_FOUND_OUTSIDE:
        name_bytes(finding->offset, finding->nbytes, bytes, sizeof bytes);
        snprintf(text, SOFT_TEXT_NBYTES, "%s outside its memory: %s of %s, which has %zu bytes",
                 does, bytes, name, finding->memory.nbytes);
        break;
    case SOFT_FOUND_NULL:
        snprintf(text, SOFT_TEXT_NBYTES, "%s through a null pointer", does);
        break;
    default:
        snprintf(text, SOFT_TEXT_NBYTES,
                 "%s outside its memory: %zu bytes at 0x%zx are none of its buffers'", does,
                 finding->nbytes, (size_t)finding->first);
    }
}

static void
describe_misaligned(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    char where[NAME_NBYTES + 30] = "memory of its own";
    if (finding->memory.is_known) {
        snprintf(where, sizeof where, "byte %zu of %s", (size_t)finding->offset, name);
    }
    snprintf(
        text, SOFT_TEXT_NBYTES,
        "a thread uses %s by a type that lies at multiples of %zu bytes: the address is %zu "
        "past one",
        where, (size_t)finding->second, (size_t)finding->first);
}

/* "; buffer 0 (x) and resource 1 are the same memory there" */
static void
name_twins(const soft_finding *finding, const soft_image *image, const char *name,
           char text[2 * NAME_NBYTES + 50])
{
    char twin[NAME_NBYTES];
    if (finding->twin.is_known) {
        name_memory(&finding->twin, image, twin);
        bool is_first = finding->memory.number < finding->twin.number;
        snprintf(text, 2 * NAME_NBYTES + 50, "; %s and %s are the same memory there",
                 is_first ? name : twin, is_first ? twin : name);
    }
}

static void
describe_race(const soft_finding *finding, const soft_image *image, const char *name,
              char text[SOFT_TEXT_NBYTES])
{
    char twins[2 * NAME_NBYTES + 50] = "";
    name_twins(finding, image, name, twins);
    bool both_write = finding->is_write[0] && finding->is_write[1];
    const char *who =
        finding->kind == SOFT_FOUND_RACE
            ? (both_write ? "two threads write" : "one thread writes and another reads")
            : (both_write ? "threads of two threadgroups write"
                          : "a thread writes and one of another threadgroup reads");
    snprintf(text, SOFT_TEXT_NBYTES, "%s byte %zu of %s with nothing between them%s%s", who,
             (size_t)finding->offset, name,
             finding->is_mixed ? ", and only one of them is atomic" : "", twins);
}

/* One thread waits, and another does not wait there. */
static void
describe_divergence(const soft_finding *finding, char text[SOFT_TEXT_NBYTES])
{
    bool is_barrier = finding->kind == SOFT_FOUND_BARRIER;
    if (finding->has_returned) {
        snprintf(text, SOFT_TEXT_NBYTES,
                 "a thread waits at %s that thread (%u,%u,%u) never reaches: it has ended",
                 is_barrier ? "a threadgroup_barrier" : "a place for all lanes of a SIMD-group",
                 finding->returned[0], finding->returned[1], finding->returned[2]);
    }
    else {
        snprintf(text, SOFT_TEXT_NBYTES, "%s",
                 is_barrier
                     ? "two threads of a threadgroup wait at different barriers"
                     : "two threads of a SIMD-group wait at different places, and one of "
                       "the places is for all lanes");
    }
}

static void
describe_output(const soft_finding *finding, const soft_image *image, const char *name,
                char text[SOFT_TEXT_NBYTES])
{
    const soft_argument_facts *facts = soft_found_facts(image, &finding->memory);
    size_t item = facts->nbytes == 0 ? 1 : facts->nbytes;
    snprintf(
        text, SOFT_TEXT_NBYTES,
        "the launch leaves %llu of %zu items of %s unwritten, from item %zu to item %llu%s",
        (unsigned long long)finding->first, finding->memory.nbytes / item, name,
        (size_t)finding->offset / item, (unsigned long long)finding->second,
        finding->is_advice    ? ", and there it holds old bytes until somebody else writes it"
        : finding->count == 0 ? ""
                              : "; others are written here");
}

static void
describe_number(const soft_finding *finding, char text[SOFT_TEXT_NBYTES])
{
    unsigned long long first = finding->first, second = finding->second;
    if (finding->kind == SOFT_FOUND_DIVISION) {
        snprintf(text, SOFT_TEXT_NBYTES, "a thread divides an integer by zero");
    }
    else if (finding->kind == SOFT_FOUND_SHIFT) {
        snprintf(text, SOFT_TEXT_NBYTES, "a thread shifts a number of %llu bits by %lld",
                 second, (long long)first);
    }
    else {
        snprintf(text, SOFT_TEXT_NBYTES, "a thread asks for the value of lane %llu of %llu",
                 first, second);
    }
}

static void
describe_pixel(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    const uint32_t *sides = finding->sides;
    char size[80] = "has no such level";
    if (sides[0] != 0) {
        snprintf(size, sizeof size, "is %u by %u by %u there", sides[0], sides[1], sides[2]);
    }
    snprintf(text, SOFT_TEXT_NBYTES,
             "a thread %s outside of %s: pixel (%u,%u,%u) of level %u, which %s; %s",
             finding->is_write[0] ? "writes" : "reads",
             finding->memory.is_known ? name : "a texture", (uint32_t)finding->first,
             (uint32_t)(finding->first >> 32), (uint32_t)finding->second,
             (uint32_t)(finding->second >> 32), size,
             finding->is_write[0] ? "the write is dropped" : "zeros are read");
}

static void
describe_handle(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    char place[NAME_NBYTES + 30] = "";
    if (finding->memory.is_known) {
        snprintf(place, sizeof place, "; it is at byte %zu of %s", (size_t)finding->offset,
                 name);
    }
    snprintf(
        text, SOFT_TEXT_NBYTES,
        "a thread %s a texture by the handle 0x%zx, which is none of those that the launch "
        "was given: as arguments, in resources=, in Metal useResource%s",
        finding->is_write[0] ? "writes" : "reads", (size_t)finding->first, place);
}

static void
describe_texture(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    if (finding->kind == SOFT_FOUND_PIXEL) {
        describe_pixel(finding, name, text);
    }
    else if (finding->kind == SOFT_FOUND_NO_TEXTURE) {
        describe_handle(finding, name, text);
    }
    else {
        snprintf(text, SOFT_TEXT_NBYTES,
                 "a thread reads byte %zu of %s, which it has written with no fence() between",
                 (size_t)finding->offset, name);
    }
}

static void
describe_given(const soft_finding *finding, const char *name, char text[SOFT_TEXT_NBYTES])
{
    const char *does = finding->is_write[0] ? "writes" : "reads";
    char bytes[64] = "";
    if (finding->nbytes > 0) {
        name_bytes(finding->offset, finding->nbytes, bytes, sizeof bytes);
    }
    snprintf(text, SOFT_TEXT_NBYTES, "a thread %s %s%s%s %s", does, bytes,
             bytes[0] == '\0' ? "" : " of ", name, finding->given);
}

static void
describe_index(const soft_finding *finding, char text[SOFT_TEXT_NBYTES])
{
    const char *what = finding->kind == SOFT_FOUND_ARRAY ? "an array" : "a vector";
    if (finding->second == 0) {
        snprintf(text, SOFT_TEXT_NBYTES, "a thread passes the end of %s", what);
    }
    else {
        snprintf(text, SOFT_TEXT_NBYTES, "a thread passes the end of %s: index %lld of %llu",
                 what, (long long)finding->first, (unsigned long long)finding->second);
    }
}

void
soft_finding_describe(const soft_finding *finding, const soft_image *image,
                      char text[SOFT_TEXT_NBYTES])
{
    char name[NAME_NBYTES];
    name_memory(&finding->memory, image, name);
    switch (finding->kind) {
    case SOFT_FOUND_OUTSIDE:
    case SOFT_FOUND_CONST:
    case SOFT_FOUND_NULL:
    case SOFT_FOUND_NOT_RESIDENT:
    case SOFT_FOUND_STRAY: describe_access(finding, name, text); break;
    case SOFT_FOUND_MISALIGNED: describe_misaligned(finding, name, text); break;
    case SOFT_FOUND_RACE:
    case SOFT_FOUND_GROUP_RACE: describe_race(finding, image, name, text); break;
    case SOFT_FOUND_UNWRITTEN:
    case SOFT_FOUND_UNWRITTEN_READ:
        snprintf(text, SOFT_TEXT_NBYTES, "a thread reads byte %zu of %s, which %s has written",
                 (size_t)finding->offset, name,
                 finding->kind == SOFT_FOUND_UNWRITTEN ? "no thread of the threadgroup"
                                                       : "nobody");
        break;
    case SOFT_FOUND_UNWRITTEN_OUTPUT: describe_output(finding, image, name, text); break;
    case SOFT_FOUND_BARRIER:
    case SOFT_FOUND_LANES: describe_divergence(finding, text); break;
    case SOFT_FOUND_ARRAY:
    case SOFT_FOUND_VECTOR: describe_index(finding, text); break;
    case SOFT_FOUND_DIVISION:
    case SOFT_FOUND_SHIFT:
    case SOFT_FOUND_LANE: describe_number(finding, text); break;
    case SOFT_FOUND_PIXEL:
    case SOFT_FOUND_NO_TEXTURE:
    case SOFT_FOUND_FENCE: describe_texture(finding, name, text); break;
    case SOFT_FOUND_TYPE:
    case SOFT_FOUND_STRIDES: describe_given(finding, name, text); break;
    case SOFT_FOUND_FAULT:
        snprintf(text, SOFT_TEXT_NBYTES, "a thread touches address 0x%zx, which is no memory",
                 (size_t)finding->first);
        break;
    case SOFT_FOUND_STACK:
        snprintf(text, SOFT_TEXT_NBYTES,
                 "a thread's variables need more than the %d bytes of stack that it has here",
                 SOFT_FIBER_STACK_NBYTES);
        break;
    case SOFT_FOUND_OVERDUE:
        snprintf(text, SOFT_TEXT_NBYTES,
                 "a thread still runs after %llu s (SOFTMETAL_KERNEL_TIMEOUT)",
                 (unsigned long long)finding->first);
        break;
    default:
        snprintf(text, SOFT_TEXT_NBYTES, "%s",
                 finding->first == 0 ? "the checker has no memory left"
                 : finding->first == SOFT_ROOM_IS_MEANT
                     ? "a launch does more that is a finding than there is room for, and all "
                       "that is kept is meant so; mend some of it, or launch less at once"
                     : "a SIMD-group does more between two places where its lanes meet than "
                       "there is room for to count; launch it with shorter loops");
    }
}
