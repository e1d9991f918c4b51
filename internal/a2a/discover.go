package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/bodycam-dev/bodycam"
)

// The well-known paths, new and old.
const (
	CardPath    = "/.well-known/agent-card.json"
	CardPathOld = "/.well-known/agent.json"
)

// Fetched is a card with the way it was asked for.
type Fetched struct {
	*Card
	URL string
}

// Discover finds the card of a target: the URL of a card itself, or of an agent whose well-known paths are tried, at the
// URL's own path first and then at its host's root. header goes along: A2A-Version, credentials.
func Discover(ctx context.Context, client *http.Client, target string, header http.Header) (*Fetched, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no http or https URL of an agent or its card", target)
	}
	if strings.HasSuffix(u.Path, ".json") {
		return fetch(ctx, client, u, header)
	}
	base := strings.TrimSuffix(u.Path, "/")
	var errs []error
	tried := map[string]bool{}
	for _, p := range []string{base + CardPath, CardPath, base + CardPathOld, CardPathOld, u.Path} {
		at := *u
		at.Path, at.RawPath = p, ""
		if p == "" || tried[p] {
			continue
		}
		tried[p] = true
		f, err := fetch(ctx, client, &at, header)
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		switch path.Base(p) {
		case path.Base(CardPath):
		case path.Base(CardPathOld):
			f.deviate("$", ruleDiscovery, "the card is served at the path of version 0.2 only: "+CardPathOld, bodycam.Low)
		default:
			f.deviate("$", ruleDiscovery, "the card is not served at a well-known path", bodycam.Low)
		}
		return f, nil
	}
	return nil, fmt.Errorf("finding the agent card of %s: %w", target, errors.Join(errs...))
}

func fetch(ctx context.Context, client *http.Client, u *url.URL, header http.Header) (*Fetched, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, header)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxCard+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", u, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %w", u, &HTTPError{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")})
	}
	at := u
	if resp.Request != nil {
		at = resp.Request.URL
	}
	c, err := ParseCard(data, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return &Fetched{c, at.String()}, nil
}
