#!/bin/bash
# digests.sh DIRECTORY
set -eu
sha256sum "$1"/* | sort -k2
