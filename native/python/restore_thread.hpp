// Takes the GIL again after a wait.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace ringmain::py {

// When the interpreter ends, Python ends a daemon thread as it asks for the GIL: with pthread_exit, which unwinds the
// stack. Our destructors on it would use Python without the GIL, and one that may not throw would abort the process. So
// the thread stops where it is, as in Python 3.14, until the process has exited.
void restore_thread(PyThreadState* state);

}  // namespace ringmain::py
