package kind

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A stranger's file must not cost more than moments, whatever it is made of.
func TestHostileFilesAreBounded(t *testing.T) {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	type files struct{ toml, docker, yaml string }
	for name, f := range map[string]files{
		"toml: dotted key":            {toml: strings.Repeat("a.", 400_000) + "a=1"},
		"toml: dotted table":          {toml: "[" + strings.Repeat("a.", 400_000) + "a]\n"},
		"toml: inline tables":         {toml: "a=" + strings.Repeat("{a=", 100_000)},
		"toml: arrays":                {toml: "a=" + strings.Repeat("[", 900_000)},
		"toml: keys":                  {toml: many("k%d=1\n", 60_000)},
		"toml: most keys":             {toml: many("k%d=1\n", maxLines)},
		"yaml: keys":                  {yaml: "name: x\nx:\n" + many(" k%d: 1\n", 60_000)},
		"yaml: most keys":             {yaml: "name: x\nx:\n" + many(" k%d: 1\n", maxLines-2)},
		"yaml: flow map":              {yaml: "name: x\nx: {" + many("k%d: 1,", 80_000) + "}"},
		"yaml: brackets":              {yaml: strings.Repeat("[", 900_000)},
		"yaml: dashes":                {yaml: strings.Repeat("- ", 400_000)},
		"yaml: anchors":               {yaml: strings.Repeat("&a ", 300_000)},
		"yaml: question marks":        {yaml: strings.Repeat("? ", 400_000)},
		"dockerfile: instructions":    {docker: "FROM x\n" + strings.Repeat("RUN a\n", 150_000)},
		"dockerfile: variables":       {docker: "FROM x\n" + many("ENV k%d=1\n", 1900)},
		"dockerfile: doubling":        {docker: "FROM x\nENV A=aaaaaaaaaaaaaaaa\n" + strings.Repeat("ENV A=$A$A\n", 60)},
		"dockerfile: stages":          {docker: many("FROM a%d AS b\n", 60_000)},
		"dockerfile: chain of stages": {docker: "FROM x AS a0\n" + chainOfStages(1900)},
		"dockerfile: copies":          {docker: "FROM x\n" + strings.Repeat("COPY . /x\n", 1900)},
		"dockerfile: here-documents":  {docker: "FROM x\nRUN " + strings.Repeat("<<A ", 200_000) + "\nA\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := map[string]string{"instruction.md": "x", "task.toml": f.toml, "environment/Dockerfile": "FROM x\n" + f.docker, "k.yaml": "name: x\n"}
			if f.docker != "" {
				tree["environment/Dockerfile"] = f.docker
			}
			if f.yaml != "" {
				tree["k.yaml"] = f.yaml
			}
			dir := writeTree(t, tree)
			start := time.Now()
			k, err := Load(dir + "/k.yaml")
			if err == nil {
				var task *Task
				if task, err = LoadTask(dir); err == nil {
					_, err = Resolve(k, task, Overrides{Command: []string{"x"}})
				}
			}
			// Two orders of magnitude above what it takes: this is about squares and worse, not about speed.
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("it took %v (%.100v)", took, err)
			}
		})
	}
}

func chainOfStages(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "FROM a%d AS a%d\n", i, i+1)
	}
	return b.String()
}
