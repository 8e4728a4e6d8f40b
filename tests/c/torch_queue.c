/* torch_queue.c: stands in for libtorch_cpu where there is no MPS: its functions for the
 * queue, and the ones of libdispatch that go with them, over whatever Metal the test hands in.
 * The names are those that a C++ compiler writes for torch::mps::...
 *
 * As torch 2.15 it has several streams, the current one is the calling thread's, and each has
 * a serial dispatch queue.  As torch's functions it makes no autorelease pool.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define STREAMS 4

typedef struct stream {
    pthread_mutex_t serial; /* held while a job of the dispatch queue runs */
    atomic_int retains;
} stream;

static stream streams[STREAMS] = {
    {PTHREAD_MUTEX_INITIALIZER, 0},
    {PTHREAD_MUTEX_INITIALIZER, 0},
    {PTHREAD_MUTEX_INITIALIZER, 0},
    {PTHREAD_MUTEX_INITIALIZER, 0},
};

static void *(*make_command_buffer)(int number);
static void (*commit_it)(int number);
static atomic_int outside; /* calls on any other queue than the current stream's */
static atomic_int commits;
static int runs_elsewhere; /* jobs run on another thread than the one that waits for them */

static _Thread_local int current;      /* the current stream's number */
static _Thread_local int running = -1; /* the stream whose job this thread runs */

void
standin_set(void *(*make)(int number), void (*commit)(int number))
{
    make_command_buffer = make;
    commit_it = commit;
    outside = commits = 0;
}

/* What torch.mps.set_stream does; the number before. */
int
standin_set_stream(int number)
{
    int before = current;
    current = number;
    return before;
}

void
standin_run_elsewhere(int is_so)
{
    runs_elsewhere = is_so;
}

int
standin_commits(void)
{
    return commits;
}

int
standin_calls_outside(void)
{
    return outside;
}

int
standin_retains(int number)
{
    return streams[number].retains;
}

/* ---- torch::mps ---- */

void *
_ZN5torch3mps18get_command_bufferEv(void)
{
    outside += running != current;
    return make_command_buffer(current);
}

void *
_ZN5torch3mps18get_dispatch_queueEv(void)
{
    return current < 0 ? NULL : &streams[current];
}

void
_ZN5torch3mps6commitEv(void)
{
    outside += running != current;
    commits += 1;
    commit_it(current);
}

/* ---- libdispatch ---- */

typedef struct job {
    stream *queue;
    void *context;
    void (*work)(void *context);
} job;

static void *
run_job(void *argument)
{
    job *given = argument;
    (void)pthread_mutex_lock(&given->queue->serial);
    running = (int)(given->queue - streams);
    given->work(given->context);
    running = -1;
    (void)pthread_mutex_unlock(&given->queue->serial);
    return NULL;
}

void
dispatch_sync_f(void *queue, void *context, void (*work)(void *context))
{
    job given = {queue, context, work};
    pthread_t thread;
    if (runs_elsewhere && pthread_create(&thread, NULL, run_job, &given) == 0) {
        (void)pthread_join(thread, NULL);
        return;
    }
    (void)run_job(&given);
}

void
dispatch_retain(void *queue)
{
    ((stream *)queue)->retains += 1;
}
