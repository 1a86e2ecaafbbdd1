// fairway sim --collectives N --svg FOLDER: the messages of one collective over time.
#include "picture.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "render/scene.h"
#include "render/svg.h"

namespace fairway::tool {
namespace {

using render::Anchor;
using render::Area;
using render::Point;
using sim::GroupMessage;

constexpr double kWidth = 760, kRight = 30;  // pixels; time is between the margins
constexpr double kTop = 84, kLabelSize = 9.5, kSum = 4.5;

std::string style_of(const GroupMessage& message) {
  if (message.content.bytes == 0) return "empty";
  return message.content.one < 0 ? "several" : fmt::format("m{}", message.content.one % 8);
}

bool touch(const Area& a, const Area& b) {
  return a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom();
}

class Picture {
 public:
  Picture(const sim::FollowedCall& followed, const sim::GroupMessages& run)
      : followed_(followed),
        call_(followed.call),
        run_(run),
        step_(call_.ranks > 5 ? 46 : 62),
        left_(call_.per_host > 1 ? 122 : 92) {
    Time last = 1;
    for (const Time one : run.returned) last = std::max(last, one);
    for (const GroupMessage& one : run.messages) last = std::max(last, one.arrives);
    until_us_ = static_cast<double>(last) / 1e3;
  }

  std::string draw() {
    add_ranks();
    for (const GroupMessage& one : run_.messages) add_line(one);
    for (const GroupMessage& one : run_.messages) add_label(one);
    add_axis();
    add_words();
    scene_.width = kWidth;
    return render::svg(scene_, {.sheet = render::Sheet::messages});
  }

 private:
  using Time = fairway::Time;

  [[nodiscard]] double x(Time at) const {
    return left_ + static_cast<double>(at) / 1e3 / until_us_ * (kWidth - left_ - kRight);
  }
  [[nodiscard]] double y(int rank) const {
    const int gaps = call_.per_host > 1 ? rank / call_.per_host : 0;
    return kTop + rank * step_ + gaps * 14;
  }

  void add_ranks() {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const double end = x(run_.returned[static_cast<std::size_t>(rank)]);
      scene_.add_text({left_ - 12, y(rank) + 4}, fmt::format("rank {}", rank), "name", Anchor::end);
      scene_.lines.push_back({{{left_, y(rank)}, {end, y(rank)}}, "row", "", 1.6});
      scene_.lines.push_back({{{end, y(rank) - 6}, {end, y(rank) + 6}}, "row", "its call returns", 1.6});
    }
    for (int first = 0; call_.per_host > 1 && first < call_.ranks; first += call_.per_host) {
      const int last = std::min(first + call_.per_host, call_.ranks) - 1;
      scene_.areas.push_back({{left_ - 62, y(first) - 16, 58, y(last) - y(first) + 32}, "host", "", "", 6});
      scene_.add_text({left_ - 68, (y(first) + y(last)) / 2 + 4}, fmt::format("host {}", first / call_.per_host),
                      "sub faint", Anchor::end);
    }
  }

  [[nodiscard]] std::string title_of(const GroupMessage& one) const {
    return fmt::format("rank {} to rank {}: {} bytes{}{}, {:.2f} to {:.2f} us", one.from, one.to, one.content.bytes,
                       one.content.text.empty() ? "" : ": ", one.content.text, static_cast<double>(one.leaves) / 1e3,
                       static_cast<double>(one.arrives) / 1e3);
  }

  void add_line(const GroupMessage& one) {
    const Point from{x(one.leaves), y(one.from)}, to{x(one.arrives), y(one.to)};
    const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
    const Point along{dx / length, dy / length};
    const double back = one.content.combined ? kSum : 0;
    const Point tip{to.x - along.x * back, to.y - along.y * back};
    const std::string style = style_of(one);
    scene_.lines.push_back({{from, tip}, style + (one.content.bytes == 0 ? " muted" : ""), title_of(one), 1.4});
    const auto barb = [&](double side) {
      return Point{tip.x - along.x * 7 - along.y * 3 * side, tip.y - along.y * 7 + along.x * 3 * side};
    };
    scene_.lines.push_back({{barb(1), tip, barb(-1)}, style, "", 1.4});
    if (!one.content.combined) return;
    scene_.boxes.push_back({{to.x - kSum, to.y - kSum, 2 * kSum, 2 * kSum}, "sum " + style, "", "combined", kSum});
    scene_.streams.push_back({{{to.x - 2.5, to.y}, {to.x + 2.5, to.y}}, style, "", 1.2});
    scene_.streams.push_back({{{to.x, to.y - 2.5}, {to.x, to.y + 2.5}}, style, "", 1.2});
  }

  [[nodiscard]] Point on_line(const GroupMessage& one, double part) const {
    return {x(one.leaves) + part * (x(one.arrives) - x(one.leaves)), y(one.from) + part * (y(one.to) - y(one.from))};
  }
  [[nodiscard]] bool crosses(const GroupMessage& one, const Area& area) const {
    constexpr int kSteps = 100;
    for (int i = 0; i <= kSteps; ++i) {
      const Point at = on_line(one, static_cast<double>(i) / kSteps);
      if (at.x > area.x && at.x < area.right() && at.y > area.y && at.y < area.bottom()) return true;
    }
    return false;
  }

  // On its line, where no other label, line and rank is, as near to the middle as can be.
  void add_label(const GroupMessage& one) {
    constexpr double kOverLabel = 10, kOnRank = 4, kOnLine = 1, kStep = 0.04;
    if (one.content.text.empty()) return;
    const double width = render::text_width(one.content.text, kLabelSize);
    Area best;
    double least = 1e9;
    for (double part = 0.14; part < 0.87; part += kStep) {
      const Point at = on_line(one, part);
      const Area area{at.x - width / 2 - 1, at.y - 6, width + 2, 12};
      double cost = std::abs(part - 0.5);
      for (const Area& other : labels_) cost += touch(area, other) ? kOverLabel : 0;
      for (const GroupMessage& other : run_.messages) cost += &other != &one && crosses(other, area) ? kOnLine : 0;
      for (int rank = 0; rank < call_.ranks; ++rank) cost += std::abs(y(rank) - at.y) < 9 ? kOnRank : 0;
      if (cost >= least) continue;
      least = cost;
      best = area;
    }
    labels_.push_back(best);
    if (one.content.text.find_first_of(" .") != std::string::npos)  // between its words its outline leaves gaps
      scene_.boxes.push_back({{best.x + 5, best.y + 2, best.width - 10, 8}, "paper", "", "", 2});
    scene_.add_text({best.center().x, best.center().y + 3.2}, one.content.text, "label", Anchor::middle);
  }

  void add_axis() {
    const double bottom = y(call_.ranks - 1) + 34;
    double tick = 1;
    for (const double one : {2.0, 5.0, 10.0, 20.0, 50.0, 100.0})
      if (until_us_ / tick > 12) tick = one;
    scene_.lines.push_back({{{left_, bottom}, {kWidth - kRight, bottom}}, "row", "", 1});
    for (double us = 0; us <= until_us_; us += tick) {
      const double at = x(static_cast<Time>(us * 1e3));
      scene_.lines.push_back({{{at, bottom}, {at, bottom + 4}}, "row", "", 1});
      scene_.add_text({at, bottom + 15}, fmt::format("{:.0f}{}", us, us == 0 ? " us" : ""), "small faint",
                      Anchor::middle);
    }
    scene_.height = bottom + 15;
  }

  void add_words() {
    scene_.add_text({20, 26},
                    fmt::format("{} by {}{}", to_string(call_.kind), to_string(call_.algorithm),
                                followed_.in_place ? ", in place" : ""),
                    "title");
    const std::uint64_t bytes = call_.bytes();
    scene_.add_text(
        {20, 44},
        fmt::format("{} ranks{}{}, {} messages; a line leads from when a message leaves to when it is there",
                    call_.ranks, bytes == 0 ? "" : fmt::format(", {} bytes", bytes), is_by_blocks() ? " for each" : "",
                    run_.messages.size()),
        "subtitle");
    std::string legend;
    const auto add = [&legend](bool there, const std::string& text) {
      if (there) legend += (legend.empty() ? "" : ";  ") + text;
    };
    const auto any = [this](auto which) { return std::ranges::any_of(run_.messages, which); };
    add(sim::blocks_of(followed_) > 1 && call_.kind != CollectiveKind::all_to_all, blocks_text());
    add(sim::blocks_of(followed_) == 1 &&
            (call_.kind == CollectiveKind::all_reduce || call_.kind == CollectiveKind::reduce),
        "0: what rank 0 has");
    add(call_.kind == CollectiveKind::all_gather || call_.kind == CollectiveKind::gather, "0: the block of rank 0");
    add(call_.kind == CollectiveKind::all_to_all, "0→1: what rank 0 has for rank 1");
    add(any([](const GroupMessage& one) { return one.content.combined; }), "+: combined with what is there");
    add(any([](const GroupMessage& one) { return one.content.text.find('+') != std::string::npos; }),
        "0+1: combined of ranks 0 and 1");
    add(any([](const GroupMessage& one) { return one.content.text.find("..") != std::string::npos; }),
        "0..2: of ranks 0 to 2");
    add(any([](const GroupMessage& one) { return one.content.text.starts_with("Σ"); }), "Σ: of all");
    add(any([](const GroupMessage& one) { return one.content.bytes == 0; }), "dotted: without bytes");
    scene_.height += 22;
    scene_.add_text({20, scene_.height}, legend, "legend");
    scene_.height += 14;
  }
  [[nodiscard]] bool is_by_blocks() const {
    return call_.kind == CollectiveKind::all_gather || call_.kind == CollectiveKind::gather ||
           call_.kind == CollectiveKind::scatter || call_.kind == CollectiveKind::reduce_scatter ||
           call_.kind == CollectiveKind::all_to_all;
  }
  [[nodiscard]] std::string blocks_text() const {
    const int blocks = sim::blocks_of(followed_);
    const char last = static_cast<char>('A' + blocks - 1);
    switch (call_.kind) {
      case CollectiveKind::broadcast:
      case CollectiveKind::reduce: return fmt::format("A to {}: pieces", last);
      case CollectiveKind::all_reduce: return fmt::format("A to {}: parts of the vector", last);
      default: return fmt::format("A to {}: blocks for ranks 0 to {}", last, blocks - 1);
    }
  }

  const sim::FollowedCall& followed_;
  const sim::GroupCall& call_;
  const sim::GroupMessages& run_;
  const double step_, left_;
  double until_us_ = 1;
  render::Scene scene_;
  std::vector<Area> labels_;
};

}  // namespace

std::string picture_of(const sim::FollowedCall& followed, const sim::GroupMessages& run) {
  return Picture(followed, run).draw();
}

}  // namespace fairway::tool
