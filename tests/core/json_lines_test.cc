#include "safeops/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/counters.h"

namespace safeops {
namespace {

using diagnostics::Change;
using diagnostics::JsonLines;

Change change_of(std::uint64_t added) {
  return {{Operator::log_softmax, Condition::empty_row, Direction::backward, Device::cuda, 12, 7},
          added,
          {},
          ""};
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class JsonLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "json_lines_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "hits.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_, path_;
};

TEST_F(JsonLinesTest, AChangeIsOneObjectOnALine) {
  const JsonLines sink(path_);
  sink(change_of(5));
  Change described = change_of(6);
  described.shape = {2, 3};
  described.dtype = "bfloat16";
  sink(described);
  described.shape = {};
  sink(described);
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 3u);
  const std::string start =
      R"(\{"time": \d{10,}\.\d{6}, "operator": "log_softmax", "condition": "empty_row", )"
      R"("direction": "backward", "device": "cuda", )";
  const std::string rest[] = {
      R"("count": 5, "total": 12, "first_row": 7, "shape": null, "dtype": null\})",
      R"("count": 6, "total": 12, "first_row": 7, "shape": \[2, 3\], "dtype": "bfloat16"\})",
      R"("count": 6, "total": 12, "first_row": 7, "shape": \[\], "dtype": "bfloat16"\})"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::regex_match(lines[i], std::regex(start + rest[i]))) << lines[i];
  }
}

TEST_F(JsonLinesTest, AppendsToWhatIsThere) {
  std::ofstream(path_) << "{}\n";
  JsonLines sink(path_.string());
  sink(change_of(5));
  EXPECT_EQ(lines_of(path_).size(), 2u);
  EXPECT_EQ(lines_of(path_).front(), "{}");
}

TEST_F(JsonLinesTest, SinksOfOneFileKeepLinesWhole) {
  constexpr std::uint64_t kThreads = 4, kLines = 500;
  const JsonLines shared(path_);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const JsonLines sink = t % 2 == 0 ? shared : JsonLines(path_);
      for (std::uint64_t i = 0; i < kLines; ++i) sink(change_of(1000 + t * kLines + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> counts;
  const std::regex whole(R"( *\{"time": .*"count": (\d+), .*"dtype": null\})");
  for (const std::string& line : lines_of(path_)) {
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, whole)) << line;
    counts.insert(match[1]);
  }
  EXPECT_EQ(counts.size(), kThreads * kLines);
}

TEST_F(JsonLinesTest, NoObjectLiesAcrossTwoPages) {
  const JsonLines sink(path_);
  for (std::uint64_t count = 0; count < 200; ++count) sink(change_of(count));
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t start = 0, padded = 0;
  for (const std::string& line : lines_of(path_)) {
    const std::size_t object = start + line.find('{'), end = start + line.size();
    EXPECT_EQ(object / page, end / page);
    padded += object != start;
    start = end + 1;
  }
  EXPECT_EQ(padded, start / page);
}

TEST_F(JsonLinesTest, AFullFileBecomesTheBackup) {
  const std::filesystem::path backup = path_.string() + ".1";
  JsonLines(path_.string())(change_of(10));
  const auto length = std::filesystem::file_size(path_);
  const JsonLines sink(path_, 2 * length);
  for (std::uint64_t count = 11; count < 16; ++count) sink(change_of(count));
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  EXPECT_THAT(lines_of(path_), ElementsAre(HasSubstr("\"count\": 14"), HasSubstr("\"count\": 15")));
  EXPECT_THAT(lines_of(backup),
              ElementsAre(HasSubstr("\"count\": 12"), HasSubstr("\"count\": 13")));
  std::filesystem::remove(path_);
  sink(change_of(16));
  EXPECT_THAT(lines_of(path_), ElementsAre(HasSubstr("\"count\": 16")));
  EXPECT_EQ(lines_of(backup).size(), 2u) << "a file that is gone replaces no backup";
}

TEST_F(JsonLinesTest, ALineLongerThanTheLimitIsWrittenAllTheSame) {
  const JsonLines sink(path_, 1);
  for (std::uint64_t count = 10; count < 13; ++count) sink(change_of(count));
  EXPECT_EQ(lines_of(path_).size(), 1u);
  EXPECT_EQ(lines_of(path_.string() + ".1").size(), 1u);
}

TEST_F(JsonLinesTest, WhatCannotBeOpenedOrWrittenThrows) {
  try {
    JsonLines((folder_ / "missing" / "hits.jsonl").string());
    FAIL() << "opened a file in a folder that does not exist";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::no_such_file_or_directory);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("missing/hits.jsonl"));
  }
  const JsonLines full("/dev/full");
  EXPECT_THROW(full(change_of(1)), std::system_error);
}

TEST_F(JsonLinesTest, APartOfALineIsTakenBack) {
  const JsonLines sink(path_);
  sink(change_of(10));
  const auto length = std::filesystem::file_size(path_);
  rlimit outer = {};
  getrlimit(RLIMIT_FSIZE, &outer);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {length + length / 2, outer.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THROW(sink(change_of(11)), std::system_error);
  setrlimit(RLIMIT_FSIZE, &outer);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(path_), length);
  sink(change_of(12));
  EXPECT_EQ(lines_of(path_).size(), 2u);
}

TEST_F(JsonLinesTest, IsASinkOfAReporter) {
  diagnostics::set_level(2);
  {
    const diagnostics::Reporter reporter(JsonLines(path_.string()), std::chrono::hours(1));
    const std::int64_t shape[] = {4, 3};
    Hits hits;
    hits[Condition::zero_norm].add(3, 1);
    settle({Operator::normalize, Direction::forward, Device::cpu, 4, shape, 2, "float32", false},
           hits);
  }
  diagnostics::set_level(1);
  diagnostics::reset();
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::EndsWith(R"("operator": "normalize", "condition": "zero_norm", )"
                                            R"("direction": "forward", "device": "cpu", )"
                                            R"("count": 3, "total": 3, "first_row": 1, )"
                                            R"("shape": [4, 3], "dtype": "float32"})"));
}

}  // namespace
}  // namespace safeops
