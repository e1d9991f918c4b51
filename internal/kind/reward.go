package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const maxReward = 1 << 20

// ErrNoReward says that the tests left no verdict: neither reward.txt nor reward.json. The run's outcome is an error of
// the tests, not a failure of the agent.
var ErrNoReward = errors.New("the tests left neither reward.txt nor reward.json")

// Reward is the verdict of a task's tests.
type Reward struct {
	Values map[string]float64 `json:"values"` // reward.txt's one number is called "reward"
	Source string             `json:"source"` // "reward.txt", "reward.json" or "exit"
}

// Value is the one number that stands for the verdict: "reward" where there is one, or the only one.
func (r Reward) Value() (v float64, ok bool) {
	if v, ok = r.Values["reward"]; ok || len(r.Values) != 1 {
		return v, ok
	}
	for _, v = range r.Values {
	}
	return v, true
}

// Passed tells whether the task is solved: the value, or where there are several without a "reward" among them all
// of them, is at least 1.
func (r Reward) Passed() bool {
	if v, ok := r.Value(); ok {
		return v >= 1
	}
	for _, v := range r.Values {
		if v < 1 {
			return false
		}
	}
	return len(r.Values) > 0
}

// ParseReward reads the verdict. text is reward.txt's content and beats js, reward.json's; nil means that there is
// no such file. Both nil is [ErrNoReward].
func ParseReward(text, js []byte) (Reward, error) {
	switch {
	case text != nil:
		return parseRewardText(text)
	case js != nil:
		return parseRewardJSON(js)
	}
	return Reward{}, ErrNoReward
}

func parseRewardText(b []byte) (Reward, error) {
	s := strings.TrimSpace(string(b[:min(len(b), maxReward)]))
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return Reward{}, fmt.Errorf("reward.txt holds %s: want one number", quote(s))
	}
	return Reward{Values: map[string]float64{"reward": v}, Source: "reward.txt"}, nil
}

func parseRewardJSON(b []byte) (Reward, error) {
	if len(b) > maxReward {
		return Reward{}, fmt.Errorf("reward.json has %d bytes: at most %d are read", len(b), maxReward)
	}
	var m map[string]*float64
	if err := json.Unmarshal(b, &m); err != nil {
		return Reward{}, fmt.Errorf("reading reward.json: want a map of names to numbers: %w", err)
	}
	r := Reward{Values: make(map[string]float64, len(m)), Source: "reward.json"}
	for k, v := range m {
		if v == nil {
			return Reward{}, fmt.Errorf("reward.json: %s is null: want a number", quote(k))
		}
		r.Values[k] = *v
	}
	if len(m) == 0 {
		return Reward{}, errors.New("reward.json names no reward")
	}
	return r, nil
}
