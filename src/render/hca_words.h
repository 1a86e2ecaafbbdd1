#pragma once

#include <string_view>

namespace fairway::render {

// What an attribute of an RDMA device or port means, for readers who do not know the InfiniBand specification, and
// which limit it sets for Fairway (empty: none).
struct AttributeWords {
  std::string_view name;  // as `ibv_devinfo -v` prints it
  std::string_view meaning;
  std::string_view limit;
};

// Null if the name is not in the table.
const AttributeWords* find_attribute_words(std::string_view name);

}  // namespace fairway::render
