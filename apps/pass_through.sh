#!/bin/sh
# Hands every file of `in` on as it is: pass_through.sh [--watch]
# `in` and `out` are mounted apart: a file is copied under a hidden name, and a rename makes it appear in `out` whole.
set -eu
cd "${SOURCE_PATH:?}/${CLIENT_ID:?}"

# hand_on_file FILE FOLDER
hand_on_file() {
  name=${1##*/}
  cp "$1" "$2/.$name.part"
  mv "$2/.$name.part" "$2/$name"
  rm "$1"
  echo "handed on ${1#in/}"
}

hand_on() {
  for file in in/*; do
    if [ -f "$file" ]; then
      hand_on_file "$file" out
    elif [ -d "$file" ]; then
      # A sub-folder is named by the table of its files.
      mkdir -p "out/${file#in/}"
      for inner in "$file"/*; do
        [ -f "$inner" ] && hand_on_file "$inner" "out/${file#in/}"
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
