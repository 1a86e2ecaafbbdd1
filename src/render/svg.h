#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "render/scene.h"

namespace fairway::render {

enum class Theme : std::uint8_t { automatic, light, dark };  // automatic: as the viewer prefers, light on paper

enum class Sheet : std::uint8_t { machines, messages };  // which kind of picture's colours

struct SvgOptions {
  Theme theme = Theme::automatic;
  Sheet sheet = Sheet::machines;
  bool inside_page = false;  // without XML header and style sheet, which the page has
};

// One self-contained SVG document; every text and name in it is escaped.
std::string svg(const Scene& scene, const SvgOptions& options = {});

// The colours and fonts of pictures, for the viewer's preference or one of the two.
std::string picture_css(Theme theme, Sheet sheet = Sheet::machines);

// Text for XML and HTML: escapes the five special characters and drops control characters.
std::string escape(std::string_view text);

}  // namespace fairway::render
