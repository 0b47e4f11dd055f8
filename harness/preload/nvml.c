/* Beside cuda.c: what NVML says of a device while the shared page lets it fail: that it is lost, one more uncorrected ECC
 * error, and a critical Xid for who waits for events. All other answers are NVML's own.
 *
 * NVML is loaded by name, and its functions are looked up in it, as ctypes does for pynvml and torch. So dlsym is ours,
 * too: it gives our function for one of NVML's that is there, and else what the real one gives. Not met is who asks the
 * driver itself, and NVML in other processes than the node's: `nvidia-smi` elsewhere, DCGM. */

#define _GNU_SOURCE
#include <stdint.h>

#include "next.h"
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

typedef void *lookup(void *handle, const char *name);

static struct page *page;

__attribute__((constructor)) static void load(void) {
    page = page_of_node();
}

/* -- the real dlsym ------------------------------------------------------------------------------------------------ */

#pragma weak dlvsym

void *dlsym(void *handle, const char *name);

/* Of a library without versions, as musl is: look through all of its symbols. */
static int has_lookup(struct dl_phdr_info *object, size_t size, void *real) {
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hash = NULL;
    (void)size;
    for (int number = 0; number < object->dlpi_phnum; number++)
        if (object->dlpi_phdr[number].p_type == PT_DYNAMIC)
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[number].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)(object->dlpi_addr + entry->d_un.d_ptr);
        symbols = entry->d_tag == DT_SYMTAB ? at : symbols;
        names = entry->d_tag == DT_STRTAB ? at : names;
        hash = entry->d_tag == DT_HASH ? at : hash;
    }
    for (uint32_t number = 1; symbols && names && hash && number < hash[1]; number++) {
        void *function = (void *)(object->dlpi_addr + symbols[number].st_value);
        if (symbols[number].st_shndx && strcmp(names + symbols[number].st_name, "dlsym") == 0 &&
            function != (void *)dlsym) {
            *(void **)real = function;
            return 1;
        }
    }
    return 0;
}

static lookup *real_lookup(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static void *real;
    for (size_t number = 0; dlvsym && !real && number < sizeof versions / sizeof *versions; number++)
        real = dlvsym(RTLD_NEXT, "dlsym", versions[number]);
    if (!dlvsym && !real)
        dl_iterate_phdr(has_lookup, &real);
    return (lookup *)real;
}

/* What holds of the device; NULL: nothing. */
static struct cuda *armed(void) {
    return page && __atomic_load_n(&page->cuda.armed, __ATOMIC_ACQUIRE) ? &page->cuda : NULL;
}

static void answered(struct cuda *cuda) {
    __atomic_fetch_add(&cuda->answered, 1, __ATOMIC_RELAXED);
}

/* -- questions about a device -------------------------------------------------------------------------------------- */

#define REAL(name, parameters)                                                                                         \
    int name parameters;                                                                                               \
    static void *real_##name;                                                                                          \
    static int(*next_##name(void)) parameters {                                                                        \
        void *next = real_##name ? NULL : next_of("libnvidia-ml", #name);                                              \
        if (next && next != (void *)name) /* looked up in the library it is ours, and the real one is known by then */ \
            real_##name = next;                                                                                        \
        return (int(*) parameters)real_##name;                                                                         \
    }

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

/* -- looking a function up ----------------------------------------------------------------------------------------- */

#define OURS(name) {#name, (void *)name, &real_##name}

static const struct {
    const char *name;
    void *ours, **real;
} functions[] = {OURS(nvmlDeviceGetHandleByIndex), OURS(nvmlDeviceGetHandleByIndex_v2),
                 OURS(nvmlDeviceGetHandleByUUID), OURS(nvmlDeviceGetHandleByPciBusId),
                 OURS(nvmlDeviceGetHandleByPciBusId_v2), OURS(nvmlDeviceGetMemoryInfo),
                 OURS(nvmlDeviceGetMemoryInfo_v2), OURS(nvmlDeviceGetUtilizationRates),
                 OURS(nvmlDeviceGetTemperature), OURS(nvmlDeviceGetPowerUsage), OURS(nvmlDeviceGetTotalEccErrors),
                 OURS(nvmlDeviceGetMemoryErrorCounter), OURS(nvmlDeviceRegisterEvents), OURS(nvmlEventSetWait),
                 OURS(nvmlEventSetWait_v2)};

/* The function that a program gets for one that was found in a library. */
static void *instead(const char *name, void *real) {
    for (size_t number = 0; real && number < sizeof functions / sizeof *functions; number++)
        if (strcmp(functions[number].name, name) == 0) {
            if (real != functions[number].ours)
                *functions[number].real = real;
            return functions[number].ours;
        }
    return real;
}

void *dlsym(void *handle, const char *name) {
    lookup *real = real_lookup();
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || strncmp(name, "nvml", 4))
        return real(handle, name); /* a jump, no call: where RTLD_NEXT begins depends on who asks */
    return instead(name, real(handle, name));
}
