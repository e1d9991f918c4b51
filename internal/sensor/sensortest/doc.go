// Package sensortest is the suite that every sensor runs: programs that do what has fooled other recorders, and
// what must be in the record afterwards.
//
// # Using it
//
//	func TestSuite(t *testing.T) { sensortest.Run(t, harness{}) }
//
// where harness tells how a workload is put under observation. A sensor that watches a cgroup (bpf) makes one,
// starts the sensor with that cgroup as its [sensor.Target], starts the workload with SysProcAttr.UseCgroupFD, and
// waits until the cgroup is empty. A sensor that starts its processes (ptrace) starts the workload itself. Either
// hands its events to a [Collector], which copies them, and returns them with the sensor's last [bodycam.Health].
//
// # What is asserted
//
// Every case ends in one of two ways: the record holds exactly the true events (number, canonical path, name as
// given, arguments, errno, process identity, parent), or it holds an explicit mark that makes it incomplete. The
// second way has to be declared in [Traits.Blind], by the case's name: a sensor can't be blind by accident, and a
// case that is declared blind fails if the record looks complete. Nothing is skipped for what a sensor can't do;
// only what the machine refuses (an io_uring that is switched off, no second uid) is, with its reason.
//
// After every case the whole record is checked: counters balance and agree with the events
// delivered, nothing is lost, each process has one fork before its first event and one exit after its last, parents are
// those of the fork record, no two processes share an identity, times do not run backwards.
//
// # Where it runs
//
// The trigger programs are C, built with the machine's gcc into a temporary directory when the suite starts; a few
// cases are sh and Python. Each case has a fresh directory. All paths are absolute paths of the host, symlinks
// resolved; a harness that runs workloads inside a sandbox must show [Suite.Dir] under the same name there. The
// suite runs as root and as an ordinary user; DNS cases need port 53 of a loopback address, which an ordinary user gets from
// whoever started the test, as a file descriptor in BODYCAM_TEST_DNS_FD.
//
// Floods last [Traits.Flood] (a second by default; the ten seconds with BODYCAM_TEST_FLOOD=10s).
package sensortest
