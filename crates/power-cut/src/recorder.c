/* Records the file operations of a program, for a replay that shows what a power cut leaves of them (lib.rs).
 *
 * A directory is recorded while it contains the file LOG_NAME: every operation below it is appended there. The recorder is
 * preloaded into a program or linked into a test program; it defines the functions of the C library that change files, so
 * operations that bypass the C library are not seen. Files ending in -shm are left out: SQLite rebuilds its shared memory.
 *
 * A record: operation (1 byte), length of path and of second path (2 each), offset (8), size of data (4), path, second path,
 * data; little-endian; paths relative to the recorded directory. Operations: C create, M make directory, W write,
 * T truncate, S sync, R rename, L link, U remove. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOG_NAME ".file-operations"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A path below a recorded directory, open for appending to its log. */
struct place {
    int log;
    char path[PATH_MAX];
    const char *below;
};

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* Opens the log of the closest recorded directory at or above the path. Returns 0 if there is none. */
static int find_log(struct place *place) {
    char log[PATH_MAX + sizeof LOG_NAME + 1];
    if (place->path[0] != '/' || ends_with(place->path, "-shm") || ends_with(place->path, "/" LOG_NAME)) return 0;
    size_t length = strlen(place->path);
    while (length > 1) {
        memcpy(log, place->path, length);
        strcpy(log + length, "/" LOG_NAME);
        place->log = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
        if (place->log >= 0) {
            place->below = place->path[length] ? place->path + length + 1 : "";
            return 1;
        }
        while (length > 1 && place->path[--length] != '/') {}
    }
    return 0;
}

static int place_of_fd(int fd, struct place *place) {
    char link[64];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, place->path, sizeof place->path - 1);
    int found = 0;
    if (length > 0) {
        place->path[length] = 0;
        found = find_log(place);
    }
    errno = before;
    return found;
}

static int place_of_path(int directory, const char *path, struct place *place) {
    int before = errno, found = 0;
    if (path[0] == '/') {
        found = snprintf(place->path, sizeof place->path, "%s", path) < (int)sizeof place->path && find_log(place);
    } else {
        char link[64], base[PATH_MAX];
        if (directory == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length > 0) {
            base[length] = 0;
            found = snprintf(place->path, sizeof place->path, "%s/%s", base, path) < (int)sizeof place->path &&
                    find_log(place);
        }
    }
    errno = before;
    return found;
}

/* Appends one record with a single write, so that other processes cannot come in between. */
static void append(struct place *place, char op, const char *second, uint64_t offset, const void *data, uint32_t size) {
    int before = errno;
    unsigned char head[17];
    uint16_t lengths[2] = {(uint16_t)strlen(place->below), (uint16_t)strlen(second)};
    head[0] = (unsigned char)op;
    memcpy(head + 1, lengths, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &size, 4);
    struct iovec parts[] = {{head, sizeof head},
                            {(void *)place->below, lengths[0]},
                            {(void *)second, lengths[1]},
                            {(void *)data, data ? size : 0}};
    size_t all = sizeof head + lengths[0] + lengths[1] + (data ? size : 0);
    if (syscall(SYS_writev, place->log, parts, 4) != (long)all) abort();
    errno = before;
}

static void forget(struct place *place) {
    int before = errno;
    syscall(SYS_close, place->log);
    errno = before;
}

/* Performs an operation and records it, in the same order as other threads see both. Only for recorded places: the
 * operations of others, such as a write to a full pipe, must not hold the lock. */
#define RECORDED(place, call, record)    \
    do {                                 \
        pthread_mutex_lock(&lock);       \
        long done = (call);              \
        if (done >= 0) record;           \
        pthread_mutex_unlock(&lock);     \
        forget(&(place));                \
        return (__typeof__(call))done;   \
    } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    struct place place;
    if (!place_of_fd(fd, &place)) return syscall(SYS_write, fd, data, size);
    RECORDED(place, syscall(SYS_write, fd, data, size),
             append(&place, 'W', "", (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), data, (uint32_t)done));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    struct place place;
    if (!place_of_fd(fd, &place)) return syscall(SYS_pwrite64, fd, data, size, at);
    RECORDED(place, syscall(SYS_pwrite64, fd, data, size, at),
             append(&place, 'W', "", (uint64_t)at, data, (uint32_t)done));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, (off_t)at); }

/* One buffer at a time: fewer bytes than asked for are a valid result. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct place place;
    if (!place_of_fd(fd, &place)) return syscall(SYS_writev, fd, parts, count);
    forget(&place);
    for (int at = 0; at < count; at++) {
        if (parts[at].iov_len > 0) return write(fd, parts[at].iov_base, parts[at].iov_len);
    }
    return 0;
}

static int sync_file(int fd, long call) {
    struct place place;
    if (!place_of_fd(fd, &place)) return (int)syscall(call, fd);
    RECORDED(place, (int)syscall(call, fd), append(&place, 'S', "", 0, NULL, 0));
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int ftruncate(int fd, off_t size) {
    struct place place;
    if (!place_of_fd(fd, &place)) return (int)syscall(SYS_ftruncate, fd, size);
    RECORDED(place, (int)syscall(SYS_ftruncate, fd, size), append(&place, 'T', "", (uint64_t)size, NULL, 0));
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, (off_t)size); }

static void record_opened(struct place *place, int fd, int flags) {
    struct stat found;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return;
    if (flags & O_CREAT) append(place, 'C', "", 0, NULL, 0);
    if (flags & O_TRUNC) append(place, 'T', "", 0, NULL, 0);
}

static int open_file(int directory, const char *path, int flags, mode_t mode) {
    struct place place;
    if (!(flags & (O_CREAT | O_TRUNC)) || !place_of_path(directory, path, &place))
        return (int)syscall(SYS_openat, directory, path, flags, mode);
    RECORDED(place, (int)syscall(SYS_openat, directory, path, flags, mode), record_opened(&place, (int)done, flags));
}

#define MODE(flags)                                         \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                  \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode = (mode_t)va_arg(rest, int);                   \
        va_end(rest);                                       \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_file(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_file(directory, path, flags, mode);
}

int mkdirat(int directory, const char *path, mode_t mode) {
    struct place place;
    if (!place_of_path(directory, path, &place)) return (int)syscall(SYS_mkdirat, directory, path, mode);
    RECORDED(place, (int)syscall(SYS_mkdirat, directory, path, mode), append(&place, 'M', "", 0, NULL, 0));
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int directory, const char *path, int flags) {
    struct place place;
    if (!place_of_path(directory, path, &place)) return (int)syscall(SYS_unlinkat, directory, path, flags);
    RECORDED(place, (int)syscall(SYS_unlinkat, directory, path, flags), append(&place, 'U', "", 0, NULL, 0));
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

/* Both names must be in one recorded directory; a rename to elsewhere is a removal. What comes in from elsewhere is not
 * seen, and the recorded directory itself may be renamed. */
static void record_two(struct place *source, int to_directory, const char *to, char op) {
    struct place target;
    if (!source->below[0]) return;
    if (!place_of_path(to_directory, to, &target)) {
        if (op == 'R') append(source, 'U', "", 0, NULL, 0);
        return;
    }
    size_t root = (size_t)(target.below - target.path);
    int same = root == (size_t)(source->below - source->path) && !memcmp(target.path, source->path, root);
    if (same) append(source, op, target.below, 0, NULL, 0);
    forget(&target);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    struct place place;
    if (!place_of_path(from_directory, from, &place))
        return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    RECORDED(place, (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0),
             record_two(&place, to_directory, to, 'R'));
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    struct place place;
    if (!place_of_path(from_directory, from, &place))
        return (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags);
    RECORDED(place, (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags),
             record_two(&place, to_directory, to, 'L'));
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
