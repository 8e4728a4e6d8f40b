/* fiber.c: see fiber.h.
 *
 * Owns:      the mappings of stacks.
 * Calls:     the system.
 * Invariant: what the ABI says a call preserves lies on the stack that was left: nothing else is
 *            kept, and in particular neither rounding modes nor the signal mask.
 */
#include "softmetal/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#define LINE_NBYTES 64 /* of the cache */
#define LINES_OF_PAGE 64

#if defined(__x86_64__)

__asm__(".text\n"
        ".p2align 6\n"
        ".globl soft_fiber_switch\n"
        ".hidden soft_fiber_switch\n"
        ".type soft_fiber_switch, @function\n"
        "soft_fiber_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size soft_fiber_switch, . - soft_fiber_switch\n"
        ".globl soft_fiber_begin\n"
        ".hidden soft_fiber_begin\n"
        ".type soft_fiber_begin, @function\n"
        "soft_fiber_begin:\n" /* on a stack that soft_fiber_prepare has made */
        "    mov %r12, %rdi\n"
        "    jmp *%r13\n"
        ".size soft_fiber_begin, . - soft_fiber_begin\n");

/* What lies at the stack pointer of a fiber that does not run. */
struct frame {
    void *r15, *r14, *r13, *r12, *rbx, *rbp, *return_address;
    void *caller; /* of the entry: none; here the ABI wants a multiple of 16, plus 8 */
};
#define ENTRY r13
#define CONTEXT r12
#define BEGIN return_address

#elif defined(__aarch64__)

__asm__(".text\n"
        ".p2align 6\n"
        ".globl soft_fiber_switch\n"
        ".hidden soft_fiber_switch\n"
        ".type soft_fiber_switch, %function\n"
        "soft_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size soft_fiber_switch, . - soft_fiber_switch\n"
        ".globl soft_fiber_begin\n"
        ".hidden soft_fiber_begin\n"
        ".type soft_fiber_begin, %function\n"
        "soft_fiber_begin:\n" /* on a stack that soft_fiber_prepare has made */
        "    mov x0, x19\n"
        "    mov x30, xzr\n"
        "    br x20\n"
        ".size soft_fiber_begin, . - soft_fiber_begin\n");

/* What lies at the stack pointer of a fiber that does not run. */
struct frame {
    void *x19, *x20, *x21_to_x28[8], *x29, *x30;
    void *d8_to_d15[8];
};
#define ENTRY x20
#define CONTEXT x19
#define BEGIN x30

#else
#error "softmetal runs kernels on x86-64 and arm64"
#endif

void soft_fiber_begin(void) __attribute__((visibility("hidden")));

bool
soft_fiber_make(soft_fiber *fiber)
{
    size_t guard_nbytes = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, guard_nbytes + SOFT_FIBER_STACK_NBYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    if (mprotect(memory, guard_nbytes, PROT_NONE) != 0) {
        munmap(memory, guard_nbytes + SOFT_FIBER_STACK_NBYTES);
        return false;
    }
    fiber->stack = memory + guard_nbytes;
    return true;
}

void
soft_fiber_prepare(soft_fiber *fiber, unsigned number, soft_fiber_entry *entry, void *context)
{
    /* mutant survives (sign): only slower: stacks share lines of the cache */
    unsigned colour = (number + number / LINES_OF_PAGE) % LINES_OF_PAGE;
    char *top = fiber->stack + SOFT_FIBER_STACK_NBYTES - colour * LINE_NBYTES;
#ifdef __SANITIZE_ADDRESS__
    /* Frames that were left for good have marked memory as theirs. */
    __asan_unpoison_memory_region(fiber->stack, SOFT_FIBER_STACK_NBYTES);
#endif
    struct frame *frame = (struct frame *)(void *)top - 1;
    memset(frame, 0, sizeof *frame);
    frame->ENTRY = (void *)(uintptr_t)entry;
    frame->CONTEXT = context;
    frame->BEGIN = (void *)(uintptr_t)soft_fiber_begin;
    fiber->stack_pointer = frame;
}
