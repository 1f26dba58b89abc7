#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // dladdr1
#endif

#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container.h"
#include "float_environment.h"

namespace cuvil {

const char *machine_name(int machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "AArch64";
    case EM_RISCV: return "RISC-V";
    case EM_386: return "x86";
    case EM_ARM: return "ARM";
    default: return "another machine";
  }
}

namespace {

bool read_at(int file, int64_t offset, void *data, size_t size_bytes) {
  return pread(file, data, size_bytes, (off_t)offset) == (ssize_t)size_bytes;
}

bool check_header(const char *path, const Elf64_Ehdr &header, Message message) {
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    write_message(message, "'%s': not a shared library; expected an ELF file, got other content", path);
    return false;
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    write_message(message, "'%s': wrong ELF format; expected 64-bit little-endian, got class %d, data encoding %d",
                  path, header.e_ident[EI_CLASS], header.e_ident[EI_DATA]);
    return false;
  }
  if (header.e_machine != kHostMachine) {
    write_message(message, "'%s': built for another machine; expected %s (ELF machine %d), got %s (ELF machine %d)",
                  path, machine_name(kHostMachine), kHostMachine, machine_name(header.e_machine), header.e_machine);
    return false;
  }
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr)) {
    write_message(message, "'%s': not a shared library; expected ELF type %d, got %d", path, ET_DYN, header.e_type);
    return false;
  }
  return true;
}

bool check_reach(const char *path, uint64_t start, uint64_t size_bytes, int64_t file_bytes, Message message) {
  const uint64_t end = start + size_bytes;
  if (end >= start && end <= (uint64_t)file_bytes) return true;
  write_message(message, "'%s': truncated; expected at least %llu bytes, got %lld", path, (unsigned long long)end,
                (long long)file_bytes);
  return false;
}

// A mapping that reaches beyond the end of a cut-off file would kill the process at the first access. The section
// table is not mapped, but comes last in the file, so that it shows whether anything was lost.
bool check_complete(const char *path, int file, const Elf64_Ehdr &header, Message message) {
  struct stat status;
  if (fstat(file, &status) != 0) status.st_size = 0;
  const uint64_t table_bytes = (uint64_t)header.e_shnum * header.e_shentsize;
  if (!check_reach(path, header.e_shoff, table_bytes, status.st_size, message)) return false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file, (int64_t)header.e_phoff + i * (int64_t)sizeof segment, &segment, sizeof segment)) {
      write_message(message, "'%s': truncated; expected %d program headers, got %d", path, header.e_phnum, i);
      return false;
    }
    const bool loaded = segment.p_type == PT_LOAD;
    if (loaded && !check_reach(path, segment.p_offset, segment.p_filesz, status.st_size, message)) return false;
  }
  return true;
}

bool check_file(const char *path, int file, Message message) {
  Elf64_Ehdr header;
  memset(&header, 0, sizeof header);
  const bool whole = read_at(file, 0, &header, sizeof header);
  if (!whole)
    write_message(message, "'%s': not a shared library; expected an ELF file, got fewer bytes than its header", path);
  return whole && check_header(path, header, message) && check_complete(path, file, header, message);
}

// The loader takes a name that it has loaded before for the same file, even if another file has that name by now.
// Names that differ it tells apart by the files' identity, so each load spells its path in another way: the bits of
// a running number choose between "/" and "/./".
char *fresh_name(const char *absolute) {
  static unsigned loads = 0;
  constexpr int kBits = 32, kBytesPerBit = 3;
  char *name = (char *)malloc(kBits * kBytesPerBit + strlen(absolute) + 1);
  if (name != nullptr) {
    char *end = name;
    for (unsigned number = __atomic_add_fetch(&loads, 1, __ATOMIC_RELAXED); number != 0; number /= 2)
      end = stpcpy(end, number % 2 ? "/./" : "/");
    strcpy(end, absolute);
  }
  return name;
}

void *load(const char *path, const char *absolute, Message message) {
  char *name = fresh_name(absolute);
  // Constructors of a library may set flush-to-zero; the caller's state is not theirs to change.
  FloatStateKeeper keeper;
  const uint64_t before = control_bits(read_float_state());
  void *handle = name == nullptr ? nullptr : dlopen(name, RTLD_NOW | RTLD_LOCAL);
  // Start-up code that -ffast-math links in sets flush-to-zero: it would change all that the process computes.
  const uint64_t after = control_bits(read_float_state());
  if (handle == nullptr) {
    const char *reason = name == nullptr ? strerror(errno) : dlerror();
    write_message(message, "'%s': cannot be loaded: %s", path, reason == nullptr ? "unknown reason" : reason);
  }
  free(name);
  if (handle != nullptr && after != before) {
    write_message(message,
                  "'%s': its start-up code changes the floating-point state; expected control bits %#llx, got %#llx",
                  path, (unsigned long long)before, (unsigned long long)after);
    dlclose(handle);
    return nullptr;
  }
  return handle;
}

struct Symbol {
  void *address;
  int64_t size_bytes;
};

bool find_symbol(const char *path, void *handle, const char *name, Message message, Symbol *symbol) {
  symbol->address = dlsym(handle, name);
  Dl_info where;
  const ElfW(Sym) *entry = nullptr;
  if (symbol->address == nullptr) {
    write_message(message, "'%s': no cuvil model; expected the symbol '%s', got none", path, name);
    return false;
  }
  if (dladdr1(symbol->address, &where, (void **)&entry, RTLD_DL_SYMENT) == 0 || entry == nullptr ||
      where.dli_saddr != symbol->address) {
    write_message(message, "'%s': the symbol '%s' has no entry in the library's symbol table", path, name);
    return false;
  }
  symbol->size_bytes = (int64_t)entry->st_size;
  return true;
}

bool find_weights(const Object &object, void *handle, Message message, Symbol *weights) {
  if (object.weights == nullptr) return find_symbol(object.path, handle, "cuvil_model_weights", message, weights);
  *weights = {(void *)object.weights->address, object.weights->size_bytes};
  return true;
}

bool find_tables(const Object &object, Message message, Library *library) {
  Symbol info, strings, weights, run;
  if (!find_symbol(object.path, library->handle, "cuvil_model_info", message, &info) ||
      !find_symbol(object.path, library->handle, "cuvil_model_strings", message, &strings) ||
      !find_weights(object, library->handle, message, &weights) ||
      !find_symbol(object.path, library->handle, "cuvil_model_run", message, &run))
    return false;
  ModelTables &tables = library->tables;
  tables = {(const int64_t *)info.address, (const char *)strings.address, weights.address, 0, 0, 0};
  tables.info_words = info.size_bytes / (int64_t)sizeof(int64_t);
  tables.strings_bytes = strings.size_bytes;
  tables.weights_bytes = weights.size_bytes;
  library->run = (cuvil_run_function)run.address;
  library->shapes = (cuvil_shapes_function)dlsym(library->handle, "cuvil_model_shapes");
  return true;
}

int open_file(const char *path, Message message) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) write_message(message, "'%s': cannot be opened: %s", path, strerror(errno));
  return file;
}

cuvil_status open_shared_library(const char *path, int file, Message message, Library *library) {
  // A path without a slash would be looked up in the loader's own directories.
  char *absolute = realpath(path, nullptr);
  if (absolute == nullptr) {
    write_message(message, "'%s': cannot be opened: %s", path, strerror(errno));
    return CUVIL_CANNOT_LOAD;
  }
  const cuvil_status status = open_object({path, file, absolute, nullptr}, message, library);
  free(absolute);
  return status;
}

}  // namespace

cuvil_status open_object(const Object &object, Message message, Library *library) {
  if (!check_file(object.path, object.file, message)) return CUVIL_CANNOT_LOAD;
  library->handle = load(object.path, object.absolute_name, message);
  if (library->handle == nullptr) return CUVIL_CANNOT_LOAD;
  if (find_tables(object, message, library)) return CUVIL_OK;
  close_library(library->handle, {});
  return CUVIL_INVALID_MODEL;
}

cuvil_status open_library(const char *path, Message message, Library *library) {
  const int file = open_file(path, message);
  if (file < 0) return CUVIL_CANNOT_LOAD;
  const cuvil_status status = is_container(file) ? open_container(path, file, message, library)
                                                 : open_shared_library(path, file, message, library);
  close(file);
  return status;
}

cuvil_status verify_library(const char *path, Message message) {
  const int file = open_file(path, message);
  if (file < 0) return CUVIL_CANNOT_LOAD;
  const cuvil_status status = verify_container(path, file, message);
  close(file);
  return status;
}

void close_library(void *handle, const Mapping &mapping) {
  FloatStateKeeper keeper;
  if (handle != nullptr) dlclose(handle);
  if (mapping.address != nullptr) munmap(mapping.address, mapping.size_bytes);
}

}  // namespace cuvil
