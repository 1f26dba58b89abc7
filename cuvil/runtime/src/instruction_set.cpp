// What a model's code may use of the processor, compared with what this machine has.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

#include "cuvil/runtime.h"
#include "message.h"

namespace cuvil {
namespace {

// Each feature's place in its table is its bit in the model's description; cuvil/targets/target.py has the same
// order. A table may only grow at its end.

#if defined(__x86_64__)

enum Source { kLeaf1Ecx, kLeaf7Ebx, kExtendedEcx, kSources };

// Which register state the operating system must save for the feature to be usable.
enum State : uint64_t { kNone = 0, kAvx = 0x06, kAvx512 = 0xe6 };

struct Feature {
  const char *name;
  Source source;
  int bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"SSE3", kLeaf1Ecx, 0, kNone},         {"SSSE3", kLeaf1Ecx, 9, kNone},        {"SSE4.1", kLeaf1Ecx, 19, kNone},
    {"SSE4.2", kLeaf1Ecx, 20, kNone},      {"POPCNT", kLeaf1Ecx, 23, kNone},      {"CMPXCHG16B", kLeaf1Ecx, 13, kNone},
    {"LAHF", kExtendedEcx, 0, kNone},      {"AVX", kLeaf1Ecx, 28, kAvx},          {"AVX2", kLeaf7Ebx, 5, kAvx},
    {"BMI1", kLeaf7Ebx, 3, kNone},         {"BMI2", kLeaf7Ebx, 8, kNone},         {"F16C", kLeaf1Ecx, 29, kAvx},
    {"FMA", kLeaf1Ecx, 12, kAvx},          {"LZCNT", kExtendedEcx, 5, kNone},     {"MOVBE", kLeaf1Ecx, 22, kNone},
    {"AVX-512F", kLeaf7Ebx, 16, kAvx512},  {"AVX-512BW", kLeaf7Ebx, 30, kAvx512}, {"AVX-512CD", kLeaf7Ebx, 28, kAvx512},
    {"AVX-512DQ", kLeaf7Ebx, 17, kAvx512}, {"AVX-512VL", kLeaf7Ebx, 31, kAvx512},
};

struct Machine {
  uint32_t words[kSources] = {0, 0, 0};
  uint64_t saved_state = 0;

  Machine() {
    unsigned int a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) words[kLeaf1Ecx] = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) words[kLeaf7Ebx] = b;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) words[kExtendedEcx] = c;
    constexpr uint32_t kOsxsave = 1u << 27;
    if (words[kLeaf1Ecx] & kOsxsave) saved_state = read_saved_state();
  }

  // XCR0. By its code, for the intrinsic needs a compiler flag.
  static uint64_t read_saved_state() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
  }

  bool has(const Feature &feature) const {
    return (words[feature.source] >> feature.bit & 1) != 0 && (saved_state & feature.state) == feature.state;
  }

  int64_t vlen_bits() const { return 0; }
};

#elif defined(__aarch64__)

struct Feature {
  const char *name;
  int bit;  // of AT_HWCAP
  int second_bit;
};

constexpr Feature kFeatures[] = {
    {"Advanced SIMD", 1, 0},  // and FP
    {"CRC32", 7, 7},         {"LSE", 8, 8}, {"RDM", 12, 12}, {"FP16", 9, 10}, {"DotProd", 20, 20}, {"RCPC", 15, 15},
};

struct Machine {
  uint64_t words = getauxval(AT_HWCAP);

  bool has(const Feature &feature) const {
    return (words >> feature.bit & 1) != 0 && (words >> feature.second_bit & 1) != 0;
  }

  int64_t vlen_bits() const { return 0; }
};

#elif defined(__riscv)

struct Feature {
  const char *name;
  char letter;  // its bit in AT_HWCAP is its place in the alphabet
};

constexpr Feature kFeatures[] = {
    {"M (multiplication)", 'm'},   {"A (atomics)", 'a'},    {"F (single precision)", 'f'},
    {"D (double precision)", 'd'}, {"C (compressed)", 'c'}, {"V (vectors)", 'v'},
};

struct Machine {
  uint64_t words = getauxval(AT_HWCAP);

  bool has(const Feature &feature) const { return (words >> (feature.letter - 'a') & 1) != 0; }

  // Only a machine with vectors has the register vlenb, 0xc22.
  int64_t vlen_bits() const {
    if ((words >> ('v' - 'a') & 1) == 0) return 0;
    uint64_t bytes;
    __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes));
    return (int64_t)bytes * 8;
  }
};

#endif

constexpr int kFeatureCount = (int)(sizeof kFeatures / sizeof kFeatures[0]);

// A line that grows until it is full.
struct List {
  char text[512] = "";

  void add(const char *separator, const char *item) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", used == 0 ? "" : separator, item);
  }
};

bool check_unknown(uint64_t required, Message message) {
  if (required >> kFeatureCount == 0) return true;
  write_message(message,
                "needs processor features that this runtime does not know; expected bits below %d, got 0x%" PRIx64,
                kFeatureCount, required);
  return false;
}

bool check_features(const Machine &machine, uint64_t required, Message message) {
  List missing;
  for (int bit = 0; bit < kFeatureCount; ++bit)
    if ((required >> bit & 1) != 0 && !machine.has(kFeatures[bit])) missing.add(", ", kFeatures[bit].name);
  if (missing.text[0] == 0) return true;
  write_message(message, "needs %s, which this machine lacks", missing.text);
  return false;
}

bool check_vlen(int64_t vlen_bits, int64_t min_vlen_bits, Message message) {
  if (min_vlen_bits >= 0 && min_vlen_bits <= vlen_bits) return true;
  write_message(message, "needs vector registers of %" PRId64 " bits or more; this machine's have %" PRId64,
                min_vlen_bits, vlen_bits);
  return false;
}

}  // namespace
}  // namespace cuvil

cuvil_status cuvil_machine_check(int64_t features, int64_t min_vlen_bits, char *message, int64_t message_size) {
  const cuvil::Message to_caller = {message, message_size};
  cuvil::write_message(to_caller, "%s", "");
  const cuvil::Machine machine;
  const bool runs = cuvil::check_unknown((uint64_t)features, to_caller) &&
                    cuvil::check_features(machine, (uint64_t)features, to_caller) &&
                    cuvil::check_vlen(machine.vlen_bits(), min_vlen_bits, to_caller);
  return runs ? CUVIL_OK : CUVIL_WRONG_ISA;
}
