/* Cuvil runtime, C API: loads compiled models and runs them, without Python and without a C++ library.
 *
 *   char message[512];
 *   cuvil_model *model = NULL;
 *   cuvil_session *session = NULL;
 *   if (cuvil_model_load("libmlp.so", message, sizeof message, &model) != CUVIL_OK) { puts(message); exit(1); }
 *   if (cuvil_session_create(model, 2, &session) != CUVIL_OK) { ... }
 *   const void *inputs[] = {pixels};
 *   void *outputs[] = {scores};
 *   if (cuvil_session_run(session, inputs, outputs) != CUVIL_OK) { ... }
 *   cuvil_session_release(session);
 *   cuvil_model_release(model);
 *
 * Numerics: outputs have the same bits on every machine and for every number of threads. A run computes with
 * round-to-nearest, subnormals kept and traps masked, whatever the caller's floating-point state is, and gives
 * that state back unchanged.
 *
 * Threads: a model is immutable and may be shared. A session runs one call at a time: a second caller waits.
 *
 * A model library, ABI version 2, exports five symbols and needs none:
 *   cuvil_model_info      int64_t words: 0 magic, 1 ABI version, 2 number of words, 3 inputs, 4 outputs, 5 most bytes
 *                         of the arena, 6 bytes of the weights, 7 bytes of the strings, 8 offset of the target's name,
 *                         9 offset of the model's name, 10 processor features that the code needs (one bit each, 0 for
 *                         none; unknown ones are refused), 11 least length of a vector register in bits (RISC-V; else
 *                         0), 12 named dimensions; then for each of these: offset of its name, least and greatest
 *                         value, input and axis that a run reads it from; then for each input and each output: offset
 *                         of its name, dtype, most bytes, rank, dims. A dim of -1 - n is the expression whose text has
 *                         the offset n.
 *   cuvil_model_strings   strings, each with its final NUL
 *   cuvil_model_weights   read-only, 64-byte aligned, at least 64 bytes
 *   cuvil_model_run       a cuvil_run_function
 *   cuvil_model_shapes    a cuvil_shapes_function; may be missing where there are no named dimensions
 */
#ifndef CUVIL_RUNTIME_H
#define CUVIL_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* The part between the two markers is read by cffi: declarations only, no macros. */
/* --- cffi begin --- */

typedef enum cuvil_status {
  CUVIL_OK = 0,
  CUVIL_INVALID_ARGUMENT = 1, /* a null or misaligned pointer, an index or a thread count out of range */
  CUVIL_CANNOT_LOAD = 2,      /* the file is missing, truncated, for another machine, or refused by the loader */
  CUVIL_INVALID_MODEL = 3,    /* no model of this ABI or format version, or damaged */
  CUVIL_OUT_OF_MEMORY = 4,
  CUVIL_NO_THREADS = 5, /* the system refused to start a worker thread */
  CUVIL_RUN_FAILED = 6, /* the model reported a failure of its own */
  CUVIL_WRONG_ISA = 7   /* this machine lacks instructions, or a vector length, that the model's code needs */
} cuvil_status;

typedef struct cuvil_model cuvil_model;
typedef struct cuvil_session cuvil_session;

/* What the runtime offers to a model. It may grow at its end: a model compares size_bytes before it uses more. */
typedef struct cuvil_services {
  int64_t size_bytes;
  int64_t version;
  void *context;
  /* Calls body for ranges that together are [0, count), each once, and returns when all are done. Ranges may run
   * at the same time on several threads. grain is the shortest range that is worth a thread. */
  void (*parallel_for)(void *context, void (*body)(void *arguments, int64_t begin, int64_t end), void *arguments,
                       int64_t count, int64_t grain);
} cuvil_services;

/* The entry point of a model. Returns 0 on success. arena: 64-byte aligned scratch of the model's arena_bytes.
 * dimensions: the values of the named dimensions, in the model's order. */
typedef int64_t (*cuvil_run_function)(const cuvil_services *services, const void *weights, const void *const *inputs,
                                      void *const *outputs, void *arena, const int64_t *dimensions);

/* Computes the dims of all inputs and then all outputs, one after the other, from the named dimensions. */
typedef void (*cuvil_shapes_function)(const int64_t *dimensions, int64_t *dims);

/* An input or an output. The pointers are the model's and live as long as it does. */
typedef struct cuvil_tensor_info {
  const char *name;
  int64_t dtype; /* number of the ONNX TensorProto.DataType: 1 float32, 6 int32, 7 int64, 9 bool, 11 float64, ... */
  int64_t rank;
  const int64_t *dims; /* negative for one that named dimensions determine: see cuvil_model_dim_text */
  int64_t size_bytes;  /* where dims are negative, the most that it can be */
} cuvil_tensor_info;

/* A named dimension: one number in all shapes of a run, from minimum to maximum. */
typedef struct cuvil_dimension_info {
  const char *name;
  int64_t minimum;
  int64_t maximum;
} cuvil_dimension_info;

/* The version of the ABI between this runtime and the models that it loads. */
int64_t cuvil_abi_version(void);

/* A short English text for a status. Never null. */
const char *cuvil_status_text(cuvil_status status);

/* Whether this machine can run code that uses these processor features (words 10 and 11 of a model's info). Where it
 * can't, the status is CUVIL_WRONG_ISA and message, where given, says what is missing. Loading a model checks it, too.
 */
cuvil_status cuvil_machine_check(int64_t features, int64_t min_vlen_bits, char *message, int64_t message_size);

/* Loads a model library or a .cuv file; the content tells which. Of a .cuv file, the first code is taken that this
 * machine runs, the weights are used where the file is mapped, and all checksums but those of the weights are checked.
 * On failure *model is null and message, where given, holds one line that says why; at most message_size bytes are
 * written, the final NUL included. */
cuvil_status cuvil_model_load(const char *path, char *message, int64_t message_size, cuvil_model **model);

/* Reads a whole .cuv file and checks all its checksums, those of the weights included. */
cuvil_status cuvil_file_verify(const char *path, char *message, int64_t message_size);

/* Takes a model whose code and tables are in this process already. info, strings, weights and the code must outlive
 * the model and its sessions; weights must be 64-byte aligned; shapes may be null where there are no named dimensions.
 */
cuvil_status cuvil_model_attach(const int64_t *info, const char *strings, const void *weights, cuvil_run_function run,
                                cuvil_shapes_function shapes, char *message, int64_t message_size,
                                cuvil_model **model);

/* Gives up the caller's hold on the model; sessions keep theirs. Null is allowed. */
void cuvil_model_release(cuvil_model *model);

/* The names that the model and its target were compiled under. */
const char *cuvil_model_name(const cuvil_model *model);
const char *cuvil_model_target(const cuvil_model *model);

int64_t cuvil_model_input_count(const cuvil_model *model);
int64_t cuvil_model_output_count(const cuvil_model *model);
cuvil_status cuvil_model_input(const cuvil_model *model, int64_t index, cuvil_tensor_info *info);
cuvil_status cuvil_model_output(const cuvil_model *model, int64_t index, cuvil_tensor_info *info);

/* Named dimensions. A model that has some is bound to the shapes of a run's inputs first, and then run by
 * cuvil_session_run_bound:
 *
 *   int64_t dimensions[2], dims[3];
 *   const int64_t *input_dims[] = {(int64_t[]){4, 24}};
 *   if (cuvil_model_bind(model, input_dims, dimensions, message, sizeof message) != CUVIL_OK) { ... }
 *   cuvil_model_output_at(model, 0, dimensions, dims, &info);  // info.size_bytes for the output's memory
 *   cuvil_session_run_bound(session, dimensions, inputs, outputs);
 */
int64_t cuvil_model_dimension_count(const cuvil_model *model);
cuvil_status cuvil_model_dimension(const cuvil_model *model, int64_t index, cuvil_dimension_info *info);

/* The expression of a negative dim of a tensor's info, such as "2*seq + 1"; null for any other number. */
const char *cuvil_model_dim_text(const cuvil_model *model, int64_t dim);

/* Finds the named dimensions of a run from the dims of its inputs, as many for each as its rank says, and checks
 * every dim. On failure message, where given, holds one line that says what does not fit. */
cuvil_status cuvil_model_bind(const cuvil_model *model, const int64_t *const *input_dims, int64_t *dimensions,
                              char *message, int64_t message_size);

/* An input or output in a run with these dimensions: dims receives as many numbers as its rank says, and info refers
 * to them. */
cuvil_status cuvil_model_input_at(const cuvil_model *model, int64_t index, const int64_t *dimensions, int64_t *dims,
                                  cuvil_tensor_info *info);
cuvil_status cuvil_model_output_at(const cuvil_model *model, int64_t index, const int64_t *dimensions, int64_t *dims,
                                   cuvil_tensor_info *info);

/* Creates a session with an arena and a thread pool of its own. num_threads counts the calling thread: 1 starts no
 * thread; 0 stands for the number of processors that this process may use; at most 1024. */
cuvil_status cuvil_session_create(cuvil_model *model, int64_t num_threads, cuvil_session **session);

/* Stops the session's threads and frees it. No run may be in progress. Null is allowed. */
void cuvil_session_release(cuvil_session *session);

/* Runs the model once. One pointer for each input and output, in the model's order, aligned to the element size, of
 * the tensor's size_bytes; outputs overlap neither inputs nor each other. A process that forked may go on using a
 * session in the child, as long as no run was in progress at the fork. */
cuvil_status cuvil_session_run(cuvil_session *session, const void *const *inputs, void *const *outputs);

/* Runs a model with named dimensions, whose values are as cuvil_model_bind gave them. */
cuvil_status cuvil_session_run_bound(cuvil_session *session, const int64_t *dimensions, const void *const *inputs,
                                     void *const *outputs);

/* How many ranges of parallel loops threads other than the caller have executed since the session was created. */
int64_t cuvil_session_worker_runs(const cuvil_session *session);

/* --- cffi end --- */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
