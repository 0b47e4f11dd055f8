/* Beside cuda.c: what NVML says of a device while the shared page lets it fail: that it is lost, one more uncorrected ECC
 * error, and a critical Xid for who waits for events. All other answers are NVML's own.
 *
 * NVML is loaded by name, and its functions are looked up in it, as ctypes does for pynvml and torch (lookup.c). Not met
 * is who asks the driver itself, and NVML in other processes than the node's: `nvidia-smi` elsewhere, DCGM. */

#define _GNU_SOURCE
#include <stdint.h>

#include "lookup.h"
#include "page.h"

#define SUCCESS 0
#define TIMEOUT 10
#define FUNCTION_NOT_FOUND 13
#define GPU_IS_LOST 15
#define UNCORRECTED 1
#define XID_CRITICAL 8ull
#define NO_INSTANCE 0xFFFFFFFFu
#define LOOK_MS 20u

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance; /* only of the second version */
};

static struct page *page;

__attribute__((constructor)) static void load(void) {
    page = page_of_node();
}

/* What holds of the device; NULL: nothing. */
static struct cuda *armed(void) {
    return page && __atomic_load_n(&page->cuda.armed, __ATOMIC_ACQUIRE) ? &page->cuda : NULL;
}

static void answered(struct cuda *cuda) {
    __atomic_fetch_add(&cuda->answered, 1, __ATOMIC_RELAXED);
}

/* -- questions about a device -------------------------------------------------------------------------------------- */

#define REAL(name, parameters) REAL_OF(NVML, name, parameters)

/* A question that a lost device has no answer to; of one that answers, `more` may change what it said. */
#define ANSWER(name, parameters, arguments, more)                                                                      \
    REAL(name, parameters)                                                                                             \
    int name parameters {                                                                                              \
        int(*real) parameters = next_##name();                                                                         \
        struct cuda *cuda = armed();                                                                                   \
        if (cuda && cuda->lost)                                                                                        \
            return answered(cuda), GPU_IS_LOST;                                                                        \
        int code = real ? real arguments : FUNCTION_NOT_FOUND;                                                         \
        more;                                                                                                          \
        return code;                                                                                                   \
    }
#define QUESTION(name, parameters, arguments) ANSWER(name, parameters, arguments, )

QUESTION(nvmlDeviceGetHandleByIndex, (unsigned index, void **device), (index, device))
QUESTION(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **device), (index, device))
QUESTION(nvmlDeviceGetHandleByUUID, (const char *uuid, void **device), (uuid, device))
QUESTION(nvmlDeviceGetHandleByPciBusId, (const char *id, void **device), (id, device))
QUESTION(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, void **device), (id, device))
QUESTION(nvmlDeviceGetMemoryInfo, (void *device, void *memory), (device, memory))
QUESTION(nvmlDeviceGetMemoryInfo_v2, (void *device, void *memory), (device, memory))
QUESTION(nvmlDeviceGetUtilizationRates, (void *device, void *rates), (device, rates))
QUESTION(nvmlDeviceGetTemperature, (void *device, int sensor, unsigned *degrees), (device, sensor, degrees))
QUESTION(nvmlDeviceGetPowerUsage, (void *device, unsigned *milliwatts), (device, milliwatts))

/* How many errors there were: some more, of the kind that was not corrected. */
static void add_errors(int code, int kind, unsigned long long *errors, struct cuda *cuda) {
    if (code != SUCCESS || !cuda || !cuda->ecc || kind != UNCORRECTED)
        return;
    *errors += cuda->ecc;
    answered(cuda);
}

#define COUNT(name, parameters, arguments) ANSWER(name, parameters, arguments, add_errors(code, kind, errors, cuda))

COUNT(nvmlDeviceGetTotalEccErrors, (void *device, int kind, int since, unsigned long long *errors),
      (device, kind, since, errors))
COUNT(nvmlDeviceGetMemoryErrorCounter, (void *device, int kind, int since, int where, unsigned long long *errors),
      (device, kind, since, where, errors))

/* -- events -------------------------------------------------------------------------------------------------------- */

static void *watched, *watching; /* the device and the set of events for which Xids were asked for last */
static uint32_t told;            /* the arming whose Xid this process was told */

REAL(nvmlDeviceRegisterEvents, (void *device, unsigned long long types, void *set))

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    int (*real)(void *, unsigned long long, void *) = next_nvmlDeviceRegisterEvents();
    struct cuda *cuda = armed();
    if (cuda && cuda->lost)
        return answered(cuda), GPU_IS_LOST;
    int code = real ? real(device, types, set) : FUNCTION_NOT_FOUND;
    if (code == SUCCESS && types & XID_CRITICAL) {
        watched = device;
        __atomic_store_n(&watching, set, __ATOMIC_RELEASE);
    }
    return code;
}

/* Whether there is a Xid that this set of events was not told. */
static int happened(void *set, struct event *event) {
    struct cuda *cuda = armed();
    uint32_t number = cuda ? cuda->armed : 0;
    if (!number || !cuda->xid || __atomic_load_n(&watching, __ATOMIC_ACQUIRE) != set ||
        __atomic_exchange_n(&told, number, __ATOMIC_RELAXED) == number)
        return 0;
    event->device = watched;
    event->type = XID_CRITICAL;
    event->data = cuda->xid;
    answered(cuda);
    return 1;
}

/* Wait for an event in short stretches, and look between them. */
static int wait_for(int (*real)(void *, struct event *, unsigned), void *set, struct event *event, unsigned ms) {
    int code;
    do {
        if (happened(set, event))
            return SUCCESS;
        unsigned stretch = ms < LOOK_MS ? ms : LOOK_MS;
        code = real ? real(set, event, stretch) : FUNCTION_NOT_FOUND;
        ms -= stretch;
    } while (code == TIMEOUT && ms);
    return code;
}

REAL(nvmlEventSetWait, (void *set, struct event *event, unsigned ms))
REAL(nvmlEventSetWait_v2, (void *set, struct event *event, unsigned ms))

int nvmlEventSetWait(void *set, struct event *event, unsigned ms) {
    return wait_for(next_nvmlEventSetWait(), set, event, ms);
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned ms) {
    event->gpu_instance = event->compute_instance = NO_INSTANCE;
    return wait_for(next_nvmlEventSetWait_v2(), set, event, ms);
}

/* -- where they are looked up ---------------------------------------------------------------------------------------- */

const struct own of_nvml[] = {OURS(nvmlDeviceGetHandleByIndex), OURS(nvmlDeviceGetHandleByIndex_v2),
                              OURS(nvmlDeviceGetHandleByUUID), OURS(nvmlDeviceGetHandleByPciBusId),
                              OURS(nvmlDeviceGetHandleByPciBusId_v2), OURS(nvmlDeviceGetMemoryInfo),
                              OURS(nvmlDeviceGetMemoryInfo_v2), OURS(nvmlDeviceGetUtilizationRates),
                              OURS(nvmlDeviceGetTemperature), OURS(nvmlDeviceGetPowerUsage),
                              OURS(nvmlDeviceGetTotalEccErrors), OURS(nvmlDeviceGetMemoryErrorCounter),
                              OURS(nvmlDeviceRegisterEvents), OURS(nvmlEventSetWait), OURS(nvmlEventSetWait_v2),
                              {NULL, NULL, NULL}};
