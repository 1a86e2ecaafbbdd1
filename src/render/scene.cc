#include "render/scene.h"

#include <algorithm>
#include <utility>

#include "render/phrases.h"

namespace fairway::render {
namespace {

constexpr double kLine = 12;  // of a free text, for flipping

// Advance of a character in DejaVu Sans, in parts of the size: the widest of the fonts that viewers fall back to.
double advance(char c) {
  static constexpr std::string_view kNarrow = "iljI|.,:;'!()[] ";
  static constexpr std::string_view kWide = "mMWw%@";
  if (kNarrow.find(c) != std::string_view::npos) return 0.36;
  if (kWide.find(c) != std::string_view::npos) return 0.95;
  if (c >= 'A' && c <= 'Z') return 0.69;
  if (c == 'f' || c == 't' || c == 'r' || c == '-' || c == '/') return 0.41;
  return 0.625;
}

}  // namespace

void Scene::add_text(Point at, std::string text, std::string style, Anchor anchor, const Area& home) {
  if (text.empty()) return;
  texts.push_back({at, std::move(text), std::move(style), anchor, home.y, home.height});
}

void Scene::add_text(Point at, std::string text, std::string style, Anchor anchor) {
  add_text(at, std::move(text), std::move(style), anchor, {at.x, at.y - kLine * 0.8, 0, kLine});
}

void Scene::append(const Scene& other, double dx, double dy) {
  const auto moved_box = [&](SceneBox box) {
    box.area.x += dx;
    box.area.y += dy;
    return box;
  };
  for (const SceneBox& box : other.areas) areas.push_back(moved_box(box));
  for (const SceneBox& box : other.boxes) boxes.push_back(moved_box(box));
  for (const SceneBox& box : other.plates) plates.push_back(moved_box(box));
  const auto move_lines = [&](const std::vector<SceneLine>& from, std::vector<SceneLine>& to) {
    for (SceneLine line : from) {
      for (Point& point : line.points) point = {point.x + dx, point.y + dy};
      to.push_back(std::move(line));
    }
  };
  move_lines(other.lines, lines);
  move_lines(other.streams, streams);
  for (SceneText text : other.texts) {
    text.at = {text.at.x + dx, text.at.y + dy};
    text.home_top += dy;
    texts.push_back(std::move(text));
  }
}

void Scene::flip_vertically() {
  for (auto* layer : {&areas, &boxes, &plates}) {
    for (SceneBox& box : *layer) box.area.y = height - box.area.bottom();
  }
  for (auto* layer : {&lines, &streams}) {
    for (SceneLine& line : *layer)
      for (Point& point : line.points) point.y = height - point.y;
  }
  for (SceneText& text : texts) {
    const double top = height - text.home_top - text.home_height;
    text.at.y += top - text.home_top;
    text.home_top = top;
  }
}

Area area_of(const SceneText& text) {
  static constexpr std::pair<std::string_view, double> kSizes[] = {
      {"title", 17}, {"subtitle", 11}, {"head", 12.5}, {"name", 11},   {"band", 10.5},
      {"small", 9},  {"tiny", 8.5},    {"sub", 10},    {"legend", 10}, {"mid", 9.5}};
  double size = 10;
  for (const auto& [style, pixels] : kSizes)
    if ((" " + text.style + " ").find(" " + std::string(style) + " ") != std::string::npos) size = pixels;
  const double width = text_width(text.text, size);
  const double left = text.anchor == Anchor::start ? 0 : text.anchor == Anchor::middle ? width / 2 : width;
  return {text.at.x - left, text.at.y - 0.8 * size, width, size};
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) width += advance(c);
  }
  return width * size;
}

std::string fit_text(std::string_view text, double size, double room) {
  if (text_width(text, size) <= room) return std::string(text);
  for (std::size_t columns = columns_of(text); columns > 3; --columns) {
    std::string shorter = cut(text, columns);
    if (text_width(shorter, size) <= room) return shorter;
  }
  return {};
}

std::string fit_choice(const std::vector<std::string>& choices, double size, double room) {
  for (const std::string& choice : choices) {
    if (text_width(choice, size) <= room) return choice;
  }
  return choices.empty() ? std::string() : fit_text(choices.back(), size, room);
}

std::size_t Lanes::take(double from, double to, double gap) {
  for (std::size_t lane = 0;; ++lane) {
    if (lane == taken_.size()) taken_.emplace_back();
    const bool is_free = std::ranges::none_of(
        taken_[lane], [&](const auto& other) { return from < other.second + gap && other.first < to + gap; });
    if (!is_free) continue;
    taken_[lane].emplace_back(from, to);
    return lane;
  }
}

}  // namespace fairway::render
