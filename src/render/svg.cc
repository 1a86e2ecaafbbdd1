#include "render/svg.h"

#include <fmt/format.h>

namespace fairway::render {
namespace {

const char* anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::start: return "start";
    case Anchor::middle: return "middle";
    case Anchor::end: return "end";
  }
  return "start";
}

// A tenth of a pixel is enough, and files stay small and equal.
std::string px(double value) {
  std::string out = fmt::format("{:.1f}", value);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string title_element(const std::string& title) {
  return title.empty() ? std::string() : fmt::format("<title>{}</title>", escape(title));
}

void add_box(const SceneBox& box, std::string& out) {
  std::string node;
  if (!box.node.empty()) node = fmt::format(" data-node=\"{}\"", escape(box.node));
  out += fmt::format("<rect class=\"{}\"{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"", escape(box.style),
                     node, px(box.area.x), px(box.area.y), px(box.area.width), px(box.area.height), px(box.radius));
  out += box.title.empty() ? "/>\n" : fmt::format(">{}</rect>\n", title_element(box.title));
}

void add_line(const SceneLine& line, std::string& out) {
  std::string path;
  for (const Point& point : line.points)
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", px(point.x), px(point.y));
  out += fmt::format("<path class=\"line {}\" d=\"{}\" stroke-width=\"{}\"", escape(line.style), path, px(line.width));
  out += line.title.empty() ? "/>\n" : fmt::format(">{}</path>\n", title_element(line.title));
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string svg(const Scene& scene, const SvgOptions& options) {
  std::string out;
  const std::string width = px(scene.width);
  const std::string height = px(scene.height);
  if (!options.inside_page) out += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"machine\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "role=\"img\">\n",
      width, height, width, height);
  if (!options.inside_page) out += "<style>\n" + picture_css(options.theme, options.sheet) + "</style>\n";
  out += fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", width, height);
  for (const SceneBox& box : scene.areas) add_box(box, out);
  for (const SceneLine& line : scene.lines) add_line(line, out);
  for (const SceneBox& box : scene.boxes) add_box(box, out);
  for (const SceneLine& line : scene.streams) add_line(line, out);
  for (const SceneBox& box : scene.plates) add_box(box, out);
  for (const SceneText& text : scene.texts) {
    out += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", escape(text.style),
                       px(text.at.x), px(text.at.y), anchor_name(text.anchor), escape(text.text));
  }
  return out + "</svg>\n";
}

}  // namespace fairway::render
