package bpf

// The object and its Go binding are committed, so that building bodycam needs no clang. `go generate` makes the same
// bytes again, on any machine with the same clang: no path gets into the object.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -tags linux -target amd64 -cc clang-19 -strip llvm-strip-19 -type rec -type body -type opened -type flush -type mapped -type executed -type piece -type life -type net -type kind -type source -type act -type netop -type follow -cflags "-O2 -mcpu=v3 -Wall -Werror -Wno-unused-function" sensor src/sensor.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -tags linux -target amd64 -cc clang-19 -strip llvm-strip-19 -cflags "-DOLD -O2 -mcpu=v3 -Wall -Werror -Wno-unused-function" sensorOld src/sensor.bpf.c
