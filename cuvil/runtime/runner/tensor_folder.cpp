#include "tensor_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace runner {
namespace {

constexpr int64_t kMaxRank = 64;
constexpr int64_t kMaxManifestBytes = 1 << 24;

struct DtypeName {
  int64_t dtype;  // of ONNX
  const char *name;
};

constexpr DtypeName kDtypes[] = {
    {1, "float32"}, {2, "uint8"},    {3, "int8"},     {4, "uint16"},  {5, "int16"},   {6, "int32"},     {7, "int64"},
    {9, "bool"},    {10, "float16"}, {11, "float64"}, {12, "uint32"}, {13, "uint64"}, {16, "bfloat16"},
};

// One line of a manifest; the texts point into the manifest.
struct Entry {
  const char *dtype;
  int64_t rank;
  int64_t dims[kMaxRank];
  const char *file;
  const char *name;
};

struct Manifest {
  char *text;
  Entry *entries;
  int64_t count;
};

const char *dtype_name(int64_t dtype) {
  for (const DtypeName &known : kDtypes)
    if (known.dtype == dtype) return known.name;
  return "unknown";
}

char *read_text(const char *path, Problem *problem) {
  FILE *file = fopen(path, "rb");
  struct stat status;
  if (file == nullptr || fstat(fileno(file), &status) != 0 || status.st_size > kMaxManifestBytes) {
    fail(problem, "'%s': cannot be read: %s", path, file == nullptr ? strerror(errno) : "not a manifest");
    if (file != nullptr) fclose(file);
    return nullptr;
  }
  char *text = (char *)calloc((size_t)status.st_size + 1, 1);
  if (text != nullptr && fread(text, 1, (size_t)status.st_size, file) != (size_t)status.st_size) {
    free(text);
    text = nullptr;
  }
  if (text == nullptr) fail(problem, "'%s': cannot be read", path);
  fclose(file);
  return text;
}

// Cuts the text at the next `end` and moves *rest behind it. Null when there is no text left.
char *cut(char **rest, char end) {
  char *start = *rest;
  if (start == nullptr || *start == 0) return nullptr;
  char *stop = strchr(start, end);
  *rest = stop == nullptr ? start + strlen(start) : stop + 1;
  if (stop != nullptr) *stop = 0;
  return start;
}

bool cut_number(char **rest, int64_t *number) {
  const char *text = cut(rest, ' ');
  if (text == nullptr || *text < '0' || *text > '9') return false;
  char *end = nullptr;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return errno == 0 && *end == 0;
}

bool parse_entry(char *line, Entry *entry) {
  const char *keyword = cut(&line, ' ');
  if (keyword == nullptr || strcmp(keyword, "tensor") != 0) return false;
  entry->dtype = cut(&line, ' ');
  if (entry->dtype == nullptr || !cut_number(&line, &entry->rank) || entry->rank > kMaxRank) return false;
  for (int64_t axis = 0; axis < entry->rank; ++axis)
    if (!cut_number(&line, &entry->dims[axis])) return false;
  entry->file = cut(&line, ' ');
  entry->name = line;
  // A file of the folder itself: a manifest can't reach elsewhere.
  return entry->file != nullptr && *entry->file != 0 && strchr(entry->file, '/') == nullptr;
}

int64_t count_lines(const char *text) {
  int64_t count = 1;
  for (; *text != 0; ++text) count += *text == '\n';
  return count;
}

void free_manifest(Manifest *manifest) {
  free(manifest->text);
  free(manifest->entries);
}

bool read_manifest(const char *path, Manifest *manifest, Problem *problem) {
  manifest->text = read_text(path, problem);
  if (manifest->text == nullptr) return false;
  manifest->entries = (Entry *)calloc((size_t)count_lines(manifest->text), sizeof(Entry));
  if (manifest->entries == nullptr) return fail(problem, "'%s': out of memory", path);
  char *rest = manifest->text;
  const char *first = cut(&rest, '\n');
  if (first == nullptr || strcmp(first, "cuvil-tensors 1") != 0)
    return fail(problem, "'%s': no tensor folder; expected first line 'cuvil-tensors 1', got '%.80s'", path,
                first == nullptr ? "" : first);
  for (char *line = cut(&rest, '\n'); line != nullptr; line = cut(&rest, '\n')) {
    if (*line == 0) continue;
    if (!parse_entry(line, &manifest->entries[manifest->count++]))
      return fail(problem, "'%s': line %" PRId64 " is damaged; expected 'tensor <dtype> <rank> <dims> <file> <name>'",
                  path, manifest->count + 1);
  }
  return true;
}

int64_t find_by_name(const Manifest &manifest, const char *name) {
  for (int64_t i = 0; i < manifest.count; ++i)
    if (strcmp(manifest.entries[i].name, name) == 0) return i;
  return -1;
}

bool all_names_match(const Manifest &manifest, const cuvil_tensor_info *expected, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (find_by_name(manifest, expected[i].name) < 0) return false;
  return true;
}

void format_shape(char *text, size_t size, const cuvil_model *model, const int64_t *dims, int64_t rank) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int64_t axis = 0; axis < rank && used < size; ++axis) {
    const char *comma = axis == 0 ? "" : ", ";
    const char *named = cuvil_model_dim_text(model, dims[axis]);
    used += (size_t)(named != nullptr ? snprintf(text + used, size - used, "%s%s", comma, named)
                                      : snprintf(text + used, size - used, "%s%" PRId64, comma, dims[axis]));
  }
  if (used < size) snprintf(text + used, size - used, "]");
}

// Whether a fixed part of the shape differs; named dimensions are checked all together.
bool differs(const Entry &entry, const cuvil_tensor_info &expected) {
  if (entry.rank != expected.rank) return true;
  for (int64_t axis = 0; axis < expected.rank; ++axis)
    if (expected.dims[axis] >= 0 && entry.dims[axis] != expected.dims[axis]) return true;
  return false;
}

bool check_type(const char *folder, const cuvil_model *model, const Entry &entry, const cuvil_tensor_info &expected,
                Problem *problem) {
  const char *dtype = dtype_name(expected.dtype);
  if (strcmp(entry.dtype, dtype) != 0)
    return fail(problem, "'%s': input '%s': wrong dtype; expected %s, got %s", folder, expected.name, dtype,
                entry.dtype);
  if (!differs(entry, expected)) return true;
  char wanted[256], found[256];
  format_shape(wanted, sizeof wanted, model, expected.dims, expected.rank);
  format_shape(found, sizeof found, model, entry.dims, entry.rank);
  return fail(problem, "'%s': input '%s': wrong shape; expected %s, got %s", folder, expected.name, wanted, found);
}

bool read_data(const char *path, const cuvil_tensor_info &expected, void *buffer, Problem *problem) {
  FILE *file = fopen(path, "rb");
  if (file == nullptr) return fail(problem, "'%s': cannot be read: %s", path, strerror(errno));
  struct stat status;
  const bool known = fstat(fileno(file), &status) == 0;
  const bool good = known && status.st_size == expected.size_bytes &&
                    fread(buffer, 1, (size_t)expected.size_bytes, file) == (size_t)expected.size_bytes;
  fclose(file);
  if (good) return true;
  return fail(problem, "'%s': wrong size of input '%s'; expected %" PRId64 " bytes, got %lld", path, expected.name,
              expected.size_bytes, known ? (long long)status.st_size : 0LL);
}

bool read_entry(const char *folder, const Entry &entry, const cuvil_tensor_info &expected, void **buffer,
                Problem *problem) {
  *buffer = allocate_tensor(expected);
  if (*buffer == nullptr) return fail(problem, "'%s': out of memory for input '%s'", folder, expected.name);
  return read_data(path_of("%s/%s", folder, entry.file).text, expected, *buffer, problem);
}

// Finds the named dimensions from the extents of the entries, and with them what the inputs are in this run.
bool bind(const char *folder, const cuvil_model *model, const Entry *const *entries, int64_t count,
          cuvil_tensor_info *inputs, int64_t *dimensions, Problem *problem) {
  const int64_t **dims = (const int64_t **)calloc((size_t)count + 1, sizeof(int64_t *));
  if (dims == nullptr) return fail(problem, "'%s': out of memory", folder);
  for (int64_t i = 0; i < count; ++i) dims[i] = entries[i]->dims;
  char message[512];
  bool good = cuvil_model_bind(model, dims, dimensions, message, sizeof message) == CUVIL_OK ||
              fail(problem, "'%s': %s", folder, message);
  free(dims);
  for (int64_t i = 0; i < count && good; ++i)
    good = cuvil_model_input_at(model, i, dimensions, allocate_dims(inputs[i].rank), &inputs[i]) == CUVIL_OK ||
           fail(problem, "'%s': out of memory", folder);
  return good;
}

// Reads the matched entries, one for each input.
bool read_entries(const char *folder, const cuvil_model *model, const Entry *const *entries, int64_t count,
                  cuvil_tensor_info *inputs, int64_t *dimensions, void **buffers, Problem *problem) {
  for (int64_t i = 0; i < count; ++i)
    if (!check_type(folder, model, *entries[i], inputs[i], problem)) return false;
  if (!bind(folder, model, entries, count, inputs, dimensions, problem)) return false;
  for (int64_t i = 0; i < count; ++i)
    if (!read_entry(folder, *entries[i], inputs[i], &buffers[i], problem)) return false;
  return true;
}

bool close_written(FILE *file, bool good, const char *path, Problem *problem) {
  good = fclose(file) == 0 && good;
  return good || fail(problem, "'%s': cannot be written: %s", path, strerror(errno));
}

bool write_data(const char *path, const void *data, int64_t size_bytes, Problem *problem) {
  FILE *file = fopen(path, "wb");
  if (file == nullptr) return fail(problem, "'%s': cannot be created: %s", path, strerror(errno));
  return close_written(file, fwrite(data, 1, (size_t)size_bytes, file) == (size_t)size_bytes, path, problem);
}

bool write_manifest(const char *path, const cuvil_tensor_info *tensors, int64_t count, Problem *problem) {
  FILE *file = fopen(path, "wb");
  if (file == nullptr) return fail(problem, "'%s': cannot be created: %s", path, strerror(errno));
  fprintf(file, "cuvil-tensors 1\n");
  for (int64_t i = 0; i < count; ++i) {
    fprintf(file, "tensor %s %" PRId64, dtype_name(tensors[i].dtype), tensors[i].rank);
    for (int64_t axis = 0; axis < tensors[i].rank; ++axis) fprintf(file, " %" PRId64, tensors[i].dims[axis]);
    fprintf(file, " %" PRId64 ".bin %s\n", i, tensors[i].name);
  }
  return close_written(file, ferror(file) == 0, path, problem);
}

bool fill_folder(const char *folder, const cuvil_tensor_info *tensors, int64_t count, void *const *buffers,
                 Problem *problem) {
  for (int64_t i = 0; i < count; ++i) {
    if (strchr(tensors[i].name, '\n') != nullptr)
      return fail(problem, "output %" PRId64 ": the name holds a line break, which a manifest cannot", i);
    const Path path = path_of("%s/%" PRId64 ".bin", folder, i);
    if (!write_data(path.text, buffers[i], tensors[i].size_bytes, problem)) return false;
  }
  return write_manifest(path_of("%s/manifest.txt", folder).text, tensors, count, problem);
}

bool is_tensor_file(const char *name) {
  const size_t length = strlen(name);
  return strcmp(name, "manifest.txt") == 0 || (length > 4 && strcmp(name + length - 4, ".bin") == 0);
}

}  // namespace

void *allocate_tensor(const cuvil_tensor_info &tensor) {
  const size_t size_bytes = ((size_t)tensor.size_bytes / 64 + 1) * 64;
  void *buffer = aligned_alloc(64, size_bytes);
  if (buffer != nullptr) memset(buffer, 0, size_bytes);
  return buffer;
}

int64_t *allocate_dims(int64_t rank) { return (int64_t *)calloc((size_t)rank + 1, sizeof(int64_t)); }

bool read_tensors(const char *folder, const cuvil_model *model, cuvil_tensor_info *inputs, int64_t count,
                  int64_t *dimensions, void **buffers, Problem *problem) {
  Manifest manifest = {nullptr, nullptr, 0};
  bool good = read_manifest(path_of("%s/manifest.txt", folder).text, &manifest, problem);
  if (good && manifest.count != count)
    good = fail(problem, "'%s': wrong number of inputs; expected %" PRId64 ", got %" PRId64, folder, count,
                manifest.count);
  const Entry **matched = (const Entry **)calloc((size_t)count + 1, sizeof(Entry *));
  if (good && matched == nullptr) good = fail(problem, "'%s': out of memory", folder);
  const bool by_name = good && all_names_match(manifest, inputs, count);
  for (int64_t i = 0; i < count && good; ++i)
    matched[i] = &manifest.entries[by_name ? find_by_name(manifest, inputs[i].name) : i];
  good = good && read_entries(folder, model, matched, count, inputs, dimensions, buffers, problem);
  free(matched);
  free_manifest(&manifest);
  return good;
}

bool write_tensors(const char *folder, const char *temporary, const cuvil_tensor_info *tensors, int64_t count,
                   void *const *buffers, Problem *problem) {
  if (mkdir(temporary, 0777) != 0) return fail(problem, "'%s': cannot be created: %s", temporary, strerror(errno));
  if (!fill_folder(temporary, tensors, count, buffers, problem)) return false;
  return rename(temporary, folder) == 0 || fail(problem, "'%s': cannot be renamed: %s", folder, strerror(errno));
}

// Only what a tensor folder holds is removed; a folder with anything else in it then stays, and that is reported.
bool remove_folder(const char *folder, Problem *problem) {
  DIR *directory = opendir(folder);
  if (directory == nullptr)
    return errno == ENOENT || fail(problem, "'%s': cannot be opened: %s", folder, strerror(errno));
  for (const dirent *entry = readdir(directory); entry != nullptr; entry = readdir(directory))
    if (is_tensor_file(entry->d_name)) unlink(path_of("%s/%s", folder, entry->d_name).text);
  closedir(directory);
  return rmdir(folder) == 0 || fail(problem, "'%s': cannot be replaced: %s", folder, strerror(errno));
}

}  // namespace runner
