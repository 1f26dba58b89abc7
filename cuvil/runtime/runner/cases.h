// A folder of cases, and one case run in a process of its own.
#pragma once

#include <stdint.h>

#include "cuvil/runtime.h"
#include "text.h"

namespace runner {

struct CaseList {
  char **names;  // sorted by their bytes
  int64_t count;
};

// The sub-folders of a folder. Names that begin with a dot are left out.
bool list_cases(const char *folder, CaseList *cases, Problem *problem);
void free_cases(CaseList *cases);

struct Run {
  cuvil_model *model;
  int64_t num_threads;
  const char *cases_folder;
  const char *output_folder;
};

enum class Verdict { kOk, kCrash, kError };

struct Outcome {
  Verdict verdict;
  int signal;       // for kCrash
  Problem problem;  // for kError
};

// Runs one case in a forked child, so that a crash costs this case alone.
Outcome run_case(const Run &run, const char *name);

}  // namespace runner
