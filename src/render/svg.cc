#include "render/svg.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

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

// The one place where colours are chosen. Each rule is written once with names in braces; the two palettes fill them
// in. CSS variables would be shorter, but converters to PNG do not know them.

namespace {

struct Colour {
  std::string_view name;
  std::string_view light;
  std::string_view dark;
};

// The contrast of every text on its background is at least 4.5 to 1 in both; a test checks it.
constexpr std::array<Colour, 29> kPalette{{
    {"paper", "#ffffff", "#11161c"},        {"ink", "#18212b", "#e7ecf1"},
    {"faint", "#5c6773", "#9aa7b4"},        {"socket", "#2b3d54", "#33465e"},
    {"onsocket", "#ffffff", "#f2f6fa"},     {"onsocketfaint", "#cbd6e2", "#c3cfdb"},
    {"bridge", "#e6eaef", "#252e38"},       {"bridgeline", "#aab5c1", "#4c5966"},
    {"switch", "#efe9fb", "#2b2442"},       {"switchline", "#8a6bc9", "#9a84d6"},
    {"gpu", "#e0f3e2", "#15331f"},          {"gpuline", "#3a8a43", "#58b565"},
    {"nic", "#e1effc", "#122b43"},          {"nicline", "#2f77b8", "#5ea5e2"},
    {"pcie", "#6f7c89", "#8b99a7"},         {"socketline", "#4d6078", "#7287a1"},
    {"nvlink", "#3a8a43", "#58b565"},       {"nvbar", "#2f7a39", "#24602d"},
    {"xgmi", "#0d8284", "#35b5b2"},         {"xgmibar", "#0b6f71", "#0f5f60"},
    {"onbar", "#ffffff", "#f1fbf2"},        {"c2c", "#8f3f97", "#d58be0"},
    {"c2cbar", "#7d3585", "#6c2f74"},       {"chip", "#bfe3c3", "#9fd3a6"},
    {"warn", "#a85700", "#f3a640"},         {"bad", "#c22a26", "#ff7d75"},
    {"good", "#2f8a3a", "#5fbf6b"},         {"unplaced", "#f4f1ea", "#2a2720"},
    {"unplacedline", "#9a8c6c", "#8f8468"},
}};

constexpr std::string_view kShapes =
    R"(.machine text{font-family:"Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif}
.title{font-size:17px;font-weight:600}
.subtitle{font-size:11px}
.head{font-size:12.5px;font-weight:600}
.name{font-size:11px;font-weight:600}
.band{font-size:10.5px}
.sub,.legend{font-size:10px}
.mid,.label{font-size:9.5px}
.small{font-size:9px}
.tiny{font-size:8.5px}
.line{fill:none;stroke-linejoin:round}
.label{paint-order:stroke;stroke-width:3.5px;stroke-linejoin:round}
.gpu,.nic,.switch,.bridge,.unplaced,.netswitch{stroke-width:1.2px}
.inferred{stroke-dasharray:4 3}
.muted{stroke-dasharray:2 2}
.doubted{stroke-dasharray:1 3}
.doubt{font-style:italic}
)";

constexpr std::string_view kColoured = R"(.paper,.ground{fill:{paper}}
.machine text{fill:{ink}}
.machine .subtitle,.machine .legend,.machine .faint,.machine .faint-on-nic,.machine .faint-on-gpu{fill:{faint}}
.package,.numa{fill:{socket};stroke:{socket}}
.machine .on-package,.machine .on-numa{fill:{onsocket}}
.machine .sub.on-package,.machine .sub.on-numa{fill:{onsocketfaint}}
.bridge{fill:{bridge};stroke:{bridgeline}}
.switch{fill:{switch};stroke:{switchline}}
.netswitch{fill:{nic};stroke:{nicline}}
.unplaced{fill:{unplaced};stroke:{unplacedline}}
.gpu{fill:{gpu};stroke:{gpuline}}
.nic{fill:{nic};stroke:{nicline}}
.nic.muted{fill:{paper};stroke:{pcie}}
.nic.down,.gpu.down{stroke:{bad}}
.port{fill:{nicline}}
.port.up{fill:{good}}
.port.down{fill:{bad}}
.pcie{stroke:{pcie}}
.inner,.socket{stroke:{socketline}}
.nvlink{stroke:{nvlink}}
.xgmi{stroke:{xgmi}}
.c2c{stroke:{c2c}}
.cable{stroke:{nicline}}
.pcie.reduced,.nvlink.reduced,.xgmi.reduced,.c2c.reduced{stroke:{warn}}
.nvlink-bar{fill:{nvbar}}
.xgmi-bar{fill:{xgmibar}}
.c2c-bar{fill:{c2cbar}}
.machine .on-nvlink-bar,.machine .on-xgmi-bar,.machine .on-c2c-bar{fill:{onbar}}
.nvswitch{fill:{chip}}
.stream{stroke:{nicline}}
.stream.slow{stroke:{bad}}
.machine .label{fill:{ink};stroke:{paper}}
.machine .plate{stroke:none}
.machine .doubt{fill:{faint}}
.machine .warn{fill:{warn}}
.machine .bad{fill:{bad}}
)";

// Messages between ranks. m0 to m7: of one block, or of one rank.
constexpr std::string_view kMessages = R"(.paper{fill:{paper}}
.machine text{fill:{ink}}
.machine .subtitle,.machine .legend,.machine .faint{fill:{faint}}
.machine .label{fill:{ink};stroke:{paper};stroke-width:5px}
.row{stroke:{bridgeline}}
.host{fill:none;stroke:{bridgeline}}
.sum{fill:{paper};stroke-width:1.4px}
.several{stroke:{ink}}
.empty{stroke:{pcie}}
.m0{stroke:{nicline}}
.m1{stroke:{warn}}
.m2{stroke:{gpuline}}
.m3{stroke:{c2c}}
.m4{stroke:{bad}}
.m5{stroke:{xgmi}}
.m6{stroke:{switchline}}
.m7{stroke:{unplacedline}}
)";

std::string fill_in(std::string_view rules, bool dark) {
  std::string out;
  while (!rules.empty()) {
    const std::size_t open = rules.find('{');
    out += rules.substr(0, open);
    if (open == std::string_view::npos) break;
    rules.remove_prefix(open);
    bool replaced = false;
    for (const Colour& colour : kPalette) {
      const std::size_t length = colour.name.size();
      if (rules.size() < length + 2 || rules.substr(1, length) != colour.name || rules[length + 1] != '}') continue;
      out += dark ? colour.dark : colour.light;
      rules.remove_prefix(length + 2);
      replaced = true;
      break;
    }
    if (replaced) continue;
    out += '{';
    rules.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string picture_css(Theme theme, Sheet sheet) {
  const std::string_view coloured = sheet == Sheet::messages ? kMessages : kColoured;
  std::string out(kShapes);
  out += fill_in(coloured, theme == Theme::dark);
  if (theme == Theme::automatic) {
    out += "@media screen and (prefers-color-scheme: dark){\n" + fill_in(coloured, true) + "}\n";
  }
  return out;
}

}  // namespace fairway::render
