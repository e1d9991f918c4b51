package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bodycam-dev/bodycam/internal/trust/judge"
)

type labelledReply struct {
	Prompt string `json:"prompt"`
	Reply  string `json:"reply"`
	Class  string `json:"class"`
}

const (
	replyRidge = 80
	replySteps = 120
	replyDoubt = .5 // below this probability of the likeliest label, the judge abstains
)

func replySamples(l *judge.Local) ([]sample, []labelledReply, error) {
	raw, err := data.ReadFile("data/replies.jsonl")
	if err != nil {
		return nil, nil, err
	}
	var samples []sample
	var replies []labelledReply
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var r labelledReply
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, nil, fmt.Errorf("replies.jsonl, line %d: %w", i+1, err)
		}
		class := slices.Index(judge.Classes, r.Class)
		if class < 0 {
			return nil, nil, fmt.Errorf("replies.jsonl, line %d: no class %q", i+1, r.Class)
		}
		x, err := l.ReplyFeaturesOf(r.Prompt, r.Reply)
		if err != nil {
			return nil, nil, err
		}
		samples = append(samples, sample{x: x, class: class, weight: 1, group: r.Prompt, kind: r.Class})
		replies = append(replies, r)
	}
	return samples, replies, nil
}

func fitReply(h *judge.Heads, samples []sample) error {
	names, err := judge.ReplyFeatures()
	if err != nil {
		return err
	}
	h.Reply = regress(judge.Classes, names, samples, replyRidge, replySteps)
	h.ReplyDoubt = replyDoubt
	return nil
}

// validateReply prints how the head does on replies to prompts that it wasn't fitted to, in five folds.
func validateReply(l *judge.Local) error {
	samples, replies, err := replySamples(l)
	if err != nil {
		return err
	}
	fold, folds := map[string]int{}, 5
	for _, r := range replies {
		if _, ok := fold[r.Prompt]; !ok {
			fold[r.Prompt] = len(fold) % folds
		}
	}
	confusion := map[[2]string]int{}
	var all []said
	for f := range folds {
		var train []sample
		for _, s := range samples {
			if fold[s.group] != f {
				train = append(train, s)
			}
		}
		var h judge.Heads
		if err := fitReply(&h, train); err != nil {
			return err
		}
		for i, s := range samples {
			if fold[s.group] != f {
				continue
			}
			coarse := map[string]float64{}
			for c, p := range h.Reply.Predict(s.x) {
				coarse[judge.Coarse(judge.Classes[c])] += p
			}
			best := judge.Comply
			for _, k := range []string{judge.Refuse, judge.PartialRefusal} {
				if coarse[k] > coarse[best] {
					best = k
				}
			}
			want := judge.Coarse(s.kind)
			confusion[[2]string{want, best}]++
			all = append(all, said{coarse[best], best == want})
			if best != want {
				fmt.Printf("  %s, not %s (%.2f): %.100q\n", want, best, coarse[best], replies[i].Reply)
			}
		}
	}
	fmt.Printf("replies, 5 folds by prompt: accuracy %.3f, kappa %.3f\n", agreement(confusion), cohen(confusion))
	labels := []string{judge.Comply, judge.PartialRefusal, judge.Refuse}
	for _, a := range labels {
		fmt.Printf("  %-8s", a)
		for _, b := range labels {
			fmt.Printf(" %s %d", b, confusion[[2]string{a, b}])
		}
		fmt.Println()
	}
	reliability("replies", all)
	return nil
}

func agreement(confusion map[[2]string]int) float64 {
	right, n := 0, 0
	for k, v := range confusion {
		n += v
		if k[0] == k[1] {
			right += v
		}
	}
	return float64(right) / float64(n)
}

func cohen(confusion map[[2]string]int) float64 {
	rows, columns, n := map[string]float64{}, map[string]float64{}, 0.0
	for k, v := range confusion {
		rows[k[0]] += float64(v)
		columns[k[1]] += float64(v)
		n += float64(v)
	}
	chance := 0.0
	for k, v := range rows {
		chance += v * columns[k] / n / n
	}
	return (agreement(confusion) - chance) / (1 - chance)
}
