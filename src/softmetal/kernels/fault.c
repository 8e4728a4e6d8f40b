/* fault.c: see fault.h. */
#include "softmetal/kernels/fault.h"

#include <signal.h>
#include <stdio.h>

#include "softmetal/checker/finding.h"
#include "softmetal/fiber.h"
#include "softmetal/settings.h"

/* An address so far behind a buffer is nobody's overrun. */
#define FARTHEST ((uintptr_t)1 << 20)
#define WORDS_NBYTES 320

/* The buffer that ends closest before the address; SOFT_MOST_BUFFERS: none is near. */
SOFT_ON_FIBER static soft_u32
find_buffer(const soft_launch *launch, uintptr_t address, uintptr_t *behind)
{
    soft_u32 found = SOFT_MOST_BUFFERS;
    *behind = FARTHEST;
    for (soft_u32 index = 0; index < SOFT_MOST_BUFFERS; index++) {
        uintptr_t end = (uintptr_t)launch->buffers[index] - launch->buffer_before[index] +
                        launch->buffer_nbytes[index];
        if (launch->buffers[index] != NULL && address - end < *behind) {
            found = index;
            *behind = address - end;
        }
    }
    return found;
}

SOFT_ON_FIBER static void
describe_address(uintptr_t address, const soft_image *image, const soft_launch *launch,
                 char words[WORDS_NBYTES])
{
    uintptr_t behind;
    soft_u32 index = find_buffer(launch, address, &behind);
    if (index == SOFT_MOST_BUFFERS) {
        snprintf(words, WORDS_NBYTES,
                 "a thread touches the address 0x%zx, which is no memory of its buffers",
                 (size_t)address);
        return;
    }
    const soft_argument_facts *facts = soft_facts_find(image, SOFT_ARGUMENT_BUFFER, index);
    snprintf(words, WORDS_NBYTES,
             "a thread touches what lies %zu bytes behind buffer %u (%.100s), which has %llu "
             "bytes",
             (size_t)behind, index, facts != NULL && facts->name != NULL ? facts->name : "?",
             (unsigned long long)launch->buffer_nbytes[index]);
}

SOFT_ON_FIBER void
soft_fault_describe(const soft_guard *guard, const soft_image *image, const soft_launch *launch,
                    char text[SOFT_FAULT_TEXT_NBYTES])
{
    char words[WORDS_NBYTES];
    bool is_stack = guard->signal == SIGSEGV &&
                    guard->stack_low() - guard->address - 1 < SOFT_BELOW_STACK_NBYTES;
    if (guard->signal == SIGFPE) {
        snprintf(words, sizeof words, "a thread divides by zero");
    }
    else if (guard->signal == SIGURG) {
        snprintf(words, sizeof words,
                 "a threadgroup has taken %llu s of processor time and has not ended "
                 "(SOFTMETAL_KERNEL_TIMEOUT). A thread that waits for what another one writes, "
                 "without a barrier, hangs on a GPU as well",
                 (unsigned long long)soft_settings_get(SOFT_KERNEL_TIMEOUT));
    }
    else if (guard->signal != SIGSEGV && guard->signal != SIGBUS) {
        snprintf(words, sizeof words, "a thread comes to what the compiler holds impossible");
    }
    else if (is_stack) {
        snprintf(words, sizeof words,
                 "a thread's variables need more than the %d bytes of stack that it has here",
                 SOFT_FIBER_STACK_NBYTES);
    }
    else {
        describe_address(guard->address, image, launch, words);
    }
    snprintf(text, SOFT_FAULT_TEXT_NBYTES,
             "%.100s: %s. It ran unchecked%s; to see the line, run the program by `python -m "
             "softmetal --check`.",
             launch->kernel != NULL ? launch->kernel : "kernel", words,
             is_stack || guard->signal == SIGURG ? ""
                                                 : ", and may have overwritten other memory");
}
