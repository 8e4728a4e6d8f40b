/* counted_messages.c: preloaded, counts the Objective-C messages that given code sends.
 *
 * counted_messages_choose(addresses, count): the code, [begin, end, begin, end ...]; lives as
 * long as the process.
 * counted_messages_begin(): from here on, those of this thread.
 * counted_messages_end(text, nbytes): no more; "selector count" a line, in the order of the
 * first ones.
 */
#define _GNU_SOURCE
#include <objc/runtime.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "chosen_code.h"

#define MOST_SELECTORS 64

static bool is_counting;
static pthread_t counted_thread;
static struct {
    const char *selector;
    int count;
} seen[MOST_SELECTORS];

void
counted_messages_choose(const uintptr_t *addresses, size_t count)
{
    chosen_code_set(addresses, count);
}

void
counted_messages_begin(void)
{
    memset(seen, 0, sizeof seen);
    counted_thread = pthread_self();
    __atomic_store_n(&is_counting, true, __ATOMIC_SEQ_CST);
}

void
counted_messages_end(char *text, size_t nbytes)
{
    __atomic_store_n(&is_counting, false, __ATOMIC_SEQ_CST);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < MOST_SELECTORS && seen[i].selector != NULL; i++) {
        used += (size_t)snprintf(text + used, nbytes - used, "%s %d\n", seen[i].selector,
                                 seen[i].count);
    }
}

static void
count(const char *selector)
{
    for (int i = 0; i < MOST_SELECTORS; i++) {
        if (seen[i].selector == NULL) {
            seen[i].selector = selector;
        }
        if (strcmp(seen[i].selector, selector) == 0) {
            seen[i].count++;
            return;
        }
    }
}

IMP
objc_msg_lookup(id receiver, SEL selector)
{
    static IMP (*real)(id, SEL);
    if (real == NULL) {
        real = (IMP (*)(id, SEL))dlsym(RTLD_NEXT, "objc_msg_lookup");
    }
    if (__atomic_load_n(&is_counting, __ATOMIC_SEQ_CST) &&
        pthread_equal(pthread_self(), counted_thread) &&
        chosen_code_has(__builtin_return_address(0))) {
        count(sel_getName(selector));
    }
    return real(receiver, selector);
}
