#include "tests/cuda/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define STACK_BYTES ((size_t)256 << 10) /* of address space; pages come as they are touched */

struct side {
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    const void *stack; /* for the sanitizer */
    size_t bytes;
};

struct fiber {
    struct side self, caller;
    void *stack;
    void (*body)(void *arg);
    void *arg;
};

#ifdef __x86_64__
extern "C" void fiber_swap(void **save, void *load);

/* What a call must preserve, and the stack. */
__asm__(".text\n"
        ".type fiber_swap, @function\n"
        "fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_swap, .-fiber_swap\n");
#endif

static void swap_sides(struct side *from, struct side *to)
{
#ifdef __SANITIZE_ADDRESS__
    void *fake;

    __sanitizer_start_switch_fiber(&fake, to->stack, to->bytes);
#endif
#ifdef __x86_64__
    fiber_swap(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

static struct fiber *starting; /* handed over in memory: a fresh stack has no arguments */

static void enter(void)
{
    struct fiber *fiber = starting;

#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &fiber->caller.stack, &fiber->caller.bytes);
#endif
    fiber->body(fiber->arg);
    abort();
}

struct fiber *fiber_create(void)
{
    struct fiber *fiber = static_cast<struct fiber *>(calloc(1, sizeof *fiber));

    if (!fiber)
        return NULL;
    fiber->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) {
        free(fiber);
        return NULL;
    }
    fiber->self.stack = fiber->stack;
    fiber->self.bytes = STACK_BYTES;
    return fiber;
}

void fiber_destroy(struct fiber *fiber)
{
    if (!fiber)
        return;
    munmap(fiber->stack, STACK_BYTES);
    free(fiber);
}

void fiber_start(struct fiber *fiber, void (*body)(void *arg), void *arg)
{
    fiber->body = body;
    fiber->arg = arg;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(fiber->stack, STACK_BYTES); /* frames that were left without returning */
#endif
#ifdef __x86_64__
    /* Six registers and a return address; upon its entry the stack is 8 off a multiple of 16, as after a call. */
    void **top = reinterpret_cast<void **>(static_cast<char *>(fiber->stack) + STACK_BYTES) - 8;

    for (int i = 0; i < 8; i++)
        top[i] = NULL;
    top[6] = reinterpret_cast<void *>(enter);
    fiber->self.sp = top;
#else
    getcontext(&fiber->self.context);
    fiber->self.context.uc_stack.ss_sp = fiber->stack;
    fiber->self.context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->self.context, enter, 0);
#endif
}

void fiber_resume(struct fiber *fiber)
{
    starting = fiber;
    swap_sides(&fiber->caller, &fiber->self);
}

void fiber_yield(struct fiber *fiber)
{
    swap_sides(&fiber->self, &fiber->caller);
}
