/* check_guard.c: see check_guard.h.
 *
 * Owns:    the earlier handlers, and the number of launches that need them on top, behind `lock`.
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

#include "softmetal/checker/last_words.h"
#include "softmetal/checker/late.h"
#include "softmetal/fiber.h"
#include "softmetal/host.h"

#define SIGNAL_STACK_NBYTES ((size_t)64 << 10)
#define LEAVE_STACK_NBYTES ((size_t)64 << 10)
#define NUDGE_NS 2000000
#ifndef sigev_notify_thread_id /* glibc's name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif
#define PATIENCE 25 /* nudges after which a kernel counts as one that touches no memory */

#define FAULT_COUNT 6 /* SIGABRT: the heap is found to be broken; no kernel raises it */
static const int watched[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT, SIGURG};
#define WATCHED_COUNT (sizeof watched / sizeof watched[0])

/* What a layer of handlers lies on.  A handler that came between the two finds the lower one, which
 * never hands on to it: no signal goes round in a circle. */
typedef struct layer {
    struct sigaction action;
    struct sigaction earlier[WATCHED_COUNT];
} layer;
static void handle_always(int number, siginfo_t *info, void *context);
static void handle_on_top(int number, siginfo_t *info, void *context);
static layer always = {.action.sa_sigaction = handle_always};
static layer on_top = {.action.sa_sigaction = handle_on_top};

static pthread_once_t always_once = PTHREAD_ONCE_INIT;
static pthread_key_t stacks_key;
static bool has_key; /* of stacks_key */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char its_time_is_up; /* marks what tell_late sends */
static int top_count;             /* of launches that need the layer on top, on all threads */

/* In the static block: a handler must not make the loader allocate. */
static _Thread_local __attribute__((tls_model("initial-exec"))) soft_guard *mine;

#if defined(__x86_64__)
static uintptr_t
instruction_of(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}
static uintptr_t
stack_pointer_of(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
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
static uintptr_t
stack_pointer_of(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.sp;
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
hand_on(const layer *layer, int number, siginfo_t *info, void *context)
{
    size_t index = 0;
    while (watched[index] != number) {
        index += 1;
    }
    const struct sigaction *action = &layer->earlier[index];
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
    struct sigaction now;
    bool is_own = info->si_code > 0 || info->si_pid == getpid();
    sigaction(number, NULL, &now);
    if (is_own && now.sa_handler == SIG_DFL && number != SIGURG) {
        soft_say_last_words(number); /* faulthandler, too, has given the signal back by now */
    }
}

/* May what the signal has interrupted be left for good? */
static bool
is_kernel(const soft_guard *guard, int number, const siginfo_t *info, const ucontext_t *context)
{
    uintptr_t at = instruction_of(context);
    if (guard == NULL || guard->signal != 0) {
        return false;
    }
    /* mutant survives (bound #2): no code lies behind the image */
    if (at >= guard->image_low && at < guard->image_high) {
        return true;
    }
    if (number == SIGSEGV && at == (uintptr_t)info->si_addr) {
        return true; /* it jumped into nowhere */
    }
    uintptr_t low = guard->stack_low();
    if (number == SIGSEGV && low - (uintptr_t)info->si_addr - 1 < SOFT_BELOW_STACK_NBYTES) {
        return true;
    }
    return !guard->is_checked && stack_pointer_of(context) - low + SOFT_BELOW_STACK_NBYTES <
                                     SOFT_FIBER_STACK_NBYTES + SOFT_BELOW_STACK_NBYTES;
}

static bool
is_from_tell_late(int number, const siginfo_t *info)
{
    return number == SIGTRAP && info->si_code == SI_QUEUE &&
           info->si_value.sival_ptr == &its_time_is_up;
}

static void
handle(const layer *layer, int number, siginfo_t *info, void *context)
{
    int error = errno;
    soft_guard *guard = mine;
    bool may_leave = is_kernel(guard, number, info, context);
    if (is_from_tell_late(number, info)) {
        if (!may_leave || guard->is_checked || !soft_progress_is_late(guard->progress)) {
            return; /* it has ended in the meantime, or the next one finds it there */
        }
        number = SIGURG;
    }
    else if (number == SIGURG && guard != NULL && soft_monotonic_ns() >= guard->deadline_ns) {
        guard->hurry();
        if (++guard->nudges < PATIENCE || !may_leave) {
            return; /* the next one may find it there */
        }
    }
    else if (!may_leave || number == SIGURG || info->si_code <= 0) {
        hand_on(layer, number, info, context);
        errno = error;
        return;
    }
    guard->signal = number;
    guard->address = (uintptr_t)info->si_addr;
    guard->instruction = instruction_of(context);
    go_on_at(context, guard->leave, guard->leave_stack_top);
    errno = error;
}

static void
handle_always(int number, siginfo_t *info, void *context)
{
    handle(&always, number, info, context);
}

static void
handle_on_top(int number, siginfo_t *info, void *context)
{
    handle(&on_top, number, info, context);
}

static void
install(layer *layer, size_t count)
{
    layer->action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    for (size_t i = 0; i < count; i++) {
        sigaction(watched[i], &layer->action, &layer->earlier[i]);
    }
}

/* Give the signals back, but not from somebody who took them in the meantime. */
static void
uninstall(const layer *layer)
{
    for (size_t i = 0; i < WATCHED_COUNT; i++) {
        struct sigaction now;
        sigaction(watched[i], NULL, &now);
        if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == layer->action.sa_sigaction) {
            sigaction(watched[i], &layer->earlier[i], NULL);
        }
    }
}

/* ---- an OS thread that runs kernels ---- */

typedef struct thread_stacks {
    soft_progress progress;
    _Alignas(64) char of_signals[SIGNAL_STACK_NBYTES];
    char of_leave[LEAVE_STACK_NBYTES];
    stack_t earlier;
} thread_stacks;

/* The thread ends. */
static void
drop_stacks(void *value)
{
    thread_stacks *stacks = value;
    soft_progress_remove(&stacks->progress);
    sigaltstack(&stacks->earlier, NULL);
    munmap(stacks, sizeof *stacks);
}

static void
begin_always(void)
{
    if (pthread_key_create(&stacks_key, drop_stacks) == 0) {
        install(&always, FAULT_COUNT);
        has_key = true;
    }
}

/* A thread of softmetal's blocks all signals. */
static void
unblock(size_t first, size_t end, sigset_t *earlier)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = first; i < end; i++) {
        sigaddset(&set, watched[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, earlier);
}

/* Once a thread: its faults reach the handlers, on a stack of its own.  NULL: there is no memory. */
static thread_stacks *
take_stacks(void)
{
    pthread_once(&always_once, begin_always);
    thread_stacks *stacks = has_key ? pthread_getspecific(stacks_key) : NULL;
    if (stacks != NULL || !has_key) {
        return stacks;
    }
    stacks =
        mmap(NULL, sizeof *stacks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) {
        return NULL;
    }
    if (pthread_setspecific(stacks_key, stacks) != 0) {
        munmap(stacks, sizeof *stacks);
        return NULL;
    }
    stack_t ours = {.ss_sp = stacks->of_signals, .ss_size = sizeof stacks->of_signals};
    sigaltstack(&ours, &stacks->earlier);
    unblock(0, FAULT_COUNT, NULL);
    soft_progress_add(&stacks->progress);
    return stacks;
}

static bool
set_guard(soft_guard *guard)
{
    thread_stacks *stacks = take_stacks();
    if (stacks == NULL) {
        /* mutant survives (constant returned): then only a kernel that faults ends the process */
        return false;
    }
    guard->leave_stack_top = stacks->of_leave + sizeof stacks->of_leave;
    guard->signal = 0;
    guard->progress = &stacks->progress;
    soft_progress_step(guard->progress);
    __atomic_store_n(&guard->progress->is_running, !guard->is_checked, __ATOMIC_RELAXED);
    mine = guard;
    return true;
}

static void
come_on_top(void)
{
    pthread_mutex_lock(&lock);
    if (top_count++ == 0) {
        install(&on_top, WATCHED_COUNT);
    }
    pthread_mutex_unlock(&lock);
}

static void
step_back(void)
{
    pthread_mutex_lock(&lock);
    if (--top_count == 0) {
        uninstall(&on_top);
    }
    pthread_mutex_unlock(&lock);
}

/* Does somebody who came later have the signal, such as a library that prints backtraces?  Or the
 * layer on top, which another launch takes away when it ends. */
static bool
is_covered(void)
{
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    return (now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != handle_always;
}

/* SIGTRAP, which debuggers and sanitizers let through at once, and nobody else's ticks are. */
static void
tell_late(pthread_t thread)
{
    struct sigaction now;
    sigaction(SIGTRAP, NULL, &now);
    if (now.sa_sigaction == handle_always || now.sa_sigaction == handle_on_top) {
        union sigval mark = {.sival_ptr = (void *)(uintptr_t)&its_time_is_up};
        pthread_sigqueue(thread, SIGTRAP, mark);
    }
}

bool
soft_guard_begin(const char *kernel)
{
    soft_last_kernel_set(kernel);
    pthread_once(&always_once, begin_always); /* the lower layer is the earlier one */
    soft_late_watch(tell_late);
    bool is_on_top = is_covered();
    if (is_on_top) {
        come_on_top();
    }
    return is_on_top;
}

void
soft_guard_end(bool is_on_top)
{
    if (is_on_top) {
        step_back();
    }
}

void
soft_guard_set(soft_guard *guard)
{
    guard->deadline_ns = SOFT_FOREVER;
    (void)set_guard(guard);
}

void
soft_guard_clear(void)
{
    if (mine != NULL) {
        __atomic_store_n(&mine->progress->is_running, false, __ATOMIC_RELAXED);
        mine->progress = NULL; /* the guard may go to another OS thread */
    }
    mine = NULL;
}

/* ---- a checked launch ---- */

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
    guard->nudges = 0;
    guard->deadline_ns =
        seconds != 0 ? soft_monotonic_after(seconds, 1000000000) : SOFT_FOREVER;
    if (!set_guard(guard)) {
        return false;
    }
    come_on_top();
    start_timer(guard, seconds);
    unblock(FAULT_COUNT, WATCHED_COUNT, &guard->earlier_mask);
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
    soft_guard_clear();
    step_back();
}
