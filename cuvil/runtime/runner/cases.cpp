#include "cases.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor_folder.h"

namespace runner {
namespace {

// The inputs and outputs of a model with a buffer for each.
struct Tensors {
  int64_t count;
  cuvil_tensor_info *infos;
  void **buffers;
};

using TensorQuery = cuvil_status (*)(const cuvil_model *model, int64_t index, cuvil_tensor_info *info);

bool describe(const cuvil_model *model, int64_t count, TensorQuery query, Tensors *tensors, Problem *problem) {
  tensors->count = count;
  tensors->infos = (cuvil_tensor_info *)calloc((size_t)count + 1, sizeof(cuvil_tensor_info));
  tensors->buffers = (void **)calloc((size_t)count + 1, sizeof(void *));
  if (tensors->infos == nullptr || tensors->buffers == nullptr) return fail(problem, "out of memory");
  for (int64_t i = 0; i < count; ++i) query(model, i, &tensors->infos[i]);
  return true;
}

// The outputs in a run with these named dimensions, and memory for them.
bool allocate_outputs(const cuvil_model *model, const int64_t *dimensions, const Tensors &tensors, Problem *problem) {
  for (int64_t i = 0; i < tensors.count; ++i) {
    int64_t *dims = allocate_dims(tensors.infos[i].rank);
    if (cuvil_model_output_at(model, i, dimensions, dims, &tensors.infos[i]) != CUVIL_OK)
      return fail(problem, "out of memory for output '%s'", tensors.infos[i].name);
    tensors.buffers[i] = allocate_tensor(tensors.infos[i]);
    if (tensors.buffers[i] == nullptr) return fail(problem, "out of memory for output '%s'", tensors.infos[i].name);
  }
  return true;
}

bool compute(const Run &run, const int64_t *dimensions, const Tensors &inputs, const Tensors &outputs,
             Problem *problem) {
  // Created here, in the child: threads do not survive a fork.
  cuvil_session *session = nullptr;
  cuvil_status status = cuvil_session_create(run.model, run.num_threads, &session);
  if (status != CUVIL_OK) return fail(problem, "session: %s", cuvil_status_text(status));
  status = cuvil_session_run_bound(session, dimensions, (const void *const *)inputs.buffers, outputs.buffers);
  if (status != CUVIL_OK) return fail(problem, "run: %s", cuvil_status_text(status));
  cuvil_session_release(session);
  return true;
}

Path output_path(const Run &run, const char *name) { return path_of("%s/%s", run.output_folder, name); }

Path temporary_path(const Run &run, const char *name) { return path_of("%s/.%s.partial", run.output_folder, name); }

// The child's work. What it allocates ends with its process.
bool run_in_child(const Run &run, const char *name, Problem *problem) {
  Tensors inputs, outputs;
  const Path folder = path_of("%s/%s", run.cases_folder, name);
  int64_t *dimensions = allocate_dims(cuvil_model_dimension_count(run.model));
  if (dimensions == nullptr) return fail(problem, "out of memory");
  return describe(run.model, cuvil_model_input_count(run.model), cuvil_model_input, &inputs, problem) &&
         describe(run.model, cuvil_model_output_count(run.model), cuvil_model_output, &outputs, problem) &&
         read_tensors(folder.text, run.model, inputs.infos, inputs.count, dimensions, inputs.buffers, problem) &&
         allocate_outputs(run.model, dimensions, outputs, problem) &&
         compute(run, dimensions, inputs, outputs, problem) &&
         write_tensors(output_path(run, name).text, temporary_path(run, name).text, outputs.infos, outputs.count,
                       outputs.buffers, problem);
}

[[noreturn]] void be_child(const Run &run, const char *name, int report) {
  const rlimit no_core = {0, 0};  // a crash is a result here, not an accident to examine
  setrlimit(RLIMIT_CORE, &no_core);
  Problem problem = {};
  if (run_in_child(run, name, &problem)) _exit(0);
  const ssize_t written = write(report, problem.text, strlen(problem.text));
  _exit(written < 0 ? 2 : 1);
}

void read_report(int pipe_end, Problem *problem) {
  size_t used = 0;
  ssize_t got = 0;
  do {
    got = read(pipe_end, problem->text + used, sizeof problem->text - 1 - used);
    if (got > 0) used += (size_t)got;
  } while (got > 0 || (got < 0 && errno == EINTR));
  problem->text[used] = 0;
}

Outcome collect(pid_t child, int pipe_end) {
  Outcome outcome = {Verdict::kError, 0, {}};
  read_report(pipe_end, &outcome.problem);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    outcome.verdict = Verdict::kCrash;
    outcome.signal = WTERMSIG(status);
  } else if (WEXITSTATUS(status) == 0) {
    outcome.verdict = Verdict::kOk;
  } else if (outcome.problem.text[0] == 0) {
    fail(&outcome.problem, "the case's process ended early; expected exit status 0, got %d", WEXITSTATUS(status));
  }
  return outcome;
}

Outcome fork_case(const Run &run, const char *name) {
  Outcome outcome = {Verdict::kError, 0, {}};
  int ends[2];
  if (pipe(ends) != 0) {
    fail(&outcome.problem, "cannot open a pipe: %s", strerror(errno));
    return outcome;
  }
  fflush(nullptr);  // or the child would print the parent's pending text again
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_child(run, name, ends[1]);
  }
  close(ends[1]);
  if (child > 0)
    outcome = collect(child, ends[0]);
  else
    fail(&outcome.problem, "cannot start a process: %s", strerror(errno));
  close(ends[0]);
  return outcome;
}

bool is_folder(const char *parent, const char *name) {
  struct stat status;
  return stat(path_of("%s/%s", parent, name).text, &status) == 0 && S_ISDIR(status.st_mode);
}

bool append(CaseList *cases, const char *name) {
  char **longer = (char **)realloc(cases->names, sizeof(char *) * ((size_t)cases->count + 1));
  if (longer == nullptr) return false;
  cases->names = longer;
  cases->names[cases->count] = strdup(name);
  return cases->names[cases->count++] != nullptr;
}

int compare_names(const void *left, const void *right) { return strcmp(*(char *const *)left, *(char *const *)right); }

}  // namespace

bool list_cases(const char *folder, CaseList *cases, Problem *problem) {
  DIR *directory = opendir(folder);
  if (directory == nullptr) return fail(problem, "'%s': cannot be opened: %s", folder, strerror(errno));
  bool good = true;
  for (const dirent *entry = readdir(directory); entry != nullptr && good; entry = readdir(directory))
    if (entry->d_name[0] != '.' && is_folder(folder, entry->d_name)) good = append(cases, entry->d_name);
  closedir(directory);
  if (!good) return fail(problem, "'%s': out of memory", folder);
  if (cases->count == 0)
    return fail(problem, "'%s': no cases; expected at least one tensor folder inside, got none", folder);
  qsort(cases->names, (size_t)cases->count, sizeof(char *), compare_names);
  return true;
}

void free_cases(CaseList *cases) {
  for (int64_t i = 0; i < cases->count; ++i) free(cases->names[i]);
  free(cases->names);
}

Outcome run_case(const Run &run, const char *name) {
  Outcome outcome = {Verdict::kError, 0, {}};
  const Path temporary = temporary_path(run, name);
  // An older result must not survive a case that fails now.
  if (!remove_folder(output_path(run, name).text, &outcome.problem)) return outcome;
  if (!remove_folder(temporary.text, &outcome.problem)) return outcome;
  outcome = fork_case(run, name);
  Problem ignored;
  if (outcome.verdict != Verdict::kOk) remove_folder(temporary.text, &ignored);
  return outcome;
}

}  // namespace runner
