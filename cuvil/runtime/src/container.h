// A .cuv file: code for several targets, the weights, and a description, in one file that is mapped.
//
// All numbers are little-endian. The file is a header of 64 bytes, a table of `sections` records of 128, and the
// sections, in the table's order, each at the next multiple of 64 (weights: of 4096); what is between them is zero,
// and the last one ends the file.
#pragma once

#include <stdint.h>

#include "cuvil/runtime.h"
#include "library.h"
#include "message.h"

namespace cuvil {

constexpr char kContainerMagic[9] = "\x89" "CUV\r\n\x1a\n";  // what text conversions and 7-bit channels would change
constexpr uint32_t kContainerVersion = 1;

struct ContainerHeader {
  char magic[8];
  uint32_t version;
  uint32_t sections;
  uint64_t file_bytes;
  uint32_t crc;  // of the header, with 0 in this place, and the table
  uint32_t reserved[9];
};

enum class SectionKind : uint32_t { kMetadata = 1, kCode = 2, kWeights = 3 };

struct ContainerSection {
  SectionKind kind;
  uint32_t crc;  // of the section's bytes
  uint64_t offset;
  uint64_t size_bytes;
  // Of code, else zero: what it needs of a machine, and which section has its weights.
  int64_t features;  // as words 10 and 11 of cuvil_model_info
  int64_t min_vlen_bits;
  uint32_t elf_machine;
  uint32_t weights;
  char target[64];  // padded with NUL, one at least
  uint32_t reserved[4];
};

static_assert(sizeof(ContainerHeader) == 64 && sizeof(ContainerSection) == 128, "as in the file");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as in the file");

// Whether an open file starts as .cuv files do.
bool is_container(int file);

// Maps the file, checks all of it but the weights, and loads the first code that this machine runs.
cuvil_status open_container(const char *path, int file, Message message, Library *library);

// Checks all of the file, the weights included.
cuvil_status verify_container(const char *path, int file, Message message);

}  // namespace cuvil
