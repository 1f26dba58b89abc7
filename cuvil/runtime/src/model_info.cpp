#include "model_info.h"

#include <inttypes.h>
#include <stdlib.h>

namespace cuvil {
namespace {

// Words of cuvil_model_info before the tensor records.
constexpr int64_t kMagicWord = 0;
constexpr int64_t kVersionWord = 1;
constexpr int64_t kTotalWord = 2;
constexpr int64_t kInputsWord = 3;
constexpr int64_t kOutputsWord = 4;
constexpr int64_t kArenaWord = 5;
constexpr int64_t kWeightsWord = 6;
constexpr int64_t kStringsWord = 7;
constexpr int64_t kTargetWord = 8;
constexpr int64_t kNameWord = 9;
constexpr int64_t kFeaturesWord = 10;
constexpr int64_t kVlenWord = 11;
constexpr int64_t kDimensionsWord = 12;
constexpr int64_t kHeaderWords = 13;

// Words of a named dimension, and of a tensor record before its dims.
constexpr int64_t kDimensionWords = 5;
constexpr int64_t kRecordWords = 4;

constexpr int64_t kMaxDimensions = 1024;

constexpr int64_t kMaxTensors = 65536;
constexpr int64_t kMaxRank = 64;
constexpr int64_t kMaxBytes = INT64_C(1) << 47;  // the address space of a process

// Walks the tables; the first thing that is wrong is written to `message` and stops the walk.
struct Reader {
  const char *where;
  const ModelTables &tables;
  Message message;

  int64_t word(int64_t index) const { return tables.info[index]; }

  bool in_range(const char *what, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return true;
    write_message(message, "%s: %s out of range; expected %" PRId64 " to %" PRId64 ", got %" PRId64, where, what, low,
                  high, value);
    return false;
  }

  bool equal(const char *what, int64_t value, int64_t expected) const {
    if (value == expected) return true;
    write_message(message, "%s: %s differs; expected %" PRId64 ", got %" PRId64, where, what, expected, value);
    return false;
  }

  bool identity() const {
    if (tables.info_words < kHeaderWords)
      return in_range("words of the model's tables", tables.info_words, kHeaderWords, INT64_MAX);
    if (word(kMagicWord) != kModelMagic) {
      write_message(message, "%s: no cuvil model; expected magic 0x%" PRIx64 ", got 0x%" PRIx64, where, kModelMagic,
                    (uint64_t)word(kMagicWord));
      return false;
    }
    return equal("ABI version", word(kVersionWord), kModelAbiVersion);
  }

  bool header() const {
    return in_range("word count", word(kTotalWord), kHeaderWords, tables.info_words) &&
           in_range("number of inputs", word(kInputsWord), 0, kMaxTensors) &&
           in_range("number of outputs", word(kOutputsWord), 0, kMaxTensors) &&
           in_range("arena size", word(kArenaWord), 0, kMaxBytes) &&
           in_range("weights size", word(kWeightsWord), 0,
                    tables.weights_bytes < kMaxBytes ? tables.weights_bytes : kMaxBytes) &&
           in_range("strings size", word(kStringsWord), 1, tables.strings_bytes) && strings_end() &&
           weights_aligned() && in_range("number of named dimensions", word(kDimensionsWord), 0, kMaxDimensions) &&
           in_range("words left for named dimensions",
                    word(kTotalWord) - kHeaderWords - word(kDimensionsWord) * kDimensionWords, 0, INT64_MAX);
  }

  // One final NUL ends every string that starts inside.
  bool strings_end() const { return equal("last byte of the strings", tables.strings[word(kStringsWord) - 1], 0); }

  bool weights_aligned() const {
    return equal("address of the weights modulo 64", (int64_t)((uintptr_t)tables.weights % kAlignmentBytes), 0);
  }

  bool runs_here() const {
    char reason[640];
    if (cuvil_machine_check(word(kFeaturesWord), word(kVlenWord), reason, sizeof reason) == CUVIL_OK) return true;
    write_message(message, "%s: %s", where, reason);
    return false;
  }

  bool string(const char *what, int64_t offset, const char **text) const {
    if (!in_range(what, offset, 0, word(kStringsWord) - 1)) return false;
    *text = tables.strings + offset;
    return true;
  }

  bool dimension(int64_t index, Dimension *dimension) const {
    const int64_t *record = tables.info + kHeaderWords + index * kDimensionWords;
    *dimension = {{nullptr, record[1], record[2]}, record[3], record[4]};
    return string("name offset of a dimension", record[0], &dimension->info.name) &&
           in_range("least value of a dimension", record[1], 1, kMaxBytes) &&
           in_range("greatest value of a dimension", record[2], record[1], kMaxBytes) &&
           in_range("input of a dimension", record[3], 0, word(kInputsWord) - 1);
  }

  bool dimensions(const ModelInfo &info) const {
    for (int64_t i = 0; i < info.num_dimensions; ++i)
      if (!dimension(i, &info.dimensions[i])) return false;
    return true;
  }

  // After the tensors: every dimension can be read from the axis of the input that it names.
  bool sources(const ModelInfo &info) const {
    for (int64_t i = 0; i < info.num_dimensions; ++i) {
      const Dimension &dimension = info.dimensions[i];
      const cuvil_tensor_info &input = info.tensors[dimension.input];
      if (!in_range("axis of a dimension", dimension.axis, 0, input.rank - 1) ||
          !in_range("dim that a dimension is read from", input.dims[dimension.axis], INT64_MIN, -1))
        return false;
    }
    return true;
  }

  bool size_matches(const cuvil_tensor_info &tensor) const {
    bool fixed = true;
    int64_t size_bytes = element_size_bytes(tensor.dtype);
    if (size_bytes == 0) {
      write_message(message, "%s: unknown element type; expected a fixed-size ONNX data type, got %" PRId64, where,
                    tensor.dtype);
      return false;
    }
    for (int64_t axis = 0; axis < tensor.rank; ++axis) {
      const int64_t least = word(kDimensionsWord) > 0 ? -word(kStringsWord) : 0;
      if (!in_range("dimension", tensor.dims[axis], least, kMaxBytes)) return false;
      fixed = fixed && tensor.dims[axis] >= 0;
      if (!fixed) continue;
      if (__builtin_mul_overflow(size_bytes, tensor.dims[axis], &size_bytes)) size_bytes = kMaxBytes + 1;
      if (!in_range("tensor size", size_bytes, 0, kMaxBytes)) return false;
    }
    return fixed ? equal("tensor size", tensor.size_bytes, size_bytes)
                 : in_range("tensor size", tensor.size_bytes, 0, kMaxBytes);
  }

  // Reads the record at *next and moves *next behind it.
  bool tensor(int64_t *next, cuvil_tensor_info *tensor) const {
    const int64_t left = word(kTotalWord) - *next - kRecordWords;
    if (!in_range("words left for a tensor's dimensions", left, 0, INT64_MAX)) return false;
    const int64_t *record = tables.info + *next;
    if (!string("name offset of a tensor", record[0], &tensor->name)) return false;
    if (!in_range("rank", record[3], 0, left < kMaxRank ? left : kMaxRank)) return false;
    tensor->dtype = record[1];
    tensor->size_bytes = record[2];
    tensor->rank = record[3];
    tensor->dims = record + kRecordWords;
    *next += kRecordWords + tensor->rank;
    return size_matches(*tensor);
  }

  bool tensors(ModelInfo *info) const {
    int64_t next = kHeaderWords + info->num_dimensions * kDimensionWords;
    for (int64_t i = 0; i < info->num_inputs + info->num_outputs; ++i) {
      if (!tensor(&next, &info->tensors[i])) return false;
      info->num_dims += info->tensors[i].rank;
    }
    return equal("word count", word(kTotalWord), next);
  }
};

}  // namespace

int64_t element_size_bytes(int64_t dtype) {
  // By the numbers of the ONNX TensorProto.DataType; strings (8) and the sub-byte types have no place here.
  static const int64_t sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
  const int64_t known = (int64_t)(sizeof sizes / sizeof sizes[0]);
  return dtype > 0 && dtype < known ? sizes[dtype] : 0;
}

cuvil_status read_model_info(const char *where, const ModelTables &tables, Message message, ModelInfo *info) {
  const Reader reader = {where, tables, message};
  if (!reader.identity() || !reader.header()) return CUVIL_INVALID_MODEL;
  if (!reader.string("offset of the target's name", reader.word(kTargetWord), &info->target) ||
      !reader.string("offset of the model's name", reader.word(kNameWord), &info->name))
    return CUVIL_INVALID_MODEL;
  if (!reader.runs_here()) return CUVIL_WRONG_ISA;
  info->num_inputs = reader.word(kInputsWord);
  info->num_outputs = reader.word(kOutputsWord);
  info->num_dimensions = reader.word(kDimensionsWord);
  info->num_dims = 0;
  info->arena_bytes = reader.word(kArenaWord);
  info->strings = tables.strings;
  info->strings_bytes = reader.word(kStringsWord);
  const int64_t count = info->num_inputs + info->num_outputs;
  info->tensors = (cuvil_tensor_info *)calloc((size_t)count + 1, sizeof(cuvil_tensor_info));
  info->dimensions = (Dimension *)calloc((size_t)info->num_dimensions + 1, sizeof(Dimension));
  cuvil_status status = CUVIL_INVALID_MODEL;
  if (info->tensors == nullptr || info->dimensions == nullptr) {
    write_message(message, "%s: out of memory for %" PRId64 " tensor records", where, count);
    status = CUVIL_OUT_OF_MEMORY;
  } else if (reader.dimensions(*info) && reader.tensors(info) && reader.sources(*info)) {
    return CUVIL_OK;
  }
  free_model_info(info);
  return status;
}

void free_model_info(ModelInfo *info) {
  free(info->tensors);
  free(info->dimensions);
  info->tensors = nullptr;
  info->dimensions = nullptr;
}

}  // namespace cuvil
