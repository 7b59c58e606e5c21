/* A preload: the wall clock of a process is ahead by the seconds that the file $WALL_CLOCK_AHEAD holds, as after a step of
   NTP, or when a virtual machine resumes. The test that wrote them may change them at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    ahead_s = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, open(getenv("WALL_CLOCK_AHEAD"), O_RDONLY), 0);
    if (ahead_s == MAP_FAILED) abort();
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin();
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += *ahead_s;
    return result;
}
