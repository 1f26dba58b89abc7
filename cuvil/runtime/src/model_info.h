// The tables of a model library, read defensively: nothing in them is believed before it was checked.
#pragma once

#include <stdint.h>

#include "cuvil/runtime.h"
#include "message.h"

namespace cuvil {

constexpr int64_t kModelMagic = 0x4c49565543;  // the bytes "CUVIL" in memory
constexpr int64_t kModelAbiVersion = 2;
constexpr uintptr_t kAlignmentBytes = 64;  // of weights and arena

// What the symbol table says about the sizes of the tables; kUnknownSize where there is no symbol table.
constexpr int64_t kUnknownSize = INT64_MAX;

struct ModelTables {
  const int64_t *info;
  const char *strings;
  const void *weights;
  int64_t info_words;
  int64_t strings_bytes;
  int64_t weights_bytes;
};

// A named dimension, and where a run reads its value.
struct Dimension {
  cuvil_dimension_info info;
  int64_t input;
  int64_t axis;
};

struct ModelInfo {
  const char *name;
  const char *target;
  const char *strings;
  int64_t strings_bytes;
  int64_t num_inputs;
  int64_t num_outputs;
  int64_t num_dimensions;
  int64_t num_dims;  // of all tensors together
  int64_t arena_bytes;
  cuvil_tensor_info *tensors;  // the inputs, then the outputs; allocated with malloc
  Dimension *dimensions;       // allocated with malloc
};

// Size of an element of an ONNX data type in bytes, 0 for a type that models can't have.
int64_t element_size_bytes(int64_t dtype);

// Checks the tables and fills `info`. `where` names the model in messages. On failure nothing stays allocated.
cuvil_status read_model_info(const char *where, const ModelTables &tables, Message message, ModelInfo *info);

void free_model_info(ModelInfo *info);

}  // namespace cuvil
