#include "core/row_values.h"

#include "core/element.h"
#include "core/float_environment.h"

namespace safeops {
namespace {

template <class E>
void round_all(const double* from, std::size_t count, void* to) {
  using Real = typename ElementTraits<E>::Real;
  for (std::size_t i = 0; i < count; ++i)
    from_real(static_cast<Real>(from[i]), static_cast<E*>(to)[i]);
}
template <class E>
void widen_all(const void* from, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_real(static_cast<const E*>(from)[i]);
}

}  // namespace

void round_row_values(const double* from, std::size_t count, Element element, void* to) {
  const FloatEnvironment environment;
  with_element(element, [&](auto e) { round_all<decltype(e)>(from, count, to); });
}

void widen_row_values(Element element, const void* from, std::size_t count, double* to) {
  const FloatEnvironment environment;
  with_element(element, [&](auto e) { widen_all<decltype(e)>(from, count, to); });
}

}  // namespace safeops
