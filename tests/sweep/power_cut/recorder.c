/* Records writes, truncations and syncs of the database files. A test preloads it into the program and replays the log
 * to get the files after a power cut. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("PETASOS_POWER_LOG");
    if (path) log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Stores the path of fd and returns 1 if it is a database file or its log. The shared-memory index is rebuilt anyway. */
static int database_path(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, size - 1);
    if (len <= 0 || log_fd < 0) return 0;
    path[len] = 0;
    const char *base = strrchr(path, '/');
    return base && (!strcmp(base, "/petasos.db") || !strcmp(base, "/petasos.db-wal"));
}

static void write_all(const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t done = REAL(write)(log_fd, at, size);
        if (done <= 0) abort();
        at += done;
        size -= (size_t)done;
    }
}

static void record(char op, const char *path, uint64_t offset, const void *data, uint32_t size) {
    uint16_t length = (uint16_t)strlen(path);
    write_all(&op, 1);
    write_all(&length, 2);
    write_all(path, length);
    write_all(&offset, 8);
    write_all(&size, 4);
    if (data) write_all(data, size);
}

ssize_t write(int fd, const void *data, size_t size) {
    char path[512];
    if (!database_path(fd, path, sizeof path)) return REAL(write)(fd, data, size);
    pthread_mutex_lock(&lock);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = REAL(write)(fd, data, size);
    if (done > 0) record('W', path, (uint64_t)at, data, (uint32_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    char path[512];
    if (!database_path(fd, path, sizeof path)) return REAL(pwrite)(fd, data, size, at);
    pthread_mutex_lock(&lock);
    ssize_t done = REAL(pwrite)(fd, data, size, at);
    if (done > 0) record('W', path, (uint64_t)at, data, (uint32_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, (off_t)at); }

static int record_sync(int fd, int (*sync)(int)) {
    char path[512];
    if (!database_path(fd, path, sizeof path)) return sync(fd);
    pthread_mutex_lock(&lock);
    int done = sync(fd);
    if (done == 0) record('S', path, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) { return record_sync(fd, REAL(fsync)); }
int fdatasync(int fd) { return record_sync(fd, REAL(fdatasync)); }

int ftruncate(int fd, off_t size) {
    char path[512];
    if (!database_path(fd, path, sizeof path)) return REAL(ftruncate)(fd, size);
    pthread_mutex_lock(&lock);
    int done = REAL(ftruncate)(fd, size);
    if (done == 0) record('T', path, (uint64_t)size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, (off_t)size); }
