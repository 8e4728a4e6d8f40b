/* check_guard.c: see check_guard.h.
 *
 * Owns:    the earlier handlers; the list of guards, behind `lock`; the watchdog, which lives on.
 * Calls:   pthread, sigaction, sigaltstack.
 * Threads: the handler runs on any thread and looks at that thread's guard alone.
 */
#define _GNU_SOURCE /* REG_RIP */
#include "softmetal/checker/check_guard.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define SIGNAL_STACK_NBYTES ((size_t)64 << 10)
#define LEAVE_STACK_NBYTES ((size_t)64 << 10)
#define NUDGE_NS 2000000
#define PATIENCE 25 /* nudges after which a kernel counts as one that touches no memory */

static const int watched[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGURG};
#define WATCHED_COUNT (sizeof watched / sizeof watched[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static soft_guard *guards; /* of all threads */
static bool has_watchdog;
static struct sigaction earlier[WATCHED_COUNT];

/* In the static block: a handler must not make the loader allocate. */
static _Thread_local __attribute__((tls_model("initial-exec"))) soft_guard *mine;

#if defined(__x86_64__)
static uintptr_t
instruction_of(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}
static void
go_on_at(ucontext_t *context, void (*function)(void), char *stack_top)
{
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)function;
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)(stack_top - 8); /* as if called */
}
#else
static uintptr_t
instruction_of(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.pc;
}
static void
go_on_at(ucontext_t *context, void (*function)(void), char *stack_top)
{
    context->uc_mcontext.pc = (uintptr_t)function;
    context->uc_mcontext.sp = (uintptr_t)stack_top;
}
#endif

/* What would have been, were this handler not here. */
static void
hand_on(int number, siginfo_t *info, void *context)
{
    size_t index = 0;
    while (watched[index] != number) {
        index += 1;
    }
    const struct sigaction *action = &earlier[index];
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(number, info, context);
    }
    else if (action->sa_handler == SIG_DFL && number != SIGURG) {
        sigaction(number, action, NULL); /* the instruction runs again, and ends the process */
        if (info->si_code <= 0) {
            raise(number); /* somebody sent it: no instruction will */
        }
    }
    else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
        action->sa_handler(number);
    }
}

static void
handle(int number, siginfo_t *info, void *context)
{
    int error = errno;
    soft_guard *guard = mine;
    uintptr_t at = instruction_of(context);
    bool is_kernel =
        guard != NULL && guard->signal == 0 && at >= guard->image_low && at < guard->image_high;
    if (guard != NULL && guard->signal == 0 && number == SIGSEGV &&
        at == (uintptr_t)info->si_addr) {
        is_kernel = true; /* it jumped into nowhere */
    }
    int nudges = guard == NULL ? 0 : __atomic_load_n(&guard->nudges, __ATOMIC_RELAXED);
    if (number == SIGURG && nudges > 0) {
        guard->hurry();
        if (!is_kernel || nudges < PATIENCE) {
            return; /* the next one may find it there */
        }
    }
    else if (!is_kernel || number == SIGURG || info->si_code <= 0) {
        hand_on(number, info, context);
        errno = error;
        return;
    }
    guard->signal = number;
    guard->address = (uintptr_t)info->si_addr;
    guard->instruction = at;
    go_on_at(context, guard->leave,
             (char *)guard->stacks + SIGNAL_STACK_NBYTES + LEAVE_STACK_NBYTES);
    errno = error;
}

static void
install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    action.sa_sigaction = handle;
    for (size_t i = 0; i < WATCHED_COUNT; i++) {
        sigaction(watched[i], &action, &earlier[i]);
    }
}

/* Give the signals back, but not from somebody who took them in the meantime. */
static void
uninstall(void)
{
    for (size_t i = 0; i < WATCHED_COUNT; i++) {
        struct sigaction now;
        sigaction(watched[i], NULL, &now);
        if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle) {
            sigaction(watched[i], &earlier[i], NULL);
        }
    }
}

static bool
is_earlier(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Nudge what is overdue; the time to look again.  False: nothing has a limit. */
static bool
nudge_locked(struct timespec *next)
{
    struct timespec now, soon;
    clock_gettime(CLOCK_MONOTONIC, &now);
    soon = now;
    soon.tv_nsec += NUDGE_NS;
    if (soon.tv_nsec >= 1000000000) {
        soon.tv_sec += 1;
        soon.tv_nsec -= 1000000000;
    }
    bool has_limit = false;
    for (soft_guard *guard = guards; guard != NULL; guard = guard->next) {
        const struct timespec *when = &guard->deadline;
        if (when->tv_sec == 0) {
            continue;
        }
        if (!is_earlier(&now, when)) {
            __atomic_add_fetch(&guard->nudges, 1, __ATOMIC_RELAXED);
            pthread_kill(guard->thread, SIGURG);
            when = &soon;
        }
        if (!has_limit || is_earlier(when, next)) {
            *next = *when;
        }
        has_limit = true;
    }
    return has_limit;
}

static void *
watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct timespec next;
        if (nudge_locked(&next)) {
            pthread_cond_timedwait(&changed, &lock, &next);
        }
        else {
            pthread_cond_wait(&changed, &lock);
        }
    }
    return NULL;
}

/* Without it a kernel may hang, and that is all. */
static void
start_watchdog_locked(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &monotonic);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the threads of the program */
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL) == 0) {
        pthread_detach(thread);
        has_watchdog = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool
take_stacks(soft_guard *guard)
{
    void *stacks = mmap(NULL, SIGNAL_STACK_NBYTES + LEAVE_STACK_NBYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) {
        return false;
    }
    stack_t ours = {.ss_sp = stacks, .ss_size = SIGNAL_STACK_NBYTES}, before;
    sigaltstack(&ours, &before);
    guard->stacks = stacks;
    guard->earlier_stack = before.ss_sp;
    guard->earlier_nbytes = before.ss_size;
    guard->earlier_flags = before.ss_flags;
    return true;
}

/* A thread of softmetal's blocks all signals. */
static void
unblock(soft_guard *guard)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < WATCHED_COUNT; i++) {
        sigaddset(&set, watched[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, &guard->earlier_mask);
}

bool
soft_guard_enter(soft_guard *guard, uint64_t seconds)
{
    if (!take_stacks(guard)) {
        return false;
    }
    guard->signal = 0;
    guard->nudges = 0;
    guard->thread = pthread_self();
    guard->deadline = (struct timespec){0};
    if (seconds != 0) {
        clock_gettime(CLOCK_MONOTONIC, &guard->deadline);
        guard->deadline.tv_sec += (time_t)seconds;
    }
    mine = guard;
    pthread_mutex_lock(&lock);
    if (guards == NULL) {
        install();
    }
    guard->next = guards;
    guards = guard;
    if (seconds != 0 && !has_watchdog) {
        start_watchdog_locked();
    }
    if (has_watchdog) {
        pthread_cond_signal(&changed);
    }
    pthread_mutex_unlock(&lock);
    unblock(guard);
    return true;
}

void
soft_guard_exit(soft_guard *guard)
{
    pthread_sigmask(SIG_SETMASK, &guard->earlier_mask, NULL);
    pthread_mutex_lock(&lock); /* after this no nudge is sent to the thread */
    soft_guard **place = &guards;
    while (*place != guard) {
        place = &(*place)->next;
    }
    *place = guard->next;
    mine = NULL;
    if (guards == NULL) {
        uninstall();
    }
    pthread_mutex_unlock(&lock);
    stack_t before = {.ss_sp = guard->earlier_stack,
                      .ss_size = guard->earlier_nbytes,
                      .ss_flags = guard->earlier_flags};
    sigaltstack(&before, NULL);
    munmap(guard->stacks, SIGNAL_STACK_NBYTES + LEAVE_STACK_NBYTES);
}
