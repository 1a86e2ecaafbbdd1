#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "render/svg.h"

namespace fairway::render {
namespace {

// The value that a rule of the style sheet gives: rule(css, ".gpu", "fill").
std::string rule(const std::string& css, const std::string& selector, const std::string& property) {
  for (std::size_t at = css.find(selector); at != std::string::npos; at = css.find(selector, at + 1)) {
    const std::size_t open = css.find('{', at);
    const std::size_t close = css.find('}', open);
    const char after = css[at + selector.size()];
    if (after != '{' && after != ',') continue;
    const std::string body = css.substr(open + 1, close - open - 1);
    const std::size_t found = body.find(property + ":#");
    if (found != std::string::npos) return body.substr(found + property.size() + 1, 7);
  }
  return {};
}

double luminance(const std::string& colour) {
  double sum = 0;
  static constexpr double kWeights[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += kWeights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

// WCAG 2's contrast ratio.
double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a);
  const double y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(Colours, EveryTextStandsOutFromItsGround) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const std::string css = picture_css(theme);
    const std::string paper = rule(css, ".paper", "fill");
    const std::string ink = rule(css, ".machine text", "fill");
    const std::string faint = rule(css, ".machine .faint", "fill");
    const std::pair<std::string, std::string> pairs[] = {
        {ink, paper},
        {faint, paper},
        {ink, rule(css, ".gpu", "fill")},
        {faint, rule(css, ".gpu", "fill")},
        {ink, rule(css, ".nic", "fill")},
        {faint, rule(css, ".nic", "fill")},
        {ink, rule(css, ".switch", "fill")},
        {ink, rule(css, ".bridge", "fill")},
        {ink, rule(css, ".unplaced", "fill")},
        {rule(css, ".machine .on-package", "fill"), rule(css, ".package", "fill")},
        {rule(css, ".machine .sub.on-package", "fill"), rule(css, ".package", "fill")},
        {rule(css, ".machine .on-nvlink-bar", "fill"), rule(css, ".nvlink-bar", "fill")},
        {rule(css, ".machine .on-nvlink-bar", "fill"), rule(css, ".xgmi-bar", "fill")},
        {rule(css, ".machine .on-nvlink-bar", "fill"), rule(css, ".c2c-bar", "fill")},
        {rule(css, ".machine .warn", "fill"), paper},
        {rule(css, ".machine .bad", "fill"), rule(css, ".nic", "fill")},
    };
    int index = 0;
    for (const auto& [text, ground] : pairs) {
      ASSERT_FALSE(text.empty() || ground.empty()) << "pair " << index;
      EXPECT_GE(contrast(text, ground), 4.5) << "pair " << index << ": " << text << " on " << ground;
      ++index;
    }
  }
}

TEST(Colours, LinesStandOutFromThePaper) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const std::string css = picture_css(theme);
    for (const char* line : {".pcie", ".nvlink", ".xgmi", ".c2c", ".cable", ".pcie.reduced"}) {
      EXPECT_GE(contrast(rule(css, line, "stroke"), rule(css, ".paper", "fill")), 3.0) << line;
    }
  }
}

TEST(Colours, MessagesStandOutFromThePaper) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const std::string css = picture_css(theme, Sheet::messages);
    const std::string paper = rule(css, ".paper", "fill");
    for (const char* line : {".m0", ".m1", ".m2", ".m3", ".m4", ".m5", ".m6", ".m7", ".several", ".empty"})
      EXPECT_GE(contrast(rule(css, line, "stroke"), paper), 3.0) << line;
    for (const char* text : {".machine text", ".machine .faint", ".machine .label"})
      EXPECT_GE(contrast(rule(css, text, "fill"), paper), 4.5) << text;
  }
}

TEST(Colours, AutomaticIsLightUnlessTheViewerPrefersDark) {
  const std::string css = picture_css(Theme::automatic);
  EXPECT_EQ(css.rfind(picture_css(Theme::light), 0), 0U);
  EXPECT_NE(css.find("@media screen and (prefers-color-scheme: dark)"), std::string::npos);
}

}  // namespace
}  // namespace fairway::render
