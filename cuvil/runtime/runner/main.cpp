// cuvil-run: runs a compiled model over a folder of cases and writes its outputs; one JSON line a case on stdout.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cases.h"
#include "cuvil/runtime.h"
#include "text.h"

namespace {

using runner::Verdict;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitCannotLoad = 3;
constexpr int kExitWrongIsa = 4;

constexpr char kUsage[] =
    "usage: cuvil-run [--threads N] MODEL CASES_DIR OUT_DIR\n"
    "\n"
    "Runs the model, a .cuv file or a model library, once for every tensor folder in CASES_DIR, each in a process of\n"
    "its own, and writes the outputs to OUT_DIR/<case>/. Prints one JSON line a case.\n"
    "\n"
    "  --threads N   threads for each run (default 1, 0: one for each processor)\n"
    "\n"
    "exit status: 0 all cases ran, 1 a case crashed or failed, 2 usage, 3 the model cannot be loaded,\n"
    "4 this machine lacks instructions that the model needs\n";

struct Options {
  int64_t num_threads;
  const char *operands[3];  // model, cases, outputs
};

int report_usage(const char *what, const char *got) {
  fprintf(stderr, "cuvil-run: %s; got '%s'\nhint: cuvil-run --help\n", what, got);
  return kExitUsage;
}

bool parse_threads(const char *text, int64_t *num_threads) {
  char *end = nullptr;
  *num_threads = strtoll(text, &end, 10);
  return end != text && *end == 0 && *num_threads >= 0 && *num_threads <= 1024;
}

// Returns 0, or the exit status of a usage error that was reported.
int parse_options(int count, char **arguments, Options *options) {
  int operands = 0;
  for (int i = 1; i < count; ++i) {
    if (strcmp(arguments[i], "--threads") == 0) {
      const char *text = i + 1 < count ? arguments[++i] : "";
      if (!parse_threads(text, &options->num_threads))
        return report_usage("--threads: expected a number from 0 to 1024", text);
    } else if (arguments[i][0] == '-') {
      return report_usage("unknown option; expected --threads or --help", arguments[i]);
    } else if (operands == 3) {
      return report_usage("too many operands; expected MODEL CASES_DIR OUT_DIR", arguments[i]);
    } else {
      options->operands[operands++] = arguments[i];
    }
  }
  return operands == 3 ? 0 : report_usage("too few operands; expected MODEL CASES_DIR OUT_DIR", "nothing more");
}

bool make_folders(const char *folder) {
  runner::Path path = runner::path_of("%s", folder);
  for (char *next = path.text + 1; *next != 0; ++next) {
    if (*next != '/') continue;
    *next = 0;
    mkdir(path.text, 0777);
    *next = '/';
  }
  return mkdir(path.text, 0777) == 0 || errno == EEXIST;
}

bool same_folder(const char *left, const char *right) {
  struct stat a, b;
  return stat(left, &a) == 0 && stat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void print_outcome(const char *name, const runner::Outcome &outcome) {
  fputs("{\"case\":", stdout);
  runner::print_json_string(name);
  if (outcome.verdict == Verdict::kOk) fputs(",\"status\":\"ok\"", stdout);
  if (outcome.verdict == Verdict::kCrash) printf(",\"status\":\"crash\",\"signal\":%d", outcome.signal);
  if (outcome.verdict == Verdict::kError) {
    fputs(",\"status\":\"error\",\"message\":", stdout);
    runner::print_json_string(outcome.problem.text);
  }
  fputs("}\n", stdout);
  fflush(stdout);
}

int run_cases(const runner::Run &run) {
  runner::CaseList cases = {nullptr, 0};
  runner::Problem problem;
  if (!runner::list_cases(run.cases_folder, &cases, &problem)) {
    fprintf(stderr, "cuvil-run: %s\n", problem.text);
    return kExitUsage;
  }
  int exit_status = 0;
  for (int64_t i = 0; i < cases.count; ++i) {
    const runner::Outcome outcome = runner::run_case(run, cases.names[i]);
    if (outcome.verdict != Verdict::kOk) exit_status = kExitFailed;
    print_outcome(cases.names[i], outcome);
  }
  runner::free_cases(&cases);
  return exit_status;
}

int run_model(const Options &options) {
  if (!make_folders(options.operands[2])) {
    fprintf(stderr, "cuvil-run: '%s': cannot be created: %s\n", options.operands[2], strerror(errno));
    return kExitUsage;
  }
  if (same_folder(options.operands[1], options.operands[2]))
    return report_usage("CASES_DIR and OUT_DIR must differ", options.operands[2]);
  char message[4096];
  cuvil_model *model = nullptr;
  const cuvil_status status = cuvil_model_load(options.operands[0], message, sizeof message, &model);
  if (status != CUVIL_OK) {
    fprintf(stderr, "cuvil-run: %s\n", message);
    return status == CUVIL_WRONG_ISA ? kExitWrongIsa : kExitCannotLoad;
  }
  const int exit_status = run_cases({model, options.num_threads, options.operands[1], options.operands[2]});
  cuvil_model_release(model);
  return exit_status;
}

}  // namespace

int main(int count, char **arguments) {
  for (int i = 1; i < count; ++i) {
    if (strcmp(arguments[i], "--help") != 0) continue;
    fputs(kUsage, stdout);
    return 0;
  }
  Options options = {1, {nullptr, nullptr, nullptr}};
  const int usage_error = parse_options(count, arguments, &options);
  return usage_error != 0 ? usage_error : run_model(options);
}
