/*
 * fiber.h - a stack of its own for a function, switched to and from by hand: what the emulator gives each GPU thread.
 *
 * On x86-64 a switch is a dozen instructions; elsewhere it goes through ucontext. The address sanitizer is told of
 * each.
 */
#ifndef MUSTER_TESTS_CUDA_FIBER_H
#define MUSTER_TESTS_CUDA_FIBER_H

struct fiber;

/* NULL: no memory. The body runs at the first fiber_resume after a fiber_start. */
struct fiber *fiber_create(void);
void fiber_destroy(struct fiber *fiber);

/* Forgets where the fiber was, without unwinding; the next fiber_resume calls body(arg). The body must not return: its
 * last act is a fiber_yield. */
void fiber_start(struct fiber *fiber, void (*body)(void *arg), void *arg);

/* Into the fiber, until it yields; and back to whoever resumed it. */
void fiber_resume(struct fiber *fiber);
void fiber_yield(struct fiber *fiber);

#endif
