// Named dimensions: the shapes of a run, from the shapes of its inputs.

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "model.h"

namespace {

using cuvil::Dimension;
using cuvil::Message;
using cuvil::ModelInfo;
using cuvil::write_message;

// The dims of all tensors of the model in a run; to be freed. Null when there is no memory.
int64_t *compute_dims(const cuvil_model *model, const int64_t *dimensions) {
  const ModelInfo &info = model->info;
  int64_t *all = (int64_t *)malloc(((size_t)info.num_dims + 1) * sizeof(int64_t));
  if (all == nullptr) return nullptr;
  int64_t *next = all;
  for (int64_t i = 0; i < info.num_inputs + info.num_outputs; ++i)
    for (int64_t axis = 0; axis < info.tensors[i].rank; ++axis) *next++ = info.tensors[i].dims[axis];
  if (info.num_dimensions > 0) model->shapes(dimensions, all);
  return all;
}

bool within_bounds(const ModelInfo &info, const int64_t *dimensions, Message message) {
  for (int64_t i = 0; i < info.num_dimensions; ++i) {
    const cuvil_dimension_info &bounds = info.dimensions[i].info;
    if (dimensions[i] >= bounds.minimum && dimensions[i] <= bounds.maximum) continue;
    write_message(message, "dimension '%s': out of bounds; expected %" PRId64 " to %" PRId64 ", got %" PRId64,
                  bounds.name, bounds.minimum, bounds.maximum, dimensions[i]);
    return false;
  }
  return true;
}

bool shapes_match(const ModelInfo &info, const int64_t *expected, const int64_t *const *input_dims, Message message) {
  for (int64_t i = 0; i < info.num_inputs; ++i) {
    const cuvil_tensor_info &tensor = info.tensors[i];
    for (int64_t axis = 0; axis < tensor.rank; ++axis, ++expected) {
      const int64_t got = input_dims[i][axis];
      if (got == *expected) continue;
      if (tensor.dims[axis] < 0)
        write_message(message, "input '%s': wrong extent of axis %" PRId64 "; expected %" PRId64 " (%s), got %" PRId64,
                      tensor.name, axis, *expected, info.strings - 1 - tensor.dims[axis], got);
      else
        write_message(message, "input '%s': wrong extent of axis %" PRId64 "; expected %" PRId64 ", got %" PRId64,
                      tensor.name, axis, *expected, got);
      return false;
    }
  }
  return true;
}

cuvil_status describe_at(const cuvil_model *model, int64_t tensor, const int64_t *dimensions, int64_t *dims,
                         cuvil_tensor_info *info) {
  if (dims == nullptr || (dimensions == nullptr && model->info.num_dimensions > 0)) return CUVIL_INVALID_ARGUMENT;
  if (!within_bounds(model->info, dimensions, {nullptr, 0})) return CUVIL_INVALID_ARGUMENT;
  int64_t *all = compute_dims(model, dimensions);
  if (all == nullptr) return CUVIL_OUT_OF_MEMORY;
  const int64_t *own = all;
  for (int64_t i = 0; i < tensor; ++i) own += model->info.tensors[i].rank;
  *info = model->info.tensors[tensor];
  info->size_bytes = cuvil::element_size_bytes(info->dtype);
  for (int64_t axis = 0; axis < info->rank; ++axis) {
    dims[axis] = own[axis];
    info->size_bytes *= own[axis];
  }
  info->dims = dims;
  free(all);
  return CUVIL_OK;
}

}  // namespace

bool cuvil::usable_dimensions(const cuvil_model *model, const int64_t *dimensions) {
  if (model->info.num_dimensions == 0) return true;
  return dimensions != nullptr && within_bounds(model->info, dimensions, {nullptr, 0});
}

int64_t cuvil_model_dimension_count(const cuvil_model *model) { return model->info.num_dimensions; }

cuvil_status cuvil_model_dimension(const cuvil_model *model, int64_t index, cuvil_dimension_info *info) {
  if (info == nullptr || index < 0 || index >= model->info.num_dimensions) return CUVIL_INVALID_ARGUMENT;
  *info = model->info.dimensions[index].info;
  return CUVIL_OK;
}

const char *cuvil_model_dim_text(const cuvil_model *model, int64_t dim) {
  return dim < 0 && dim >= -model->info.strings_bytes ? model->info.strings - 1 - dim : nullptr;
}

cuvil_status cuvil_model_bind(const cuvil_model *model, const int64_t *const *input_dims, int64_t *dimensions,
                              char *message, int64_t message_size) {
  const Message to_caller = {message, message_size};
  write_message(to_caller, "%s", "");
  if (model == nullptr || (input_dims == nullptr && model->info.num_inputs > 0) ||
      (dimensions == nullptr && model->info.num_dimensions > 0)) {
    write_message(to_caller, "model, input_dims and dimensions must not be null");
    return CUVIL_INVALID_ARGUMENT;
  }
  const ModelInfo &info = model->info;
  for (int64_t i = 0; i < info.num_dimensions; ++i)
    dimensions[i] = input_dims[info.dimensions[i].input][info.dimensions[i].axis];
  if (!within_bounds(info, dimensions, to_caller)) return CUVIL_INVALID_ARGUMENT;
  int64_t *all = compute_dims(model, dimensions);
  if (all == nullptr) {
    write_message(to_caller, "out of memory for %" PRId64 " dims", info.num_dims);
    return CUVIL_OUT_OF_MEMORY;
  }
  const bool good = shapes_match(info, all, input_dims, to_caller);
  free(all);
  return good ? CUVIL_OK : CUVIL_INVALID_ARGUMENT;
}

cuvil_status cuvil_model_input_at(const cuvil_model *model, int64_t index, const int64_t *dimensions, int64_t *dims,
                                  cuvil_tensor_info *info) {
  if (info == nullptr || index < 0 || index >= model->info.num_inputs) return CUVIL_INVALID_ARGUMENT;
  return describe_at(model, index, dimensions, dims, info);
}

cuvil_status cuvil_model_output_at(const cuvil_model *model, int64_t index, const int64_t *dimensions, int64_t *dims,
                                   cuvil_tensor_info *info) {
  if (info == nullptr || index < 0 || index >= model->info.num_outputs) return CUVIL_INVALID_ARGUMENT;
  return describe_at(model, model->info.num_inputs + index, dimensions, dims, info);
}
