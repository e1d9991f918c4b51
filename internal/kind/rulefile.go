package kind

import (
	"fmt"

	"github.com/bodycam-dev/bodycam"
)

// RuleFile is a rule file with its content, so that a run can be judged again by the rules that it was started with.
type RuleFile struct {
	FileDigest
	Text string `json:"text,omitempty"` // escaped ([bodycam.Escape])
}

// mostRules bounds the size of a rule file, which is kept with each run.
const mostRules = 4 << 20

func readRules(name string) (RuleFile, error) {
	d, data, err := readDigest(name)
	if err != nil {
		return RuleFile{}, err
	}
	if len(data) > mostRules {
		return RuleFile{}, fmt.Errorf("%s: it has %d bytes, more than a rule file may (%d)", name, len(data), mostRules)
	}
	return RuleFile{d, bodycam.Escape(string(data))}, nil
}
