/* A preload: sleeps on words in shared memory, and on descriptors, that would last longer than half a second last for hours. So
   what is found by the look after a long sleep is found by no test, and a test needs no clock to tell that it was woken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

enum { FUTEX_WAITV = 449, LONG_MS = 500, HOURS_S = 10 * 3600 };

static int is_long(long long seconds, long long ns) { return seconds * 1000 + ns / 1000000 > LONG_MS; }

long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long v[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) v[i] = va_arg(given, long);
    va_end(given);
    struct timespec longer = {HOURS_S, 0}, now;
    if (number == SYS_futex && (v[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && v[3]) {
        const struct timespec *timeout = (const struct timespec *)v[3];
        if (is_long(timeout->tv_sec, timeout->tv_nsec)) v[3] = (long)&longer;
    }
    if (number == FUTEX_WAITV && v[3]) {
        const struct timespec *deadline = (const struct timespec *)v[3];
        clock_gettime(CLOCK_MONOTONIC, &now);
        longer.tv_sec += now.tv_sec;
        if (is_long(deadline->tv_sec - now.tv_sec, deadline->tv_nsec - now.tv_nsec)) v[3] = (long)&longer;
    }
    return real(number, v[0], v[1], v[2], v[3], v[4], v[5]);
}

int epoll_wait(int poller, struct epoll_event *events, int most, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return real(poller, events, most, timeout_ms > LONG_MS ? HOURS_S * 1000 : timeout_ms);
}
