#include "wrong_header.h"
