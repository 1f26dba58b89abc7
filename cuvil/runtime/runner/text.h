// Small text tools of the runner: paths of bounded length and JSON strings.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace runner {

struct Path {
  char text[4096];
};

// Formats a path. Ends the program (usage) when it is longer than the system allows.
Path path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

// One line that says why a case failed.
struct Problem {
  char text[2048];
};

// Formats the problem, cut to its size. Always false, for `return fail(...)`.
bool fail(Problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Prints a quoted JSON string to stdout. Bytes that are no UTF-8 appear as U+FFFD.
void print_json_string(const char *text);

}  // namespace runner
