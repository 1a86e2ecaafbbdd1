#include "fairway/status.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace fairway {
namespace {

std::string words_of_using(const Result<std::string>& result) {
  try {
    return "used: " + *result;
  } catch (const std::logic_error& error) {
    return error.what();
  }
}

TEST(Result, AFailedOneThatIsUsedSaysItsStatus) {
  const Status status = Status(ErrorCode::not_found, "no region \"kv\"").with_peer("decode-3");
  const std::string words = words_of_using(status);
  EXPECT_NE(words.find("not_found: decode-3: no region \"kv\""), std::string::npos) << words;
  EXPECT_EQ(words_of_using(std::string("bytes")), "used: bytes");
}

TEST(ResultDeathTest, TheProgramThatUsesAFailedOneEndsWithItsStatus) {
  const auto use = []() noexcept {
    const Result<int> result = Status(ErrorCode::unreachable, "nothing answers at 10.0.0.7:4000");
    return result.value();
  };
  EXPECT_DEATH(use(), "nothing answers at 10.0.0.7:4000");
}

TEST(Result, EveryWayToTheValueIsChecked) {
  Result<std::string> failed = Status(ErrorCode::closed, "closed");
  EXPECT_THROW((void)failed.value(), std::logic_error);
  EXPECT_THROW((void)failed->size(), std::logic_error);
  EXPECT_THROW((void)*failed, std::logic_error);
  EXPECT_THROW((void)*std::move(failed), std::logic_error);
  Result<std::string> good = std::string("moved");
  EXPECT_EQ(std::move(good).value(), "moved");
}

}  // namespace
}  // namespace fairway
