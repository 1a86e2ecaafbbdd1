#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

// The state of a soak test: counted in memory shared by its processes, kept in a file from one run to the next.
namespace soak {

inline constexpr int kMostLanes = 4, kOps = 8, kEvents = 5;
inline constexpr const char* kOpNames[kOps] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                               "reduce",     "all_to_all", "send_recv",      "pair"};
enum class Event { made, split, destroyed, aborted, grouped };
inline constexpr const char* kEventNames[kEvents] = {"made", "split", "destroyed", "aborted", "grouped"};

template <class Number>
struct CountsOf {
  Number calls[kOps] = {}, bytes[kOps] = {}, events[kEvents] = {};
  void add(int op, std::uint64_t size) {
    ++calls[op];
    bytes[op] += size;
  }
  template <class Other>
  void add(const CountsOf<Other>& more) {
    for (int op = 0; op < kOps; ++op) {
      calls[op] += more.calls[op];
      bytes[op] += more.bytes[op];
    }
    for (int event = 0; event < kEvents; ++event) events[event] += more.events[event];
  }
};
using Counts = CountsOf<std::atomic<std::uint64_t>>;  // in memory that processes share

struct State {
  std::uint64_t seed = 0, next[kMostLanes] = {};  // next round of each lane
  int ranks = 0, lanes = 0;
  double seconds = 0;
  CountsOf<std::uint64_t> counts;
};

// Reads the state of earlier runs, or starts a new one if there is no file. Returns the error, or empty.
inline std::string read(const std::string& path, std::uint64_t seed, int ranks, int lanes, State& state) {
  std::ifstream file(path);
  if (path.empty() || !file) return {};
  std::string name;
  State found;
  file >> name >> found.seed >> name >> found.ranks >> name >> found.lanes >> name >> found.seconds >> name;
  for (std::uint64_t& next : found.next) file >> next;
  for (auto* row : {found.counts.calls, found.counts.bytes}) {
    file >> name;
    for (int op = 0; op < kOps; ++op) file >> row[op];
  }
  file >> name;
  for (std::uint64_t& event : found.counts.events) file >> event;
  if (!file) return path + " holds no state of this soak: name another file, or remove it";
  if (found.seed != seed || found.ranks != ranks || found.lanes != lanes)
    return path + " is of --seed " + std::to_string(found.seed) + " --ranks " + std::to_string(found.ranks) +
           " --lanes " + std::to_string(found.lanes) + ": name another file, or go on with these";
  state = found;
  return {};
}

inline void write(const std::string& path, const State& state) {
  if (path.empty()) return;
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  file << "seed " << state.seed << "\nranks " << state.ranks << "\nlanes " << state.lanes << "\nseconds "
       << state.seconds << "\nnext";
  for (const std::uint64_t next : state.next) file << ' ' << next;
  file << "\ncalls";
  for (const std::uint64_t calls : state.counts.calls) file << ' ' << calls;
  file << "\nbytes";
  for (const std::uint64_t bytes : state.counts.bytes) file << ' ' << bytes;
  file << "\nevents";
  for (const std::uint64_t event : state.counts.events) file << ' ' << event;
  file << '\n';
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0)
    std::fprintf(stderr, "soak: %s cannot be written: the next part will not go on from here\n", path.c_str());
}

inline std::string rounds(const State& state) {
  std::string text;
  for (int lane = 0; lane < state.lanes; ++lane) text += (lane == 0 ? "" : " + ") + std::to_string(state.next[lane]);
  return text;
}

inline std::string progress(const State& state) {
  std::ostringstream text;
  double bytes = 0;
  for (const std::uint64_t each : state.counts.bytes) bytes += static_cast<double>(each);
  text << static_cast<long>(state.seconds) << " s: rounds " << rounds(state) << ", " << bytes / 1e9 << " GB;";
  for (int event = 0; event < kEvents; ++event) text << ' ' << kEventNames[event] << ' ' << state.counts.events[event];
  return text.str();
}

inline void print_table(const State& state) {
  std::fprintf(stderr, "\n%-16s%12s%12s\n", "operation", "calls", "GB");
  for (int op = 0; op < kOps; ++op)
    std::fprintf(stderr, "%-16s%12llu%12.2f\n", kOpNames[op], static_cast<unsigned long long>(state.counts.calls[op]),
                 static_cast<double>(state.counts.bytes[op]) / 1e9);
  std::fprintf(stderr, "communicators:");
  for (int event = 0; event < kEvents; ++event)
    std::fprintf(stderr, " %s %llu", kEventNames[event], static_cast<unsigned long long>(state.counts.events[event]));
  std::fprintf(stderr, "\n");
}

inline void print_json(const State& state, int outcome) {
  std::printf(
      "{\"op\": \"soak\", \"ranks\": %d, \"seed\": %llu, \"lanes\": %d, \"seconds\": %.1f, \"exit\": %d, \"next\": [",
      state.ranks, static_cast<unsigned long long>(state.seed), state.lanes, state.seconds, outcome);
  for (int lane = 0; lane < state.lanes; ++lane)
    std::printf("%s%llu", lane == 0 ? "" : ", ", static_cast<unsigned long long>(state.next[lane]));
  std::printf("], \"calls\": {");
  for (int op = 0; op < kOps; ++op)
    std::printf("%s\"%s\": %llu", op == 0 ? "" : ", ", kOpNames[op],
                static_cast<unsigned long long>(state.counts.calls[op]));
  std::printf("}, \"communicators\": {");
  for (int event = 0; event < kEvents; ++event)
    std::printf("%s\"%s\": %llu", event == 0 ? "" : ", ", kEventNames[event],
                static_cast<unsigned long long>(state.counts.events[event]));
  std::printf("}}\n");
  std::fflush(stdout);
}

}  // namespace soak
