/* How members should wait, without any of Cairn: waits epoll|spin|uring MICROSECONDS MEMBERS REQUESTS DIRECTORY

   One client sends requests of 128 bytes over loopback, one after the other, to the first of one or three processes. It sends each on to the
   others; each writes a record of 512 bytes into a file that is already there, and syncs it; the first answers once it and one of the others
   have synced. They wait for sockets by epoll; by epoll again and again for so many microseconds before they sleep; or by io_uring, which has
   the log's write and fdatasync, too. Prints one line: requests in a second, and how long they took. Needs liburing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_BYTES 128
#define RECORD_BYTES 512
#define LOG_BYTES (32 << 20)
#define MEMBERS_MAX 3

static void check(bool good, const char *what) {
    if (!good) {
        fprintf(stderr, "waits: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void connect_pair(int *one, int *other) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    check(!bind(listener, (void *)&address, length) && !listen(listener, 1), "listen");
    check(!getsockname(listener, (void *)&address, &length), "getsockname");
    *one = socket(AF_INET, SOCK_STREAM, 0);
    check(!connect(*one, (void *)&address, length), "connect");
    *other = accept(listener, NULL, NULL);
    check(*other >= 0, "accept");
    setsockopt(*one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(*other, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    close(listener);
}

/* A member: its client, its followers if it leads, and its log. */
struct link {
    int socket, have;
    char bytes[MESSAGE_BYTES];
};
struct member {
    struct link links[MEMBERS_MAX];
    int count, log, acks;
    off_t end;
    bool is_asked, is_synced;
};
static char record[RECORD_BYTES], message[MESSAGE_BYTES];

static void open_log(struct member *member, const char *directory, int number) {
    char path[4096], *zeros = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/waits-%d", directory, number);
    member->log = open(path, O_RDWR | O_CREAT, 0600);
    check(member->log >= 0 && !unlink(path), path);
    for (int part = 0; part < LOG_BYTES >> 20; part++) check(write(member->log, zeros, 1 << 20) == 1 << 20, path);
    check(!fdatasync(member->log), path);
    free(zeros);
}

static void next_record(struct member *member) { member->end = (member->end + RECORD_BYTES) % LOG_BYTES; }

/* Whether the answer to the request is due now. */
static bool may_answer(struct member *member) {
    bool is_due = member->is_asked && member->is_synced && (member->count == 1 || member->acks > 0);
    member->is_asked = member->is_asked && !is_due;
    return is_due;
}

static void begin_request(struct member *member) { member->is_asked = true, member->is_synced = false, member->acks = 0; }

static void run_epoll(struct member *member, double spin_us) {
    int poller = epoll_create1(0);
    for (int number = 0; number < member->count; number++) {
        struct epoll_event wanted = {.events = EPOLLIN | EPOLLET, .data.u32 = number};
        fcntl(member->links[number].socket, F_SETFL, O_NONBLOCK);
        check(!epoll_ctl(poller, EPOLL_CTL_ADD, member->links[number].socket, &wanted), "epoll_ctl");
    }
    for (;;) {
        struct epoll_event events[MEMBERS_MAX];
        int found = epoll_wait(poller, events, MEMBERS_MAX, 0);
        if (found == 0 && spin_us > 0)
            for (double since = now_us(); found == 0 && now_us() - since < spin_us;) found = epoll_wait(poller, events, MEMBERS_MAX, 0);
        if (found == 0) found = epoll_wait(poller, events, MEMBERS_MAX, -1);
        for (int place = 0; place < found; place++) {
            struct link *link = &member->links[events[place].data.u32];
            for (ssize_t got; (got = read(link->socket, link->bytes + link->have, MESSAGE_BYTES - link->have)) >= 0;) {
                if (got == 0) exit(0);
                if ((link->have += got) < MESSAGE_BYTES) continue;
                link->have = 0;
                if (link == member->links) {
                    begin_request(member);
                    for (int number = 1; number < member->count; number++) check(write(member->links[number].socket, message, MESSAGE_BYTES) > 0, "send");
                    next_record(member);
                    check(pwrite(member->log, record, RECORD_BYTES, member->end) == RECORD_BYTES && !fdatasync(member->log), "log");
                    member->is_synced = true;
                } else {
                    member->acks++;
                }
                if (may_answer(member) && write(member->links[0].socket, message, MESSAGE_BYTES) <= 0) exit(0);
            }
        }
    }
}

static struct io_uring ring;
enum { SYNCED = MEMBERS_MAX, OTHER };

static struct io_uring_sqe *submit(unsigned what) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    check(entry != NULL, "a full ring");
    io_uring_sqe_set_data64(entry, what);
    return entry;
}

static void receive(struct member *member, int number) {
    struct link *link = &member->links[number];
    io_uring_prep_recv(submit(number), link->socket, link->bytes + link->have, MESSAGE_BYTES - link->have, 0);
}

static void run_uring(struct member *member) {
    struct io_uring_params parameters = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    check(io_uring_queue_init_params(64, &ring, &parameters) == 0, "io_uring");
    for (int number = 0; number < member->count; number++) receive(member, number);
    for (;;) {
        struct io_uring_cqe *done;
        unsigned head, count = 0;
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, done) {
            unsigned what = io_uring_cqe_get_data64(done);
            count++;
            if (what < MEMBERS_MAX) {
                struct link *link = &member->links[what];
                if (done->res <= 0) exit(0);
                if ((link->have += done->res) == MESSAGE_BYTES) {
                    link->have = 0;
                    if (what > 0) {
                        member->acks++;
                    } else {
                        begin_request(member);
                        for (int number = 1; number < member->count; number++)
                            io_uring_prep_send(submit(OTHER), member->links[number].socket, message, MESSAGE_BYTES, 0);
                        next_record(member);
                        struct io_uring_sqe *written = submit(OTHER);
                        io_uring_prep_write(written, member->log, record, RECORD_BYTES, member->end);
                        io_uring_sqe_set_flags(written, IOSQE_IO_LINK);
                        io_uring_prep_fsync(submit(SYNCED), member->log, IORING_FSYNC_DATASYNC);
                    }
                }
                receive(member, what);
            } else if (what == SYNCED) {
                check(done->res == 0, "fdatasync");
                member->is_synced = true;
            }
            if (may_answer(member)) io_uring_prep_send(submit(OTHER), member->links[0].socket, message, MESSAGE_BYTES, 0);
        }
        io_uring_cq_advance(&ring, count);
    }
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "usage: waits epoll|spin|uring MICROSECONDS MEMBERS REQUESTS DIRECTORY\n");
        return 2;
    }
    const char *how = words[1];
    double spin_us = strcmp(how, "spin") ? 0 : atof(words[2]);
    int members = atoi(words[3]), requests = atoi(words[4]), client, served, to[MEMBERS_MAX], from[MEMBERS_MAX];
    check(members >= 1 && members <= MEMBERS_MAX && requests > 0, "1 to 3 members, and requests");
    signal(SIGPIPE, SIG_IGN);
    pid_t pids[MEMBERS_MAX];
    connect_pair(&client, &served);
    for (int number = 1; number < members; number++) connect_pair(&to[number], &from[number]);
    for (int number = 0; number < members; number++) {
        if ((pids[number] = fork())) continue;
        struct member member = {.links[0].socket = number ? from[number] : served, .count = number ? 1 : members};
        close(client);
        for (int other = 1; other < members; other++) {
            if (number == 0) member.links[other].socket = to[other], close(from[other]);
            else if (close(to[other]), other != number) close(from[other]);
        }
        if (number) close(served);
        open_log(&member, words[5], number);
        if (strcmp(how, "uring")) run_epoll(&member, spin_us);
        else run_uring(&member);
    }
    close(served);
    for (int number = 1; number < members; number++) close(to[number]), close(from[number]);
    double *took = calloc(requests, sizeof *took), began = 0;
    for (int number = -1; number < requests; number++) {
        /* The first one waits until the logs are there. */
        double since = now_us();
        if (number == 0) began = since;
        check(write(client, message, MESSAGE_BYTES) == MESSAGE_BYTES, "send");
        for (ssize_t have = 0, got; have < MESSAGE_BYTES; have += got) check((got = read(client, message, MESSAGE_BYTES - have)) > 0, "receive");
        if (number >= 0) took[number] = now_us() - since;
    }
    double rate = requests / (now_us() - began) * 1e6;
    qsort(took, requests, sizeof *took, compare);
    printf("%s %s us, %d members: %.0f requests/s, p50 %.0f us, p99 %.0f us\n", how, spin_us > 0 ? words[2] : "0", members, rate, took[requests / 2], took[requests * 99L / 100]);
    for (int number = 0; number < members; number++) kill(pids[number], SIGKILL);
    while (wait(NULL) > 0) {}
    return 0;
}
