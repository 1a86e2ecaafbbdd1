#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace standin {

// A kernel of Fairway, executed by a CPU on the stand-in's memory.
struct Kernel {
  std::string_view name;
  // Copies the arguments, as a launch does, and returns the work. The work returns false when it touched memory that it
  // may not.
  std::function<bool()> (*bind)(int device, void** arguments);
};
const Kernel* find_kernel(std::string_view name);  // null: no such kernel
std::span<const Kernel> group_kernels();           // those of collectives

}  // namespace standin
