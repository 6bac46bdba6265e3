// Reads numbers of raw bit patterns, and holds every kernel of the division family, on every SIMD
// target, against the oracle in wide arithmetic: values and gradients within their bounds, hits
// exactly, the same bits on targets that are alike, in every layout, and no bit of a regular
// element changed by a policy.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bytes.h"
#include "cases/division_complex.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

struct Input {
  Rows g, a, b;
  DivisionTrial trial;
  bool has_dividend = true;

  bool complex() const { return b.length == 2; }
  Inputs operands() const {
    const bool divides = has_divisor(trial.kind);
    const Rows* const dividend = has_dividend && divides ? &a : nullptr;
    if (trial.backward) return {&g, &b, dividend};
    return divides ? Inputs{dividend, &b, nullptr} : Inputs{&b, nullptr, nullptr};
  }
};

/// A divisor often equals eps, and equality is where a threshold can err.
std::optional<double> read_eps(Bytes& bytes, const Rows& b) {
  constexpr double kUsual[] = {0.0, 1e-12, 1e-3, 1.0, 3e4};
  switch (bytes.below(4)) {
    case 0:
      return std::nullopt;
    case 1:
      return kUsual[bytes.below(std::size(kUsual))];
    case 2:
      return std::fabs(b.at(0, 0));
    default:
      return std::fabs(decode(Element::float64, bytes.word(8)));
  }
}

Rows turned(const Rows& rows, std::size_t turn) {
  Rows result = rows;
  std::rotate(result.bits.begin(),
              result.bits.begin() + static_cast<std::ptrdiff_t>(turn % result.bits.size()),
              result.bits.end());
  return result;
}

Input read(Bytes& bytes) {
  constexpr std::size_t kLong[] = {63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 513, 700};
  Input input;
  DivisionTrial& trial = input.trial;
  const std::size_t type = bytes.below(6);
  const std::size_t parts = type < 4 ? 1 : 2;
  const Element element = kElements[type < 4 ? type : type - 2];
  trial.kind = parts == 1 ? kDivisionKinds[bytes.below(6)] : kComplexKinds[bytes.below(4)];
  trial.policy = kAllPolicies[bytes.below(5)];
  trial.backward = bytes.below(2) == 1;
  const std::size_t way = bytes.below(64), shape = bytes.below(256);
  const std::size_t count = shape < 240 ? 1 + shape % 40 : kLong[shape % std::size(kLong)];
  const std::size_t turn = 1 + bytes.below(255);
  // With one operand moved the same patterns meet in other pairs: fewer bytes reach further.
  const bool own_dividend = bytes.below(2) == 1;
  trial.eps = std::nullopt;
  const std::size_t eps_first = bytes.below(2);
  if (eps_first == 0) input.b = read_rows(bytes, element, count, parts);
  if (eps_first == 1) {
    Rows head(element, 1, 1);
    head.bits[0] = bytes.word(format(element).bytes);
    trial.eps = read_eps(bytes, head);
    input.b = read_rows(bytes, element, count, parts);
    input.b.bits[count / 2 * parts] = head.bits[0];
  }
  input.a = own_dividend ? read_rows(bytes, element, count, parts) : turned(input.b, turn);
  if (own_dividend && bytes.empty()) input.a = turned(input.b, turn);
  input.g = turned(input.a, turn / 2 + 1);
  if (way % 2 == 1) {
    input.has_dividend = false;
    trial.wanted[1] = !trial.backward;
    trial.number[0] = trial.backward ? 1 : static_cast<double>(turn) - 100;
  }
  trial.streams = way / 2 % 2 == 1;
  if (way / 4 % 2 == 1 && count % 4 == 0) trial.sizes = Dims{4, count / 4};
  trial.input[0].step = 1 + way / 8 % 2;
  trial.output[0].shift = way / 16 % 2;
  trial.output[1].step = 1 + way / 32 % 2;
  for (Placement* placement :
       {&trial.input[0], &trial.input[1], &trial.input[2], &trial.output[0], &trial.output[1]})
    placement->guard = 0;
  return input;
}

bool is_refused(const DivisionTrial& trial, Element element) {
  const AtFloor at_floor = has_divisor(trial.kind)             ? AtFloor::reciprocal
                           : trial.kind == DivisionKind::rsqrt ? AtFloor::reciprocal_root
                                                               : AtFloor::finite;
  return resolve_eps(trial.policy, trial.eps, 0, element, at_floor).refusal !=
         ResolvedEps::Refusal::none;
}

Report check(const Input& input, const DivisionOutcome& outcome) {
  return input.complex() ? check_complex(input.operands(), outcome, input.trial)
                         : check_division(input.operands(), outcome, input.trial);
}

/// Every kernel, the oracle asked once per distinct outcome.
void check_kernels(const Input& input) {
  std::vector<std::pair<bool, DivisionOutcome>> seen;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    const bool fused = std::string(target_name(target)).rfind("AVX", 0) == 0;
    const DivisionOutcome outcome = divide(input.operands(), input.trial);
    bool known = false;
    for (const auto& [earlier_fused, earlier] : seen) {
      const std::string differs = difference(outcome, earlier);
      known |= differs.empty();
      if (fused == earlier_fused && !differs.empty())
        stop(target_name(target), "not the bits of another target: " + differs);
    }
    if (known) continue;
    const Report report = check(input, outcome);
    if (!report.good()) stop(target_name(target), report.failure);
    seen.emplace_back(fused, outcome);
  }
  use_target(0);
}

/// Elements that hit nothing under either call, found one by one.
bool is_regular(const DivisionTrial& trial, const Input& input, std::size_t row) {
  const Element element = input.b.element;
  const double threshold = threshold_of(trial, element);
  const Inputs inputs = input.operands();
  const std::size_t dividend = trial.backward ? 2 : 0;
  if (input.complex()) {
    const auto a = has_divisor(trial.kind) ? detail::complex_at<Wide>(inputs, dividend, row, trial)
                                           : ComplexNumber<Wide>();
    return !complex_condition(trial.kind, a, ComplexNumber<Wide>(input.b, row), threshold);
  }
  const double b = input.b.at(row, 0);
  if (!has_divisor(trial.kind)) return !condition_of_argument(b, threshold);
  return !condition_of_quotient(input_at(inputs, dividend, row, trial), b, threshold);
}

void check_invariance(const Input& input) {
  const DivisionOutcome reference = divide(input.operands(), input.trial);
  for (const Policy policy : kAllPolicies) {
    DivisionTrial trial = input.trial;
    trial.policy = policy;
    if (policy == input.trial.policy || is_refused(trial, input.b.element)) continue;
    const DivisionOutcome other = divide(input.operands(), trial);
    for (std::size_t i = 0; i < input.b.rows; ++i) {
      if (!is_regular(trial, input, i) || !is_regular(input.trial, input, i)) continue;
      for (std::size_t k = 0; k < outputs_of(trial); ++k) {
        if (!writes(trial, k) || reference.output[k].same_row(i, other.output[k], i)) continue;
        stop("policy " + std::string(name(policy)) + " against " +
                 std::string(name(input.trial.policy)),
             "element " + std::to_string(i) + " differs: " + spelled(input.operands(), i));
      }
    }
  }
}

/// Where the operands lie must not show.
void check_layout(const Input& input) {
  DivisionTrial trial = input.trial;
  const DivisionOutcome reference = divide(input.operands(), trial);
  for (Placement& placement : trial.input) placement = {{}, {}, 1, 0, 3, 64};
  for (Placement& placement : trial.output) placement = {{}, {}, 2, 1, 1, 64};
  trial.streams = !trial.streams;
  trial.sizes = Dims{input.b.rows};
  const std::string differs = difference(divide(input.operands(), trial), reference);
  if (!differs.empty()) stop("another layout", differs + ": " + spelled(trial));
}

}  // namespace
}  // namespace safeops::cases

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace safeops;
  cases::Bytes bytes(data, size);
  const cases::Input input = cases::read(bytes);
  if (cases::is_refused(input.trial, input.b.element)) return -1;
  cases::check_kernels(input);
  cases::check_invariance(input);
  cases::check_layout(input);
  return 0;
}
