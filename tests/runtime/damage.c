/* Damages a .cuv file in many ways, in memory, and loads each. Usage: damage COMMAND FILE WEIGHTS_AT.
 * What is not as written must be refused, or be noticed by cuvil_file_verify where it is in the weights, which begin
 * at WEIGHTS_AT. Nothing may crash. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuvil/runtime.h"

#define HEADER_BYTES 64
#define RECORD_BYTES 128
#define CRC_AT 24
#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s at byte %zu\n", __FILE__, __LINE__, #condition, where); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static unsigned char *content;
static size_t size, where, weights_at;
static char path[64];
static int file;

static void write_at(size_t offset, const void *bytes, size_t count) {
  CHECK(pwrite(file, bytes, count, (off_t)offset) == (ssize_t)count);
}

/* Whether it loads. The message is one printable line exactly when it does not. */
static int loads(void) {
  char message[4096];
  cuvil_model *model = NULL;
  const cuvil_status status = cuvil_model_load(path, message, (int64_t)sizeof message, &model);
  CHECK((status == CUVIL_OK) == (model != NULL) && (status == CUVIL_OK) == (message[0] == 0));
  for (const char *next = message; *next != 0; ++next) CHECK(*next >= ' ' && *next <= '~');
  cuvil_model_release(model);
  return status == CUVIL_OK;
}

static int verifies(void) {
  char message[4096];
  const cuvil_status status = cuvil_file_verify(path, message, (int64_t)sizeof message);
  CHECK((status == CUVIL_OK) == (message[0] == 0));
  return status == CUVIL_OK;
}

/* Every byte in turn, with one of its bits turned over. */
static void command_flip(void) {
  for (where = 0; where < size; ++where) {
    const unsigned char flipped = (unsigned char)(content[where] ^ 1u << where % 8);
    write_at(where, &flipped, 1);
    CHECK(!verifies());
    CHECK(loads() == (where >= weights_at));
    write_at(where, content + where, 1);
  }
  CHECK(verifies() && loads());
}

/* Every length, and a byte too many. */
static void command_cut(void) {
  for (where = size; where-- > 0;) {
    CHECK(ftruncate(file, (off_t)where) == 0);
    CHECK(!verifies() && !loads());
  }
  write_at(0, content, size);
  CHECK(verifies() && loads());
  write_at(size, "", 1);
  CHECK(!verifies() && !loads());
}

static uint32_t checksum(const unsigned char *bytes, size_t count) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/* Every word of the header and the table takes values that a forger might choose, with a checksum that holds. */
static void command_forge(void) {
  static const uint64_t values[] = {0,         1,         2,          3,           7,         63,        64,
                                    65,        4095,      4096,       UINT32_MAX,  1u << 31,  INT64_MAX, UINT64_MAX,
                                    INT64_MAX, 1ull << 32, 1ull << 63, UINT64_MAX - 63, UINT64_MAX - 4095};
  uint32_t sections;
  memcpy(&sections, content + 12, sizeof sections);
  const size_t table_end = HEADER_BYTES + sections * (size_t)RECORD_BYTES;
  unsigned char *forged = (unsigned char *)malloc(table_end);
  int loaded = 0;
  for (where = 8; where + 8 <= table_end; where += 4) {
    for (size_t i = 0; i < 2 * sizeof values / sizeof values[0]; ++i) {
      const uint64_t value = values[i / 2];
      memcpy(forged, content, table_end);
      memcpy(forged + where, &value, i % 2 ? 8 : 4);
      memset(forged + CRC_AT, 0, 4);
      const uint32_t crc = checksum(forged, table_end);
      memcpy(forged + CRC_AT, &crc, 4);
      write_at(0, forged, table_end);
      loaded += loads();
      verifies();
    }
  }
  CHECK(loaded > 0); /* a value that was there before, at the least: else the checksum would be the only judge */
  free(forged);
}

int main(int count, char **arguments) {
  CHECK(count == 4);
  FILE *source = fopen(arguments[2], "rb");
  CHECK(source != NULL && fseek(source, 0, SEEK_END) == 0);
  size = (size_t)ftell(source);
  weights_at = (size_t)atol(arguments[3]);
  content = (unsigned char *)malloc(size);
  rewind(source);
  CHECK(fread(content, 1, size, source) == size && fclose(source) == 0);
  file = memfd_create("damaged", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  write_at(0, content, size);
  if (strcmp(arguments[1], "flip") == 0) command_flip();
  if (strcmp(arguments[1], "cut") == 0) command_cut();
  if (strcmp(arguments[1], "forge") == 0) command_forge();
  free(content);
  return 0;
}
