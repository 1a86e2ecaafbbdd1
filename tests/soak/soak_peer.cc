#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "command.h"
#include "soak_check.h"
#include "soak_words.h"

// One of the processes. Its leader writes a line for each thing to do:
//   meet PROCESS ADDRESS    answered by "met"
//   round NUMBER            its memories are filled: "ready"
//   go                      it plays: "ended", and a line for each of its steps
//   settle                  and a line for each step of anybody's: "checked", a line for what it received
//   count                   "held DESCRIPTORS THREADS BYTES"
// Before any answer there may be lines "wrong ...".
namespace fairway::tool::soak {
namespace {

constexpr auto kLongest = std::chrono::seconds(60);  // of a round's steps

class Input {
 public:
  // A line, if there is one by then. False: none; gone() says whether there will be any more.
  bool line(std::string& out, int milliseconds) {
    for (;;) {
      if (const std::size_t end = bytes_.find('\n'); end != std::string::npos) {
        out = bytes_.substr(0, end);
        bytes_.erase(0, end + 1);
        return true;
      }
      pollfd wait{STDIN_FILENO, POLLIN, 0};
      if (::poll(&wait, 1, milliseconds) <= 0) return false;
      char part[4096];
      const ssize_t got = ::read(STDIN_FILENO, part, sizeof part);
      gone_ = got <= 0;
      if (gone_) return false;
      bytes_.append(part, static_cast<std::size_t>(got));
    }
  }
  [[nodiscard]] bool gone() const { return gone_; }

 private:
  std::string bytes_;
  bool gone_ = false;
};

void say(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (written < 0) return;  // nobody listens: standard input says so, too
    at += static_cast<std::size_t>(written);
  }
}

Held held() {
  Held held;
  std::error_code none;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd", none))
    ++held.descriptors;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/task", none)) ++held.threads;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) held.memory_bytes = std::stoull(line.substr(8)) * 1024;
  return held;
}

class Obedient {
 public:
  Obedient(const Settings& settings, Endpoint& endpoint) : settings_(settings), endpoint_(endpoint) {}

  void run() {
    std::string line;
    while (!input_.gone()) {
      const bool plays = play_ != nullptr;  // what arrives is to be seen meanwhile
      if (!input_.line(line, plays ? 0 : 200)) {
        turn();
        continue;
      }
      std::istringstream words(line);
      std::string what;
      words >> what;
      if (what == "meet") meet(words);
      if (what == "round") prepare(words);
      if (what == "go") go();
      if (what == "settle") settle();
      if (what == "count") {
        const Held now = held();
        say(fmt::format("held {} {} {}\n", now.descriptors, now.threads, now.memory_bytes));
      }
    }
  }

 private:
  void turn() {
    if (play_ == nullptr) return;
    if (!play_->turn()) std::this_thread::sleep_for(microseconds(20));
    if (playing_ && (play_->over() || Clock::now() > late_)) end();
  }

  void meet(std::istringstream& words) {
    unsigned process = 0;
    std::string address;
    words >> process >> address;
    if (Status status = endpoint_.meet(process, address); !status)
      say(fmt::format("wrong cannot meet process {}: {}\n", process, status.to_string()));
    say("met\n");
  }

  void prepare(std::istringstream& words) {
    std::uint64_t number = 0;
    words >> number;
    play_.reset();
    told_ = 0;
    round_ = plan_of(settings_, number);
    play_ = std::make_unique<Play>(endpoint_, settings_, round_);
    if (Status status = play_->prepare(); !status) say(fmt::format("wrong {}\n", status.to_string()));
    tell_wrong();
    say("ready\n");
  }

  void go() {
    playing_ = true;
    late_ = Clock::now() + kLongest;
    play_->begin();
  }

  void end() {
    playing_ = false;
    if (!play_->over()) play_->wrong(play_->stuck());
    std::string text = "ended\n";
    for (const Step& step : round_.steps) {
      const auto& ended = play_->ended(step);
      if (!ended) continue;
      if (const std::string what = unexpected(round_, step, *ended); !what.empty()) play_->wrong(step, what);
      text += line_of({step.index, *ended});
    }
    tell_wrong();
    say(text + kEnd + "\n");
  }

  // The lines are those of all who live: who is missing was killed.
  void settle() {
    std::vector<bool> known(round_.steps.size());
    std::string line;
    while (!input_.gone()) {
      if (!input_.line(line, 200)) continue;
      if (line == kEnd) break;
      Said said = said_of(line);
      if (said.step >= known.size()) continue;
      const Step& step = round_.steps[said.step];
      known[said.step] = true;
      if (step.by() != endpoint_.process()) play_->hear_of(step, std::move(said.ended));
    }
    for (const Step& step : round_.steps)
      if (!known[step.index] && step.by() != endpoint_.process()) play_->hear_of(step, of_the_dead());
    if (Status status = conclude(*play_); !status) play_->wrong(status.to_string());
    std::string text = "checked\n";
    for (const Step& step : round_.steps)
      if (const auto& received = play_->received(step)) text += line_of({step.index, *received});
    tell_wrong();
    play_.reset();
    say(text + kEnd + "\n");
  }

  void tell_wrong() {
    for (; told_ < play_->all_wrong().size(); ++told_) {
      std::string text = play_->all_wrong()[told_];
      std::replace(text.begin(), text.end(), '\n', ' ');
      say("wrong " + text + "\n");
    }
  }

  const Settings& settings_;
  Endpoint& endpoint_;
  Input input_;
  Round round_;
  std::unique_ptr<Play> play_;
  std::size_t told_ = 0;  // of what is wrong
  bool playing_ = false;
  Clock::time_point late_;
};

}  // namespace

Status obey(const Settings& settings, unsigned process) {
  std::signal(SIGINT, SIG_IGN);  // its leader's to hear
  auto endpoint = Endpoint::open(settings, process);
  if (!endpoint) return endpoint.status();
  say((*endpoint)->engine().address() + "\n");
  Obedient(settings, **endpoint).run();
  return {};
}

}  // namespace fairway::tool::soak
