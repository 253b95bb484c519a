/* What a fan-out to many connections costs if each message is sent and read by itself: fanout CONNECTIONS BYTES ROUNDS-PER-S SECONDS

   One process sends so many bytes to each connection in turn, one send() each, and begins a round when it is due and all of the one before has
   been read. Another one reads them, one recv() for each. There is no protocol: what a server does beside this comes on top. Prints one line
   of JSON: messages that were read in a second, how long after the time at which its round was due the last of each round was read, and the
   processor time of a message on either side. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 100000
#define EVENTS 1024

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "fanout: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double used(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void read_all(struct sockaddr_in *address, int connections, int bytes, volatile uint64_t *read_bytes) {
    int poll = epoll_create1(0);
    check(poll >= 0, "epoll_create1");
    for (int number = 0; number < connections; number++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(fd >= 0 && connect(fd, (struct sockaddr *)address, sizeof *address) == 0, "connect");
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
        check(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    }
    static struct epoll_event ready[EVENTS];
    char *buffer = malloc(bytes);
    check(buffer != NULL, "malloc");
    for (;;) {
        int count = epoll_wait(poll, ready, EVENTS, -1);
        for (int number = 0; number < count; number++) {
            ssize_t got = recv(ready[number].data.fd, buffer, bytes, MSG_DONTWAIT);
            if (got == 0) return;
            if (got > 0) *read_bytes += got;
        }
    }
}

int main(int argc, char **argv) {
    int connections = argc > 1 ? atoi(argv[1]) : 0, bytes = argc > 2 ? atoi(argv[2]) : 0;
    double rate = argc > 3 ? atof(argv[3]) : 0, seconds = argc > 4 ? atof(argv[4]) : 0;
    if (argc != 5 || connections <= 0 || bytes <= 0 || bytes > 1 << 16 || rate <= 0 || seconds <= 0) {
        fputs("usage: fanout CONNECTIONS BYTES(<= 65536) ROUNDS-PER-S SECONDS\n", stderr);
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    check(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 4096) == 0, "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    volatile uint64_t *read_bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(read_bytes != MAP_FAILED, "mmap");
    pid_t reader = fork();
    check(reader >= 0, "fork");
    if (reader == 0) {
        close(listener);
        read_all(&address, connections, bytes, read_bytes);
        return 0;
    }
    int *fds = calloc(connections, sizeof *fds);
    char *message = calloc(1, bytes);
    double *lags = calloc(ROUNDS_MAX, sizeof *lags);
    check(fds && message && lags, "calloc");
    for (int number = 0; number < connections; number++) {
        fds[number] = accept(listener, NULL, NULL);
        check(fds[number] >= 0, "accept");
        setsockopt(fds[number], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    double before = used(RUSAGE_SELF), began = now(), ended = began;
    int rounds = 0;
    while (rounds < ROUNDS_MAX && now() - began < seconds) {
        double due = began + rounds / rate;
        while (now() < due) usleep(100);
        for (int number = 0; number < connections; number++) check(send(fds[number], message, bytes, 0) == bytes, "send");
        rounds++;
        while (*read_bytes < (uint64_t)rounds * connections * bytes) usleep(20);
        ended = now();
        lags[rounds - 1] = ended - due;
    }
    double sent = used(RUSAGE_SELF) - before, messages = (double)rounds * connections;
    for (int number = 0; number < connections; number++) close(fds[number]);
    waitpid(reader, NULL, 0);
    qsort(lags, rounds, sizeof *lags, ascending);
    printf("{\"connections\": %d, \"rounds_per_s\": %.1f, \"messages_per_s\": %.0f, \"lag_p50_ms\": %.1f, \"lag_p99_ms\": %.1f, "
           "\"send_us\": %.2f, \"receive_us\": %.2f}\n", connections, rounds / (ended - began), messages / (ended - began), lags[rounds / 2] * 1e3,
           lags[rounds * 99 / 100] * 1e3, sent * 1e6 / messages, used(RUSAGE_CHILDREN) * 1e6 / messages);
    return 0;
}
