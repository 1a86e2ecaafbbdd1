#include "engine/pending_calls.h"

#include <string>

#include <gtest/gtest.h>

#include "fake_runtime.h"

namespace fairway::engine {
namespace {

constexpr control::SessionId kNobody = 0, kAsked = 5, kStranger = 6;

struct PendingCaller {
  // What a call of `of` gets while `meanwhile` runs on another thread's behalf.
  Result<std::string> ask(control::SessionId of, const std::function<void(std::uint64_t token)>& meanwhile) {
    fake.on_sleep = [&, meanwhile](Time deadline) {
      meanwhile(token);
      waiting.notice();
      if (fake.sleeps.size() > 1) fake.time = deadline;
    };
    fake.sleeps.clear();
    return calls.ask(of, fake.time + kMillisecond, {ErrorCode::timed_out, "late"}, [&](std::uint64_t given) {
      token = given;
      return Status();
    });
  }
  FakeRuntime fake;
  FakeWorkers workers;
  Waiting waiting{fake.runtime(), Progress::threads, workers, [] { return false; }};
  PendingCalls<std::string> calls{waiting};
  std::uint64_t token = 0;
};

TEST(PendingCalls, ACallGetsItsAnswer) {
  PendingCaller p;
  const auto answer =
      p.ask(kNobody, [&](std::uint64_t token) { EXPECT_TRUE(p.calls.answer(0, token, std::string("a"))); });
  ASSERT_TRUE(answer) << answer.status().to_string();
  EXPECT_EQ(*answer, "a");
  EXPECT_FALSE(p.calls.answer(0, p.token, std::string("b"))) << "nobody waits for it any more";
  const std::uint64_t last = p.token;
  const Status why(ErrorCode::unreachable, "nobody there");
  EXPECT_EQ(p.ask(kNobody, [&](std::uint64_t token) { EXPECT_TRUE(p.calls.answer(0, token, why)); }).status().code(),
            ErrorCode::unreachable);
  EXPECT_NE(p.token, last) << "a late answer would be another call's";
}

TEST(PendingCalls, TheFirstAnswerCounts) {
  PendingCaller p;
  const auto answer = p.ask(kNobody, [&](std::uint64_t token) {
    EXPECT_TRUE(p.calls.answer(0, token, std::string("first")));
    EXPECT_FALSE(p.calls.answer(0, token, std::string("second")));
  });
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, "first");
}

TEST(PendingCalls, OnlyTheSessionThatWasAskedAnswers) {
  PendingCaller p;
  const auto answer = p.ask(kAsked, [&](std::uint64_t token) {
    EXPECT_FALSE(p.calls.answer(kStranger, token, std::string("forged")));
    EXPECT_FALSE(p.calls.answer(kAsked, token + 1, std::string("of no call")));
  });
  EXPECT_EQ(answer.status().code(), ErrorCode::timed_out);
  EXPECT_EQ(answer.status().message(), "late");
}

TEST(PendingCalls, TheEndOfASessionEndsItsCallsAlone) {
  PendingCaller p;
  const Status gone(ErrorCode::peer_dead, "gone");
  EXPECT_EQ(p.ask(kAsked, [&](std::uint64_t) { p.calls.session_ended(kAsked, gone); }).status().code(),
            ErrorCode::peer_dead);
  EXPECT_EQ(p.ask(kStranger, [&](std::uint64_t) { p.calls.session_ended(kAsked, gone); }).status().code(),
            ErrorCode::timed_out);
  // What was answered before stays.
  const auto answer = p.ask(kAsked, [&](std::uint64_t token) {
    EXPECT_TRUE(p.calls.answer(kAsked, token, std::string("a")));
    p.calls.session_ended(kAsked, gone);
  });
  EXPECT_TRUE(answer);
}

TEST(PendingCalls, CloseEndsThemAll) {
  PendingCaller p;
  EXPECT_EQ(p.ask(kAsked,
                  [&](std::uint64_t) {
                    p.calls.end_all({ErrorCode::closed, "closed"});
                  })
                .status()
                .code(),
            ErrorCode::closed);
}

TEST(PendingCalls, WhatCannotBeAskedIsNotWaitedFor) {
  PendingCaller p;
  const auto answer = p.calls.ask(kAsked, kNever, {ErrorCode::timed_out, "late"},
                                  [](std::uint64_t) { return Status(ErrorCode::queue_full, "full"); });
  EXPECT_EQ(answer.status().code(), ErrorCode::queue_full);
  EXPECT_TRUE(p.fake.sleeps.empty());
}

}  // namespace
}  // namespace fairway::engine
