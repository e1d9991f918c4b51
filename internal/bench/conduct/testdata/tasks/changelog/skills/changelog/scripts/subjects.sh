#!/bin/sh
# subjects.sh REPOSITORY TAG
git -C "$1" log --reverse --format=%s "$2"..HEAD
