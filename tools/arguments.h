#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "fairway/status.h"

#include "help.h"

// Arguments that every command reads the same way: sizes, names of a closed set, lists of either, paths (--via) and
// memories (--local, --remote), recorded machines (--from).
namespace fairway::tool {

// Bytes: "8", "4K", "4KiB" (both 4096), "4KB" (4000), "1.5M", "1T"; upper or lower case. K, M, G, T and P are powers of
// 1024, with B behind them powers of 1000. The error quotes what was typed.
Result<std::uint64_t> parse_size(std::string_view text);

struct SizeLimits {
  std::uint64_t least = 1;
  std::uint64_t most = std::uint64_t{1} << 50;
};
// An option of one size, and of a list of them: "8,4K,1M".
CLI::Option* add_size(CLI::App& command, const std::string& name, std::uint64_t& size, const std::string& sentence,
                      SizeLimits limits = {});
CLI::Option* add_sizes(CLI::App& command, const std::string& name, std::vector<std::uint64_t>& sizes,
                       const std::string& sentence, SizeLimits limits = {});

// A list of any words: "a,b", or the option several times. It takes one argument. `item` checks each word; an empty one
// ("a,,b", "a,") is an error, here as in all lists.
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                      const std::string& sentence, const CLI::Validator& item = {});
// A list without an option: "a,b" or "a b".
CLI::Option* add_arguments(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                           const std::string& sentence, const CLI::Validator& item = {});
// A list of words of a closed set.
CLI::Option* add_names(CLI::App& command, const std::string& name, std::vector<std::string>& names,
                       const std::string& sentence, const std::vector<std::string>& known);
// One of these; the error lists them and suggests the nearest.
CLI::Validator one_of(const std::vector<std::string>& known);

// --via: transports, each also as staged:TRANSPORT, and fabric as fabric:PROVIDER. With `paths` also the paths of GPU
// memory that bench can force: nvlink, pcie, ipc, fd.
enum class Via : std::uint8_t { transports, paths };
CLI::Option* add_via(CLI::App& command, std::vector<std::string>& via, const std::string& sentence, Via what);
CLI::Validator via_word(Via what);

// A memory by name, as tools/bench/memory.h has them.
CLI::Validator memory_name();
inline constexpr const char* kMemoryNames =
    "host, host:numaN, shared, pinned, gpu:N, gpu:N:mapped, gpu:N:locked, gpu:N:managed";
// An option as it was called: refused with the name that it has now.
void was_called(CLI::App& command, const char* old, const std::string& now);
void add_memories(CLI::App& command, std::string& local, std::string& remote);  // --local, --remote
// --from: a recorded machine, from which expected rates are computed. What `snapshot_of()` gives is what engines read.
void add_recorded_machine(CLI::App& command, std::string& from, const std::string& sentence = {});

// An option, or several words, that name files.
template <class Names>
CLI::Option* add_file(CLI::App& command, const std::string& name, Names& file, const std::string& sentence) {
  return command.add_option(name, file, sentence)->type_name("FILE")->check(no_empty_name());
}

// A number within limits; "nan" is none.
CLI::Validator number_in(double least, double most);

// HOST:PORT.
CLI::Validator host_and_port();
// A peer's address, or a name if there is a directory. Empty is ok. The error suggests a command below `command` if the
// word is near one.
Status check_address(const std::string& address, const std::string& directory, const CLI::App& command);

}  // namespace fairway::tool
