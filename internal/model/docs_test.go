package model

import (
	"os"
	"regexp"
	"testing"
)

// The scripts in the documentation are scripts.
func TestDocumentedScripts(t *testing.T) {
	doc, err := os.ReadFile("../../docs/MODEL.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(blocks) < 4 {
		t.Fatalf("%d scripts in docs/MODEL.md", len(blocks))
	}
	for _, b := range blocks {
		if _, err := Parse("docs/MODEL.md", b[1]); err != nil {
			t.Errorf("%v in\n%s", err, b[1])
		}
	}
	for _, key := range keys() {
		if !regexp.MustCompile("[`{ ,]" + key + "[`}, ]").Match(doc) {
			t.Errorf("docs/MODEL.md doesn't name the key %s", key)
		}
	}
}
