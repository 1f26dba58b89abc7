// The caller's buffer for one line that says what went wrong.
#pragma once

#include <stdint.h>

namespace cuvil {

struct Message {
  char *text;  // may be null
  int64_t size;
};

// Writes the line, cut to the buffer's size.
void write_message(Message message, const char *format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace cuvil
