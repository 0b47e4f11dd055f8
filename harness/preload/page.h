/* The page that the harness shares with every process of a node: what is armed, and what was hit. Its twin is page.py. */

#ifndef DILOCO_CHAOS_PAGE_H
#define DILOCO_CHAOS_PAGE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_MAGIC 0x31656761706f6964ull /* "diopage1" */
#define RULES 16
#define NAMES 32
#define LONGEST 512
#define TOKEN 72
#define CALLED 28
#define SPARED 4

/* A thread that stands looks now and then whether it is over: soon at first, then ever more seldom. One that
 * woke often would wait for a processor often, and a stall that our fault made would be told as the machine's doing. */
#define FIRST_LOOK_NS 2000000u
#define LAST_LOOK_NS 16000000u
#define NEXT_LOOK_NS(look) ((look) < LAST_LOOK_NS ? 2 * (look) : (look))

enum call { CALL_OPEN, CALL_READ, CALL_WRITE, CALL_FSYNC, CALL_RENAME, CALL_CLOSE, CALL_MMAP, CALLS };
enum cuda_call {
    CUDA_DEVICE_COUNT, CUDA_SET_DEVICE, CUDA_MALLOC, CUDA_MALLOC_ASYNC, CUDA_LAUNCH_KERNEL, CUDA_LAUNCH_KERNEL_EX,
    CUDA_GRAPH_LAUNCH, CUDA_MEMCPY, CUDA_MEMCPY_ASYNC, CUDA_MEMSET, CUDA_MEMSET_ASYNC, CUDA_STREAM_SYNCHRONIZE,
    CUDA_DEVICE_SYNCHRONIZE, CUDA_EVENT_SYNCHRONIZE, CUDA_STREAM_QUERY, CUDA_EVENT_QUERY, CUDA_GET_LAST_ERROR,
    CUDA_PEEK_LAST_ERROR, CUDA_CALLS
};
enum cuda_action { CUDA_ERROR, CUDA_DELAY, CUDA_HANG };
enum holding { HOLDING_GIL, HOLDING_NOTHING, HOLDING_NETWORK };
enum action { ACTION_ERROR, ACTION_DELAY, ACTION_HANG, ACTION_SHORT, ACTION_FLIP, ACTION_ZERO, ACTION_SIGN,
              ACTION_SCALE, ACTION_NAN };

struct rule {
    uint32_t armed;    /* how often this one was armed; a process that hangs sees by it that its fault is over */
    uint32_t calls;    /* a bit for each call that it means */
    uint32_t action;
    int32_t error;     /* errno of ACTION_ERROR */
    uint32_t share;    /* hits as many of 65,536 calls */
    uint32_t seed;
    uint64_t delay_ns; /* of ACTION_DELAY */
    uint64_t after;    /* bytes that pass before it bites */
    /* counted by the processes */
    uint64_t met;      /* calls that it means, on files that it means */
    uint64_t passed;   /* bytes of them that went through */
    uint64_t lost;     /* bytes of them that did not */
    uint64_t hit[CALLS];
    char pattern[LONGEST];
    char first[LONGEST]; /* the file that was hit first */
};

/* What becomes of calls of the CUDA runtime, and of NVML's answers. Its twin is cuda.py. */
struct cuda {
    uint32_t armed;       /* how often one was armed, while it is; else 0 */
    uint32_t calls;       /* a bit for each call that it begins with */
    uint32_t action;
    int32_t error;        /* what a call returns */
    int32_t error_before; /* the same in a process that has not used its device yet */
    uint32_t lasts;       /* every call of that process returns it from then on */
    uint32_t lost;        /* NVML says that the device is lost */
    uint32_t ecc;         /* so many more uncorrected errors */
    uint64_t xid;         /* and this Xid; 0: none */
    uint64_t delay_ns;
    uint64_t after;       /* bytes that are allocated before it bites */
    /* counted by the processes */
    uint64_t allocated;
    uint64_t processes;   /* that had a call that was hit */
    uint64_t answered;    /* questions that NVML answered so */
    uint64_t met[CUDA_CALLS];
    uint64_t hit[CUDA_CALLS];
};

struct page {
    uint64_t magic;
    uint32_t generation; /* another one whenever a rule was armed or disarmed */
    uint32_t active;     /* a bit for each rule that is armed */
    uint32_t wanted;     /* a bit for each call that one of them means */
    uint32_t loaded;     /* processes that have this page */
    uint32_t named;      /* files in `names`, or that had no room there */
    uint32_t hang;       /* how often a hang was armed, while it is; else 0 */
    uint32_t holding;    /* what the main thread is to hold while it stands, or that it stands in a network call */
    uint32_t stood;      /* pid of the process whose main thread stood last */
    uint32_t with_gil;   /* whether that held Python's lock */
    char stood_in[CALLED]; /* the call on a connection in which it stood; empty: another place */
    char token[TOKEN]; /* of the run */
    char spared[SPARED][LONGEST]; /* beginnings of paths that no rule means: what the harness has to read */
    char names[NAMES][LONGEST]; /* files of wanted calls that no rule meant */
    struct rule rules[RULES];
    struct cuda cuda;
};

/* In a function like open(): the mode, which is there where a file may be made. Needs <stdarg.h>, and _GNU_SOURCE. */
#define MODE(flags, mode)                                                  \
    mode_t mode = 0;                                                       \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {         \
        va_list more;                                                      \
        va_start(more, flags);                                             \
        mode = va_arg(more, int);                                          \
        va_end(more);                                                      \
    }

/* The page that DILOCO_CHAOS_PAGE names; NULL: there is none. */
static inline struct page *page_of_node(void) {
    const char *name = getenv("DILOCO_CHAOS_PAGE");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    struct page *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return at != MAP_FAILED && at->magic == PAGE_MAGIC ? at : NULL;
}

#endif
