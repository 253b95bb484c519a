/* Preloaded into a member: its syncs wait for as long as the file that STALL_FILE names is there, as on a disk that does not answer.
   What was written before is in the page cache, as it would be. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void stall(void) {
    const char *file = getenv("STALL_FILE");
    while (file && access(file, F_OK) == 0) usleep(2000);
}

int fdatasync(int file) {
    stall();
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    stall();
    return (int)syscall(SYS_fsync, file);
}
