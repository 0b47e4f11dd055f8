/* Beside cuda.c and nvml.c: programs load a library by name and look functions up in it, as ctypes does. So dlsym is ours,
 * too: it gives our function for one that is there, and else what the real one gives. */

#define _GNU_SOURCE
#include <stdint.h>

#include "lookup.h"

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

lookup *real_lookup(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static void *real;
    for (size_t number = 0; dlvsym && !real && number < sizeof versions / sizeof *versions; number++)
        real = dlvsym(RTLD_NEXT, "dlsym", versions[number]);
    if (!dlvsym && !real)
        dl_iterate_phdr(has_lookup, &real);
    return (lookup *)real;
}

/* -- looking a function up ----------------------------------------------------------------------------------------- */

/* The function that a program gets for one that was found in a library. Of a second library of this kind it is that one's
 * own: behind ours there is one. */
static void *instead(const char *library, const struct own *own, const char *name, void *real) {
    for (; real && own->name; own++)
        if (strcmp(own->name, name) == 0) {
            if (real != own->ours && !*own->real)
                *own->real = next_of(library, name) ?: real;
            return real == own->ours || real == *own->real ? own->ours : real;
        }
    return real;
}

void *dlsym(void *handle, const char *name) {
    lookup *real = real_lookup();
    int runtime = strncmp(name, "cuda", 4) == 0 || strncmp(name, "__cuda", 6) == 0;
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || (!runtime && strncmp(name, "nvml", 4)))
        return real(handle, name); /* a jump, no call: where RTLD_NEXT begins depends on who asks */
    return runtime ? instead(RUNTIME, of_runtime, name, real(handle, name))
                   : instead(NVML, of_nvml, name, real(handle, name));
}
