#include "soak_lead.h"

#include <csignal>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "rdma_flags.h"

namespace fairway::tool::soak {
namespace {

constexpr std::chrono::milliseconds kAnswerWithin{120'000};  // of an answer
constexpr unsigned kFirstRounds = 4;                         // until a process has all that it needs
constexpr std::uint64_t kFewDescriptors = 16, kFewThreads = 2;
constexpr std::uint64_t kLittleMemory = 64 << 20;

}  // namespace

Status Lead::start() {
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (Status status = start(i); !status) return status;
  return meet();
}

Status Lead::start(unsigned index) {
  Process& process = processes_[index];
  std::vector<std::string> words{"soak", "peer", "--process", fmt::format("{}", index)};
  for (const auto& more : {words_of(settings_), tool::words_of(settings_.rdma)})
    words.insert(words.end(), more.begin(), more.end());
  auto address = process.process.start(words);
  if (!address) return address.status();
  process.address = *address;
  process.rounds = 0;
  process.usual.reset();
  return {};
}

Status Lead::meet() {
  std::vector<std::string> wrong;
  for (unsigned i = 0; i < settings_.engines; ++i)
    for (unsigned other = 0; other < settings_.engines; ++other)
      if (other != i)
        if (Status status = tell(i, fmt::format("meet {} {}\n", other, processes_[other].address)); !status)
          return status;
  for (unsigned i = 0; i < settings_.engines; ++i)
    for (unsigned other = 1; other < settings_.engines; ++other)
      if (Status status = hear(i, "met", wrong); !status) return status;
  return wrong.empty() ? Status() : Status(ErrorCode::unreachable, wrong.front());
}

Status Lead::tell(unsigned index, const std::string& words) {
  const Status status = processes_[index].process.say(words);
  return status ? status : status.with_context(fmt::format("process {}", index));
}

Status Lead::hear(unsigned index, const std::string& wanted, std::vector<std::string>& wrong) {
  for (;;) {
    const auto line = processes_[index].process.hear(kAnswerWithin);
    if (!line) return Status(line.status()).with_context(fmt::format("process {}", index));
    if (*line == wanted) return {};
    if (line->starts_with("wrong ")) wrong.push_back(fmt::format("process {}: {}", index, line->substr(6)));
  }
}

Result<std::vector<Said>> Lead::hear_block(unsigned index, const std::string& wanted, std::vector<std::string>& wrong) {
  if (Status status = hear(index, wanted, wrong); !status) return status;
  std::vector<Said> all;
  for (;;) {
    const auto line = processes_[index].process.hear(kAnswerWithin);
    if (!line) return Status(line.status()).with_context(fmt::format("process {}", index));
    if (*line == kEnd) return all;
    all.push_back(said_of(*line));
  }
}

void Lead::disturb(const Fault& fault) {
  if (fault.kind != Fault::Kind::kill && fault.kind != Fault::Kind::freeze) return;
  OtherProcess& process = processes_[fault.process].process;
  std::this_thread::sleep_for(fault.at);
  if (fault.kind == Fault::Kind::kill) return process.kill();
  process.signal(SIGSTOP);
  std::this_thread::sleep_for(fault.lasts);
  process.signal(SIGCONT);
}

Result<Lead::Played> Lead::play(const Round& round) {
  Played played;
  played.ended.resize(round.steps.size());
  const bool kills = round.fault.kind == Fault::Kind::kill;
  const auto lives = [&](unsigned index) { return !kills || index != round.fault.process; };
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (Status status = tell(i, fmt::format("round {}\n", round.number)); !status) return status;
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (Status status = hear(i, "ready", played.wrong); !status) return status;
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (Status status = tell(i, "go\n"); !status) return status;
  disturb(round.fault);
  std::string settle = "settle\n";
  for (unsigned i = 0; i < settings_.engines; ++i) {
    if (!lives(i)) continue;
    const auto all = hear_block(i, "ended", played.wrong);
    if (!all) return all.status();
    for (const Said& said : *all) {
      if (said.step < played.ended.size()) played.ended[said.step] = said.ended;
      settle += line_of(said);
    }
  }
  settle += std::string(kEnd) + "\n";
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (lives(i))
      if (Status status = tell(i, settle); !status) return status;
  for (unsigned i = 0; i < settings_.engines; ++i) {
    if (!lives(i)) continue;
    if (const auto all = hear_block(i, "checked", played.wrong); !all) return all.status();
    ++processes_[i].rounds;
  }
  if (!played.wrong.empty()) return played;
  if (kills)
    if (Status status = start(round.fault.process); !status) return status;
  if (round.fault.kind != Fault::Kind::none)
    if (Status status = meet(); !status) return status;
  for (unsigned i = 0; i < settings_.engines; ++i)
    if (processes_[i].rounds >= kFirstRounds && !processes_[i].usual) {
      const auto now = held(i);
      if (!now) return now.status();
      processes_[i].usual = *now;
    }
  return played;
}

Result<Held> Lead::held(unsigned index) {
  if (Status status = tell(index, "count\n"); !status) return status;
  const auto line = processes_[index].process.hear(kAnswerWithin);
  if (!line) return Status(line.status()).with_context(fmt::format("process {}", index));
  std::istringstream words(*line);
  std::string word;
  Held held;
  words >> word >> held.descriptors >> held.threads >> held.memory_bytes;
  return held;
}

Result<Held> Lead::held() {
  Held all;
  for (unsigned i = 0; i < settings_.engines; ++i) {
    const auto one = held(i);
    if (!one) return one;
    all.descriptors += one->descriptors;
    all.threads += one->threads;
    all.memory_bytes += one->memory_bytes;
  }
  return all;
}

Result<std::string> Lead::leaks() {
  std::string found;
  for (int turn = 0; turn < 20; ++turn) {
    found.clear();
    for (unsigned i = 0; i < settings_.engines; ++i) {
      if (!processes_[i].usual) continue;
      const Held& usual = *processes_[i].usual;
      const auto now = held(i);
      if (!now) return now.status();
      const auto tell_of = [&](const char* what, std::uint64_t was, std::uint64_t is, std::uint64_t more) {
        if (is > was + more)
          found += fmt::format("process {} holds {} {}, {} after its first rounds; ", i, is, what, was);
      };
      tell_of("descriptors", usual.descriptors, now->descriptors, kFewDescriptors);
      tell_of("threads", usual.threads, now->threads, kFewThreads);
      tell_of("bytes", usual.memory_bytes, now->memory_bytes, usual.memory_bytes / 4 + kLittleMemory);
    }
    if (found.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  return found;
}

}  // namespace fairway::tool::soak
