/* check_guard.c: see check_guard.h.
 *
 * Owns:    the earlier handlers and the number of guards, behind `lock`.
 * Calls:   sigaction, sigaltstack, timer_create.
 * Threads: the handler runs on any thread and looks at that thread's guard alone.
 */
#define _GNU_SOURCE /* REG_RIP */
#include "softmetal/checker/check_guard.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "softmetal/host.h"

#define SIGNAL_STACK_NBYTES ((size_t)64 << 10)
#define LEAVE_STACK_NBYTES ((size_t)64 << 10)
#define NUDGE_NS 2000000
#ifndef sigev_notify_thread_id /* glibc's name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif
#define PATIENCE 25 /* nudges after which a kernel counts as one that touches no memory */

static const int watched[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGURG};
#define WATCHED_COUNT (sizeof watched / sizeof watched[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int guard_count; /* of all threads */
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
        /* mutant survives (bound #2): no code lies behind the image */
        guard != NULL && guard->signal == 0 && at >= guard->image_low && at < guard->image_high;
    if (guard != NULL && guard->signal == 0 && number == SIGSEGV &&
        at == (uintptr_t)info->si_addr) {
        is_kernel = true; /* it jumped into nowhere */
    }
    if (number == SIGURG && guard != NULL && soft_monotonic_ns() >= guard->deadline_ns) {
        guard->hurry();
        if (++guard->nudges < PATIENCE || !is_kernel) {
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
take_stacks(soft_guard *guard)
{
    void *stacks = mmap(NULL, SIGNAL_STACK_NBYTES + LEAVE_STACK_NBYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) {
        /* mutant survives (constant returned): then only a kernel that faults ends the process */
        return false;
    }
    stack_t ours = {.ss_sp = stacks, .ss_size = SIGNAL_STACK_NBYTES};
    sigaltstack(&ours, &guard->earlier_stack);
    guard->stacks = stacks;
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

/* Nudges the thread from its deadline on.  Without it a kernel may hang, and that is all. */
static void
start_timer(soft_guard *guard, uint64_t seconds)
{
    struct sigevent nudge = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)seconds},
                              .it_interval = {.tv_nsec = NUDGE_NS}};
    nudge.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    guard->has_timer = timer_create(CLOCK_MONOTONIC, &nudge, &guard->timer) == 0;
    if (guard->has_timer) { /* 0 seconds: it stands still */
        timer_settime(guard->timer, 0, &when, NULL);
    }
}

bool
soft_guard_enter(soft_guard *guard, uint64_t seconds)
{
    if (!take_stacks(guard)) {
        return false;
    }
    guard->signal = 0;
    guard->nudges = 0;
    guard->deadline_ns =
        seconds != 0 ? soft_monotonic_after(seconds, 1000000000) : SOFT_FOREVER;
    mine = guard;
    pthread_mutex_lock(&lock);
    if (guard_count++ == 0) {
        install();
    }
    pthread_mutex_unlock(&lock);
    start_timer(guard, seconds);
    unblock(guard);
    return true;
}

void
soft_guard_exit(soft_guard *guard)
{
    if (guard->has_timer) {
        timer_delete(
            guard->timer); /* what it has sent comes now, before the signal is blocked */
    }
    pthread_sigmask(SIG_SETMASK, &guard->earlier_mask, NULL);
    mine = NULL;
    pthread_mutex_lock(&lock);
    if (--guard_count == 0) {
        uninstall();
    }
    pthread_mutex_unlock(&lock);
    sigaltstack(&guard->earlier_stack, NULL);
    munmap(guard->stacks, SIGNAL_STACK_NBYTES + LEAVE_STACK_NBYTES);
}
