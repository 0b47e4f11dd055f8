/* Functions of a library that are ours, and the real ones behind them, also where a program looks them up in the library
 * itself. Needs _GNU_SOURCE. */

#ifndef DILOCO_CHAOS_LOOKUP_H
#define DILOCO_CHAOS_LOOKUP_H

typedef void *lookup(void *handle, const char *name);

#define INNER __attribute__((visibility("hidden")))
INNER lookup *real_lookup(void);
#define LOOK_UP real_lookup()

#include "next.h"

#define RUNTIME "libcudart"
#define NVML "libnvidia-ml"

struct own {
    const char *name;
    void *ours, **real;
};
#define OURS(name) {#name, (void *)name, &real_##name}

extern INNER const struct own of_runtime[], of_nvml[]; /* one without a name is the end */

/* What is behind one of ours. */
#define REAL_OF(library, name, parameters)                                                                             \
    int name parameters;                                                                                               \
    static void *real_##name;                                                                                          \
    static int(*next_##name(void)) parameters {                                                                        \
        if (!real_##name)                                                                                              \
            real_##name = next_of(library, #name);                                                                     \
        return (int(*) parameters)real_##name;                                                                         \
    }

#endif
