// Package demo holds the example task that `make demo` records, and the test that it shows what it should.
package demo
