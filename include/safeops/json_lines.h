#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "safeops/export.h"
#include "safeops/reporter.h"

namespace safeops::diagnostics {

/// A sink that appends one JSON object a line to a file:
///
///     {"time": 1767225600.250000, "operator": "normalize", "condition": "zero_norm",
///      "direction": "forward", "device": "cpu", "count": 3, "total": 8, "first_row": 1,
///      "shape": [2, 3], "dtype": "float32"}
///
/// (on one line). `time` is in seconds since 1970, `count` is Change::added, `total` and
/// `first_row` are those of its record; shape and dtype are null below level 2.
///
/// Every line is one write at the end of the file: lines are whole even where several reporters or
/// processes append to the same file. It is preceded by spaces where it would cross from one page
/// of the file to the next, so that with one writer a kill leaves whole lines, too; nothing is held
/// back that would be lost then. Copies share the file.
///
///     safeops::diagnostics::Reporter reporter{safeops::diagnostics::JsonLines("hits.jsonl")};
class SAFEOPS_EXPORT JsonLines {
 public:
  /// Creates the file if it does not exist. A line that would make it longer than `max_bytes` goes
  /// to a fresh one, and the old one becomes `path` + ".1", in place of an older one; 0: the file
  /// grows without limit. With a limit the file must belong to one process.
  /// Throws std::system_error if it cannot be opened.
  explicit JsonLines(std::string path, std::uint64_t max_bytes = 0);

  /// Throws std::system_error if the line could not be written, and leaves no part of it.
  void operator()(const Change& change) const;

 private:
  class File;
  std::shared_ptr<File> file_;
};

}  // namespace safeops::diagnostics
