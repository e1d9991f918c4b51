package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// outlet hands alerts on in one way, in a goroutine of its own: what hangs holds up neither the judge nor another outlet.
type outlet struct {
	name     string
	give     func(*alertLine) error
	patience time.Duration // for what is left at the end
	lines    chan *alertLine
	ended    chan struct{}

	mu      sync.Mutex
	made    int   // alerts that were to be handed on
	handed  int   // of them, those that were
	dropped int   // and those that came faster than they could be
	failed  error // why the first could not be
}

// mostAlerts bounds what waits for an outlet. Alike calls are few alerts, so it takes very many different ones to come so far.
const mostAlerts = 16 << 10

func (o *outlet) start(most int) *outlet {
	o.lines, o.ended = make(chan *alertLine, most), make(chan struct{})
	go o.run()
	return o
}

// printing hands alerts on as lines.
func printing(to io.Writer, text bool, patience time.Duration) *outlet {
	return &outlet{name: "printing alerts", patience: patience, give: func(a *alertLine) error {
		line := alertText(a)
		if !text {
			b, err := json.Marshal(a)
			if err != nil {
				return err
			}
			line = append(b, '\n')
		}
		if _, err := to.Write(line); err != nil {
			return fmt.Errorf("printing alerts: %w", err)
		}
		return nil
	}}
}

// posting hands alerts on to a webhook. patience is for one try.
func posting(hook string, patience time.Duration) *outlet {
	client := &http.Client{Timeout: patience}
	return &outlet{name: "alert webhook", patience: 3 * patience, give: func(a *alertLine) error {
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		return post(client, hook, b)
	}}
}

// put takes in an alert, without waiting.
func (o *outlet) put(a *alertLine) {
	dropped := 0
	select {
	case o.lines <- a:
	default:
		dropped = 1
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made++
	o.dropped += dropped
}

func (o *outlet) run() {
	defer close(o.ended)
	for a := range o.lines {
		if err := o.give(a); err != nil {
			o.fail(err)
			continue
		}
		o.mu.Lock()
		o.handed++
		o.mu.Unlock()
	}
}

func (o *outlet) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
}

// close hands on what is left, and says what could not be.
func (o *outlet) close() error {
	close(o.lines)
	select {
	case <-o.ended:
	case <-time.After(o.patience):
		o.fail(errors.New(o.name + ": it took too long"))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	missed := o.made - o.handed
	switch {
	case missed == 0:
		return nil
	case o.failed == nil:
		return fmt.Errorf("%s: %d of %d alerts came faster than they could be handed on; all are in the findings", o.name, missed, o.made)
	case o.dropped > 0:
		return fmt.Errorf("%w; %d of %d alerts were not handed on, %d of them because they came faster than they could be; all are in the findings", o.failed, missed, o.made, o.dropped)
	}
	return fmt.Errorf("%w; %d of %d alerts were not handed on; all are in the findings", o.failed, missed, o.made)
}
