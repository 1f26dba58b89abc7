// The checksum of .cuv files: CRC-32 as of zlib and Python's zlib.crc32, which finds every damage within four bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace cuvil {

// Continues the checksum `crc`, 0 at the start, over `size` more bytes.
uint32_t crc32(uint32_t crc, const void *data, size_t size);

}  // namespace cuvil
