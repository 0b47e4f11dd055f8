/* Preloaded into commands that are to lose what they did not fsync: a journal in shared memory says of each file that was
 * opened for writing how much of it is durable. The harness cuts files there once all processes are gone; its twin, and
 * the account of what is lost, is unsynced.py.
 *
 * A file is known by its device, its inode and when it was made, and followed through renames. What was appended needs no
 * record: it is what lies beyond the durable length. What overwrites a durable part has the bytes that were there put
 * aside before. Names are kept: whatever was made, renamed, cut off or removed stays so, as a file system's own journal
 * has it.
 *
 * It changes no call, and makes each by what comes next, so io.so may follow it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "page.h"

#define JOURNAL_MAGIC 0x316c6e72756f6a64ull /* "djournl1" */
#define FILES 2048
#define DESCRIPTORS 4096
#define PART 16384 /* bytes that are put aside at once */

enum state { EMPTY, USED, DEAD };
enum beyond { MAPPED = 1, THROUGH = 2 }; /* its pages are written by nobody's call; each write is durable at once */
enum known { UNKNOWN, NONE, FIRST };     /* of a descriptor; from FIRST on: the number of its file */

struct id {
    uint64_t device, inode, made;
};

struct file {
    uint32_t state;
    uint32_t current;  /* which of its names it has; the other one it had, or is about to get */
    struct id id;
    uint64_t durable;  /* bytes from its beginning */
    uint32_t synced;   /* how often */
    uint32_t aside;    /* how often durable bytes were put aside since then */
    uint32_t beyond;
    uint32_t unused;
    char names[2][LONGEST];
};

struct journal {
    uint64_t magic;
    uint32_t missed; /* files that had no room */
    uint32_t unused;
    struct file files[FILES];
};

struct before {
    uint64_t magic, at, size;
};

static struct page *page;
static struct journal *journal;
static char journal_at[LONGEST];
static uint16_t known[DESCRIPTORS];

#define NEXT(result, name, ...) static result (*next_##name)(__VA_ARGS__)
NEXT(int, open, const char *, int, ...);
NEXT(int, openat, int, const char *, int, ...);
NEXT(int, creat, const char *, mode_t);
NEXT(FILE *, fopen, const char *, const char *);
NEXT(FILE *, freopen, const char *, const char *, FILE *);
NEXT(int, close, int);
NEXT(int, fclose, FILE *);
NEXT(int, dup2, int, int);
NEXT(int, dup3, int, int, int);
NEXT(ssize_t, write, int, const void *, size_t);
NEXT(ssize_t, pwrite, int, const void *, size_t, off_t);
NEXT(ssize_t, writev, int, const struct iovec *, int);
NEXT(ssize_t, pwritev, int, const struct iovec *, int, off_t);
NEXT(ssize_t, sendfile, int, int, off_t *, size_t);
NEXT(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
NEXT(size_t, fwrite, const void *, size_t, size_t, FILE *);
NEXT(int, ftruncate, int, off_t);
NEXT(int, truncate, const char *, off_t);
NEXT(int, fsync, int);
NEXT(int, fdatasync, int);
NEXT(void, sync, void);
NEXT(int, syncfs, int);
NEXT(int, renameat2, int, const char *, int, const char *, unsigned);
NEXT(int, renameat, int, const char *, int, const char *);
NEXT(int, linkat, int, const char *, int, const char *, int);
NEXT(void *, mmap, void *, size_t, int, int, int, off_t);

#define FIND(name) *(void **)&next_##name = dlsym(RTLD_NEXT, #name)

/* Looked up before there are threads: a child between fork and exec must not wait for a lock of the loader's. */
static void find_next(void) {
    FIND(open), FIND(openat), FIND(creat), FIND(fopen), FIND(freopen), FIND(close), FIND(fclose), FIND(dup2), FIND(dup3);
    FIND(pwrite), FIND(writev), FIND(pwritev), FIND(sendfile), FIND(copy_file_range), FIND(fwrite), FIND(ftruncate);
    FIND(truncate), FIND(fsync), FIND(fdatasync), FIND(sync), FIND(syncfs), FIND(renameat2);
    FIND(renameat), FIND(linkat), FIND(mmap), FIND(write);
}

/* Another library's constructor may come before ours. */
static inline void need_next(void) {
    if (__builtin_expect(!next_write, 0))
        find_next();
}

/* The journal lies beside the page, and has its name. NULL: there is none. */
static struct journal *journal_of_page(void) {
    const char *name = getenv("DILOCO_CHAOS_PAGE");
    if (!name || strlen(name) > LONGEST - 32)
        return NULL;
    snprintf(journal_at, sizeof journal_at, "%s.unsynced", name);
    int fd = next_open(journal_at, O_RDWR | O_CLOEXEC);
    struct journal *at = fd < 0 ? MAP_FAILED : next_mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        next_close(fd);
    return at != MAP_FAILED && at->magic == JOURNAL_MAGIC ? at : NULL;
}

__attribute__((constructor)) static void load(void) {
    need_next();
    int before = errno;
    if ((page = page_of_node()) && (journal = journal_of_page()))
        __atomic_fetch_add(&page->loaded, 1, __ATOMIC_RELAXED);
    errno = before;
}

/* -- which file it is --------------------------------------------------------------------------------------------- */

/* What a path or, where it is empty, a descriptor is of. Returns 0 where that is no regular file. */
static int identified(int folder, const char *path, struct id *id, uint64_t *size) {
    struct statx is;
    int flags = AT_SYMLINK_NOFOLLOW | (*path ? 0 : AT_EMPTY_PATH), before = errno;
    long done = syscall(SYS_statx, folder, path, flags, STATX_BASIC_STATS | STATX_BTIME, &is);
    errno = before;
    if (done < 0 || !S_ISREG(is.stx_mode))
        return 0;
    id->device = (uint64_t)is.stx_dev_major << 32 | is.stx_dev_minor;
    id->inode = is.stx_ino;
    id->made = is.stx_mask & STATX_BTIME ? is.stx_btime.tv_sec * 1000000000ull + is.stx_btime.tv_nsec : 0;
    *size = is.stx_size;
    return 1;
}

static int same(const struct id *one, const struct id *other) {
    return one->device == other->device && one->inode == other->inode && one->made == other->made;
}

static unsigned begins_at(const struct id *id) {
    return (id->inode * 0x9e3779b97f4a7c15ull >> 40) % FILES;
}

static struct file *found(const struct id *id) {
    for (unsigned n = 0, at = begins_at(id); n < FILES; n++, at = (at + 1) % FILES) {
        uint32_t state = __atomic_load_n(&journal->files[at].state, __ATOMIC_ACQUIRE);
        if (state == EMPTY)
            return NULL;
        if (state == USED && same(&journal->files[at].id, id))
            return &journal->files[at];
    }
    return NULL;
}

/* The name of what a descriptor is of. Returns its length; 0: it has none that can be followed. */
static size_t name_of(int fd, char out[LONGEST]) {
    char link[64];
    int before = errno;
    snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, LONGEST - 1);
    errno = before;
    if (length <= 0 || length >= LONGEST - 1)
        return out[0] = 0;
    out[length] = 0;
    return length;
}

/* The whole name that something gets: that of its folder, and its own; empty: it is too long, or there is no folder. */
static void whole(int folder, const char *path, char out[LONGEST]) {
    char parent[LONGEST] = ".";
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    out[0] = 0;
    if (strlen(path) >= LONGEST)
        return;
    if (slash) {
        memcpy(parent, path, slash + 1 - path);
        parent[slash + 1 - path] = 0;
    }
    int fd = next_openat(folder, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t length = fd < 0 ? 0 : name_of(fd, out);
    if (fd >= 0)
        next_close(fd);
    if (!length || length + 1 + strlen(own) >= LONGEST)
        out[0] = 0;
    else
        strcat(strcat(out, "/"), own);
}

static int spared(const char *path) {
    static const char *const OTHERS[] = {"/dev/", "/proc/", "/sys/"};
    for (int n = 0; n < SPARED; n++)
        if (*page->spared[n] && strncmp(path, page->spared[n], strlen(page->spared[n])) == 0)
            return 1;
    for (size_t n = 0; n < sizeof OTHERS / sizeof *OTHERS; n++)
        if (strncmp(path, OTHERS[n], strlen(OTHERS[n])) == 0 && strncmp(path, "/dev/shm/", 9) != 0)
            return 1;
    return *path != '/';
}

/* -- the journal -------------------------------------------------------------------------------------------------- */

static void aside_at(const struct file *file, char out[LONGEST + 16]) {
    snprintf(out, LONGEST + 16, "%s.%u", journal_at, (unsigned)(file - journal->files));
}

/* What was put aside is not needed any more: the file is durable as it is. */
static void drop_aside(struct file *file) {
    char path[LONGEST + 16];
    if (__atomic_exchange_n(&file->aside, 0, __ATOMIC_ACQ_REL)) {
        aside_at(file, path);
        unlink(path);
    }
}

static void cut(struct file *file, uint64_t size) {
    if (size < file->durable)
        file->durable = size;
    if (!size)
        drop_aside(file);
}

static int is_gone(const struct file *file) {
    struct id id;
    uint64_t size;
    for (int n = 0; n < 2; n++)
        if (*file->names[n] && identified(AT_FDCWD, file->names[n], &id, &size) && same(&id, &file->id))
            return 0;
    return 1;
}

/* A place for a file that has none yet; NULL: there is none. To be called by one process at a time. */
static struct file *room_for(const struct id *id) {
    for (int again = 0; again < 2; again++) {
        for (unsigned n = 0, at = begins_at(id); n < FILES; n++, at = (at + 1) % FILES)
            if (journal->files[at].state != USED)
                return &journal->files[at];
        for (unsigned n = 0; n < FILES; n++)
            if (is_gone(&journal->files[n])) {
                drop_aside(&journal->files[n]);
                __atomic_store_n(&journal->files[n].state, DEAD, __ATOMIC_RELEASE);
            }
    }
    __atomic_fetch_add(&journal->missed, 1, __ATOMIC_RELAXED);
    return NULL;
}

static struct file *entered(int fd, const struct id *id, uint64_t size) {
    char name[LONGEST];
    if (!name_of(fd, name) || spared(name))
        return NULL;
    int lock = next_open(journal_at, O_RDWR | O_CLOEXEC); /* the kernel gives it back if the process is killed */
    if (lock >= 0)
        flock(lock, LOCK_EX);
    struct file *file = found(id);
    if (!file && (file = room_for(id))) {
        file->id = *id;
        file->durable = size;
        file->current = file->synced = file->aside = file->beyond = 0;
        strcpy(file->names[0], name);
        file->names[1][0] = 0;
        __atomic_store_n(&file->state, USED, __ATOMIC_RELEASE);
    }
    if (lock >= 0) {
        flock(lock, LOCK_UN);
        next_close(lock);
    }
    return file;
}

/* A file was opened. What stood in it before any process of the node wrote into it is taken to be durable. */
static void opened(int fd, int flags) {
    struct id id;
    uint64_t size;
    if (fd < 0 || !journal)
        return;
    if (fd < DESCRIPTORS)
        known[fd] = UNKNOWN;
    if ((flags & O_ACCMODE) == O_RDONLY || !identified(fd, "", &id, &size))
        return;
    int before = errno;
    struct file *file = found(&id);
    if (!file)
        file = entered(fd, &id, size);
    if (file)
        cut(file, size);
    if (file && flags & O_DSYNC)
        __atomic_fetch_or(&file->beyond, THROUGH, __ATOMIC_RELAXED);
    if (fd < DESCRIPTORS) /* what is appended overwrites nothing */
        known[fd] = file && !(flags & O_APPEND) ? FIRST + (file - journal->files) : NONE;
    errno = before;
}

static void forget(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS)
        known[fd] = UNKNOWN;
}

/* The file that a descriptor is of, by what it is; NULL: it is not followed. `size`: what it has now. */
static struct file *file_of(int fd, uint64_t *size) {
    struct id id;
    return journal && identified(fd, "", &id, size) ? found(&id) : NULL;
}

/* The same, remembered. */
static struct file *quickly(int fd) {
    uint64_t size;
    uint16_t number = fd < DESCRIPTORS ? known[fd] : UNKNOWN;
    if (number == UNKNOWN) {
        struct file *file = file_of(fd, &size);
        number = file ? FIRST + (file - journal->files) : NONE;
        if (fd < DESCRIPTORS)
            known[fd] = number;
    }
    return number == NONE ? NULL : &journal->files[number - FIRST];
}

/* Put the bytes aside that a file has from there on. */
static void put_aside(struct file *file, int fd, uint64_t at, uint64_t size) {
    char from[64], path[LONGEST + 16], data[PART];
    struct before before = {JOURNAL_MAGIC, at, 0};
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    aside_at(file, path);
    int in = next_open(from, O_RDONLY | O_CLOEXEC);
    int out = next_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    __atomic_fetch_add(&file->aside, 1, __ATOMIC_ACQ_REL);
    for (; size && in >= 0 && out >= 0; size -= before.size, before.at += before.size) {
        ssize_t read = pread(in, data, size < PART ? size : PART, before.at);
        if (read <= 0)
            break;
        before.size = read;
        next_writev(out, (struct iovec[]){{&before, sizeof before}, {data, read}}, 2);
    }
    if (in >= 0)
        next_close(in);
    if (out >= 0)
        next_close(out);
}

/* So many bytes are about to be written, from there on; -1: from where the descriptor stands. */
static void overwriting(int fd, off_t at, size_t size) {
    uint64_t now;
    if (!journal || fd < 0 || !size)
        return;
    struct file *file = quickly(fd);
    if (!file || !file->durable)
        return;
    int before = errno, appends = fcntl(fd, F_GETFL) & O_APPEND;
    if (at < 0)
        at = lseek(fd, 0, SEEK_CUR);
    if (at >= 0 && !appends && (uint64_t)at < file->durable && file_of(fd, &now) == file)
        put_aside(file, fd, at, file->durable - at < size ? file->durable - at : size);
    errno = before;
}

static size_t all_of(const struct iovec *list, int count) {
    size_t all = 0;
    for (int n = 0; n < count; n++)
        all += list[n].iov_len;
    return all;
}

/* -- calls that write ----------------------------------------------------------------------------------------------- */

static int followed(int fd, int flags) {
    opened(fd, flags);
    return fd;
}

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    need_next();
    return followed(next_open(path, flags, mode), flags);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    need_next();
    return followed(next_open(path, flags | O_LARGEFILE, mode), flags);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    need_next();
    return followed(next_openat(folder, path, flags, mode), flags);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    need_next();
    return followed(next_openat(folder, path, flags | O_LARGEFILE, mode), flags);
}

int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int flags_of(const char *mode) {
    return (*mode == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR) | (*mode == 'a' ? O_APPEND : 0);
}

FILE *fopen(const char *path, const char *mode) {
    need_next();
    FILE *stream = next_fopen(path, mode);
    if (stream)
        opened(fileno(stream), flags_of(mode));
    return stream;
}

FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

FILE *freopen(const char *path, const char *mode, FILE *stream) {
    need_next();
    forget(fileno(stream));
    FILE *other = next_freopen(path, mode, stream);
    if (other)
        opened(fileno(other), flags_of(mode));
    return other;
}

FILE *freopen64(const char *path, const char *mode, FILE *stream) { return freopen(path, mode, stream); }

ssize_t write(int fd, const void *data, size_t size) {
    need_next();
    overwriting(fd, -1, size);
    return next_write(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    need_next();
    if (at >= 0)
        overwriting(fd, at, size);
    return next_pwrite(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *list, int count) {
    need_next();
    overwriting(fd, -1, all_of(list, count));
    return next_writev(fd, list, count);
}

ssize_t pwritev(int fd, const struct iovec *list, int count, off_t at) {
    need_next();
    if (at >= 0)
        overwriting(fd, at, all_of(list, count));
    return next_pwritev(fd, list, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *list, int count, off64_t at) { return pwritev(fd, list, count, at); }

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    need_next();
    overwriting(to, -1, size);
    return next_sendfile(to, from, at, size);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size) { return sendfile(to, from, (off_t *)at, size); }

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t size, unsigned flags) {
    need_next();
    overwriting(to, to_at ? *to_at : -1, size);
    return next_copy_file_range(from, at, to, to_at, size, flags);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    need_next();
    struct file *file = journal && size && count ? quickly(fileno(stream)) : NULL;
    if (file && file->durable)
        overwriting(fileno(stream), ftello(stream), size * count);
    return next_fwrite(data, size, count, stream);
}

int ftruncate(int fd, off_t size) {
    need_next();
    uint64_t before;
    struct file *file = file_of(fd, &before);
    int done = next_ftruncate(fd, size);
    if (file && done == 0)
        cut(file, size);
    return done;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size) {
    need_next();
    int done = next_truncate(path, size);
    if (done == 0 && journal) {
        int fd = next_open(path, O_WRONLY | O_CLOEXEC);
        opened(fd, O_WRONLY);
        if (fd >= 0)
            close(fd);
    }
    return done;
}

int truncate64(const char *path, off64_t size) { return truncate(path, size); }

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t from) {
    need_next();
    void *done = next_mmap(at, size, protection, flags, fd, from);
    uint64_t now;
    int shared = fd >= 0 && !(flags & MAP_ANONYMOUS) && flags & MAP_SHARED;
    struct file *file = shared && done != MAP_FAILED && protection & PROT_WRITE ? file_of(fd, &now) : NULL;
    if (file)
        __atomic_fetch_or(&file->beyond, MAPPED, __ATOMIC_RELAXED);
    return done;
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t from) {
    return mmap(at, size, protection, flags, fd, from);
}

/* -- calls that make durable ---------------------------------------------------------------------------------------- */

static void is_durable(struct file *file, uint64_t size) {
    drop_aside(file);
    file->durable = size;
    __atomic_fetch_add(&file->synced, 1, __ATOMIC_RELAXED);
}

static int durable_by(int (*call)(int), int fd) {
    uint64_t size;
    struct file *file = file_of(fd, &size);
    int done = call(fd), before = errno;
    if (done == 0 && file)
        is_durable(file, size);
    errno = before;
    return done;
}

int fsync(int fd) {
    need_next();
    return durable_by(next_fsync, fd);
}

int fdatasync(int fd) {
    need_next();
    return durable_by(next_fdatasync, fd);
}

/* All that there is, or what is on one device. */
static void all_durable(const uint64_t *device) {
    struct id id;
    uint64_t size;
    for (unsigned n = 0; journal && n < FILES; n++) {
        struct file *file = &journal->files[n];
        if (file->state != USED || (device && file->id.device != *device))
            continue;
        if (identified(AT_FDCWD, file->names[file->current], &id, &size) && same(&id, &file->id))
            is_durable(file, size);
        else /* renamed by nobody's call */
            __atomic_fetch_or(&file->beyond, THROUGH, __ATOMIC_RELAXED);
    }
}

void sync(void) {
    need_next();
    next_sync();
    all_durable(NULL);
}

int syncfs(int fd) {
    struct stat is;
    need_next();
    int done = next_syncfs(fd);
    if (done == 0 && fstat(fd, &is) == 0) {
        uint64_t device = (uint64_t)(is.st_dev >> 8 & 0xfff) << 32 | (is.st_dev & 0xff) | (is.st_dev >> 12 & 0xfff00);
        all_durable(&device);
    }
    return done;
}

/* -- calls that give other names ------------------------------------------------------------------------------------ */

/* Let a file have another name from now on, or beside its own. */
static void also_called(struct file *file, const char *name) {
    if (strlen(name) < LONGEST)
        strcpy(file->names[!file->current], name);
}

static void in_folder(const char *old, const char *other, int is_done) {
    size_t length = strlen(old);
    for (unsigned n = 0; n < FILES; n++) {
        struct file *file = &journal->files[n];
        const char *name = file->names[file->current];
        char now[2 * LONGEST];
        if (file->state != USED || strncmp(name, old, length) != 0 || name[length] != '/')
            continue;
        if (is_done)
            file->current = !file->current;
        else {
            snprintf(now, sizeof now, "%s%s", other, name + length);
            also_called(file, now);
        }
    }
}

/* A file, or all that a folder holds, gets another name: that is written down before, and which one holds afterwards. */
static int moved(int from, const char *name, int to, const char *other, unsigned flags) {
    need_next();
    char before[LONGEST], after[LONGEST];
    struct id id;
    uint64_t size;
    int error = errno, fd = journal ? next_openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    struct file *file = fd >= 0 && identified(fd, "", &id, &size) ? found(&id) : NULL;
    int folder = fd >= 0 && !file && name_of(fd, before);
    if (file || folder)
        whole(to, other, after);
    if (file)
        also_called(file, after);
    else if (folder)
        in_folder(before, after, 0);
    errno = error;
    int done = flags ? next_renameat2(from, name, to, other, flags) : next_renameat(from, name, to, other);
    error = errno;
    if (done == 0 && file)
        file->current = !file->current;
    else if (done == 0 && folder)
        in_folder(before, after, 1);
    if (fd >= 0)
        next_close(fd);
    errno = error;
    return done;
}

int rename(const char *name, const char *other) { return moved(AT_FDCWD, name, AT_FDCWD, other, 0); }
int renameat(int from, const char *name, int to, const char *other) { return moved(from, name, to, other, 0); }
int renameat2(int from, const char *name, int to, const char *other, unsigned flags) {
    return moved(from, name, to, other, flags);
}

int linkat(int from, const char *name, int to, const char *other, int flags) {
    need_next();
    struct id id;
    uint64_t size;
    char after[LONGEST];
    struct file *file = journal && identified(from, name, &id, &size) ? found(&id) : NULL;
    if (file) {
        whole(to, other, after);
        also_called(file, after);
    }
    return next_linkat(from, name, to, other, flags);
}

int link(const char *name, const char *other) { return linkat(AT_FDCWD, name, AT_FDCWD, other, 0); }

/* -- calls by which a descriptor becomes another one ---------------------------------------------------------------- */

int close(int fd) {
    need_next();
    forget(fd);
    return next_close(fd);
}

int fclose(FILE *stream) {
    need_next();
    forget(fileno(stream));
    return next_fclose(stream);
}

int dup2(int fd, int other) {
    need_next();
    if (fd != other)
        forget(other);
    return next_dup2(fd, other);
}

int dup3(int fd, int other, int flags) {
    need_next();
    forget(other);
    return next_dup3(fd, other, flags);
}
