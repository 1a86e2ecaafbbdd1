#pragma once

namespace CLI {
class App;
}
namespace fairway::tool {
class Tool;
}

namespace fairway::tool::soak::groups {

// Adds `fairway soak collectives`.
void add_collectives(Tool& tool, CLI::App& soak);

}  // namespace fairway::tool::soak::groups
