# cmake -DFROM=file -DNAMESPACE=name -DFUNCTION=name -DTO=file.cc -P embed.cmake: a C++ source whose function gives the file's
# text.
file(READ ${FROM} text)
file(WRITE ${TO} "namespace ${NAMESPACE} {\nconst char* ${FUNCTION}() {\n  static constexpr char kText[] = R\"text(${text})text\";\n  return kText;\n}\n}\n")
