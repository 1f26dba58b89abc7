#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace runner {
namespace {

// Length of the well-formed UTF-8 sequence at `text`, 0 when there is none (RFC 3629: shortest form, no surrogates).
int utf8_length(const unsigned char *text) {
  const unsigned char lead = text[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (int i = 1; i < length; ++i)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f)) return 0;
  if ((lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f)) return 0;
  return length;
}

void print_ascii(unsigned char character) {
  if (character == '"' || character == '\\')
    printf("\\%c", character);
  else if (character < 0x20 || character == 0x7f)
    printf("\\u%04x", character);
  else
    putchar(character);
}

}  // namespace

Path path_of(const char *format, ...) {
  Path path;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(path.text, sizeof path.text, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof path.text) return path;
  fprintf(stderr, "cuvil-run: path too long; expected fewer than %zu bytes, got %d: %.80s...\n", sizeof path.text,
          length, path.text);
  exit(2);
}

bool fail(Problem *problem, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem->text, sizeof problem->text, format, arguments);
  va_end(arguments);
  return false;
}

void print_json_string(const char *text) {
  const unsigned char *next = (const unsigned char *)text;
  putchar('"');
  while (*next != 0) {
    const int length = utf8_length(next);
    if (length == 0) fputs("\\ufffd", stdout);
    if (length == 1) print_ascii(*next);
    if (length > 1) fwrite(next, 1, (size_t)length, stdout);
    next += length == 0 ? 1 : length;
  }
  putchar('"');
}

}  // namespace runner
