/* A disk that lies, to be preloaded into a server.
 *
 * What a process writes stays in the page cache when it is killed, so a kill alone proves nothing about durability. This library notes in
 * LYING_JOURNAL what each write, cut and change of a name replaces, and which syncs there were. When the process is gone, the test takes back
 * what no sync has covered (lying_disk_test.go). Syncs themselves do nothing.
 *
 * LYING_CONTROL is a file of eight numbers of 64 bits that the test changes while the process runs; see struct control. LYING_DIR is the
 * directory that all this is about, LYING_SHADOW one on the same file system that keeps files whose names go.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 512

struct control {
	int64_t fail_at;  /* Calls until one fails with EIO; below 0: none. */
	int64_t delay_us; /* What each sync takes. */
	int64_t full;     /* Nothing grows any more: ENOSPC. */
	int64_t readonly; /* Nothing can be changed: EROFS. */
	int64_t shift_s;  /* Seconds by which the wall clock is wrong. */
	int64_t calls;    /* Calls so far. */
	int64_t failed;   /* Calls that have failed as wanted. */
	int64_t unused;
};

enum { WRITE = 1, SIZE, SYNC, SYNC_FAILED, CREATE, RENAME, UNLINK, SYNC_DIR };

struct record {
	uint64_t kind, file, offset, length, size, shadow;
	uint16_t path_length, other_length, is_zero, unused;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct control *control;
static const char *dir, *shadow;
static int journal = -1;
static uint64_t shadows;

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_open)(const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_ftruncate)(int, off64_t);
static int (*real_fallocate)(int, int, off64_t, off64_t);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);

static void begin(void)
{
	real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
	real_write = dlsym(RTLD_NEXT, "write");
	real_open = dlsym(RTLD_NEXT, "open64");
	real_rename = dlsym(RTLD_NEXT, "rename");
	real_unlink = dlsym(RTLD_NEXT, "unlink");
	real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
	real_fallocate = dlsym(RTLD_NEXT, "fallocate64");
	real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	real_fsync = dlsym(RTLD_NEXT, "fsync");
	const char *path = getenv("LYING_CONTROL");
	int file = path ? real_open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file >= 0) {
		void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		control = page == MAP_FAILED ? NULL : page;
	}
	dir = getenv("LYING_DIR");
	shadow = getenv("LYING_SHADOW");
	path = getenv("LYING_JOURNAL");
	if (control && dir && shadow && path)
		journal = real_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_inside(const char *path)
{
	return journal >= 0 && strncmp(path, dir, strlen(dir)) == 0 && path[strlen(dir)] == '/';
}

/* Whether a file descriptor is a regular file or a directory in the directory. */
static int is_ours(int file, struct stat *stat)
{
	char name[64], path[4096];
	if (journal < 0 || fstat(file, stat) || !(S_ISREG(stat->st_mode) || S_ISDIR(stat->st_mode)))
		return 0;
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	ssize_t length = readlink(name, path, sizeof path - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return is_inside(path);
}

/* Whether this call is the one that is to fail. */
static int fails(void)
{
	__atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
	if (control->fail_at < 0 || control->fail_at-- > 0)
		return 0;
	control->failed++;
	errno = EIO;
	return 1;
}

static void must(int holds)
{
	if (!holds) {
		static const char text[] = "lying.c: the journal cannot be written\n";
		ssize_t ignored = real_write(2, text, sizeof text - 1);
		(void)ignored;
		_exit(99);
	}
}

static void note(struct record record, const char *path, const char *other, const void *bytes)
{
	record.path_length = path ? strlen(path) : 0;
	record.other_length = other ? strlen(other) : 0;
	size_t length = record.is_zero || !bytes ? 0 : record.length;
	size_t total = sizeof record + record.path_length + record.other_length + length;
	char *all = malloc(total), *at = all;
	must(all != NULL);
	at = mempcpy(at, &record, sizeof record);
	at = mempcpy(at, path ? path : "", record.path_length);
	at = mempcpy(at, other ? other : "", record.other_length);
	memcpy(at, bytes ? bytes : "", length);
	must(real_write(journal, all, total) == (ssize_t)total);
	free(all);
}

/* Notes the sectors that a change of `length` bytes at `offset` replaces. */
static void note_sectors(int file, const struct stat *stat, off64_t offset, size_t length)
{
	off64_t from = offset / SECTOR * SECTOR, to = (offset + (off64_t)length + SECTOR - 1) / SECTOR * SECTOR;
	size_t span = to - from;
	unsigned char *old = calloc(1, span ? span : 1);
	must(old != NULL);
	for (size_t at = 0; at < span && from + (off64_t)at < stat->st_size;) {
		ssize_t got = pread64(file, old + at, span - at, from + at);
		if (got <= 0) {
			/* Not open for reading. */
			char name[64];
			snprintf(name, sizeof name, "/proc/self/fd/%d", file);
			int other = real_open(name, O_RDONLY | O_CLOEXEC);
			got = other < 0 ? -1 : pread64(other, old + at, span - at, from + at);
			if (other >= 0)
				close(other);
		}
		if (got <= 0)
			break;
		at += got;
	}
	int is_zero = 1;
	for (size_t at = 0; at < span && is_zero; at++)
		is_zero = old[at] == 0;
	struct record record = {.kind = WRITE, .file = stat->st_ino, .offset = from, .length = span, .size = stat->st_size, .is_zero = is_zero};
	note(record, NULL, NULL, old);
	free(old);
}

static void note_size(const struct stat *stat)
{
	note((struct record){.kind = SIZE, .file = stat->st_ino, .size = stat->st_size}, NULL, NULL, NULL);
}

static int refuses_change(void)
{
	if (control->readonly) {
		errno = EROFS;
		return 1;
	}
	return fails();
}

static int refuses_growth(const struct stat *stat, off64_t end)
{
	if (control->full && end > stat->st_size) {
		errno = ENOSPC;
		return 1;
	}
	return 0;
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset)
{
	struct stat stat;
	pthread_once(&once, begin);
	if (!is_ours(file, &stat))
		return real_pwrite(file, bytes, length, offset);
	pthread_mutex_lock(&lock);
	ssize_t result = -1;
	must(fstat(file, &stat) == 0);
	if (!refuses_change() && !refuses_growth(&stat, offset + length)) {
		note_sectors(file, &stat, offset, length);
		result = real_pwrite(file, bytes, length, offset);
	}
	int error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset)
{
	return pwrite64(file, bytes, length, offset);
}

ssize_t write(int file, const void *bytes, size_t length)
{
	struct stat stat;
	pthread_once(&once, begin);
	if (!is_ours(file, &stat) || !S_ISREG(stat.st_mode))
		return real_write(file, bytes, length);
	off64_t offset = lseek64(file, 0, SEEK_CUR);
	ssize_t written = pwrite64(file, bytes, length, offset);
	if (written > 0)
		lseek64(file, written, SEEK_CUR);
	return written;
}

static int truncated(int file, off64_t length)
{
	struct stat stat;
	must(fstat(file, &stat) == 0);
	if (refuses_change() || refuses_growth(&stat, length))
		return -1;
	if (length < stat.st_size)
		note_sectors(file, &stat, length, stat.st_size - length);
	note_size(&stat);
	return real_ftruncate(file, length);
}

int ftruncate64(int file, off64_t length)
{
	struct stat stat;
	pthread_once(&once, begin);
	if (!is_ours(file, &stat))
		return real_ftruncate(file, length);
	pthread_mutex_lock(&lock);
	int result = truncated(file, length), error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

int fallocate64(int file, int mode, off64_t offset, off64_t length)
{
	struct stat stat;
	pthread_once(&once, begin);
	if (!is_ours(file, &stat))
		return real_fallocate(file, mode, offset, length);
	pthread_mutex_lock(&lock);
	int result = -1;
	must(fstat(file, &stat) == 0);
	if (!refuses_change() && !refuses_growth(&stat, offset + length)) {
		note_size(&stat);
		result = real_fallocate(file, mode, offset, length);
	}
	int error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

static int synced(int file)
{
	struct stat stat;
	pthread_once(&once, begin);
	if (!is_ours(file, &stat))
		return real_fsync(file);
	if (control->delay_us > 0)
		usleep(control->delay_us);
	pthread_mutex_lock(&lock);
	int failed = fails(), is_dir = S_ISDIR(stat.st_mode);
	uint64_t kind = is_dir ? SYNC_DIR : failed ? SYNC_FAILED : SYNC;
	/* A file system with a journal shuts down when it cannot write that, so a name is not lost behind a later sync. */
	if (!(failed && is_dir))
		note((struct record){.kind = kind, .file = stat.st_ino}, NULL, NULL, NULL);
	pthread_mutex_unlock(&lock);
	errno = failed ? EIO : 0;
	return failed ? -1 : 0;
}

int fdatasync(int file) { return synced(file); }
int fsync(int file) { return synced(file); }

static uint64_t directory_of(const char *path)
{
	struct stat stat_;
	char parent[4096];
	snprintf(parent, sizeof parent, "%s", path);
	char *slash = strrchr(parent, '/');
	if (slash)
		*slash = 0;
	return stat(parent, &stat_) == 0 ? stat_.st_ino : 0;
}

/* Keeps a file that is about to lose this name. Returns its number, or 0 if there is none. */
static uint64_t keep(const char *path)
{
	char name[4096];
	snprintf(name, sizeof name, "%s/%d-%lu", shadow, getpid(), ++shadows);
	if (link(path, name) == 0)
		return shadows;
	must(errno == ENOENT);
	return 0;
}

int rename(const char *from, const char *to)
{
	pthread_once(&once, begin);
	if (!is_inside(from) && !is_inside(to))
		return real_rename(from, to);
	pthread_mutex_lock(&lock);
	int result = -1;
	if (!refuses_change()) {
		struct record record = {.kind = RENAME, .file = directory_of(to), .shadow = keep(to), .size = getpid()};
		result = real_rename(from, to);
		if (result == 0)
			note(record, from, to, NULL);
	}
	int error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

int unlink(const char *path)
{
	pthread_once(&once, begin);
	if (!is_inside(path))
		return real_unlink(path);
	pthread_mutex_lock(&lock);
	int result = -1;
	if (!refuses_change()) {
		struct record record = {.kind = UNLINK, .file = directory_of(path), .shadow = keep(path), .size = getpid()};
		result = real_unlink(path);
		if (result == 0)
			note(record, path, NULL, NULL);
	}
	int error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	pthread_once(&once, begin);
	if (!is_inside(path) || !(flags & (O_WRONLY | O_RDWR | O_CREAT)))
		return real_open(path, flags, mode);
	pthread_mutex_lock(&lock);
	int result = -1;
	if (!refuses_change()) {
		int is_new = flags & O_CREAT && access(path, F_OK) != 0;
		result = real_open(path, flags, mode);
		if (is_new && result >= 0)
			note((struct record){.kind = CREATE, .file = directory_of(path)}, path, NULL, NULL);
	}
	int error = errno;
	pthread_mutex_unlock(&lock);
	errno = error;
	return result;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	return open64(path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	pthread_once(&once, begin);
	int result = real_clock_gettime(clock, now);
	if (result == 0 && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += control->shift_s;
	return result;
}
