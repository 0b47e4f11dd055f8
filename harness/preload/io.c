/* Preloaded into commands whose files fail: calls on files whose name a rule of the shared page means get its error, come
 * late, don't come back before it is over, do only a part, or write something else.
 *
 * Where no rule is armed a call costs two loads more. What does not go through the C library is not seen: programs that
 * are linked statically, pages of a file that is mapped, io_uring, and what the C library itself writes for a stream
 * (`fwrite` is seen, what `fprintf` puts into the buffer is not).
 *
 * It is linked against no C library but for dlsym(), which older ones have in a library of its own. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "page.h"

#define FILES 4096
#define VALUE 8 /* bytes of the largest */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define PARTS 1024 /* of a call, as many as the kernel takes */

/* The kernel is called at once: the C library's `syscall` would cost a small read 2%. */
#if defined(__x86_64__)
static inline long kernel(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (__builtin_expect(result < 0 && result > -4096, 0)) {
        errno = -result;
        return -1;
    }
    return result;
}
#else
#define kernel syscall
#endif
#define KERNEL(number, a, b, c, d, e, f) \
    kernel(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static struct page *page;
static uint64_t known[FILES]; /* of a descriptor: the generation in which it was looked at, and the rules that mean it */

static int really_open(int folder, const char *path, int flags, mode_t mode) {
    return KERNEL(SYS_openat, folder, path, flags, mode, 0, 0);
}

/* The C library's own functions for streams. They are looked up before there are threads: a child between fork and exec
 * must not wait for a lock of the loader's. */
static FILE *(*real_fopen)(const char *, const char *);
static FILE *(*real_freopen)(const char *, const char *, FILE *);
static size_t (*real_fwrite)(const void *, size_t, size_t, FILE *);
static size_t (*real_fread)(void *, size_t, size_t, FILE *);
static int (*real_fclose)(FILE *);

static void *found(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort(); /* without it nothing can be done for the program */
    return function;
}

static void find_streams(void) {
    real_fopen = (FILE * (*)(const char *, const char *)) found("fopen");
    real_freopen = (FILE * (*)(const char *, const char *, FILE *)) found("freopen");
    real_fread = (size_t(*)(void *, size_t, size_t, FILE *))found("fread");
    real_fclose = (int (*)(FILE *))found("fclose");
    real_fwrite = (size_t(*)(const void *, size_t, size_t, FILE *))found("fwrite");
}

/* Another library's constructor may come before ours. */
static inline void need_streams(void) {
    if (!real_fwrite)
        find_streams();
}

__attribute__((constructor)) static void load(void) {
    need_streams();
    int before = errno;
    if ((page = page_of_node()))
        __atomic_fetch_add(&page->loaded, 1, __ATOMIC_RELAXED);
    errno = before;
}

/* The file that a descriptor is of; AT_FDCWD: the folder in which the process is. Returns the length; 0: it has no name. */
static size_t name_of(int fd, char out[LONGEST]) {
    char link[64];
    int before = errno;
    if (fd == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, LONGEST - 2);
    errno = before;
    out[length > 0 ? length : 0] = 0;
    return length > 0 ? length : 0;
}

/* -- which rules mean a file -------------------------------------------------------------------------------------- */

static const char *const FOR_NOW[] = {".tmp", ".temp", ".part", ".partial", ".incomplete", "~", ".__lock"};
#define FOLDER_FOR_NOW ".orbax-checkpoint-tmp/"
#define DRAWN 6 /* digits, at least, of a number that keeps two names for now apart */

/* The length of a path without the ending that says that the file is not finished; all of it where it has none. */
static size_t finished(const char *path, size_t length) {
    for (size_t n = 0; n < sizeof FOR_NOW / sizeof *FOR_NOW; n++) {
        size_t ending = strlen(FOR_NOW[n]);
        if (length > ending && strncmp(path + length - ending, FOR_NOW[n], ending) == 0)
            return length - ending;
    }
    return length;
}

/* The same without a drawn number at its end: a dot, and hexadecimal digits. */
static size_t unnumbered(const char *path, size_t length) {
    size_t at = length;
    while (at > 0 && path[at - 1] && strchr("0123456789abcdefABCDEF-", path[at - 1]))
        at--;
    return at > 1 && path[at - 1] == '.' && length - at >= DRAWN ? at - 1 : length;
}

/* Whether a pattern means a file whose ending gave way to that number: `zarr.json` that is `zarr.8c0b41.partial`. */
static int means_ending(const char *pattern, const char *path) {
    char stem[LONGEST];
    const char *last = strrchr(pattern, '/'), *name = last ? last + 1 : pattern, *dot = strrchr(name, '.');
    if (!dot || strpbrk(dot, "*?[") || strspn(name, "*?") == (size_t)(dot - name))
        return 0;
    memcpy(stem, pattern, dot - pattern);
    stem[dot - pattern] = 0;
    return fnmatch(stem, path, 0) == 0;
}

/* Whether a pattern means a file by the name that it has, or by one that it will have: that without the ending which
 * tells that it is not finished, and without a number before that, its folders likewise; of Rust's tempfile (`.tmp` and
 * six characters) any name in its folder. */
static int means(const char *pattern, const char *path) {
    if (fnmatch(pattern, path, 0) == 0)
        return 1;
    char other[LONGEST], folders[LONGEST];
    const char *folder = strstr(path, FOLDER_FOR_NOW);
    if (folder && strlen(path) < LONGEST) {
        memcpy(other, path, folder - path);
        strcpy(other + (folder - path), folder + strlen(FOLDER_FOR_NOW) - 1);
        return means(pattern, other);
    }
    size_t length = strlen(path), whole = length < LONGEST ? finished(path, length) : length;
    const char *slash = strrchr(path, '/'), *last = strrchr(pattern, '/');
    if (whole < length) {
        memcpy(other, path, whole);
        other[whole] = 0;
        if (fnmatch(pattern, other, 0) == 0)
            return 1;
        size_t bare = unnumbered(other, whole);
        if (bare < whole) {
            other[bare] = 0;
            return fnmatch(pattern, other, 0) == 0 || means_ending(pattern, other);
        }
    }
    if (slash && strlen(slash) == 11 && strncmp(slash, "/.tmp", 5) == 0 && slash - path < LONGEST) {
        if (!last)
            return 1; /* any file, in any folder */
        memcpy(other, path, slash - path);
        other[slash - path] = 0;
        memcpy(folders, pattern, last - pattern);
        folders[last - pattern] = 0;
        return fnmatch(folders, other, 0) == 0;
    }
    return 0;
}

/* For whoever has named a file that nothing meets: which there were. */
static void note(const char *path) {
    int device = strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0;
    if (*path != '/' || device || strncmp(path, "/proc/", 6) == 0 || strlen(path) >= LONGEST)
        return;
    uint32_t count = __atomic_load_n(&page->named, __ATOMIC_ACQUIRE);
    for (uint32_t n = 0; n < count && n < NAMES; n++)
        if (strcmp(page->names[n], path) == 0)
            return;
    count = __atomic_fetch_add(&page->named, 1, __ATOMIC_ACQ_REL);
    if (count < NAMES)
        strcpy(page->names[count], path);
}

static uint32_t of_path(const char *path) {
    uint32_t active = __atomic_load_n(&page->active, __ATOMIC_ACQUIRE), found = 0;
    for (int n = 0; n < SPARED; n++)
        if (*page->spared[n] && strncmp(path, page->spared[n], strlen(page->spared[n])) == 0)
            return 0;
    for (int n = 0; n < RULES; n++)
        if (active & 1u << n && means(page->rules[n].pattern, path))
            found |= 1u << n;
    if (!found)
        note(path);
    return found;
}

static inline int wants(enum call call) {
    return __builtin_expect(page != NULL, 1) && __atomic_load_n(&page->active, __ATOMIC_ACQUIRE) && page->wanted & 1u << call;
}

static uint32_t looked_at(int fd, uint64_t generation) {
    if (fd < 0)
        return 0;
    char path[LONGEST];
    name_of(fd, path);
    uint32_t found = *path == '/' ? of_path(path) : 0;
    if (fd < FILES)
        known[fd] = generation << 32 | found;
    return found;
}

static inline uint32_t of_file(int fd) {
    uint64_t generation = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
    if ((unsigned)fd < FILES && known[fd] >> 32 == generation)
        return (uint32_t)known[fd];
    return looked_at(fd, generation);
}

static void forget(int fd) {
    if (fd >= 0 && fd < FILES)
        known[fd] = 0;
}

/* The whole name of a file by how it was asked for, without following anything. */
static void whole(int folder, const char *path, char out[LONGEST]) {
    size_t length = 0;
    if (*path != '/') {
        length = name_of(folder, out);
        out[length++] = '/';
        while (path[0] == '.' && path[1] == '/')
            path += 2;
    }
    size_t more = strlen(path);
    if (length + more >= LONGEST)
        more = LONGEST - 1 - length;
    memcpy(out + length, path, more);
    out[length + more] = 0;
}

/* -- what a rule does to a call ----------------------------------------------------------------------------------- */

static int spoils(const struct rule *rule) {
    return rule->action >= ACTION_FLIP;
}

static uint64_t mixed(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t drawn(const struct rule *rule, uint64_t number) {
    return mixed((number + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)rule->seed << 32);
}

static int by_chance(const struct rule *rule, uint64_t number) {
    return rule->share >= 65536 || drawn(rule, number) >> 48 < rule->share;
}

static void rest(uint64_t ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (KERNEL(SYS_nanosleep, &time, &time, 0, 0, 0, 0) == -1 && errno == EINTR)
        ;
}

static void hit(struct rule *rule, enum call call, const char *path, int fd) {
    __atomic_fetch_add(&rule->hit[call], 1, __ATOMIC_RELAXED);
    if (*rule->first)
        return;
    if (path)
        strncpy(rule->first, path, LONGEST - 1);
    else
        name_of(fd, rule->first);
}

/* Bytes of `*size` that pass before a rule bites; the others are not let through by it. */
static size_t passes(struct rule *rule, size_t size) {
    uint64_t before = __atomic_fetch_add(&rule->passed, size, __ATOMIC_RELAXED);
    if (before + size <= rule->after)
        return size;
    size_t room = before < rule->after ? rule->after - before : 0;
    __atomic_fetch_sub(&rule->passed, size - room, __ATOMIC_RELAXED);
    return room;
}

/* A rule's account of a call that it means: whether it bites. `size`: the call's bytes, of which `*room` still pass; NULL:
 * it has none. `*number`: of the call. */
static int bites(struct rule *rule, const size_t *size, size_t *room, uint64_t *number) {
    size_t all = size ? *size : 0;
    *number = __atomic_fetch_add(&rule->met, 1, __ATOMIC_RELAXED);
    *room = passes(rule, all);
    if (size ? *room == all && all > 0 : rule->passed < rule->after)
        return 0;
    if (by_chance(rule, *number))
        return 1;
    __atomic_fetch_add(&rule->passed, all - *room, __ATOMIC_RELAXED);
    return 0;
}

/* Do what the rules say of a call, but for the call itself. `size`: its bytes, of which so many are let through; NULL: it
 * has none. Returns whether it fails, with errno set. */
static int struck(uint32_t rules, enum call call, size_t *size, const char *path, int fd) {
    int before = errno;
    for (int n = 0; n < RULES; n++) {
        struct rule *rule = &page->rules[n];
        size_t room;
        uint64_t number;
        if (!(rules & 1u << n) || !(rule->calls & 1u << call) || !(page->active & 1u << n) || spoils(rule))
            continue;
        if (!bites(rule, size, &room, &number))
            continue;
        size_t all = size ? *size : 0;
        uint32_t armed = rule->armed;
        switch (rule->action) {
        case ACTION_ERROR:
            if (room) { /* the last that fits; the next call fails */
                *size = room;
                continue;
            }
            hit(rule, call, path, fd);
            __atomic_fetch_add(&rule->lost, all, __ATOMIC_RELAXED);
            errno = rule->error;
            return 1;
        case ACTION_SHORT:
            if (all > 1) {
                hit(rule, call, path, fd);
                *size = (all + 1) / 2;
            }
            continue;
        case ACTION_DELAY:
            hit(rule, call, path, fd);
            rest(rule->delay_ns);
            continue;
        case ACTION_HANG:
            hit(rule, call, path, fd);
            for (uint64_t look = FIRST_LOOK_NS;
                 __atomic_load_n(&page->active, __ATOMIC_ACQUIRE) & 1u << n && rule->armed == armed;
                 look = NEXT_LOOK_NS(look))
                rest(look);
        }
    }
    errno = before;
    return 0;
}

/* Whether a call on an open file fails by a rule, with errno set. */
static inline int fails(enum call call, int fd, size_t *size) {
    uint32_t rules = wants(call) ? of_file(fd) : 0;
    return __builtin_expect(rules != 0, 0) && struck(rules, call, size, NULL, fd);
}

/* Spoil one value among so many bytes that come to stand at this place of a file. Values stand at multiples of their size,
 * so the last bytes of eight, of which the first one has the sign and the largest bits of the exponent in whatever format,
 * are the end of one value of eight bytes, four or two. Returns how many bytes it has changed; 0: no value stands there. */
static size_t spoil_value(uint32_t action, unsigned char *data, size_t size, off_t at, uint64_t where) {
    size_t first = at < 0 ? 0 : -(uint64_t)at % VALUE, values = size < first ? 0 : (size - first) / VALUE;
    if (!values)
        return 0;
    unsigned char *value = data + first + where % values * VALUE;
    if (action == ACTION_NAN) {
        memset(value, 0xff, VALUE); /* NaN in each of these formats */
        return VALUE;
    }
    value[VALUE - 1] ^= action == ACTION_SIGN ? 0x80 : 0x40;
    return 1;
}

/* Spoil what is written, but for so many bytes at its beginning. Returns how many bytes it has changed. */
static size_t spoil(const struct rule *rule, uint64_t number, char *data, size_t size, off_t at) {
    uint64_t where = mixed(drawn(rule, number));
    switch (rule->action) {
    case ACTION_ZERO:
        memset(data, 0, size);
        return size;
    case ACTION_FLIP:
        data[where % size] ^= 1 << (where >> 56 & 7);
        return 1;
    default:
        return spoil_value(rule->action, (unsigned char *)data, size, at, where);
    }
}

/* Whether a rule may spoil what is written into a file: only then does it matter where in the file that comes to stand. */
static int may_spoil(int fd) {
    uint32_t rules = wants(CALL_WRITE) ? of_file(fd) : 0;
    for (int n = 0; rules && n < RULES; n++)
        if (rules & 1u << n && spoils(&page->rules[n]))
            return 1;
    return 0;
}

/* What is written instead of some parts of data, all in one, where a rule spoils it: to be freed. NULL: they are written.
 * `at`: where in the file. */
static char *spoiled(int fd, const struct iovec *list, int count, size_t all, off_t at) {
    uint32_t rules = wants(CALL_WRITE) ? of_file(fd) : 0;
    char *copy = NULL;
    for (int n = 0; rules && n < RULES; n++) {
        struct rule *rule = &page->rules[n];
        size_t room;
        uint64_t number;
        if (!(rules & 1u << n) || !spoils(rule) || !all || !(page->active & 1u << n))
            continue;
        if (!bites(rule, &all, &room, &number))
            continue;
        size_t rest = all - room;
        if (!copy && !(copy = malloc(all)))
            return NULL;
        for (size_t part = 0, to = 0; part < (size_t)count && to < all; to += list[part++].iov_len)
            memcpy(copy + to, list[part].iov_base, list[part].iov_len < all - to ? list[part].iov_len : all - to);
        size_t changed = spoil(rule, number, copy + room, rest, at + (off_t)room);
        if (!changed)
            continue;
        hit(rule, CALL_WRITE, NULL, fd);
        __atomic_fetch_add(&rule->lost, changed, __ATOMIC_RELAXED);
    }
    return copy;
}

/* A call that writes some parts, of which so many bytes are to be written, where these are spoiled. 0: they are not. */
static int wrote_spoiled(int fd, const struct iovec *list, int count, size_t all, off_t at, ssize_t *result) {
    if (!may_spoil(fd))
        return 0;
    int before = errno;
    char *copy = spoiled(fd, list, count, all, at < 0 ? KERNEL(SYS_lseek, fd, 0, SEEK_CUR, 0, 0, 0) : at);
    errno = before;
    if (!copy)
        return 0;
    *result = at < 0 ? KERNEL(SYS_write, fd, copy, all, 0, 0, 0) : KERNEL(SYS_pwrite64, fd, copy, all, at, 0, 0);
    int error = errno;
    free(copy);
    errno = error;
    return 1;
}

/* -- the calls ---------------------------------------------------------------------------------------------------- */

static int may_write(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
}

/* Whether opening a file fails by a rule, with errno set: one that is about room, or about writing, is met by who writes. */
static int opening_fails(int folder, const char *path, int flags) {
    char at[LONGEST];
    if (!path || !wants(CALL_OPEN))
        return 0;
    whole(folder, path, at);
    uint32_t rules = of_path(at);
    for (int n = 0; n < RULES; n++) {
        int error = page->rules[n].action == ACTION_ERROR ? page->rules[n].error : 0;
        if ((error == ENOSPC || error == EDQUOT || error == EROFS) && !may_write(flags))
            rules &= ~(1u << n);
    }
    return rules && struck(rules, CALL_OPEN, NULL, at, -1);
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (opening_fails(folder, path, flags))
        return -1;
    int fd = really_open(folder, path, flags, mode);
    forget(fd);
    return fd;
}

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(folder, path, flags, mode);
}

int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int flags_of(const char *mode) {
    return strchr(mode, '+') || *mode == 'w' || *mode == 'a' ? O_RDWR | O_CREAT : O_RDONLY;
}

FILE *fopen(const char *path, const char *mode) {
    need_streams();
    if (opening_fails(AT_FDCWD, path, flags_of(mode)))
        return NULL;
    FILE *stream = real_fopen(path, mode);
    if (stream)
        forget(fileno(stream));
    return stream;
}

FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

FILE *freopen(const char *path, const char *mode, FILE *stream) {
    need_streams();
    if (path && opening_fails(AT_FDCWD, path, flags_of(mode)))
        return NULL;
    forget(fileno(stream));
    FILE *other = real_freopen(path, mode, stream);
    if (other)
        forget(fileno(other));
    return other;
}

FILE *freopen64(const char *path, const char *mode, FILE *stream) { return freopen(path, mode, stream); }

ssize_t read(int fd, void *data, size_t size) {
    return fails(CALL_READ, fd, &size) ? -1 : KERNEL(SYS_read, fd, data, size, 0, 0, 0);
}

ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
    if (size > room)
        abort();
    return read(fd, data, size);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) {
    return fails(CALL_READ, fd, &size) ? -1 : KERNEL(SYS_pread64, fd, data, size, at, 0, 0);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) { return pread(fd, data, size, at); }

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t result;
    if (!wants(CALL_WRITE))
        return KERNEL(SYS_write, fd, data, size, 0, 0, 0);
    if (fails(CALL_WRITE, fd, &size))
        return -1;
    if (wrote_spoiled(fd, &(struct iovec){(void *)data, size}, 1, size, -1, &result))
        return result;
    return KERNEL(SYS_write, fd, data, size, 0, 0, 0);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    ssize_t result;
    if (!wants(CALL_WRITE))
        return KERNEL(SYS_pwrite64, fd, data, size, at, 0, 0);
    if (fails(CALL_WRITE, fd, &size))
        return -1;
    if (at >= 0 && wrote_spoiled(fd, &(struct iovec){(void *)data, size}, 1, size, at, &result))
        return result;
    return KERNEL(SYS_pwrite64, fd, data, size, at, 0, 0);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

/* A call of several parts, of which so many bytes pass. */
static ssize_t parts(enum call call, long number, int fd, const struct iovec *list, int count, off_t at) {
    size_t all = 0, allowed;
    struct iovec fit[PARTS];
    int n = 0;
    if (!wants(call))
        return KERNEL(number, fd, list, count, at, 0, 0);
    for (; n < count; n++)
        all += list[n].iov_len;
    allowed = all;
    ssize_t result;
    if (fails(call, fd, &allowed))
        return -1;
    if (call == CALL_WRITE && wrote_spoiled(fd, list, count, allowed, number == SYS_writev ? -1 : at, &result))
        return result;
    if (allowed == all)
        return KERNEL(number, fd, list, count, at, 0, 0);
    for (n = 0; n < count && n < PARTS && allowed; n++) {
        fit[n].iov_base = list[n].iov_base;
        fit[n].iov_len = list[n].iov_len < allowed ? list[n].iov_len : allowed;
        allowed -= fit[n].iov_len;
    }
    return KERNEL(number, fd, fit, n, at, 0, 0);
}

ssize_t readv(int fd, const struct iovec *list, int count) { return parts(CALL_READ, SYS_readv, fd, list, count, 0); }
ssize_t writev(int fd, const struct iovec *list, int count) {
    return parts(CALL_WRITE, SYS_writev, fd, list, count, 0);
}
ssize_t preadv(int fd, const struct iovec *list, int count, off_t at) {
    return parts(CALL_READ, SYS_preadv, fd, list, count, at);
}
ssize_t preadv64(int fd, const struct iovec *list, int count, off64_t at) {
    return parts(CALL_READ, SYS_preadv, fd, list, count, at);
}
ssize_t pwritev(int fd, const struct iovec *list, int count, off_t at) {
    return parts(CALL_WRITE, SYS_pwritev, fd, list, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *list, int count, off64_t at) {
    return parts(CALL_WRITE, SYS_pwritev, fd, list, count, at);
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    if (fails(CALL_WRITE, to, &size) || fails(CALL_READ, from, &size))
        return -1;
    return KERNEL(SYS_sendfile, to, from, at, size, 0, 0);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size) { return sendfile(to, from, (off_t *)at, size); }

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t size, unsigned flags) {
    if (fails(CALL_WRITE, to, &size) || fails(CALL_READ, from, &size))
        return -1;
    return KERNEL(SYS_copy_file_range, from, at, to, to_at, size, flags);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    need_streams();
    size_t allowed = size * count;
    if (!size || !count || !wants(CALL_WRITE))
        return real_fwrite(data, size, count, stream);
    if (fails(CALL_WRITE, fileno(stream), &allowed))
        return 0;
    char *copy = !may_spoil(fileno(stream)) ? NULL : spoiled(
        fileno(stream), &(struct iovec){(void *)data, allowed}, 1, allowed, ftello(stream));
    size_t done = allowed < size ? 0 : real_fwrite(copy ? copy : data, size, allowed / size, stream);
    free(copy);
    size_t rest = size * count - allowed;
    if (rest && done == allowed / size) /* to a stream, less than all is a failure, and its reason is asked for */
        fails(CALL_WRITE, fileno(stream), &rest);
    return done;
}

size_t fread(void *data, size_t size, size_t count, FILE *stream) {
    need_streams();
    size_t allowed = size * count;
    if (!size || !count || !wants(CALL_READ))
        return real_fread(data, size, count, stream);
    if (fails(CALL_READ, fileno(stream), &allowed))
        return 0;
    return allowed < size ? 0 : real_fread(data, size, allowed / size, stream);
}

int fsync(int fd) { return fails(CALL_FSYNC, fd, NULL) ? -1 : KERNEL(SYS_fsync, fd, 0, 0, 0, 0, 0); }
int fdatasync(int fd) { return fails(CALL_FSYNC, fd, NULL) ? -1 : KERNEL(SYS_fdatasync, fd, 0, 0, 0, 0, 0); }

/* Whether moving a file fails: by its new name, or by the one that it has. */
static int moved(int from, const char *name, int to, const char *other, unsigned flags) {
    if (name && other && wants(CALL_RENAME)) {
        char before[LONGEST], after[LONGEST];
        whole(from, name, before);
        whole(to, other, after);
        uint32_t by_new = of_path(after), rules = by_new | of_path(before);
        if (rules && struck(rules, CALL_RENAME, NULL, by_new ? after : before, -1))
            return -1;
    }
    return KERNEL(SYS_renameat2, from, name, to, other, flags, 0);
}

int rename(const char *name, const char *other) { return moved(AT_FDCWD, name, AT_FDCWD, other, 0); }
int renameat(int from, const char *name, int to, const char *other) { return moved(from, name, to, other, 0); }
int renameat2(int from, const char *name, int to, const char *other, unsigned flags) {
    return moved(from, name, to, other, flags);
}

/* A file is closed, whatever is said of it: what its close is to fail with, and what the close itself returned. */
static int closed(int error, int done) {
    if (!error)
        return done;
    errno = error;
    return -1; /* which is EOF, too */
}

int close(int fd) {
    int error = fails(CALL_CLOSE, fd, NULL) ? errno : 0;
    forget(fd);
    return closed(error, KERNEL(SYS_close, fd, 0, 0, 0, 0, 0));
}

int fclose(FILE *stream) {
    need_streams();
    int fd = fileno(stream), error = fails(CALL_CLOSE, fd, NULL) ? errno : 0;
    forget(fd);
    return closed(error, real_fclose(stream));
}

int dup2(int fd, int other) {
    if (fd == other) /* which dup3 refuses */
        return KERNEL(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) < 0 ? -1 : other;
    forget(other);
    return KERNEL(SYS_dup3, fd, other, 0, 0, 0, 0);
}

int dup3(int fd, int other, int flags) {
    forget(other);
    return KERNEL(SYS_dup3, fd, other, flags, 0, 0, 0);
}

int close_range(unsigned first, unsigned last, int flags) {
    for (unsigned fd = first; fd <= last && fd < FILES; fd++)
        forget(fd);
    return KERNEL(SYS_close_range, first, last, flags, 0, 0, 0);
}

void closefrom(int first) {
    if (close_range(first < 0 ? 0 : first, ~0u, 0) < 0) /* an older kernel */
        for (int fd = first < 0 ? 0 : first; fd < FILES; fd++)
            close(fd);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t from) {
    if (fd >= 0 && !(flags & MAP_ANONYMOUS) && fails(CALL_MMAP, fd, NULL))
        return MAP_FAILED;
    return (void *)KERNEL(SYS_mmap, at, size, protection, flags, fd, from);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t from) {
    return mmap(at, size, protection, flags, fd, from);
}
