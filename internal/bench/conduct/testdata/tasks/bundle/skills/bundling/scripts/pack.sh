#!/bin/bash
# pack.sh OUTPUT DIRECTORY
set -eu
tar --sort=name --owner=0 --group=0 --mtime=@0 -czf "$1" "$2"
