// Tensor folders ("cuvil-tensors 1"): a manifest and one raw little-endian file a tensor.
#pragma once

#include "cuvil/runtime.h"
#include "text.h"

namespace runner {

// Reads the folder's tensors into buffers, one for each of the `count` inputs of the model, in their order. Tensors are
// matched by name when the names are the same set, else by order. Buffers are 64-byte aligned, allocated with malloc.
// `inputs` says what the model takes and receives what it gets here; `dimensions` receives the named dimensions.
bool read_tensors(const char *folder, const cuvil_model *model, cuvil_tensor_info *inputs, int64_t count,
                  int64_t *dimensions, void **buffers, Problem *problem);

// The dims of a tensor of this rank, to be filled; null when there is no memory.
int64_t *allocate_dims(int64_t rank);

// Writes a folder under a temporary name and renames it when it is complete. `folder` must not exist.
bool write_tensors(const char *folder, const char *temporary, const cuvil_tensor_info *tensors, int64_t count,
                   void *const *buffers, Problem *problem);

// Removes a tensor folder, if there is one.
bool remove_folder(const char *folder, Problem *problem);

// A buffer for a tensor, zeroed, 64-byte aligned; null when there is no memory.
void *allocate_tensor(const cuvil_tensor_info &tensor);

}  // namespace runner
