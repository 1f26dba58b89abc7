#include "crc32.h"

#include <string.h>

namespace cuvil {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;  // reflected
constexpr int kSlices = 8;

// rows[i][b]: the checksum of the byte b with i zero bytes behind it, so that eight bytes take eight independent
// lookups.
struct Tables {
  uint32_t rows[kSlices][256] = {};

  constexpr Tables() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
      rows[0][byte] = crc;
    }
    for (int i = 1; i < kSlices; ++i)
      for (int byte = 0; byte < 256; ++byte)
        rows[i][byte] = rows[i - 1][byte] >> 8 ^ rows[0][rows[i - 1][byte] & 0xff];
  }
};

constexpr Tables kTables;

}  // namespace

uint32_t crc32(uint32_t crc, const void *data, size_t size) {
  const unsigned char *next = (const unsigned char *)data;
  crc = ~crc;
  for (; size >= kSlices; size -= kSlices, next += kSlices) {
    uint64_t word;
    memcpy(&word, next, sizeof word);
    word ^= crc;
    crc = 0;
    for (int i = 0; i < kSlices; ++i) crc ^= kTables.rows[kSlices - 1 - i][word >> (8 * i) & 0xff];
  }
  for (; size > 0; --size, ++next) crc = crc >> 8 ^ kTables.rows[0][(crc ^ *next) & 0xff];
  return ~crc;
}

}  // namespace cuvil
