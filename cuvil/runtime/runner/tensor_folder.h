// Tensor folders ("cuvil-tensors 1"): a manifest and one raw little-endian file a tensor.
#pragma once

#include "cuvil/runtime.h"
#include "text.h"

namespace runner {

// Reads the folder's tensors into buffers, one for each of the `count` expected inputs, in their order. Tensors are
// matched by name when the names are the same set, else by order. Buffers are 64-byte aligned, allocated with malloc.
bool read_tensors(const char *folder, const cuvil_tensor_info *expected, int64_t count, void **buffers,
                  Problem *problem);

// Writes a folder under a temporary name and renames it when it is complete. `folder` must not exist.
bool write_tensors(const char *folder, const char *temporary, const cuvil_tensor_info *tensors, int64_t count,
                   void *const *buffers, Problem *problem);

// Removes a tensor folder, if there is one.
bool remove_folder(const char *folder, Problem *problem);

// A buffer for a tensor, zeroed, 64-byte aligned; null when there is no memory.
void *allocate_tensor(const cuvil_tensor_info &tensor);

}  // namespace runner
