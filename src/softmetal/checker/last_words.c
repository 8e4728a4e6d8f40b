/* last_words.c: see last_words.h. */
#include "softmetal/checker/last_words.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "softmetal/host.h"

#define NAME_NBYTES 64
#define NAME_WORDS (NAME_NBYTES / sizeof(uint64_t))

/* A copy, outside of the heap, which is what has been overwritten. */
static _Atomic uint64_t last_kernel[NAME_WORDS];
static atomic_flag has_spoken = ATOMIC_FLAG_INIT;

void
soft_last_kernel_set(const char *name)
{
    uint64_t words[NAME_WORDS] = {0};
    name = name != NULL ? name : "kernel";
    memcpy(words, name, strnlen(name, NAME_NBYTES - 1));
    for (size_t i = 0; i < NAME_WORDS; i++) {
        atomic_store_explicit(&last_kernel[i], words[i], memory_order_relaxed);
    }
}

static const char *
name_signal(int signal)
{
    switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGABRT: return "SIGABRT";
    default: return "a fault";
    }
}

void
soft_say_last_words(int signal)
{
    uint64_t words[NAME_WORDS];
    for (size_t i = 0; i < NAME_WORDS; i++) {
        words[i] = atomic_load_explicit(&last_kernel[i], memory_order_relaxed);
    }
    if (words[0] == 0 || soft_process_is_aborting() || atomic_flag_test_and_set(&has_spoken)) {
        return;
    }
    char name[NAME_NBYTES];
    memcpy(name, words, sizeof name);
    const char *parts[] = {
        "softmetal: the process ends by ", name_signal(signal),
        ", outside of a kernel. Kernels ran unchecked (", name,
        " was the last). If one of them wrote outside of its buffers, `python "
        "-m softmetal --check` names the line.\n"};
    char text[NAME_NBYTES + 256];
    size_t nbytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) { /* no snprintf in a handler */
        size_t part_nbytes = strlen(parts[i]);
        memcpy(text + nbytes, parts[i], part_nbytes);
        nbytes += part_nbytes;
    }
    (void)!write(STDERR_FILENO, text, nbytes);
}
