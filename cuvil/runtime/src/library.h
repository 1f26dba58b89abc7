// A compiled model on disk, a model library or a .cuv file: looked at before the system's loader touches it, then
// loaded.
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "cuvil/runtime.h"
#include "message.h"
#include "model_info.h"

namespace cuvil {

#if defined(__x86_64__)
constexpr int kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kHostMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr int kHostMachine = EM_RISCV;
#endif

// For messages.
const char *machine_name(int elf_machine);

// A .cuv file in memory; none for a model library, whose loader maps it.
struct Mapping {
  void *address = nullptr;
  size_t size_bytes = 0;
};

struct Library {
  void *handle;  // of dlopen
  ModelTables tables;
  cuvil_run_function run;
  cuvil_shapes_function shapes;  // null for a model without named dimensions
  Mapping mapping = {};
};

// On failure nothing stays loaded.
cuvil_status open_library(const char *path, Message message, Library *library);

// Checks what has a checksum: a .cuv file, the weights included.
cuvil_status verify_library(const char *path, Message message);

void close_library(void *handle, const Mapping &mapping);

struct Weights {
  const void *address;
  int64_t size_bytes;
};

// A shared object to load.
struct Object {
  const char *path;  // for messages
  int file;          // open for reading
  const char *absolute_name;
  const Weights *weights;  // null where the object has its own
};

cuvil_status open_object(const Object &object, Message message, Library *library);

}  // namespace cuvil
