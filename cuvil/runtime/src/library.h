// A model library on disk: looked at before the system's loader touches it, then loaded.
#pragma once

#include <stdint.h>

#include "cuvil/runtime.h"
#include "message.h"
#include "model_info.h"

namespace cuvil {

struct Library {
  void *handle;  // of dlopen
  ModelTables tables;
  cuvil_run_function run;
  cuvil_shapes_function shapes;  // null for a model without named dimensions
};

// On failure nothing stays loaded.
cuvil_status open_library(const char *path, Message message, Library *library);

void close_library(void *handle);

}  // namespace cuvil
