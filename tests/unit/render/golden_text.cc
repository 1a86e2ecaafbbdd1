#include "golden_text.h"

#include "render/outline.h"
#include "render/reports.h"

namespace fairway::render {

std::string golden_text(const topology::Fabric& fabric) {
  const TextStyle style;
  if (fabric.machines.size() != 1) return overview(fabric, style) + "\n" + tree_text(fabric, style);
  return overview(fabric.machines[0], {}, style) + "\n" + tree_text(fabric.machines[0], style);
}

}  // namespace fairway::render
