//go:build !nomodel

package minilm

import _ "embed"

//go:embed model.bin
var modelFile string
