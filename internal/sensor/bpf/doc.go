// Package bpf is the sensor that watches a cgroup with eBPF.
package bpf
