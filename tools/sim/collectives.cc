// fairway sim --collectives: communicators of many ranks in virtual time.
#include "collectives.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "picture.h"
#include "sim/group_measure.h"

namespace fairway::tool {
namespace {

bool is_as_expected(const sim::GroupMeasured& one) {
  return one.wrong.empty() && one.unlike < 0 && one.time_ratio() > 1 - sim::kTolerance &&
         one.time_ratio() < 1 + sim::kTolerance;
}

bool is_wanted(const sim::GroupCall& call, const std::vector<std::string>& only) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& name) {
           return name == to_string(call.kind) || name == to_string(call.algorithm);
         });
}

std::string name_of(const sim::FollowedCall& one) {
  return fmt::format("{}_{}{}.svg", to_string(one.call.kind), to_string(one.call.algorithm),
                     one.in_place ? "_in_place" : "");
}

std::string row(const sim::GroupMeasured& one) {
  std::string text =
      fmt::format("{:<14} {:<18} {:>5} {:>8} {:>11.2f} {:>11.2f} {:>6.3f} {:>9} {:>9} {:>6.3f} {:>8}\n",
                  to_string(one.call.kind), to_string(one.call.algorithm), one.call.ranks, one.call.bytes(),
                  one.virtual_ns / 1e3, one.formula_ns / 1e3, one.time_ratio(), one.messages, one.formula_messages,
                  static_cast<double>(one.bytes) / static_cast<double>(one.formula_bytes), one.records);
  if (!one.wrong.empty()) text += "  wrong: " + one.wrong + "\n";
  if (one.unlike >= 0) text += fmt::format("  rank {} sent something else than the formula says\n", one.unlike);
  return text;
}

}  // namespace

Exit simulate_collectives(Tool& tool, const SimCollectives& wanted) {
  using Seconds = std::chrono::duration<double>;
  int unlike = 0;
  for (const int count : wanted.ranks) {
    const auto began = std::chrono::steady_clock::now();
    const auto seconds = [began] { return Seconds(std::chrono::steady_clock::now() - began).count(); };
    sim::GroupOptions options;
    options.ranks = count;
    options.slot_bytes = wanted.slot_bytes;
    options.per_host = wanted.per_host;
    if (wanted.trace) options.trace = [&tool](const std::string& line) { tool.print(line + "\n"); };
    tool.print(fmt::format("{} ranks: joining\n", count));
    std::fflush(stdout);
    sim::Group group(options);
    if (const Status joined = group.join(); !joined) return tool.fail(joined.to_string());
    tool.print(fmt::format("{} ranks: joined in {:.1f} virtual ms, {:.1f} s of this machine\n", count,
                           static_cast<double>(group.simulation().now()) / 1e6, seconds()));
    tool.print(fmt::format("{:<14} {:<18} {:>5} {:>8} {:>11} {:>11} {:>6} {:>9} {:>9} {:>6} {:>8}\n", "collective",
                           "algorithm", "ranks", "bytes", "virtual us", "formula", "ratio", "messages", "formula",
                           "bytes", "records"));
    for (const sim::GroupCall& call : sim::calls_for(group, wanted.most_bytes, wanted.local)) {
      if (!is_wanted(call, wanted.only)) continue;
      const sim::GroupMeasured measured = sim::measure(group, call);
      tool.print(row(measured));
      std::fflush(stdout);  // minutes may pass
      unlike += is_as_expected(measured) ? 0 : 1;
    }
    tool.print(fmt::format("{} ranks: {} events, {:.1f} s of this machine\n\n", count, group.simulation().events_run(),
                           seconds()));
    group.leave_open();
  }
  return unlike == 0 ? Exit::done
                     : tool.fail(fmt::format("{} collectives are wrong, or not as the formulas say", unlike));
}

Exit draw_collectives(Tool& tool, const SimCollectives& wanted) {
  if (wanted.ranks.size() != 1 || wanted.ranks[0] > sim::kMostFollowed)
    return tool.misused(fmt::format("--svg draws one number of ranks, 2 to {}: --collectives 4", sim::kMostFollowed));
  int drawn = 0;
  for (const sim::FollowedCall& one : sim::calls_to_follow(wanted.ranks[0], wanted.per_host)) {
    if (!is_wanted(one.call, wanted.only)) continue;
    const std::string path = wanted.svg + "/" + name_of(one);
    if (const Status status = can_write(path); !status)
      return tool.fail(status.with_context("--svg takes a folder that is there"));
    const auto messages = sim::follow(one);
    if (!messages) return tool.fail(messages.status());
    if (const Status status = write_file(path, picture_of(one, *messages)); !status) return tool.fail(status);
    tool.print(fmt::format("{}: {} messages\n", path, messages->messages.size()));
    ++drawn;
  }
  if (drawn == 0) return tool.misused("--only leaves nothing to draw; `hierarchical` needs --per-host, and two hosts");
  return Exit::done;
}

}  // namespace fairway::tool
