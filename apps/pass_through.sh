#!/bin/sh
# Hands every file of `in` on as it is: pass_through.sh [--watch]
# A rename within {SOURCE_PATH}/{CLIENT_ID} makes a file appear in `out` whole.
set -eu
cd "${SOURCE_PATH:?}/${CLIENT_ID:?}"

hand_on() {
  for file in in/*; do
    if [ -f "$file" ]; then
      mv "$file" out/
      echo "handed on ${file#in/}"
    elif [ -d "$file" ]; then
      # A sub-folder is named by the table of its files.
      mkdir -p "out/${file#in/}"
      for inner in "$file"/*; do
        [ -f "$inner" ] && mv "$inner" "out/${file#in/}/" && echo "handed on ${inner#in/}"
      done
    fi
  done
}

trap 'exit 0' TERM INT
hand_on
while [ "${1:-}" = --watch ]; do
  sleep 0.2
  hand_on
done
