#!/bin/sh
tr -s "[:space:]-" "\n\n" < "$1" | grep -c .
