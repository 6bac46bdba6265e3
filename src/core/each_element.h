#pragma once

#include <cstddef>

#include "core/element_cursor.h"
#include "core/hits.h"

namespace safeops {

/// Counts what single elements met, for kernels that walk one element at a time.
class ElementTally {
 public:
  ElementTally(const ElementArguments& arguments, Hits& hits) : numbers_(arguments), hits_(hits) {}

  void move_to(std::size_t position) { position_ = position; }
  void report(Condition condition) { hits_[condition].add(1, numbers_.number(position_)); }
  void report_raising() { hits_.raising.add(1, numbers_.number(position_)); }
  void report_latent() { hits_.latent.add(1, numbers_.number(position_)); }

 private:
  const ElementNumbers numbers_;
  std::size_t position_ = 0;
  Hits& hits_;
};

/// Calls f(cursor, tally) for every element at positions [begin, end).
template <class F>
void each_element(const ElementArguments& arguments, std::size_t begin, std::size_t end, Hits& hits,
                  const F& f) {
  ElementCursor cursor(arguments, begin);
  ElementTally tally(arguments, hits);
  for (std::size_t position = begin; position < end; ++position) {
    tally.move_to(position);
    f(cursor, tally);
    cursor.advance(1);
  }
}

}  // namespace safeops
