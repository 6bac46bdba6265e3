#include "torch/outcome.h"

#include <sstream>

namespace safeops {
namespace {

std::string sentence(Operator op, Direction direction, const at::Tensor& input, std::uint64_t rows,
                     const Hits& hits) {
  const char* const unit = unit_of(op);
  std::ostringstream text;
  text << "safeops::" << name(op) << (direction == Direction::backward ? " (backward)" : "")
       << ": policy 'raise' met " << hits.raising.count << " singular " << unit
       << (hits.raising.count == 1 ? "" : "s") << " of " << rows << " (";
  const char* separator = "";
  for (int i = 0; i < kHitConditions; ++i) {
    if (hits.of[i].count == 0) continue;
    text << separator << name(static_cast<Condition>(i)) << ' ' << hits.of[i].count;
    separator = ", ";
  }
  text << "; first at " << unit << ' ' << hits.raising.first << ") in a "
       << dtype_name(input.scalar_type()) << " tensor of shape " << input.sizes()
       << (at::isIntegralType(input.scalar_type(), /*includeBool=*/true)
               ? "; use policy 'zero' to continue"
               : "; use policy 'zero', 'epsilon' or 'nan' to continue");
  return text.str();
}

}  // namespace

const char* unit_of(Operator op) {
  switch (op) {
    case Operator::normalize:
    case Operator::softmax:
    case Operator::log_softmax:
    case Operator::logsumexp:
      return "row";
    case Operator::div:
    case Operator::reciprocal:
    case Operator::rsqrt:
    case Operator::sqrt:
    case Operator::log:
      break;
  }
  return "element";
}

Call call_on(Device device, Operator op, Direction direction, const at::Tensor& input,
             std::uint64_t rows, bool raises) {
  return {op,
          direction,
          device,
          rows,
          input.sizes().data(),
          static_cast<int>(input.dim()),
          dtype_name(input.scalar_type()),
          raises};
}

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

void settle_or_throw(Operator op, Direction direction, Device device, Policy policy,
                     const at::Tensor& input, std::uint64_t rows, const Hits& hits) {
  if (!hits.any()) return;
  const bool raises = policy == Policy::raise && hits.raising.count != 0;
  settle(call_on(device, op, direction, input, rows, raises), hits);
  if (raises) {
    throw SingularityError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                           sentence(op, direction, input, rows, hits));
  }
}

}  // namespace safeops
