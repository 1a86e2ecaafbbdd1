#pragma once

#include <string>
#include <string_view>

#include "topology/machine.h"

// Pasted outputs of commands, each recognised by content. Every reader takes what it understands, lists what
// contradicts earlier facts as a conflict, and invents nothing; `place` names the file in notes.
namespace fairway::topology {

enum class CommandKind : std::uint8_t {
  unknown,
  topo_matrix,
  lspci,
  ibv_devinfo,
  ibdev2netdev,
  ip_link,
  ip_brief,
  bonding,
};
CommandKind recognise_command(std::string_view content);

void read_lspci(std::string_view content, const std::string& place, Machine& machine);
void read_ibv_devinfo(std::string_view content, const std::string& place, Machine& machine);
void read_ibdev2netdev(std::string_view content, const std::string& place, Machine& machine);
void read_ip_link(std::string_view content, const std::string& place, Machine& machine);
void read_ip_brief(std::string_view content, const std::string& place, Machine& machine);

}  // namespace fairway::topology
