/* cases.m: one case of the list, and what must be true after it. */
#import "check.h"

struct test_case *first_case;

static void
print_live(const char *class_name, const void *object, long retain_count, const char *site,
           void *context)
{
    (void)context;
    fprintf(stderr, "alive: %s %p, retained %ld times, made at %s\n", class_name, object,
            retain_count, site);
}

static void
check_reports(const struct test_case *one)
{
    size_t expected = one->kind != NULL && getenv("SOFTMETAL_VALIDATION") != NULL;
    size_t found = softmetal_reports(NULL);
    if ((one->flags & MAY_REPEAT) != 0 && expected == 1 && found > 1) {
        expected = found;
    }
    if (found != expected || softmetal_reports(one->kind) != expected) {
        fprintf(stderr, "reports: %zu, of the expected kind: %zu\n", found,
                softmetal_reports(one->kind));
        exit(1);
    }
}

static void
run_and_check(const struct test_case *one)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    one->run();
    [pool drain];
    CHECK(softmetal_wait_idle(10000));
    if ((one->flags & MAY_LEAK) == 0 && softmetal_live_objects(NULL) != 0) {
        softmetal_visit_live_objects(NULL, print_live, NULL);
        exit(1);
    }
    check_reports(one);
}

/* For runner.c, which finds it by its name.  Does not return if a check fails. */
__attribute__((visibility("default"))) void
run_case(const char *name)
{
    for (struct test_case *one = first_case; one != NULL; one = one->next) {
        if (strcmp(name, one->name) == 0) {
            (one->flags & IS_FIRST) != 0 ? one->run() : run_and_check(one);
            return;
        }
    }
    fprintf(stderr, "no such case\n");
    exit(2);
}
