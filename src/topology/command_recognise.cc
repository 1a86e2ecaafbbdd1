#include <algorithm>

#include "topology/command_text.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

bool is_interface_state(std::string_view word) {
  constexpr std::string_view kStates[] = {"UP",         "DOWN",   "UNKNOWN", "DORMANT", "LOWERLAYERDOWN",
                                          "NOTPRESENT", "TESTING"};
  return std::find(std::begin(kStates), std::end(kStates), word) != std::end(kStates);
}

// "0000:2c:00.0 Ethernet controller: ..." or without the domain.
bool is_lspci_line(std::string_view line) {
  const auto words = text::words(line);
  return words.size() > 2 && BusId::parse(words[0]) && line.find(':', words[0].size()) != line.npos;
}

// "3: eth0: <BROADCAST,UP> mtu 1500"
bool is_ip_link_line(std::string_view line) {
  const auto words = text::words(line);
  return words.size() > 3 && words[0].ends_with(':') && text::to_u32(words[0].substr(0, words[0].size() - 1)) &&
         words[1].ends_with(':') && words[2].starts_with('<');
}

}  // namespace

CommandKind recognise_command(std::string_view content) {
  const auto head = content.substr(0, 64 * 1024);
  if (head.find("Channel Bonding Driver") != head.npos || head.find("Bonding Mode:") != head.npos) {
    return CommandKind::bonding;
  }
  if (head.find("hca_id:") != head.npos) return CommandKind::ibv_devinfo;
  if (head.find("==>") != head.npos && head.find(" port ") != head.npos) return CommandKind::ibdev2netdev;
  for (const auto line : text::lines(head)) {
    if (is_sysfs_link(line)) return CommandKind::sysfs_links;
    if (line.find("pci.bus_id") != line.npos && line.find(',') != line.npos) return CommandKind::gpu_query;
    if (is_ip_link_line(line)) return CommandKind::ip_link;
    if (is_lspci_line(line)) return CommandKind::lspci;
    const auto words = text::words(line);
    // A prompt or an escape may stand before the heading's first word.
    if (words.size() > 1 && line.find("GPU0") != line.npos && line.find("GPU0:") == line.npos) {
      return CommandKind::topo_matrix;
    }
    if (words.size() > 1 && is_interface_state(words[1])) return CommandKind::ip_brief;
  }
  return CommandKind::unknown;
}

}  // namespace fairway::topology
