#pragma once

#include "soak_play.h"

namespace fairway::tool::soak {

// What an end says, or does not say, against what was done in the round. Empty: it may be so.
std::string unexpected(const Round& round, const Step& step, const Ended& ended);

// How a step of a process that was killed ended: nobody says.
Ended of_the_dead();

// Once everybody's steps have ended: all that must still come has come.
bool settled(const Play& play);
// Says by play.wrong() what is not as promised, in the memories, the words and the counters of this process. Takes some
// 20 ms, as what comes late is to be seen.
Status conclude(Play& play);

}  // namespace fairway::tool::soak
