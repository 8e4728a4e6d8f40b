/* runner.c: `runner CASES.so NAME...` runs each case in a child that loads the cases by itself, so
 * that nothing of Metal is older than the child.  Prints a line `== NAME STATUS` after what a case
 * has said; the status is that of exit, or the signal's number, negative.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S 60

static void
run_here(const char *path, const char *name)
{
    alarm(PATIENCE_S); /* a case that hangs must not hang the test */
    void *cases = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*run_case)(const char *) =
        cases != NULL ? (void (*)(const char *))dlsym(cases, "run_case") : NULL;
    if (run_case == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    run_case(name);
    exit(0);
}

int
main(int argc, char **argv)
{
    for (int index = 2; index < argc; index++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            run_here(argv[1], argv[index]);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) {
            return 1;
        }
        printf("== %s %d\n", argv[index],
               WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return 0;
}
