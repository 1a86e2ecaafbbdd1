#pragma once

#include <functional>
#include <string_view>

namespace standin {

// What a kernel of Fairway's does, by a CPU and with the stand-in's memory.
struct Kernel {
  std::string_view name;
  // Takes the arguments along, as a launch does. The work: false, it touched what it may not.
  std::function<bool()> (*bind)(int device, void** arguments);
};
const Kernel* find_kernel(std::string_view name);  // null: none such

}  // namespace standin
