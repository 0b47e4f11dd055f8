/* The real function behind one of ours. Needs _GNU_SOURCE. */

#ifndef DILOCO_CHAOS_NEXT_H
#define DILOCO_CHAOS_NEXT_H

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#define LONGEST_NAME 512
#ifndef LOOK_UP /* who makes dlsym its own says where the real one is */
#define LOOK_UP dlsym
#endif

struct sought {
    const char *library;
    char path[LONGEST_NAME];
};

static int is_sought(struct dl_phdr_info *object, size_t size, void *data) {
    struct sought *sought = data;
    const char *slash = strrchr(object->dlpi_name, '/');
    (void)size;
    if (!strstr(slash ? slash : object->dlpi_name, sought->library) || strlen(object->dlpi_name) >= LONGEST_NAME)
        return 0;
    strcpy(sought->path, object->dlpi_name);
    return 1;
}

/* Return the next function of this name, or the one of a library that was loaded later, for another one alone: it is in
 * nobody's sight but that one's. */
static void *next_of(const char *library, const char *function) {
    struct sought sought = {.library = library};
    void *next = LOOK_UP(RTLD_NEXT, function);
    if (next || !dl_iterate_phdr(is_sought, &sought))
        return next;
    void *handle = dlopen(sought.path, RTLD_LAZY | RTLD_NOLOAD);
    return handle ? LOOK_UP(handle, function) : NULL;
}

#endif
