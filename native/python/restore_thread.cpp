// Compiled without exceptions: only then is pthread_cleanup_push the one that needs no C++ frame to be unwound. A thread that
// ends unwinds its stack with the unwinder of the C library, which knows nothing of a C++ library that is linked into this
// module, as in the wheels.
#include <pthread.h>
#include <unistd.h>

#include "python/restore_thread.hpp"

#ifdef __cpp_exceptions
#error "compile this file with -fno-exceptions"
#endif

namespace ringmain::py {

static void stop_here(void*) {
    for (;;) ::pause();
}

void restore_thread(PyThreadState* state) {
    pthread_cleanup_push(stop_here, nullptr);
    PyEval_RestoreThread(state);
    pthread_cleanup_pop(0);
}

}  // namespace ringmain::py
