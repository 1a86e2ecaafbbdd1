#pragma once

#include <string>
#include <string_view>

#include "fairway/status.h"

#include "predict/flow.h"
#include "topology/machine.h"

namespace fairway::predict {

// A machine and its use with the changes of --what-if; each argument changes one thing.
struct WhatIf {
  topology::Machine machine;
  Assumptions assumptions;
  Conditions conditions;
};

// One of:
//   qps=4  round-robin=yes  by=kernel|copy  legs=1  mtu=1024  ordering=relaxed|strict|unknown  cpu=spr  vm=yes|no
//   gpu3.link=4x16  nic0.link=5x8  gpus.link=4x16  nics.link=5x16   PCIe generation and width
//   nic0.rate=400  nics.rate=200                                    Gb/s of one port (one leg)
//   nic0.at=gpu5                                                    the NIC moves beside that GPU
// The error says what is wrong and which values are valid; `what` is then unchanged.
Status imagine(std::string_view word, WhatIf& what);

// The forms above, for help.
std::string_view what_if_help();

}  // namespace fairway::predict
