#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "collectives.h"
#include "render/svg.h"

namespace fairway::tool::bench {
namespace {

std::string time_text(double us) {
  return us == 0 ? "-" : us >= 1000 ? fmt::format("{:.0f}", us) : fmt::format("{:.2f}", us);
}

std::string bandwidth(double bytes_per_second) {
  return fmt::format("{:.3f}", bytes_per_second / 1e9);
}

std::string reduction_text(const CollectiveWork& work) {
  return work.combines() ? std::string(to_string(work.reduction)) : std::string("none");
}

std::string panel_of(const CollectiveRow& row) {
  return fmt::format("{} over {}{}, {} ranks, {}", row.work.operation(), row.path,
                     row.graph           ? std::string(" in a graph")
                     : !row.namespaces   ? std::string()
                     : row.per_host == 1 ? std::string(" between namespaces")
                                         : fmt::format(" and shm, {} ranks in each namespace", row.per_host),
                     row.work.ranks, to_string(row.work.type));
}

Fields fields(const CollectiveRow& row) {
  const CollectiveWork& work = row.work;
  return {{"tool", row.tool, true},
          {"version", row.version, true},
          {"operation", std::string(work.operation()), true},
          {"path", row.path, true},
          {"memory", row.gpu ? "gpu" : "host", true},
          {"graph", row.graph ? "true" : "false"},
          {"ranks", fmt::format("{}", work.ranks)},
          {"namespaces", row.namespaces ? "true" : "false"},
          {"per_host", row.namespaces ? fmt::format("{}", row.per_host) : fmt::format("{}", work.ranks)},
          {"type", std::string(to_string(work.type)), true},
          {"reduction", reduction_text(work), true},
          {"bytes", fmt::format("{}", work.whole())},
          {"count", fmt::format("{}", work.count())},
          {"algorithm", row.algorithm, true},
          {"rounds", fmt::format("{}", row.rounds)},
          {"join_ms", known(row.join_ms, 3)},
          {"us", fmt::format("{:.3f}", row.us)},
          {"algorithm_bytes_per_second", fmt::format("{:.0f}", row.algorithm_bandwidth())},
          {"bus_bytes_per_second", fmt::format("{:.0f}", row.bus_bandwidth())},
          {"expected_us", known(row.bound_us, 3)},
          {"wrong", row.is_checked() ? fmt::format("{}", row.wrong) : std::string()},
          {"ratio", known(row.ratio.median, 4)},
          {"ratio_low", known(row.ratio.low, 4)},
          {"ratio_high", known(row.ratio.high, 4)},
          {"cores_busy", row.busy.empty() ? "false" : "true"}};
}

std::vector<Fields> fields(const std::vector<CollectiveRow>& rows) {
  std::vector<Fields> all;
  for (const CollectiveRow& row : rows) all.push_back(fields(row));
  return all;
}

// ---- the picture: a panel for each group and operation, both axes logarithmic ----

constexpr double kWidth = 420, kHeight = 260, kLeft = 60, kTop = 34, kPlotWidth = 330, kPlotHeight = 180;
constexpr std::array kColours{"#1f6feb", "#d1242f", "#8250df", "#bf8700", "#57606a"};

class Panel {
 public:
  explicit Panel(std::string title) : title_(std::move(title)) {}

  void add(const std::string& line, double bytes, double us) {
    if (bytes <= 0 || us <= 0) return;
    lines_[line].emplace_back(bytes, us);
    left_ = std::min(left_, bytes);
    right_ = std::max(right_, bytes);
    low_ = std::min(low_, us);
    high_ = std::max(high_, us);
  }

  [[nodiscard]] std::string draw(double at) const {
    std::string text =
        fmt::format("<g transform=\"translate(0,{:.0f})\">\n<text x=\"{:.0f}\" y=\"20\" class=\"t\">{}</text>\n", at,
                    kLeft, render::escape(title_));
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"f\"/>\n", kLeft, kTop, kPlotWidth,
                        kPlotHeight);
    if (lines_.empty()) return text + "</g>\n";
    for (const double us : round_times())
      text += fmt::format(
          "<path d=\"M{:.1f} {:.1f}h{}\" class=\"g\"/><text x=\"{:.1f}\" y=\"{:.1f}\" class=\"y\">{:g} us</text>\n",
          kLeft, y(us), kPlotWidth, kLeft - 4, y(us) + 3, us);
    for (const double bytes : round_sizes())
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"x\">{}</text>\n", x(bytes), kTop + kPlotHeight + 14,
                          size_text(static_cast<std::uint64_t>(bytes)));
    std::size_t number = 0;
    double key = kLeft;
    for (const auto& [name, points] : lines_) {
      const char* const colour = kColours[number++ % kColours.size()];
      text += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{} points=\"", colour,
                          name == "expected" ? " stroke-dasharray=\"4 3\"" : "");
      for (const auto& [bytes, us] : points) text += fmt::format("{:.1f},{:.1f} ", x(bytes), y(us));
      text += "\"/>\n";
      if (points.size() == 1)  // which no line shows
        text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\"/>\n", x(points[0].first),
                            y(points[0].second), colour);
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{}\" class=\"k\">{}</text>\n", key,
                          kTop + kPlotHeight + 32, colour, render::escape(name));
      key += 12 + 7 * static_cast<double>(name.size());
    }
    return text + "</g>\n";
  }

 private:
  static double place(double value, double from, double to, double length) {
    return to <= from ? length / 2 : (std::log(value) - std::log(from)) / (std::log(to) - std::log(from)) * length;
  }
  // Decades, and where these are few 2 and 5 of each.
  [[nodiscard]] std::vector<double> round_times() const {
    std::vector<double> ticks;
    const bool few = high_ / low_ < 300;
    for (double decade = std::pow(10, std::floor(std::log10(low_))); decade <= high_; decade *= 10)
      for (const double part : {1.0, 2.0, 5.0})
        if ((part == 1 || few) && part * decade >= low_ && part * decade <= high_) ticks.push_back(part * decade);
    return ticks;
  }
  // Powers of two, as many as have room.
  [[nodiscard]] std::vector<double> round_sizes() const {
    constexpr double kMost = 6;
    const double first = std::ceil(std::log2(left_)), last = std::floor(std::log2(right_));
    std::vector<double> ticks;
    for (double power = first; power <= last; power += std::max(1.0, std::ceil((last - first) / kMost)))
      ticks.push_back(std::exp2(power));
    if (ticks.empty()) ticks.push_back(left_);  // one size
    return ticks;
  }
  [[nodiscard]] double x(double bytes) const { return kLeft + place(bytes, left_, right_, kPlotWidth); }
  [[nodiscard]] double y(double us) const { return kTop + kPlotHeight - place(us, low_, high_, kPlotHeight); }

  std::string title_;
  std::map<std::string, std::vector<std::pair<double, double>>> lines_;
  double left_ = 1e300, right_ = 0, low_ = 1e300, high_ = 0;
};

}  // namespace

std::string collective_head() {
  return fmt::format("{:<8} {:<14} {:<4} {:>2} {:>11} {:>10} {:>6} {:>10} {:>10} {:>8} {:>8} {:>10} {:>7} {:>6}  {}\n",
                     "tool", "operation", "path", "n", "size", "count", "type", "redop", "time us", "algbw", "busbw",
                     "expect us", "ratio", "#wrong", "algorithm");
}

std::string collective_line(const CollectiveRow& row) {
  const CollectiveWork& work = row.work;
  return fmt::format(
      "{:<8} {:<14} {:<4} {:>2} {:>11} {:>10} {:>6} {:>10} {:>10} {:>8} {:>8} {:>10} {:>7} {:>6}  {}{}\n", row.tool,
      work.operation(), row.path, work.ranks, work.whole(), work.count(), to_string(work.type), reduction_text(work),
      time_text(row.us), bandwidth(row.algorithm_bandwidth()), bandwidth(row.bus_bandwidth()), time_text(row.bound_us),
      row.is_ours()             ? "-"
      : row.ratio.median == 0.0 ? "-"
                                : fmt::format("{:.2f}", row.ratio.median),
      row.is_checked() ? fmt::format("{}", row.wrong) : std::string("-"),
      row.is_ours()         ? row.algorithm + (row.graph ? " in a graph" : "")
      : row.ratio.high == 0 ? std::string()
                            : fmt::format("{:.2f} to {:.2f}", row.ratio.low, row.ratio.high),
      row.busy.empty() ? "" : "  cores busy");
}

std::string text_of(const CollectiveEnd& end) {
  std::string text;
  for (const CollectiveRival& rival : end.rivals)
    if (!rival.why_not.empty()) text += fmt::format("{}: {} (Debian's {})\n", rival.why_not, rival.tool, rival.package);
  text +=
      "\nsize in bytes and busbw as in nccl-tests; bandwidths in GB/s. time: of a round in a loop, at the slowest "
      "rank.\nsize: what was asked, rounded down to blocks of as many elements for each rank where there are blocks.\n";
  if (end.gpu)
    text += fmt::format(
        "The loop is from the first {} until the stream has ended, by the host's clock.{}\n"
        "expected: what each GPU sends at the least, at the rate of the machine's model (`fairway predict`); no "
        "multicast, no latency.\n",
        end.gpu->graph ? "graph's launch" : "launch", end.nccl.empty() ? "" : " Beside NCCL " + end.nccl + ".");
  else if (end.sockets.empty())
    text += fmt::format(
        "expected: what copying ({} GB/s here, {} cores) and combining take if ranks read each other's memory; for "
        "shm.\n",
        rate_text(end.rates.copy), end.rates.cores);
  else
    text += fmt::format(
        "expected: what all hosts send, at the rate of bare sockets between two namespaces, both ways "
        "together; {} cores.\n",
        end.rates.cores);
  for (const auto& [ranks, rate] : end.sockets)
    if (rate > 0) text += fmt::format("sockets among {} ranks: {} GB/s\n", ranks, rate_text(rate));
  for (const auto& [ranks, rate] : end.gpus)
    text += rate > 0 ? fmt::format("each of {} GPUs sends: {} GB/s\n", ranks, rate_text(rate))
                     : fmt::format("expected of {} GPUs: unknown, as is what joins them (`fairway topo`)\n", ranks);
  for (const Joined& group : end.joined)
    text += fmt::format("{} ranks over {} joined in {:.2f} ms, at the slowest\n", group.ranks, group.path, group.ms);
  return text +
         "ratio: the tool's time / ours in turns with it, above 1 Fairway is faster; behind it the 95 % interval.\n";
}

std::string collective_json(const std::vector<CollectiveRow>& rows, bool complete) {
  return json_of("fairway-bench-collectives", "bench collectives", fields(rows), complete);
}

std::string collective_csv(const std::vector<CollectiveRow>& rows) {
  return csv_of(fields(rows));
}

std::string collective_svg(const std::vector<CollectiveRow>& rows) {
  std::vector<std::string> titles;
  std::map<std::string, Panel> panels;
  for (const CollectiveRow& row : rows) {
    const std::string title = panel_of(row);
    if (std::ranges::find(titles, title) == titles.end()) titles.push_back(title);
    Panel& panel = panels.try_emplace(title, title).first->second;
    const auto bytes = static_cast<double>(row.work.whole());
    panel.add(row.tool, bytes, row.us);
    // Far below ours latency decides, of which it knows nothing, and the axis would reach down to it.
    if (row.is_ours() && row.bound_us > row.us / 10) panel.add("expected", bytes, row.bound_us);
  }
  const double height = kHeight * static_cast<double>(std::max<std::size_t>(1, titles.size()));
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>text{{font:10px sans-serif;fill:#333}}.t{{font-size:12px;font-weight:bold}}.y{{text-anchor:end}}"
      ".x{{text-anchor:middle}}.k{{font-weight:bold}}.f{{fill:#fff;stroke:#888}}.g{{stroke:#ddd}}</"
      "style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, height);
  for (std::size_t i = 0; i < titles.size(); ++i) text += panels.at(titles[i]).draw(static_cast<double>(i) * kHeight);
  return text + "</svg>\n";
}

}  // namespace fairway::tool::bench
