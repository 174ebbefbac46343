/* comm_interrupt.c - makes comm_wait fail when the run hangs: comm_interrupt stores the error with which it fails. If
 * comm_wait fails because a peer was lost, the function set by comm_on_peer_failure may replace that error. */
#include <stdatomic.h>

#include "trainer/comm/comm_impl.h"

static struct error interruption;
static atomic_int interrupting; /* 1: being written, 2: complete */

void comm_interrupt(const struct error *err)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&interrupting, &none, 1))
        return;
    interruption = *err;
    atomic_store_explicit(&interrupting, 2, memory_order_release);
}

bool comm_interrupted(struct error *err)
{
    if (atomic_load_explicit(&interrupting, memory_order_acquire) != 2)
        return false;
    *err = interruption;
    return true;
}

static void (*on_peer_failure)(struct error *err, void *arg);
static void *on_peer_failure_arg;

void comm_on_peer_failure(void (*call)(struct error *err, void *arg), void *arg)
{
    on_peer_failure = call;
    on_peer_failure_arg = arg;
}

void comm_peer_failed(struct error *err)
{
    if (on_peer_failure)
        on_peer_failure(err, on_peer_failure_arg);
}
