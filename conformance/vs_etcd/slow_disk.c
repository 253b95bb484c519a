/* Preloaded into a server: a disk that takes DISK_BYTES_PER_S and DISK_OPERATIONS_PER_S and no more.

   What is written waits in the page cache, as before. Once its writing back is begun (sync_file_range) or awaited (fdatasync, fsync) it takes its
   turn at the one disk behind everything else, in operations of at most 128 KiB, and who awaits it waits for the end of that turn. The kernel's own
   writing back, reads and removals of files cost nothing here. The real calls are made as well. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 65536
#define OPERATION_BYTES_MAX (128 << 10)

/* By device and inode, since a descriptor may be closed and given away again. */
static struct { uint64_t device, inode, dirty; } files[FILES_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t free_at_ns;
static double bytes_per_s, operations_per_s;

__attribute__((constructor)) static void begin(void) {
    const char *bytes = getenv("DISK_BYTES_PER_S"), *operations = getenv("DISK_OPERATIONS_PER_S");
    bytes_per_s = bytes ? atof(bytes) : 0;
    operations_per_s = operations ? atof(operations) : 0;
    if (bytes_per_s <= 0 || operations_per_s <= 0) {
        static const char text[] = "slow_disk: DISK_BYTES_PER_S and DISK_OPERATIONS_PER_S must be numbers over 0\n";
        (void)!write(2, text, sizeof text - 1);
        _exit(2);
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The place of a regular file in the table, or -1; with the mutex held. */
static int place_of(int file) {
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
    uint64_t device = status.st_dev, inode = status.st_ino;
    unsigned start = (unsigned)((inode * 0x9e3779b97f4a7c15ull ^ device) >> 16) % FILES_MAX;
    for (unsigned step = 0; step < FILES_MAX; step++) {
        unsigned at = (start + step) % FILES_MAX;
        if (files[at].inode == 0) {
            files[at].device = device;
            files[at].inode = inode;
        }
        if (files[at].inode == inode && files[at].device == device) return (int)at;
    }
    return -1;
}

static void dirty(int file, ssize_t bytes) {
    if (bytes <= 0) return;
    int before = errno;
    pthread_mutex_lock(&mutex);
    int at = place_of(file);
    if (at >= 0) files[at].dirty += (uint64_t)bytes;
    pthread_mutex_unlock(&mutex);
    errno = before;
}

/* Gives the disk at most `bytes_max` of what is dirty in a file, and `more` operations; returns when it will have done all it was given. */
static int64_t give(int file, uint64_t bytes_max, double more) {
    pthread_mutex_lock(&mutex);
    int at = place_of(file);
    uint64_t bytes = at < 0 ? 0 : files[at].dirty;
    if (bytes > bytes_max) bytes = bytes_max;
    if (at >= 0) files[at].dirty -= bytes;
    double operations = more + (double)((bytes + OPERATION_BYTES_MAX - 1) / OPERATION_BYTES_MAX);
    double by_bytes = (double)bytes / bytes_per_s, by_operations = operations / operations_per_s;
    int64_t now = now_ns();
    if (free_at_ns < now) free_at_ns = now;
    free_at_ns += (int64_t)(1e9 * (by_bytes > by_operations ? by_bytes : by_operations));
    int64_t done = free_at_ns;
    pthread_mutex_unlock(&mutex);
    return done;
}

static void wait_until(int64_t when_ns) {
    struct timespec when = { when_ns / 1000000000, when_ns % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {}
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
    ssize_t written = syscall(SYS_pwrite64, file, bytes, length, offset);
    dirty(file, written);
    return written;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) { return pwrite64(file, bytes, length, offset); }

ssize_t write(int file, const void *bytes, size_t length) {
    ssize_t written = syscall(SYS_write, file, bytes, length);
    dirty(file, written);
    return written;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    ssize_t written = syscall(SYS_writev, file, parts, count);
    dirty(file, written);
    return written;
}

int sync_file_range(int file, off64_t offset, off64_t length, unsigned flags) {
    int64_t done = give(file, length ? (uint64_t)length : UINT64_MAX, 0);
    int result = (int)syscall(SYS_sync_file_range, file, offset, length, flags);
    if (flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER)) wait_until(done);
    return result;
}

static int synced(int file, long call) {
    int64_t done = give(file, UINT64_MAX, 1);
    int result = (int)syscall(call, file);
    int before = errno;
    wait_until(done);
    errno = before;
    return result;
}

int fdatasync(int file) { return synced(file, SYS_fdatasync); }
int fsync(int file) { return synced(file, SYS_fsync); }
