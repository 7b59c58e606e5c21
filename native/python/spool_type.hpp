#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

bool add_spool(PyObject* module);
