#include "safeops/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

namespace safeops::diagnostics {
namespace {

// No value needs escaping: names are those of enumerators and of torch's dtypes, all else are
// integers.
std::string quoted(std::string_view name) { return '"' + std::string(name) + '"'; }

// From integers: what prints a double writes a decimal comma where the locale says so.
std::string seconds_since_1970() {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto count = std::chrono::duration_cast<microseconds>(now).count();
  const std::string fraction = std::to_string(count % 1'000'000);
  return std::to_string(count / 1'000'000) + '.' + std::string(6 - fraction.size(), '0') + fraction;
}

std::string list(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  }
  return text + ']';
}

std::string line(const Change& change) {
  const Record& record = change.record;
  const bool described = !change.dtype.empty();
  return "{\"time\": " + seconds_since_1970() + ", \"operator\": " + quoted(name(record.op)) +
         ", \"condition\": " + quoted(name(record.condition)) +
         ", \"direction\": " + quoted(name(record.direction)) +
         ", \"device\": " + quoted(name(record.device)) +
         ", \"count\": " + std::to_string(change.added) +
         ", \"total\": " + std::to_string(record.count) +
         ", \"first_row\": " + std::to_string(record.first_row) +
         ", \"shape\": " + (described ? list(change.shape) : "null") +
         ", \"dtype\": " + (described ? quoted(change.dtype) : "null") + "}\n";
}

}  // namespace

class JsonLines::File {
 public:
  File(std::string path, std::uint64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {
    open();
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void append(std::string text) {
    const std::lock_guard lock(mutex_);
    std::uint64_t end = size();
    if (max_bytes_ != 0 && end != 0 && end + text.size() > max_bytes_) {
      rotate();
      end = size();
    }
    // A kill can stop a write where the kernel goes from one page of the file to the next.
    const std::uint64_t left = page_ - end % page_;
    if (left < text.size() && text.size() <= page_) text.insert(0, left, ' ');
    ssize_t written;
    do {
      written = ::write(descriptor_, text.data(), text.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(text.size())) return;
    if (written > 0) {
      errno = ENOSPC;
      take_back(written);
    }
    fail("append a line to");
  }

 private:
  void open() {
    const int opened = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (opened < 0) fail("open");
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = opened;
  }

  // Asked each time: others may append to the same file.
  std::uint64_t size() const {
    struct stat status = {};
    return ::fstat(descriptor_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }

  // The old file stays open until the new one is: a failure here loses no line, only the limit.
  void rotate() {
    if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0 && errno != ENOENT) fail("rotate");
    open();
  }

  // A disk that is full takes a part of a line. It is cut off again, unless somebody else has
  // appended since.
  void take_back(ssize_t part) {
    const int error = errno;
    const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
    if (end >= part && size() == static_cast<std::uint64_t>(end)) {
      [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, end - part);
    }
    errno = error;
  }

  [[noreturn]] void fail(const char* action) const {
    const int error = errno;
    throw std::system_error(
        error, std::generic_category(),
        "safeops::diagnostics::JsonLines: cannot " + std::string(action) + ' ' + path_);
  }

  const std::string path_;
  const std::uint64_t max_bytes_;
  std::mutex mutex_;
  const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  int descriptor_ = -1;
};

JsonLines::JsonLines(std::string path, std::uint64_t max_bytes)
    : file_(std::make_shared<File>(std::move(path), max_bytes)) {}

void JsonLines::operator()(const Change& change) const { file_->append(line(change)); }

}  // namespace safeops::diagnostics
