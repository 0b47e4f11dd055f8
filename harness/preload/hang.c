/* Preloaded into commands whose main thread is to stand still while its process looks alive: a signal that nobody else
 * sends brings it here, where it waits until the page says that it is over; or its next network call does, once the signal
 * has said that it is meant.
 *
 * Whether it holds Python's lock (GIL) decides what else stands: with it every thread of Python's does, without it none.
 * Nothing is restarted and nothing raised; a call that was interrupted goes on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "page.h"

#define SIGNAL 61 /* of real time; libraries take theirs from the other end */

static struct page *page;
static int (*holds_gil)(void);
static int (*add_pending)(int (*)(void *), void *);
static uint32_t asked; /* the arming for which the interpreter was asked to come here */
static uint32_t meant; /* the arming for which this process is to stand in its next network call, */
static pid_t meant_pid; /* and not one that it has forked since */

static int held_gil(void) { return holds_gil && holds_gil(); }

static void stand(uint32_t armed, const char *call) {
    struct timespec look = {.tv_nsec = FIRST_LOOK_NS};
    page->with_gil = held_gil();
    strncpy(page->stood_in, call, CALLED - 1);
    __atomic_store_n(&page->stood, (uint32_t)getpid(), __ATOMIC_RELEASE);
    for (; __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE) == armed; look.tv_nsec = NEXT_LOOK_NS(look.tv_nsec))
        nanosleep(&look, NULL);
}

/* The interpreter calls this from the main thread, which holds the lock: libraries that compute give it back for that. */
static int stand_with_gil(void *nothing) {
    uint32_t armed = __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE);
    (void)nothing;
    if (armed && page->holding == HOLDING_GIL)
        stand(armed, "");
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

/* -- network calls -------------------------------------------------------------------------------------------------- */

/* The call in which a thread is, and what it is on: looked at where a signal comes meanwhile. A preloaded library is there
 * from the beginning, so that reading these takes no memory. */
struct inside {
    const char *call; /* NULL: it is in none */
    int fd;           /* a socket, or what waits for some (epoll); -1: it waits for those below */
    const struct pollfd *polled;
    const fd_set *sets[3];
    nfds_t count;
};
static __thread struct inside inside __attribute__((tls_model("initial-exec")));

/* Whether a descriptor is a socket that may lead to another machine. */
static int is_network(int fd) {
    int domain = AF_UNIX;
    socklen_t size = sizeof domain;
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

/* Whether an epoll waits for such a socket: the kernel has a line `tfd: NUMBER` for each that it waits for. */
static int awaits_network(int epoll) {
    static const char NAME[] = "tfd:";
    char name[48], some[512];
    int known = 0, number = -1, found = 0;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", epoll);
    int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    for (long got; !found && fd >= 0 && (got = syscall(SYS_read, fd, some, sizeof some)) > 0;)
        for (long at = 0; !found && at < got; at++) {
            char next = some[at];
            if (known < 4)
                known = next == NAME[known] ? known + 1 : next == *NAME;
            else if (next >= '0' && next <= '9')
                number = (number < 0 ? 0 : number) * 10 + next - '0';
            else if (number >= 0) {
                found = is_network(number);
                known = 0;
                number = -1;
            }
        }
    if (fd >= 0)
        syscall(SYS_close, fd);
    return found;
}

static int in_network(void) {
    if (!inside.call)
        return 0;
    if (inside.fd >= 0)
        return is_network(inside.fd) || (strncmp(inside.call, "epoll", 5) == 0 && awaits_network(inside.fd));
    for (nfds_t n = 0; n < inside.count; n++) {
        if (inside.polled ? is_network(inside.polled[n].fd) : 0)
            return 1;
        for (int set = 0; !inside.polled && set < 3; set++)
            if (inside.sets[set] && FD_ISSET(n, inside.sets[set]) && is_network(n))
                return 1;
    }
    return 0;
}

/* A thread is about to make a call: the main thread of a process that is meant stands before it. */
static void look(void) {
    uint32_t armed = page ? __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE) : 0;
    if (__builtin_expect(!armed || armed != meant, 1))
        return;
    int before = errno;
    if (page->holding == HOLDING_NETWORK && meant_pid == getpid() && syscall(SYS_gettid) == meant_pid && in_network())
        stand(armed, inside.call);
    errno = before;
}

static inline void enter(const char *call, int fd) {
    inside.fd = fd;
    inside.call = call;
    look();
}

static void *found(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort(); /* without it nothing can be done for the program */
    return function;
}

/* Calls of the C library's on one descriptor. The first are on files most of the time, and must cost nothing: of these
 * one that waits already when it begins is not looked at. All are looked up before there are threads: a child between
 * fork and exec must not wait for a lock of the loader's; but another library's constructor may come before ours. */
#define CALLS_ON_ANY(CALL)                                                                                          \
    CALL(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))                                        \
    CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))                                 \
    CALL(ssize_t, readv, (int fd, const struct iovec *list, int count), (fd, list, count))                          \
    CALL(ssize_t, writev, (int fd, const struct iovec *list, int count), (fd, list, count))
#define CALLS_ON_SOCKETS(CALL)                                                                                      \
    CALL(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))                \
    CALL(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))                      \
    CALL(ssize_t, sendto, (int fd, const void *data, size_t size, int flags, const struct sockaddr *to,             \
                           socklen_t length), (fd, data, size, flags, to, length))                                  \
    CALL(ssize_t, recvfrom, (int fd, void *restrict data, size_t size, int flags, struct sockaddr *restrict from,   \
                             socklen_t *restrict length), (fd, data, size, flags, from, length))                    \
    CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))                 \
    CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))                       \
    CALL(int, connect, (int fd, const struct sockaddr *to, socklen_t length), (fd, to, length))                     \
    CALL(int, accept, (int fd, struct sockaddr *restrict from, socklen_t *restrict length), (fd, from, length))     \
    CALL(int, accept4, (int fd, struct sockaddr *restrict from, socklen_t *restrict length, int flags),             \
         (fd, from, length, flags))                                                                                 \
    CALL(int, epoll_wait, (int fd, struct epoll_event *events, int most, int timeout), (fd, events, most, timeout)) \
    CALL(int, epoll_pwait, (int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask),       \
         (fd, events, most, timeout, mask))

#define FOUND(result, name, taken)           \
    if (__builtin_expect(!real_##name, 0))   \
        real_##name = (result(*) taken)found(#name);

#define ON_SOCKET(result, name, taken, given) \
    static result(*real_##name) taken;        \
    result name taken {                       \
        FOUND(result, name, taken)            \
        enter(#name, fd);                     \
        result done = real_##name given;      \
        inside.call = NULL;                   \
        return done;                          \
    }

#define ON_ANY(result, name, taken, given)    \
    static result(*real_##name) taken;        \
    result name taken {                       \
        FOUND(result, name, taken)            \
        if (__builtin_expect(!meant, 1))      \
            return real_##name given;         \
        enter(#name, fd);                     \
        result done = real_##name given;      \
        inside.call = NULL;                   \
        return done;                          \
    }

CALLS_ON_ANY(ON_ANY)
CALLS_ON_SOCKETS(ON_SOCKET)

ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
    if (size > room)
        abort();
    return read(fd, data, size);
}

ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
    if (size > room)
        abort();
    return recv(fd, data, size, flags);
}

ssize_t __recvfrom_chk(int fd, void *restrict data, size_t size, size_t room, int flags, struct sockaddr *restrict from,
                       socklen_t *restrict length) {
    if (size > room)
        abort();
    return recvfrom(fd, data, size, flags, from, length);
}

/* -- those on several ------------------------------------------------------------------------------------------------ */

static int (*real_poll)(struct pollfd *, nfds_t, int);
static int (*real_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
static int (*real_select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
static int (*real_pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);

static void enter_poll(const char *call, const struct pollfd *list, nfds_t count) {
    inside.polled = list;
    inside.count = count;
    enter(call, -1);
}

static void enter_select(const char *call, int count, const fd_set *in, const fd_set *out, const fd_set *other) {
    const fd_set *sets[3] = {in, out, other};
    memcpy(inside.sets, sets, sizeof sets);
    enter_poll(call, NULL, count < 0 ? 0 : count < FD_SETSIZE ? count : FD_SETSIZE);
}

static int left(int done) {
    inside.call = NULL;
    return done;
}

int poll(struct pollfd *list, nfds_t count, int timeout) {
    if (!real_poll)
        real_poll = (int (*)(struct pollfd *, nfds_t, int))found("poll");
    enter_poll("poll", list, count);
    return left(real_poll(list, count, timeout));
}

int __poll_chk(struct pollfd *list, nfds_t count, int timeout, size_t room) {
    if (count > room / sizeof *list)
        abort();
    return poll(list, count, timeout);
}

int ppoll(struct pollfd *list, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    if (!real_ppoll)
        real_ppoll = (int (*)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))found("ppoll");
    enter_poll("ppoll", list, count);
    return left(real_ppoll(list, count, timeout, mask));
}

int __ppoll_chk(struct pollfd *list, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room) {
    if (count > room / sizeof *list)
        abort();
    return ppoll(list, count, timeout, mask);
}

int select(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict other, struct timeval *restrict timeout) {
    if (!real_select)
        real_select = (int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))found("select");
    enter_select("select", count, in, out, other);
    return left(real_select(count, in, out, other, timeout));
}

int pselect(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict other,
            const struct timespec *restrict timeout, const sigset_t *restrict mask) {
    if (!real_pselect)
        real_pselect = (int (*)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))found("pselect");
    enter_select("pselect", count, in, out, other);
    return left(real_pselect(count, in, out, other, timeout, mask));
}

/* -- the signal ------------------------------------------------------------------------------------------------------- */

static void signalled(int number, siginfo_t *from, void *context) {
    int before = errno;
    (void)number;
    (void)from;
    uint32_t armed = __atomic_load_n(&page->hang, __ATOMIC_ACQUIRE);
    int held = held_gil(), wanted = page->holding == HOLDING_GIL;
    if (armed && syscall(SYS_gettid) == getpid()) {
        if (page->holding == HOLDING_NETWORK) {
            meant_pid = getpid();
            meant = armed;
            if (in_network())
                stand(armed, inside.call);
        } else if (held == wanted && (held || in_a_call(context)))
            stand(armed, "");
        else if (wanted && !held && add_pending && asked != armed) {
            asked = armed;
            add_pending(stand_with_gil, NULL);
        }
    }
    errno = before;
}

#define LOOKED_UP(result, name, taken, given) real_##name = (result(*) taken)found(#name);

static void find_calls(void) {
    CALLS_ON_ANY(LOOKED_UP)
    CALLS_ON_SOCKETS(LOOKED_UP)
    real_poll = (int (*)(struct pollfd *, nfds_t, int))found("poll");
    real_ppoll = (int (*)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))found("ppoll");
    real_select = (int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))found("select");
    real_pselect = (int (*)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))found("pselect");
}

__attribute__((constructor)) static void load(void) {
    int before = errno;
    find_calls();
    if ((page = page_of_node())) {
        struct sigaction action = {.sa_sigaction = signalled, .sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO};
        holds_gil = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
        add_pending = (int (*)(int (*)(void *), void *))dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
        sigemptyset(&action.sa_mask);
        sigaction(SIGNAL, &action, NULL);
    }
    errno = before;
}
