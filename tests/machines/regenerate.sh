#!/bin/sh
# Writes the recorded machines and their golden outputs anew: tests/machines/regenerate.sh BUILD-FOLDER [H20-FOLDER].
# H20-FOLDER holds the pasted outputs that h20.json stands on; without it h20.json stays as it is. Look at the diff.
set -e
folder=$(dirname "$0")
build=${1:?usage: regenerate.sh BUILD-FOLDER [H20-FOLDER]}
cmake --build "$build" --target write_machines
exec "$(find "$build" -name write_machines -type f | head -n 1)" "$folder" ${2:+"$2"}
