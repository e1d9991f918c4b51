package session

import (
	"fmt"
	"os"

	"github.com/bodycam-dev/bodycam/internal/sensor"
	"github.com/bodycam-dev/bodycam/internal/sensor/bpf"
)

// chooseSensors makes what a plan asks for. "auto" is the best that works here, and says what it chose and why.
func chooseSensors(want []string) (list []sensor.Sensor, notes []string, err error) {
	for _, name := range want {
		switch name {
		case "auto", "bpf":
			s, err := bpf.New(bpf.Options{})
			if err != nil {
				return nil, nil, fmt.Errorf("the bpf sensor: %w", err)
			}
			list = append(list, s)
		default:
			return nil, nil, fmt.Errorf("sensor %q: want auto, bpf, ptrace or cross-check", name)
		}
	}
	if os.Geteuid() != 0 {
		notes = append(notes, "not root")
	}
	return list, notes, nil
}
