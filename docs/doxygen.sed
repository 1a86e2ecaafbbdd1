# A header's plain comments as Doxygen's: those on lines of their own describe what follows, those behind code what is before them.
/^ *(\/\/|\/\*) ----/d
s|^/\* (Fairway's C ABI.*)$|/** @file\n * \1|
s|^( *)/\* |\1/** |
s|^( *)// ?(.*)$|\1/// \2|
s|([;,{}a-z0-9]) +// (.*)$|\1 ///< \2|
s|([;,{}]) +/\* (.*)\*/$|\1 /**< \2*/|
