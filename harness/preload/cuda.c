/* Preloaded into commands whose device fails: calls of the CUDA runtime return an error, come late, or wait for what never
 * ends, as the shared page says.
 *
 * An error of a device is one of the process from then on, as the runtime documents it: every call gets it, also when the
 * fault is over, and only another process has a device again. Running out of memory is the call's own.
 *
 * Met is what goes through the dynamic libcudart, as torch's own kernels do, also where a program looks a function up in
 * it (lookup.c). Not met are libraries that have the runtime linked into them (cuBLAS, cuDNN, NCCL), and the driver's
 * interface (libcuda). */

#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "lookup.h"
#include "page.h"

#define SUCCESS 0
#define NOT_READY 600
#define UNKNOWN 999

#define BIT(call) (1u << (call))
#define QUERIES (BIT(CUDA_STREAM_QUERY) | BIT(CUDA_EVENT_QUERY))
/* Calls after which a process has no device yet. */
#define BEFORE_USE (BIT(CUDA_DEVICE_COUNT) | BIT(CUDA_GET_LAST_ERROR) | BIT(CUDA_PEEK_LAST_ERROR))

struct dim3 {
    unsigned x, y, z;
};

static struct page *page;
static int used;             /* the process has a device */
static int broken;           /* what every call returns from now on */
static uint32_t broken_by;   /* the arming that did it */
static uint32_t counted_for; /* the arming for which this process was counted */
static __thread int last __attribute__((tls_model("initial-exec"))); /* an error that the next question for one gets */

__attribute__((constructor)) static void load(void) {
    int before = errno;
    if ((page = page_of_node()))
        __atomic_fetch_add(&page->loaded, 1, __ATOMIC_RELAXED);
    errno = before;
}

/* -- what becomes of a call ---------------------------------------------------------------------------------------- */

static void rest(uint64_t ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static void hit(struct cuda *cuda, enum cuda_call call, uint32_t armed) {
    __atomic_fetch_add(&cuda->hit[call], 1, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&counted_for, armed, __ATOMIC_RELAXED) != armed)
        __atomic_fetch_add(&cuda->processes, 1, __ATOMIC_RELAXED);
}

/* Whether there is still memory for so many bytes, which are then taken. */
static int fits(struct cuda *cuda, uint64_t bytes) {
    uint64_t before = __atomic_fetch_add(&cuda->allocated, bytes, __ATOMIC_RELAXED);
    if (before + bytes <= cuda->after)
        return 1;
    __atomic_fetch_sub(&cuda->allocated, bytes, __ATOMIC_RELAXED);
    return 0;
}

/* What a call fails with that the fault begins with. */
static int failure(struct cuda *cuda, uint32_t armed) {
    int code = __atomic_load_n(&used, __ATOMIC_RELAXED) ? cuda->error : cuda->error_before;
    if (!cuda->lasts)
        return last = code;
    broken_by = armed;
    __atomic_store_n(&broken, code, __ATOMIC_RELEASE);
    return code;
}

/* Do what the page says of a call, and return what the call returns instead of being made; SUCCESS: it is made. */
static int struck(enum cuda_call call, uint64_t bytes) {
    int code = __atomic_load_n(&broken, __ATOMIC_ACQUIRE);
    uint32_t armed = page ? __atomic_load_n(&page->cuda.armed, __ATOMIC_ACQUIRE) : 0;
    if (!armed)
        return code;
    struct cuda *cuda = &page->cuda;
    __atomic_fetch_add(&cuda->met[call], 1, __ATOMIC_RELAXED);
    if (code) {
        if (broken_by == armed)
            hit(cuda, call, armed);
        return code;
    }
    if (!(cuda->calls & BIT(call)) || (cuda->after && fits(cuda, bytes)))
        return SUCCESS;
    hit(cuda, call, armed);
    if (cuda->action == CUDA_ERROR)
        return failure(cuda, armed);
    if (cuda->action == CUDA_DELAY)
        rest(cuda->delay_ns);
    else if (BIT(call) & QUERIES)
        return NOT_READY;
    else
        for (uint64_t look = FIRST_LOOK_NS; __atomic_load_n(&page->cuda.armed, __ATOMIC_ACQUIRE) == armed;
             look = NEXT_LOOK_NS(look))
            rest(look);
    return SUCCESS;
}

static int done(enum cuda_call call, int code) {
    if (code == SUCCESS && !(BIT(call) & BEFORE_USE))
        __atomic_store_n(&used, 1, __ATOMIC_RELAXED);
    return code;
}

/* -- the calls ----------------------------------------------------------------------------------------------------- */

#define CALL_AS(function, call, name, bytes, parameters, arguments)                                                    \
    REAL_OF(RUNTIME, name, parameters)                                                                                 \
    function parameters {                                                                                              \
        int code = struck(call, bytes);                                                                                \
        if (code != SUCCESS)                                                                                           \
            return code;                                                                                               \
        int(*real) parameters = next_##name();                                                                         \
        return real ? done(call, real arguments) : UNKNOWN;                                                            \
    }
#define CALL(call, name, bytes, parameters, arguments) CALL_AS(int name, call, name, bytes, parameters, arguments)

CALL(CUDA_SET_DEVICE, cudaSetDevice, 0, (int device), (device))
CALL(CUDA_MALLOC, cudaMalloc, size, (void **at, size_t size), (at, size))
CALL(CUDA_MALLOC_ASYNC, cudaMallocAsync, size, (void **at, size_t size, void *stream), (at, size, stream))
CALL(CUDA_LAUNCH_KERNEL, cudaLaunchKernel, 0,
     (const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream),
     (kernel, grid, block, arguments, shared, stream))
CALL(CUDA_LAUNCH_KERNEL, __cudaLaunchKernel, 0, /* what nvcc makes of `<<<>>>` since CUDA 13 */
     (const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream),
     (kernel, grid, block, arguments, shared, stream))
CALL(CUDA_LAUNCH_KERNEL_EX, cudaLaunchKernelExC, 0, (const void *config, const void *kernel, void **arguments),
     (config, kernel, arguments))
CALL(CUDA_GRAPH_LAUNCH, cudaGraphLaunch, 0, (void *graph, void *stream), (graph, stream))
CALL(CUDA_MEMCPY, cudaMemcpy, 0, (void *to, const void *from, size_t size, int kind), (to, from, size, kind))
CALL(CUDA_MEMCPY_ASYNC, cudaMemcpyAsync, 0, (void *to, const void *from, size_t size, int kind, void *stream),
     (to, from, size, kind, stream))
CALL(CUDA_MEMSET, cudaMemset, 0, (void *at, int value, size_t size), (at, value, size))
CALL(CUDA_MEMSET_ASYNC, cudaMemsetAsync, 0, (void *at, int value, size_t size, void *stream), (at, value, size, stream))
CALL(CUDA_STREAM_SYNCHRONIZE, cudaStreamSynchronize, 0, (void *stream), (stream))
CALL(CUDA_DEVICE_SYNCHRONIZE, cudaDeviceSynchronize, 0, (void), ())
CALL(CUDA_EVENT_SYNCHRONIZE, cudaEventSynchronize, 0, (void *event), (event))
CALL(CUDA_STREAM_QUERY, cudaStreamQuery, 0, (void *stream), (stream))
CALL(CUDA_EVENT_QUERY, cudaEventQuery, 0, (void *event), (event))

CALL_AS(static int count_devices, CUDA_DEVICE_COUNT, cudaGetDeviceCount, 0, (int *count), (count))

int cudaGetDeviceCount(int *count) {
    int code = count_devices(count);
    if (code != SUCCESS && count)
        *count = 0;
    return code;
}

CALL_AS(static int get_error, CUDA_GET_LAST_ERROR, cudaGetLastError, 0, (void), ())
CALL_AS(static int peek_error, CUDA_PEEK_LAST_ERROR, cudaPeekAtLastError, 0, (void), ())

int cudaPeekAtLastError(void) {
    int code = peek_error();
    return code != SUCCESS ? code : last;
}

int cudaGetLastError(void) {
    int code = get_error(), ours = last;
    last = SUCCESS;
    return code != SUCCESS ? code : ours;
}

/* -- where they are looked up ---------------------------------------------------------------------------------------- */

const struct own of_runtime[] = {OURS(cudaSetDevice), OURS(cudaMalloc), OURS(cudaMallocAsync),
                                 OURS(cudaLaunchKernel), OURS(__cudaLaunchKernel), OURS(cudaLaunchKernelExC),
                                 OURS(cudaGraphLaunch), OURS(cudaMemcpy), OURS(cudaMemcpyAsync), OURS(cudaMemset),
                                 OURS(cudaMemsetAsync), OURS(cudaStreamSynchronize), OURS(cudaDeviceSynchronize),
                                 OURS(cudaEventSynchronize), OURS(cudaStreamQuery), OURS(cudaEventQuery),
                                 OURS(cudaGetDeviceCount), OURS(cudaGetLastError), OURS(cudaPeekAtLastError),
                                 {NULL, NULL, NULL}};
