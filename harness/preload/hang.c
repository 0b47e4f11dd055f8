/* Preloaded into commands whose main thread is to stand still while its process looks alive: a signal that nobody else
 * sends brings it here, where it waits until the page says that it is over.
 *
 * Whether it holds Python's lock (GIL) decides what else stands: with it every thread of Python's does, without it none.
 * Nothing is restarted and nothing raised; a call that was interrupted goes on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "page.h"

#define SIGNAL 61 /* of real time; libraries take theirs from the other end */
#define LOOK_NS 2000000

static struct page *page;
static int (*holds_gil)(void);
static int (*add_pending)(int (*)(void *), void *);
static uint32_t asked; /* the arming for which the interpreter was asked to come here */

static void stand(uint32_t armed) {
    struct timespec look = {.tv_nsec = LOOK_NS};
    page->stood = getpid();
    while (__atomic_load_n(&page->hang, __ATOMIC_ACQUIRE) == armed)
        nanosleep(&look, NULL);
}

/* The interpreter calls this from the main thread, which holds the lock: libraries that compute give it back for that. */
static int stand_with_gil(void *nothing) {
    uint32_t armed = __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE);
    (void)nothing;
    if (armed && page->holding == HOLDING_GIL)
        stand(armed);
    return 0;
}

/* Whether a signal has interrupted a call that waits: then its thread has no lock of the interpreter's or the C library's
 * own, on which others would stand, too. */
static int in_a_call(const ucontext_t *context) {
#if defined(__x86_64__)
    const greg_t *registers = context->uc_mcontext.gregs;
    const unsigned char *next = (const unsigned char *)registers[REG_RIP];
    int wakes = registers[REG_RAX] == SYS_futex && (registers[REG_RSI] & FUTEX_CMD_MASK) == FUTEX_WAKE;
    int again = next[0] == 0x0f && next[1] == 0x05 && !wakes; /* `syscall`, which is made again */
    return again || (next[-2] == 0x0f && next[-1] == 0x05 && registers[REG_RAX] == -EINTR);
#else
    (void)context;
    return 1;
#endif
}

static void signalled(int number, siginfo_t *from, void *context) {
    int before = errno;
    (void)number;
    (void)from;
    uint32_t armed = __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE);
    int held = holds_gil && holds_gil(), wanted = page->holding == HOLDING_GIL;
    if (armed && syscall(SYS_gettid) == getpid()) {
        if (held == wanted && (held || in_a_call(context)))
            stand(armed);
        else if (wanted && !held && add_pending && asked != armed) {
            asked = armed;
            add_pending(stand_with_gil, NULL);
        }
    }
    errno = before;
}

__attribute__((constructor)) static void load(void) {
    int before = errno;
    if ((page = page_of_node())) {
        struct sigaction action = {.sa_sigaction = signalled, .sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO};
        holds_gil = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
        add_pending = (int (*)(int (*)(void *), void *))dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
        sigemptyset(&action.sa_mask);
        sigaction(SIGNAL, &action, NULL);
    }
    errno = before;
}
