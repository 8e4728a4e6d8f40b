/* torch_queue.c: stands in for libtorch_cpu where there is no MPS: its functions for the
 * queue, over whatever Metal the test hands in.  The names are those that a C++ compiler
 * writes for torch::mps::...
 */
#include <stddef.h>

static void *(*make_command_buffer)(void);
static void (*commit_it)(void);
static int encoding; /* within dispatch_sync_f */
static int outside;  /* calls that came from elsewhere */
static int commits;

void
standin_set(void *(*make)(void), void (*commit)(void))
{
    make_command_buffer = make;
    commit_it = commit;
    outside = commits = 0;
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

void *
_ZN5torch3mps18get_command_bufferEv(void)
{
    outside += encoding == 0;
    return make_command_buffer();
}

void *
_ZN5torch3mps18get_dispatch_queueEv(void)
{
    return &encoding;
}

void
_ZN5torch3mps6commitEv(void)
{
    outside += encoding == 0;
    commits += 1;
    commit_it();
}

void
dispatch_sync_f(void *queue, void *context, void (*work)(void *context))
{
    outside += queue != &encoding;
    encoding = 1;
    work(context);
    encoding = 0;
}
