# cmake -DFROM=file -DTO=file -P embed.cmake: a text as a C++ raw string literal.
file(READ ${FROM} text)
file(WRITE ${TO} "R\"text(${text})text\"\n")
