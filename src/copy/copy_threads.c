/* copy_threads.c: does a plan, on several threads where that helps.
 *
 * Owns:    one number, the process's setting (copy_set_threads).
 * Threads: helpers are started for one copy and joined before it returns: nothing is left to
 *          stop at exit, nothing for a fork to inherit, and no lock exists.
 */
#include "copy/copy.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "copy/copy_plan.h"

/* A thread takes about 20 us to start and join.  In that time a core moves about 200 KiB: a
 * share of the work is some second caches, which are larger.  A memcpy on one core comes near
 * what memory gives, and pays on more of them only much later. */
#define SHARE 2          /* second caches of strided work for each thread */
#define PLAIN_SHARE 16   /* and of contiguous work */
#define DEFAULT_MAX 4    /* more threads wait for the same memory */
#define PAGE_NBYTES 4096 /* where one run is cut: pages stay whole */

static atomic_int setting; /* threads asked for; 0: the default */

void
copy_set_threads(int count)
{
    int wanted = count < 0 ? 0 : count > COPY_MAX_THREADS ? COPY_MAX_THREADS : count;
    atomic_store_explicit(&setting, wanted, memory_order_relaxed);
}

int
copy_get_threads(void)
{
    int wanted = atomic_load_explicit(&setting, memory_order_relaxed);
    if (wanted > 0) {
        return wanted;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > DEFAULT_MAX ? DEFAULT_MAX : (int)online;
}

/* ---- cutting a plan in parts ---- */

/* The outermost axis that is long enough to share out evenly, else the longest. */
static int
choose_axis(const copy_plan *plan, int nparts)
{
    int longest = 0;
    for (int i = 0; i < plan->naxes; i++) {
        if (plan->axes[i].extent >= 8 * nparts) {
            return i;
        }
        if (plan->axes[i].extent > plan->axes[longest].extent) {
            longest = i;
        }
    }
    return longest;
}

static int64_t
cut(int64_t extent, int index, int nparts, int64_t unit)
{
    if (index == nparts) {
        return extent;
    }
    int64_t share = extent / nparts * index + extent % nparts * index / nparts;
    return share / unit * unit;
}

/* Part `index` of `nparts`, of an axis or, where that is -1, of the run: its extent, which may be 0. */
static int64_t
take_part(const copy_plan *plan, int axis, int index, int nparts, copy_plan *part)
{
    bool is_run = axis < 0;
    copy_axis whole = is_run ? (copy_axis){plan->run, 1, 1} : plan->axes[axis];
    int64_t unit = is_run ? PAGE_NBYTES : 1;
    int64_t first = cut(whole.extent, index, nparts, unit);
    int64_t extent = cut(whole.extent, index + 1, nparts, unit) - first;
    *part = *plan;
    *(is_run ? &part->run : &part->axes[axis].extent) = extent;
    part->dst += first * whole.dst_step;
    part->src += first * whole.src_step;
    return extent;
}

/* ---- running them ---- */

typedef struct {
    copy_plan plan;
    int64_t extent; /* of the axis that was cut */
    pthread_t thread;
    bool is_started;
} work;

static void *
run_work(void *argument)
{
    const work *w = argument;
    if (w->extent > 0) {
        copy_nest_run(&w->plan);
    }
    return NULL;
}

/* Helpers take no signals: those belong to the threads of the program. */
static void
start_helpers(work *works, int nparts)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < nparts; i++) {
        works[i].is_started = pthread_create(&works[i].thread, NULL, run_work, &works[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void
run_parts(const copy_plan *plan, int nparts)
{
    work works[COPY_MAX_THREADS];
    int axis = plan->naxes == 0 ? -1 : choose_axis(plan, nparts);
    for (int i = 0; i < nparts; i++) {
        works[i].extent = take_part(plan, axis, i, nparts, &works[i].plan);
        works[i].is_started = false;
    }
    start_helpers(works, nparts);
    run_work(&works[0]);
    for (int i = 1; i < nparts; i++) {
        if (works[i].is_started) {
            pthread_join(works[i].thread, NULL);
        }
        else { /* unreached: no test makes it fail here */
            run_work(&works[i]);
        }
    }
}

/* How many threads have enough to do.  Small copies do not ask the system anything. */
static int
choose_count(const copy_plan *plan)
{
    int64_t nbytes = copy_plan_nbytes(plan);
    if (nbytes < PAGE_NBYTES) {
        return 1;
    }
    int64_t share = COPY_SECOND_CACHE * (plan->naxes == 0 ? PLAIN_SHARE : SHARE);
    int64_t useful = nbytes / share;
    int allowed = useful > 1 ? copy_get_threads() : 1;
    return useful < allowed ? (int)useful : allowed;
}

void
copy_threads_run(const copy_plan *plan)
{
    int count = choose_count(plan);
    if (count > 1) {
        run_parts(plan, count);
    }
    else {
        copy_nest_run(plan);
    }
}
