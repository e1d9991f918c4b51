package security

import (
	"sync"

	"github.com/bodycam-dev/bodycam/rules"
)

var loadNothing = rules.Options{}

// testSet compiles the built-in rules once for all tests.
var testSet = sync.OnceValue(func() *rules.Set {
	set, err := Load(testPolicy(), loadNothing)
	if err != nil {
		panic(err)
	}
	return set
})
