#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

namespace {

using cuvil::Library;
using cuvil::Message;

cuvil_status make_model(const char *where, const Library &library, Message message, cuvil_model **model) {
  cuvil_model *made = (cuvil_model *)calloc(1, sizeof(cuvil_model));
  if (made == nullptr) {
    cuvil::write_message(message, "%s: out of memory", where);
    return CUVIL_OUT_OF_MEMORY;
  }
  cuvil_status status = cuvil::read_model_info(where, library.tables, message, &made->info);
  if (status == CUVIL_OK && made->info.num_dimensions > 0 && library.shapes == nullptr) {
    cuvil::write_message(message, "%s: has named dimensions; expected the symbol 'cuvil_model_shapes', got none", where);
    cuvil::free_model_info(&made->info);
    status = CUVIL_INVALID_MODEL;
  }
  if (status != CUVIL_OK) {
    free(made);
    return status;
  }
  made->holders = 1;
  made->library = library.handle;
  made->mapping = library.mapping;
  made->weights = library.tables.weights;
  made->run = library.run;
  made->shapes = library.shapes;
  *model = made;
  return CUVIL_OK;
}

cuvil_status copy_tensor(const cuvil_model *model, int64_t first, int64_t count, int64_t index,
                         cuvil_tensor_info *info) {
  if (info == nullptr || index < 0 || index >= count) return CUVIL_INVALID_ARGUMENT;
  *info = model->info.tensors[first + index];
  return CUVIL_OK;
}

}  // namespace

void cuvil::hold_model(cuvil_model *model) { __atomic_fetch_add(&model->holders, 1, __ATOMIC_RELAXED); }

int64_t cuvil_abi_version(void) { return cuvil::kModelAbiVersion; }

const char *cuvil_status_text(cuvil_status status) {
  switch (status) {
    case CUVIL_OK: return "ok";
    case CUVIL_INVALID_ARGUMENT: return "invalid argument";
    case CUVIL_CANNOT_LOAD: return "the model library cannot be loaded";
    case CUVIL_INVALID_MODEL: return "invalid model";
    case CUVIL_OUT_OF_MEMORY: return "out of memory";
    case CUVIL_NO_THREADS: return "the system refused to start a thread";
    case CUVIL_RUN_FAILED: return "the model reported a failure";
    case CUVIL_WRONG_ISA: return "this machine lacks instructions that the model needs";
  }
  return "unknown status";
}

cuvil_status cuvil_model_load(const char *path, char *message, int64_t message_size, cuvil_model **model) {
  const Message to_caller = {message, message_size};
  cuvil::write_message(to_caller, "%s", "");
  if (model != nullptr) *model = nullptr;
  if (path == nullptr || model == nullptr) {
    cuvil::write_message(to_caller, "model: path and model must not be null");
    return CUVIL_INVALID_ARGUMENT;
  }
  Library library;
  cuvil_status status = cuvil::open_library(path, to_caller, &library);
  if (status != CUVIL_OK) return status;
  char where[4200];
  snprintf(where, sizeof where, "'%s'", path);
  status = make_model(where, library, to_caller, model);
  if (status != CUVIL_OK) cuvil::close_library(library.handle, library.mapping);
  return status;
}

cuvil_status cuvil_file_verify(const char *path, char *message, int64_t message_size) {
  const Message to_caller = {message, message_size};
  cuvil::write_message(to_caller, "%s", "");
  if (path != nullptr) return cuvil::verify_library(path, to_caller);
  cuvil::write_message(to_caller, "file: path must not be null");
  return CUVIL_INVALID_ARGUMENT;
}

cuvil_status cuvil_model_attach(const int64_t *info, const char *strings, const void *weights, cuvil_run_function run,
                                cuvil_shapes_function shapes, char *message, int64_t message_size,
                                cuvil_model **model) {
  const Message to_caller = {message, message_size};
  cuvil::write_message(to_caller, "%s", "");
  if (model != nullptr) *model = nullptr;
  if (info == nullptr || strings == nullptr || weights == nullptr || run == nullptr || model == nullptr) {
    cuvil::write_message(to_caller, "attached model: info, strings, weights, run and model must not be null");
    return CUVIL_INVALID_ARGUMENT;
  }
  const Library in_process = {
      nullptr, {info, strings, weights, cuvil::kUnknownSize, cuvil::kUnknownSize, cuvil::kUnknownSize}, run, shapes};
  return make_model("attached model", in_process, to_caller, model);
}

void cuvil_model_release(cuvil_model *model) {
  if (model == nullptr || __atomic_sub_fetch(&model->holders, 1, __ATOMIC_ACQ_REL) != 0) return;
  cuvil::free_model_info(&model->info);
  cuvil::close_library(model->library, model->mapping);
  free(model);
}

const char *cuvil_model_name(const cuvil_model *model) { return model->info.name; }

const char *cuvil_model_target(const cuvil_model *model) { return model->info.target; }

int64_t cuvil_model_input_count(const cuvil_model *model) { return model->info.num_inputs; }

int64_t cuvil_model_output_count(const cuvil_model *model) { return model->info.num_outputs; }

cuvil_status cuvil_model_input(const cuvil_model *model, int64_t index, cuvil_tensor_info *info) {
  return copy_tensor(model, 0, model->info.num_inputs, index, info);
}

cuvil_status cuvil_model_output(const cuvil_model *model, int64_t index, cuvil_tensor_info *info) {
  return copy_tensor(model, model->info.num_inputs, model->info.num_outputs, index, info);
}
