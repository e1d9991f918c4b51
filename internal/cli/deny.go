package cli

import (
	"fmt"

	"github.com/bodycam-dev/bodycam/rules"
)

// canDeny tells whether a rule can be kept by refusing.
func canDeny(r rules.Rule) error {
	return fmt.Errorf("not yet")
}
