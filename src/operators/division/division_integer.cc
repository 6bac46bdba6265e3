#include <limits>
#include <type_traits>

#include "core/each_element.h"
#include "core/run_elements.h"
#include "operators/division/division.h"

namespace safeops {
namespace {

// b is not 0. -least / -1 is beyond the type, and stops the processor: it wraps to itself, as all
// other arithmetic of two's complement does.
template <class T>
T quotient(T a, T b, bool floored) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a));
  }
  const T whole = static_cast<T>(a / b);
  const bool lower = floored && a % b != 0 && (a < 0) != (b < 0);
  return static_cast<T>(whole - (lower ? 1 : 0));
}

template <class T, bool kFloored>
void integer_kernel(const ElementArguments& arguments, std::size_t begin, std::size_t end,
                    Hits& hits) {
  each_element(arguments, begin, end, hits, [](const ElementCursor& at, ElementTally& tally) {
    const T a = *reinterpret_cast<const T*>(at.input(0));
    const T b = *reinterpret_cast<const T*>(at.input(1));
    T& result = *reinterpret_cast<T*>(at.output(0));
    if (b != 0) {
      result = quotient(a, b, kFloored);
      return;
    }
    tally.report(Condition::zero_denominator);
    result = 0;
  });
}

template <bool kFloored>
ElementKernel kernel_of(Integer type) {
  switch (type) {
    case Integer::uint8:
      return integer_kernel<std::uint8_t, kFloored>;
    case Integer::int8:
      return integer_kernel<std::int8_t, kFloored>;
    case Integer::int16:
      return integer_kernel<std::int16_t, kFloored>;
    case Integer::int32:
      return integer_kernel<std::int32_t, kFloored>;
    case Integer::int64:
      break;
  }
  return integer_kernel<std::int64_t, kFloored>;
}

}  // namespace

void integer_division(const ElementArguments& arguments, Integer type, bool floored,
                      Executor& executor, Hits& hits) {
  run_forward(arguments, floored ? kernel_of<true>(type) : kernel_of<false>(type), executor, hits);
}

}  // namespace safeops
