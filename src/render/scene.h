#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A picture: shapes in layers, each with a position in pixels and a style.
namespace fairway::render {

struct Point {
  double x = 0;
  double y = 0;
};

struct Area {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  [[nodiscard]] double right() const { return x + width; }
  [[nodiscard]] double bottom() const { return y + height; }
  [[nodiscard]] Point center() const { return {x + width / 2, y + height / 2}; }
};

struct SceneBox {
  Area area;
  std::string style;  // CSS classes: "gpu", "nic down"
  std::string node;   // "gpu-3": what it shows, for hovering; empty for decoration
  std::string title;  // shown by a browser on hovering
  double radius = 4;
};

struct SceneLine {
  std::vector<Point> points;
  std::string style;
  std::string title;
  double width = 1.4;
};

enum class Anchor : std::uint8_t { start, middle, end };

struct SceneText {
  Point at;  // of the baseline
  std::string text;
  std::string style;
  Anchor anchor = Anchor::start;
  // The vertical extent of the text's box. A flipped picture moves it and keeps the text's place inside.
  double home_top = 0;
  double home_height = 0;
};

// Layers in the order they are painted: areas below lines below boxes below streams below plates below texts.
struct Scene {
  double width = 0;
  double height = 0;
  std::vector<SceneBox> areas;
  std::vector<SceneLine> lines;
  std::vector<SceneBox> boxes;
  std::vector<SceneLine> streams;  // traffic, over what it crosses
  std::vector<SceneBox> plates;    // behind texts, so that no stream goes through one
  std::vector<SceneText> texts;

  // A text inside a box, or a free one.
  void add_text(Point at, std::string text, std::string style, Anchor anchor, const Area& home);
  void add_text(Point at, std::string text, std::string style, Anchor anchor = Anchor::start);
  // Everything of another scene, moved.
  void append(const Scene& other, double dx, double dy);
  void flip_vertically();
};

// What a text covers, by its style and the widest of usual fonts.
Area area_of(const SceneText& text);
// The most pixels that a text needs in any usual sans-serif font.
double text_width(std::string_view text, double size);
// The text, or its beginning with "…", in at most `room` pixels; empty if not even a few letters fit.
std::string fit_text(std::string_view text, double size, double room);
// The longest choice that fits, else the last one, cut.
std::string fit_choice(const std::vector<std::string>& choices, double size, double room);

// Places intervals in rows so that they do not touch: [from, to] goes into the first row from the top where it is free.
class Lanes {
 public:
  std::size_t take(double from, double to, double gap);
  [[nodiscard]] std::size_t count() const { return taken_.size(); }

 private:
  std::vector<std::vector<std::pair<double, double>>> taken_;
};

}  // namespace fairway::render
