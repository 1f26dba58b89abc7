#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // memfd_create
#endif

#include "container.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32.h"

namespace cuvil {
namespace {

constexpr uint32_t kMaxSections = 4096;
constexpr uint64_t kSectionAlignment = 64;
constexpr uint64_t kWeightsAlignment = 4096;
constexpr unsigned kMemfdCloexec = 0x1, kMemfdNoexecSeal = 0x8;

template <typename T>
bool all_zero(const T *bytes, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i)
    if (bytes[i] != 0) return false;
  return true;
}

// Walks a mapped file; the first thing that is wrong is written to `message` and stops the walk.
struct Reader {
  const char *path;
  Message message;
  const unsigned char *bytes;
  uint64_t size_bytes;

  const ContainerHeader &header() const { return *(const ContainerHeader *)bytes; }
  const ContainerSection *sections() const { return (const ContainerSection *)(bytes + sizeof(ContainerHeader)); }
  uint64_t table_end() const { return sizeof(ContainerHeader) + header().sections * sizeof(ContainerSection); }

  bool damaged(const char *what) const {
    write_message(message, "'%s': damaged: %s", path, what);
    return false;
  }

  bool check_section(uint32_t number, const char *what, bool good) const {
    if (good) return true;
    write_message(message, "'%s': damaged: section %" PRIu32 ": %s", path, number, what);
    return false;
  }

  bool check_identity() const {
    if (size_bytes < sizeof(ContainerHeader) ||
        memcmp(header().magic, kContainerMagic, sizeof header().magic) != 0) {
      write_message(message, "'%s': no .cuv file; expected a header of %zu bytes that starts as theirs do", path,
                    sizeof(ContainerHeader));
      return false;
    }
    if (header().version == kContainerVersion) return true;
    write_message(message, "'%s': has another format version; expected %" PRIu32 ", got %" PRIu32, path,
                  kContainerVersion, header().version);
    return false;
  }

  bool check_size() const {
    if (header().file_bytes == size_bytes) return true;
    write_message(message, "'%s': %s; expected %" PRIu64 " bytes, got %" PRIu64, path,
                  size_bytes < header().file_bytes ? "truncated" : "damaged: has another size", header().file_bytes,
                  size_bytes);
    return false;
  }

  bool check_table() const {
    if (header().sections == 0 || header().sections > kMaxSections || table_end() > size_bytes)
      return damaged("the number of sections is out of range");
    ContainerHeader blank = header();
    blank.crc = 0;
    const uint32_t crc = crc32(crc32(0, &blank, sizeof blank), sections(), table_end() - sizeof blank);
    if (crc != header().crc) return damaged("the checksum of the header and the table differs");
    if (!all_zero(header().reserved, 9)) return damaged("a reserved word is in use");
    uint64_t end = table_end();
    uint32_t counts[4] = {};
    for (uint32_t i = 0; i < header().sections; ++i) {
      if (!check_place(i, end) || !check_record(i)) return false;
      end = sections()[i].offset + sections()[i].size_bytes;
      ++counts[(uint32_t)sections()[i].kind];
    }
    if (end != size_bytes) return damaged("the file goes on behind its last section");
    return (counts[(int)SectionKind::kMetadata] == 1 && counts[(int)SectionKind::kCode] > 0) ||
           damaged("expected one section of metadata and at least one of code");
  }

  // Each section starts at the first aligned place behind the one before, so that none overlaps another.
  bool check_place(uint32_t i, uint64_t end) const {
    const ContainerSection &section = sections()[i];
    const uint64_t alignment = section.kind == SectionKind::kWeights ? kWeightsAlignment : kSectionAlignment;
    const bool follows = section.offset >= end && section.offset - end < alignment && section.offset % alignment == 0;
    return check_section(i, "its offset is not the next after the section before", follows) &&
           check_section(i, "its size is out of range",
                         section.offset < size_bytes && section.size_bytes > 0 &&
                             section.size_bytes <= size_bytes - section.offset) &&
           check_section(i, "the space before it is not empty", all_zero(bytes + end, section.offset - end));
  }

  bool check_record(uint32_t i) const {
    const ContainerSection &section = sections()[i];
    if (!check_section(i, "a reserved word is in use", all_zero(section.reserved, 4))) return false;
    switch (section.kind) {
      case SectionKind::kCode:
        return check_section(i, "the target's name is damaged", is_name(section.target)) &&
               check_section(i, "its weights are no section of weights",
                             section.weights < header().sections &&
                                 sections()[section.weights].kind == SectionKind::kWeights);
      case SectionKind::kMetadata:
      case SectionKind::kWeights:
        return check_section(i, "has words that only code has",
                             section.features == 0 && section.min_vlen_bits == 0 && section.elf_machine == 0 &&
                                 section.weights == 0 && all_zero(section.target, sizeof section.target));
    }
    return check_section(i, "is of no known kind", false);
  }

  static bool is_name(const char (&text)[64]) {
    const size_t length = strnlen(text, sizeof text);
    if (length == 0 || length == sizeof text) return false;
    for (size_t i = 0; i < length; ++i)
      if (text[i] <= ' ' || text[i] > '~') return false;
    return all_zero(text + length, sizeof text - length);
  }

  bool check_content(bool with_weights) const {
    for (uint32_t i = 0; i < header().sections; ++i) {
      const ContainerSection &section = sections()[i];
      if (section.kind == SectionKind::kWeights && !with_weights) continue;
      const uint32_t crc = crc32(0, bytes + section.offset, section.size_bytes);
      if (!check_section(i, "its checksum differs", crc == section.crc)) return false;
    }
    return true;
  }

  cuvil_status check(bool with_weights) const {
    if (!check_identity()) return CUVIL_INVALID_MODEL;
    if (!check_size()) return CUVIL_CANNOT_LOAD;
    return check_table() && check_content(with_weights) ? CUVIL_OK : CUVIL_INVALID_MODEL;
  }
};

// A list of reasons that grows until it is full.
struct Reasons {
  char text[2048] = "";

  void add(const char *target, const char *reason) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s'%s' %s", used == 0 ? "" : "; ", target, reason);
  }
};

// The sections are in the order of preference. On failure the section is null.
cuvil_status choose_code(const Reader &reader, const ContainerSection **chosen) {
  Reasons reasons;
  cuvil_status status = CUVIL_CANNOT_LOAD;
  *chosen = nullptr;
  for (uint32_t i = 0; i < reader.header().sections; ++i) {
    const ContainerSection &section = reader.sections()[i];
    if (section.kind != SectionKind::kCode) continue;
    char reason[640];
    if (section.elf_machine != (uint32_t)kHostMachine) {
      snprintf(reason, sizeof reason, "is for %s", machine_name((int)section.elf_machine));
    } else if (cuvil_machine_check(section.features, section.min_vlen_bits, reason, sizeof reason) == CUVIL_OK) {
      *chosen = &section;
      return CUVIL_OK;
    } else {
      status = CUVIL_WRONG_ISA;
    }
    reasons.add(section.target, reason);
  }
  write_message(reader.message, "'%s': has no code for this machine (%s): %s", reader.path, machine_name(kHostMachine),
                reasons.text);
  return status;
}

bool write_all(int file, const unsigned char *bytes, uint64_t size) {
  while (size > 0) {
    const ssize_t written = write(file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= (uint64_t)written;
  }
  return true;
}

// A file in memory, for the system's loader takes files only. The seal says that it is no program to be executed,
// which hardened systems ask for; kernels before 6.3 don't know it.
int memory_file() {
  const int sealed = memfd_create("cuvil-code", kMemfdCloexec | kMemfdNoexecSeal);
  return sealed >= 0 || errno != EINVAL ? sealed : memfd_create("cuvil-code", kMemfdCloexec);
}

cuvil_status load_code(const Reader &reader, const ContainerSection &code, Library *library) {
  const int file = memory_file();
  if (file < 0 || !write_all(file, reader.bytes + code.offset, code.size_bytes)) {
    write_message(reader.message, "'%s': no file in memory for the code: %s", reader.path, strerror(errno));
    if (file >= 0) close(file);
    return CUVIL_CANNOT_LOAD;
  }
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const ContainerSection &weights = reader.sections()[code.weights];
  const Weights mapped = {reader.bytes + weights.offset, (int64_t)weights.size_bytes};
  const cuvil_status status = open_object({reader.path, file, name, &mapped}, reader.message, library);
  close(file);
  return status;
}

cuvil_status map_file(const char *path, int file, Message message, Mapping *mapping) {
  struct stat status;
  if (fstat(file, &status) != 0 || status.st_size <= 0) {
    write_message(message, "'%s': truncated; expected a .cuv file, got no bytes", path);
    return CUVIL_CANNOT_LOAD;
  }
  void *address = mmap(nullptr, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) {
    write_message(message, "'%s': cannot be mapped: %s", path, strerror(errno));
    return errno == ENOMEM ? CUVIL_OUT_OF_MEMORY : CUVIL_CANNOT_LOAD;
  }
  *mapping = {address, (size_t)status.st_size};
  return CUVIL_OK;
}

Reader reader_of(const char *path, Message message, const Mapping &mapping) {
  return {path, message, (const unsigned char *)mapping.address, mapping.size_bytes};
}

cuvil_status load_mapped(const Reader &reader, Library *library) {
  const ContainerSection *code = nullptr;
  cuvil_status status = reader.check(false);
  if (status == CUVIL_OK) status = choose_code(reader, &code);
  return status == CUVIL_OK ? load_code(reader, *code, library) : status;
}

}  // namespace

bool is_container(int file) {
  char start[sizeof ContainerHeader::magic];
  return pread(file, start, sizeof start, 0) == (ssize_t)sizeof start &&
         memcmp(start, kContainerMagic, sizeof start) == 0;
}

cuvil_status open_container(const char *path, int file, Message message, Library *library) {
  Mapping mapping;
  cuvil_status status = map_file(path, file, message, &mapping);
  if (status != CUVIL_OK) return status;
  status = load_mapped(reader_of(path, message, mapping), library);
  if (status == CUVIL_OK)
    library->mapping = mapping;
  else
    munmap(mapping.address, mapping.size_bytes);
  return status;
}

cuvil_status verify_container(const char *path, int file, Message message) {
  Mapping mapping;
  cuvil_status status = map_file(path, file, message, &mapping);
  if (status != CUVIL_OK) return status;
  status = reader_of(path, message, mapping).check(true);
  munmap(mapping.address, mapping.size_bytes);
  return status;
}

}  // namespace cuvil
