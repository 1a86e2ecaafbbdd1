#include <string>

#include <gtest/gtest.h>

#include "engine/peer_sessions.h"
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
  Waiting waiting{fake.runtime(), Progress::threads, workers};
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

// In slices of a time that is shorter than the way to the peer and back.
struct SlicedCaller : PendingCaller {
  Result<std::string> ask(const std::string& about, const std::function<void()>& meanwhile = {},
                          control::SessionId of = kAsked) {
    fake.on_sleep = [&](Time deadline) {
      if (meanwhile) meanwhile();
      waiting.notice();
      fake.time = deadline;
    };
    return calls.ask(
        of, fake.time + 50 * kMillisecond, {ErrorCode::timed_out, "late"},
        [&](std::uint64_t given) {
          tokens.push_back(given);
          return Status();
        },
        about);
  }
  std::vector<std::uint64_t> tokens;  // of what was asked
};

TEST(PendingCalls, WhoAsksAgainInSlicesGetsTheFirstQuestionsAnswer) {
  SlicedCaller p;
  EXPECT_EQ(p.ask("inbox").status().code(), ErrorCode::timed_out);
  EXPECT_EQ(p.ask("inbox").status().code(), ErrorCode::timed_out);
  ASSERT_EQ(p.tokens.size(), 1u) << "it is asked already";
  const auto answer = p.ask("inbox", [&] { EXPECT_TRUE(p.calls.answer(kAsked, p.tokens[0], std::string("a"))); });
  ASSERT_TRUE(answer) << answer.status().to_string();
  EXPECT_EQ(*answer, "a");
  EXPECT_EQ(p.ask("inbox").status().code(), ErrorCode::timed_out) << "it was given: what is there now is asked for";
  EXPECT_EQ(p.tokens.size(), 2u);
}

TEST(PendingCalls, AnAnswerBetweenTwoSlicesIsKeptForAWhile) {
  for (const bool late : {false, true}) {
    SlicedCaller p;
    EXPECT_FALSE(p.ask("inbox"));
    EXPECT_TRUE(p.calls.answer(kAsked, p.tokens[0], std::string("a")));
    if (late) p.fake.time += PendingCalls<std::string>::kAnswerHolds + 1;
    EXPECT_EQ(p.ask("inbox").is_ok(), !late);
    EXPECT_EQ(p.tokens.size(), late ? 2u : 1u);
  }
}

TEST(PendingCalls, OnlyTheSameQuestionToTheSameSessionIsOne) {
  SlicedCaller p;
  EXPECT_FALSE(p.ask("inbox"));
  EXPECT_FALSE(p.ask("outbox"));
  EXPECT_FALSE(p.ask("inbox", {}, kStranger));
  EXPECT_FALSE(p.ask(""));
  EXPECT_FALSE(p.ask(""));
  EXPECT_EQ(p.tokens.size(), 5u);
}

TEST(PendingCalls, AQuestionThatNobodyWaitsForEndsWithItsSession) {
  SlicedCaller p;
  EXPECT_FALSE(p.ask("inbox"));
  p.calls.session_ended(kAsked, {ErrorCode::peer_dead, "gone"});
  EXPECT_FALSE(p.calls.answer(kAsked, p.tokens[0], std::string("a")));
  EXPECT_EQ(p.ask("inbox").status().code(), ErrorCode::timed_out);
  EXPECT_EQ(p.tokens.size(), 2u);
}

TEST(PendingCalls, QuestionsThatNobodyWaitsForAreFew) {
  SlicedCaller p;
  constexpr std::size_t kMost = PendingCalls<std::string>::kMostLeft;
  for (std::size_t i = 0; i <= kMost; ++i) EXPECT_FALSE(p.ask(std::to_string(i)));
  EXPECT_FALSE(p.calls.answer(kAsked, p.tokens[0], std::string("a"))) << "the oldest made room";
  EXPECT_TRUE(p.calls.answer(kAsked, p.tokens[1], std::string("a")));
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
